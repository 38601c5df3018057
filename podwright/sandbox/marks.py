"""The call of a script with a mark in the place of each value that a user fills in.

The script runs once with the values and once with marks. Where the words are the same but for the marks, nothing more is asked. Else each
mark is tried alone: a value that decides what is launched is named, and the marked words that the true call has too take their place.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from podwright.recipe.maxtext.imported import OpenValue

_MOST_WORDS = 4000  # that are compared with each other
MARKS = "\ue000", "\ue001"
Run = Callable[[Mapping[str, str], int], tuple[str, ...] | None]
"""from values by name of the script and a variant of the machine to the words of the call; None where there is none"""


class DiffersByMachine(Exception):
    """What it says is a part of the call that the next run, or another machine, has otherwise."""


@dataclass(frozen=True)
class MarkedCall:
    argv: tuple[str, ...]
    deciding: tuple[OpenValue, ...] = ()


def mark(name: str) -> str:
    """The text in place of the value of the recipe's variable `name`."""
    return f"{MARKS[0]}{name}{MARKS[1]}"


def read(
    run: Run,
    argv: tuple[str, ...],
    names: Mapping[str, str],
    values: Mapping[str, str],
    turned: Callable[[str], tuple[str, ...] | None],
) -> MarkedCall:
    """The marked form of `argv`, the call that bash makes. DiffersByMachine where another machine makes another one.

    `names`: of the script -> of the recipe. `values`: by name of the recipe. `turned`: the call where tests of one of `names` turn out the
    other way.
    """
    marks = {name: mark(canonical) for name, canonical in names.items()}

    def plain(words: tuple[str, ...]) -> tuple[str, ...]:
        pattern = f"{MARKS[0]}(.*?){MARKS[1]}"
        return tuple(re.sub(pattern, lambda m: values.get(m[1], ""), word) for word in words)

    def deciding(names_: Iterable[str]) -> tuple[OpenValue, ...]:
        others = (name for name in names if name in names_ or (turned(name) or argv) != argv)
        return tuple(OpenValue(name, values.get(names[name], "")) for name in others)

    marked = run(marks, 1)
    _require_same(argv, run({}, 1))
    if marked and plain(marked) == argv:
        return MarkedCall(marked, deciding(()))
    alone = {name: run({name: each}, 1) for name, each in marks.items()}
    # A value with which the script ends before its call is one that its user must not type.
    going_on = {name: plain(words) == argv for name, words in alone.items() if words}
    marked = run({name: marks[name] for name in going_on}, 1)
    marked = marked or run({name: marks[name] for name, same in going_on.items() if same}, 1) or argv
    return MarkedCall(_merged(argv, marked, plain), deciding({name for name, same in going_on.items() if not same}))


def _require_same(argv: tuple[str, ...], other: tuple[str, ...] | None) -> None:
    if other == argv:
        return
    differing = [pair for pair in zip(argv, other or (), strict=False) if pair[0] != pair[1]]
    ours, theirs = differing[0] if differing else ("the call", "")
    pairs = enumerate(zip(ours, theirs, strict=False))
    first = next((number for number, (a, b) in pairs if a != b), 0)
    raise DiffersByMachine(ours[max(0, first - 20) :][:60])


def _merged(
    argv: tuple[str, ...], marked: tuple[str, ...], plain: Callable[[tuple[str, ...]], tuple[str, ...]]
) -> tuple[str, ...]:
    """`argv` with the words of `marked` wherever these are the same but for marks."""
    words, others = (re.findall(r"\0|\s+|[^\s\0]+\s*", "\0".join(call)) for call in (argv, marked))
    if len(words) > _MOST_WORDS:
        return argv
    matcher = difflib.SequenceMatcher(None, words, plain(tuple(others)), autojunk=False)
    for ours, theirs, number in matcher.get_matching_blocks():
        words[ours : ours + number] = others[theirs : theirs + number]
    return tuple("".join(words).split("\0"))
