"""Files of the lines that Phase 1 and Phase 2 read: which files a source has, and which of their lines are valid.

A trainer and `podwright data check` read every line, a plan those of a small file and a sample of a large one.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from podwright.data import example_files, layouts, rows
from podwright.data.example_files import ExampleFiles
from podwright.data.layouts import Columns
from podwright.errors import UserError, counted
from podwright.recipe.answers import FieldFault
from podwright.recipe.paths import media_folder, missing, require_file, require_file_or_directory
from podwright.rundir import part_of

Record = dict[str, Any]
Row = Mapping[str, Any]
_TABLES = (".csv", ".tsv", ".parquet", ".arrow")
DRAWN = "type data.source=drawn data.num_train=2000 data.num_test=200"


class ValidLine(Protocol):
    """One line of a file that can be used."""

    @property
    def line(self) -> int: ...

    @property
    def paths(self) -> Mapping[str, Path]:
        """Its files, by image, audio or video."""
        ...

    @property
    def identity(self) -> Hashable:
        """Equal of two lines with the same text or instruction and the same files."""
        ...


T = TypeVar("T", bound=ValidLine)


@dataclasses.dataclass(frozen=True)
class LineReader(Generic[T]):
    """How the rows of a kind of lines are read."""

    fields: Callable[[str, Row], dict[str, Any]]
    """of a row at a place, whatever its layout"""
    faults: Callable[[dict[str, Any]], Iterator[FieldFault]]
    example: Callable[[int, Path, dict[str, Any]], T]
    """of the number of a line, the folder of its files, its fields"""
    root: str = ""
    """folder that paths are relative to; "": that of their file"""
    columns: Columns = dataclasses.field(default_factory=dict)
    repeats: Callable[[T, T], str] = lambda _, __: ""
    """what is wrong with a line that asks what an earlier one asks"""


class LineFile(NamedTuple, Generic[T]):
    path: Path
    good: list[T]
    faults: list[Record]
    total: int
    """lines; an estimate unless `complete`"""
    complete: bool
    """whether every line was read"""
    num_read: int


def files(source: str, path: Path) -> list[Path]:
    """A file of lines, or that of training and perhaps the held-out one of a directory; UserError where they are not there."""
    if not os.path.lexists(path):
        fault = missing("data.source", source, Path())
        raise UserError(
            fault.what, fault.fix if "did you mean" in fault.fix else f"{fault.fix}, or {DRAWN}", "no-such-file"
        )
    require_file_or_directory(f"data.source={source}", path)
    if path.is_file():
        return [path]
    parts = [part(path, name) for name in ("train", "val")]
    if not parts[0]:
        raise UserError(
            f"data.source={source} has no train.jsonl", "name a directory that does, or a file", "no-such-file"
        )
    return [listed[0] for listed in parts if listed]


def part(folder: Path, name: str) -> list[Path]:
    """The files of the part `train` or `val` of a directory, the first of which is read."""
    return example_files.of_split(folder, name, (".parquet",))


def unread(path: Path) -> tuple[str, str] | None:
    """What is wrong with a directory that holds more files of these names than are read, and what to do."""
    train, val = (part(path, name) for name in ("train", "val"))
    return example_files.unread(ExampleFiles((*train[:1],), (*val[:1],), (*train[1:], *val[1:])))


def read(path: Path, reader: LineReader[T], sampled: bool = False) -> LineFile[T]:
    """The valid lines of a file and the faults of the others, media not opened; UserError of what is no file of rows.

    `sampled`: of a large file both ends and a sample.
    """
    require_file(str(path), path)
    folder = media_folder(path, reader.root)
    is_table = rows.container(path) in _TABLES
    names = layouts.names_of_lines(reader.columns)
    sample = rows.sampled(path, names) if sampled else None
    complete = sample is None or sample.complete
    file: LineFile[T] = LineFile(path, [], [], 0, complete, 0)
    before: dict[Hashable, T] = {}
    num_read = 0
    absent = set(reader.columns)
    last: Row = {}
    for where, row in sample.rows if sample else rows.rows_and_faults(path, names):
        num_read += 1
        label, number = _place(path, where)
        try:
            last = rows.required(row)
            given = layouts.by_columns(last, reader.columns)
            absent = {field for field in absent if field not in given}
            if is_table:  # which has every column in every row
                given = {name: value for name, value in given.items() if value not in (None, "")}
            fields = reader.fields(where, given)
        except UserError as e:
            file.faults.append(fault(number, None, e.code, f"{label}: {e.what.removeprefix(where).lstrip(': ')}"))
            continue
        problems = list(reader.faults(fields))
        if not problems:
            line = reader.example(number, folder, fields)
            earlier = before.setdefault(line.identity, line)
            # pieces of a large file may overlap, so that a line is read twice
            repeated = reader.repeats(line, earlier) if complete and earlier is not line else ""
            problems = [("line", repeated)] if repeated else []
        if problems:
            file.faults.extend(
                fault(number, field, "bad-line", f"{label}: {field} {message}") for field, message in problems
            )
        else:
            file.good.append(line)
    if complete and last:
        layouts.require_columns(path, last, [reader.columns[field] for field in absent])
    return file._replace(total=sample.total if sample else num_read, num_read=num_read)


def require_good(file: LineFile[T], options: str = "") -> LineFile[T]:
    """UserError where a line is bad, or there is none. `options` of the verb that lists all that is wrong."""
    if file.faults:
        lines = len({fault["line"] for fault in file.faults})
        what = f"{file.path} has {counted(lines, 'bad line')}, such as {file.faults[0]['message']}"
        fix = f"type podwright data check {file.path} --fix{options}"
        raise UserError(what, fix if file.good else layouts.NO_GOOD_LINE, "bad-lines")
    if not file.total:
        held_out = file.path.name.startswith("val.")
        fix = "fill or remove it: the last lines of training are held out then" if held_out else "give a file of lines"
        raise UserError(f"{file.path} is empty", fix, "no-lines")
    return file


def fault(line: int, field: str | None, code: str, message: str) -> Record:
    return {"line": line, "field": field, "code": code, "message": message}


def write_good(file: LineFile[T]) -> Path:
    """The rows of the good lines, in a file beside theirs: what they name is found from there."""
    out = good_path(file.path)
    wanted = {line.line for line in file.good}
    with part_of(out, f".{out.name}") as part, part.open("w", encoding="utf-8") as g:
        for where, row in rows.rows_and_faults(file.path, None):
            if _place(file.path, where)[1] in wanted:
                g.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
    return out


def good_path(path: Path) -> Path:
    """Where the good lines of a file go; UserError where something is already."""
    out = path.with_name(f"{path.name.partition('.')[0]}.good.jsonl")
    if out.exists():
        fix = f"move it away, or leave --fix out; if it may go, type: rm {shlex.quote(str(out))}"
        raise UserError(f"{out} is there already", fix, "exists-already")
    return out


def _place(path: Path, where: str) -> tuple[str, int]:
    """A place in a file, as rows.py names it, without the file: "line 3", "row 3", "item 3" or "at byte 4,096"; and its number."""
    rest = where.removeprefix(str(path))
    label = re.sub("^:", "line ", rest).strip()
    return label, int(label.rpartition(" ")[2].replace(",", ""))
