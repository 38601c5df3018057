"""What a line may hold that Phase 1 learns from: a text, a picture, a sound, a video, of which any two make a pair.

Both halves read it: the plan and `podwright data check` judge by it, training reads by it.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

from podwright.errors import UserError, counted
from podwright.recipe.answers import MEDIA, FieldFault, shown
from podwright.recipe.conversions import to_pairs
from podwright.recipe.text_lines import distinct, is_encodable

FIELDS = ("text", *MEDIA)
EXAMPLE = '{"text": "a cat purrs", "audio": "purr.wav"}'
LEAST_HELD_OUT = 2
"""lines, because retrieval among fewer is always right"""
_MOST_HELD_OUT = 200


def given(line: dict[str, Any]) -> dict[str, Any]:
    """The fields that a line has; null and the empty text are as good as nothing. Other keys are somebody else's."""
    return {field: line[field] for field in FIELDS if line.get(field) not in (None, "")}


def num_held_out(lines: int, num_test: int) -> int:
    """Of the lines of a file without a val.jsonl beside it: the last ones, a tenth where `num_test` does not say."""
    return num_test or min(_MOST_HELD_OUT, max(1, lines // 10))


def content_of(line: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Equal of two lines that have the same text or instruction, and name the same files; of annotated lines too."""
    texts = {f: v for f in ("instruction", *FIELDS) if isinstance(v := line.get(f), str) and v}
    return tuple((f, str(Path(v)) if f in MEDIA else v) for f, v in texts.items())


def repeated(path: Path, lines: Sequence[Hashable]) -> tuple[str, str] | None:
    """What is wrong with a file whose `lines`, each as `content_of` has it, are not all different, and what to type."""
    if not (number := len(lines) - len(set(lines))):
        return None
    verb = "repeats" if number == 1 else "repeat"
    what = f"{counted(number, 'line')} of {path.name} {verb} an earlier line: in a batch with both, a negative is equal to the positive"
    return what, distinct(str(path))


def none_left(source: str, lines: int, least: int) -> UserError:
    """Of a file all of whose lines would be held out; each part needs at least `least`."""
    what = f"data.source={source} has {counted(lines, 'line')} that can be used, which leaves none to train on"
    if lines < 2 * least:
        return UserError(what, f"give a file with at least {2 * least} lines")
    return UserError(what, f"type data.num_test={max(least, lines // 10)}")


def empty(path: Path) -> tuple[str, str]:
    """What is wrong with a file without a line, and what to do; one that is held out may also be removed."""
    fix = "give a file of lines"
    if path.name == "val.jsonl":
        fix = f"fill it, or type {shlex.join(['rm', str(path)])}: the last lines of train.jsonl are held out then"
    return f"{path} is empty", fix


def nothing_to_pair(path: Path, row: Any) -> tuple[str, str]:
    """What is wrong with a file of which no line makes a pair, `row` among them, and what to type."""
    what = f"no line of {path} has two of {', '.join(FIELDS)}, so there is no pair to train on"
    return what, to_pairs(str(path), row) or f"give lines such as {EXAMPLE}"


def alone(fields: Collection[str]) -> bool:
    """Whether there is nothing to pair with, as far as names can tell; a video may bring its sound."""
    return len(fields) < 2 and "video" not in fields


def line_faults(line: Any) -> Iterator[FieldFault]:
    """What is wrong with one parsed line, without looking at its media."""
    if not isinstance(line, dict):
        yield "line", f"{shown(line)} is not an object"
        return
    contents = given(line)
    if not contents:
        yield "line", f"has none of {', '.join(FIELDS)}"
    for field, value in contents.items():
        if not isinstance(value, str) or not value.strip():
            yield field, f"{shown(value)} is not a {'text' if field == 'text' else 'path'}"
        elif not is_encodable(value):
            yield field, f"{shown(value)} holds half a character (a lone surrogate)"
