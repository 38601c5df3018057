"""What a line may hold that Phase 1 learns from: a text, a picture, a sound, a video, of which any two make a pair.

Both halves read it: the plan and `podwright data check` judge by it, training reads by it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from podwright.recipe.answers import MEDIA, FieldFault, shown

FIELDS = ("text", *MEDIA)
_MOST_HELD_OUT = 200


def given(line: dict[str, Any]) -> dict[str, Any]:
    """The fields that a line has; null and the empty text are as good as nothing. Other keys are somebody else's."""
    return {field: line[field] for field in FIELDS if line.get(field) not in (None, "")}


def num_held_out(lines: int, num_test: int) -> int:
    """Of the lines of a file without a val.jsonl beside it: the last ones, a tenth where `num_test` does not say."""
    return num_test or min(_MOST_HELD_OUT, max(1, lines // 10))


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
        elif any("\ud800" <= c <= "\udfff" for c in value):
            yield field, f"{shown(value)} holds half a character"
