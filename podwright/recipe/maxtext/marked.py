"""The call of xpk with a mark in place of each value that a user fills in, taken along the branches that bash takes.

Conditions see what bash has, and words the marks. So with its values in place of the marks the call is the one that bash makes. Where the
script changes the text of such a value, a mark would not follow: that variable keeps its value. A call that a condition on an open value
changes is compared with that of the other way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from podwright.errors import UserError
from podwright.recipe.maxtext.bash.syntax import UnreadableScript
from podwright.recipe.maxtext.pod import ContainerCommand
from podwright.recipe.maxtext.script import ScriptReading

MARKS = "\ue000", "\ue001"
Reader = Callable[[Mapping[str, str], Mapping[str, str | None], bool], ScriptReading]
"""from marks by name of the script, their stand-ins and `other_way` to a reading, as script.read has them"""


@dataclass(frozen=True)
class OpenValue:
    """A value that the recipe would leave open, and that decides what is launched."""

    name: str
    """of the script"""
    value: str
    """that the words of the recipe belong to"""
    line: int
    """of the first condition on it; 0 where the script changes its text"""


@dataclass(frozen=True)
class MarkedCall:
    argv: tuple[str, ...]
    deciding: tuple[OpenValue, ...] = ()


def mark(name: str) -> str:
    """The text in place of the value of the recipe's variable `name`."""
    return f"{MARKS[0]}{name}{MARKS[1]}"


def read(
    reader: Reader, argv: tuple[str, ...], names: Mapping[str, str], values: Mapping[str, str | None]
) -> MarkedCall:
    """The marked form of `argv`, the call that bash makes. UserError for a script that cannot be read.

    `names`: of the script -> of the recipe. `values`: by name of the recipe; None where nobody sets it.
    """
    stand_ins = {mark(canonical): values.get(canonical) for canonical in names.values()}
    kept = dict(names)
    reading = _agreeing(reader, argv, kept, stand_ins)
    changed = list[OpenValue]()
    if reading is None:
        kept = {}
        for name, canonical in names.items():
            if _agreeing(reader, argv, {**kept, name: canonical}, stand_ins) is None:
                changed.append(OpenValue(name, values.get(canonical) or "", 0))
            else:
                kept[name] = canonical
        reading = _agreeing(reader, argv, kept, stand_ins)
    assert reading is not None  # without marks it is the call itself
    of_script = {mark(canonical): name for name, canonical in kept.items()}
    if reading.decided and _other_differs(reader, reading, kept, stand_ins):
        changed += [OpenValue(of_script[m], stand_ins[m] or "", line) for m, line in reading.decided.items()]
    return MarkedCall(reading.call.argv, tuple(changed))


def container(
    split: Callable[[Mapping[str, str | None], bool], ContainerCommand],
    names: Mapping[str, str],
    values: Mapping[str, str | None],
) -> tuple[ContainerCommand, tuple[OpenValue, ...]]:
    """The parts of a training script in whose text marks stand, and what decides them. `names`, `values`: as above."""
    stand_ins = {mark(canonical): values.get(canonical) for canonical in names.values()}
    command = split(stand_ins, False)
    of_script = {mark(canonical): name for name, canonical in names.items()}
    deciding = tuple(OpenValue(of_script[m], stand_ins[m] or "", line) for m, line in command.decided.items())
    try:
        same = not deciding or split(stand_ins, True) == command
    except UserError:
        same = False
    return command, () if same else deciding


def _agreeing(
    reader: Reader, argv: tuple[str, ...], names: Mapping[str, str], stand_ins: Mapping[str, str | None]
) -> ScriptReading | None:
    """A reading with marks for `names`; None where the call is not `argv` with its values in place of the marks."""
    try:
        reading = reader({name: mark(canonical) for name, canonical in names.items()}, stand_ins, False)
    except UserError:
        if not names:
            raise
        return None
    written = tuple(
        re.sub(f"{MARKS[0]}.*?{MARKS[1]}", lambda m: stand_ins.get(m[0]) or "", w) for w in reading.call.argv
    )
    return reading if written == argv else None


def _other_differs(
    reader: Reader, reading: ScriptReading, names: Mapping[str, str], stand_ins: Mapping[str, str | None]
) -> bool:
    """Whether the script makes another call where its conditions on marked values turn out otherwise; to end before is none."""
    try:
        other = reader({name: mark(canonical) for name, canonical in names.items()}, stand_ins, True)
    except UserError as e:
        return isinstance(e.__cause__, UnreadableScript)
    return other.call.argv != reading.call.argv
