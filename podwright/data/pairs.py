"""Lines that Phase 1 learns from: a text, a picture, a sound, a video, of which any two make a pair. What a file holds is decided in media.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from podwright.data import layouts
from podwright.data.layouts import NO_COLUMNS, Columns
from podwright.data.line_files import LineReader, Row
from podwright.recipe.answers import MEDIA, FieldFault, shown
from podwright.recipe.text_lines import is_encodable

FIELDS = ("text", *MEDIA)


@dataclasses.dataclass(frozen=True)
class Pair:
    """A valid line."""

    line: int
    contents: dict[str, Path | str]
    """field -> its file; of `text` the text itself"""

    @property
    def paths(self) -> dict[str, Path]:
        return {field: content for field, content in self.contents.items() if isinstance(content, Path)}

    @property
    def identity(self) -> tuple[tuple[str, str], ...]:
        return tuple((field, str(content)) for field, content in self.contents.items())


def reader(root: str = "", columns: Columns = NO_COLUMNS) -> LineReader[Pair]:
    return LineReader(_fields, _faults, _pair, root, columns)


def is_pair(row: Row) -> bool:
    """Whether a row is meant for Phase 1: by the names of two fields."""
    return (
        not {"instruction", "response"} & row.keys() and sum(field in layouts.with_files(row) for field in FIELDS) > 1
    )


def alone(fields: Collection[str]) -> bool:
    """Whether there is nothing to pair with, as far as names can tell; a video may bring its sound."""
    return len(fields) < 2 and "video" not in fields


def modalities(lines: Iterable[Pair]) -> list[str]:
    """Those that lines name, in their order: a video may bring pictures and sound."""
    fields = {field for line in lines for field in line.contents}
    return [m for m in ("text", "image", "audio") if m in fields or (m != "text" and "video" in fields)]


def _fields(where: str, row: Row) -> dict[str, Any]:
    """The fields that a row has; null and the empty text are as good as nothing. Other keys are somebody else's."""
    named = {field: value for field in FIELDS if (value := row.get(field)) not in (None, "")}
    if not alone(named):
        return named
    return {
        field: value for field, value in layouts.with_files(row).items() if field in FIELDS and value not in (None, "")
    }


def _faults(fields: Mapping[str, Any]) -> Iterator[FieldFault]:
    if not fields:
        yield "line", f"has none of {', '.join(FIELDS)}"
    for field, value in fields.items():
        if not isinstance(value, str) or not value.strip():
            yield field, f"{shown(value)} is not a {'text' if field == 'text' else 'path'}"
        elif not is_encodable(value):
            yield field, f"{shown(value)} holds half a character (a lone surrogate)"


def _pair(number: int, folder: Path, fields: dict[str, Any]) -> Pair:
    return Pair(number, {field: value if field == "text" else folder / value for field, value in fields.items()})
