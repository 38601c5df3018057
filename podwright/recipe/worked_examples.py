"""Questions with worked answers in files: which files of a source are read, what a row must hold, and how many are held out.

Both halves read by it: training takes every row, a plan every row of a small file, and both ends and a sample of a large one.
A row is {"question", "answer"}, the answer ending in `#### n`.
"""

from __future__ import annotations

import codecs
import dataclasses
import itertools
import json
import random
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from podwright.errors import UserError, from_os
from podwright.recipe import extras, held_out, text_lines
from podwright.recipe.answer_numbers import gold
from podwright.recipe.conversions import to_questions
from podwright.recipe.paths import require_all_numbered, require_file_or_directory, require_no_dead_link
from podwright.recipe.sampled_files import all_lines, head_of, sampled_text
from podwright.recipe.schema import GrpoData

Rows = Iterator[tuple[str, Mapping[str, Any]]]
"""("file:line" or "set row n", the row)"""

COLUMNS = ("question", "answer")
HELD_OUT = 10
"""One question in so many is held out of a file that has no test set of its own."""


_PLACE = re.compile(r"(.+?)(?::\d+| at byte [\d,]+)")  # of a line in a file
_NAMED = 3  # files of a message
_HEAD_BYTES = 1 << 10  # that show whether a file holds a list
_IN_TABLE = re.compile(r".+ row \d+")
_COLUMNS, _SHOWN = 20, 60  # of a message: names, characters of an answer
_SMALL_ROWS, _END_ROWS = 20_000, 2_000  # of parquet files


@dataclasses.dataclass(frozen=True)
class Example:
    question: str
    answer: str
    """the right number as text, without commas"""
    solution: str
    """the worked answer, its `#### n` line included"""


@dataclasses.dataclass(frozen=True)
class ExampleFiles:
    train: tuple[Path, ...]
    test: tuple[Path, ...]
    """() for a single file, of which a part is held out"""
    unread: tuple[Path, ...] = ()
    """parquet files beside lines that are read"""


@dataclasses.dataclass(frozen=True)
class Sample:
    """What a plan has read of the files of one part."""

    examples: tuple[Example, ...]
    num_rows: int
    """of all files; an estimate by the length of a row unless `complete`"""
    complete: bool
    """whether every row was read"""


def is_of_grpo(path: Path) -> bool:
    """Whether a path is a parquet file, or a directory as GRPO reads them."""
    if path.suffix == ".parquet":
        return path.is_file()
    is_split = any((path / name).is_file() for name in ("train.jsonl", "test.jsonl"))
    folders = (path, path / "main", path / "data")
    return is_split or any(next(folder.glob("*.parquet"), None) for folder in folders)


def files(source: str, path: Path) -> ExampleFiles:
    """Of a file, or of a directory: train.jsonl and test.jsonl, or train*.parquet and test*.parquet as the hub lays them out."""
    require_file_or_directory(f"data.source={source}", path)
    if path.is_file():
        return ExampleFiles((path,), ())
    lines = [path / "train.jsonl", path / "test.jsonl"]
    for file in lines:
        require_no_dead_link(file)
    if lines[0].is_file() and lines[1].is_file():
        unread = [p for split in ("train", "test") for p in sorted(path.glob(f"{split}*.parquet"))]
        return ExampleFiles((lines[0],), (lines[1],), tuple(unread))
    for folder in (path, path / "main", path / "data"):
        train, test = (tuple(sorted(folder.glob(f"{split}*.parquet"))) for split in ("train", "test"))
        if train and test:
            require_all_numbered(str(folder), (file.name for file in (*train, *test)))
            return ExampleFiles(train, test)
        if (train or test) and not lines[0].exists():
            raise _half(folder, train, test)
    missing = lines[1] if lines[0].is_file() else lines[0]
    if missing.exists():
        raise UserError(f"{missing} is not a file", "replace it by a file of lines")
    if missing == lines[1] and (other := held_out.misnamed(path, missing.name)):
        raise UserError(f"there is no {missing}", held_out.renaming(other, missing.name))
    if missing == lines[1]:
        raise UserError(
            f"there is no {missing}", f"add it, or type data.source={lines[0]} to hold a part of that file out"
        )
    if not any(path.iterdir()):
        raise UserError(f"data.source={source} is an empty directory", "give one with train.jsonl and test.jsonl")
    default = "give a directory with train.jsonl and test.jsonl (or parquet files of these names)"
    raise UserError(f"there is no {missing}", _elsewhere(path) or default)


def _elsewhere(path: Path) -> str:
    """What to type in a directory without train.jsonl whose questions have other names, or lie below it; "" where none are seen."""
    below = sorted(p.parent for p in path.glob("*/train.jsonl"))
    if below:
        return f"type {shlex.quote(f'data.source={below[0]}')}"
    commands = []
    for file in sorted(path.iterdir()):
        name = file.name.lower()
        new = file.with_name(f"{name.partition('.')[0]}.jsonl")
        if name in ("train.jsonl.gz", "test.jsonl.gz"):
            commands.append(shlex.join(["gunzip", str(file)]))
        elif name in ("train.json", "test.json") and _is_list(file):
            commands.append(text_lines.unlisted_to(str(file), str(new)))
        elif name in ("train.jsonl", "test.jsonl", "train.json", "test.json"):
            commands.append(shlex.join(["mv", str(file), str(new)]))
    if commands:
        return f"type {' && '.join(commands)}"
    singles = [file for file in sorted(path.iterdir()) if file.suffix in (".parquet", ".jsonl")]
    return f"type {shlex.quote(f'data.source={singles[0]}')} to read that file" if len(singles) == 1 else ""


def _is_list(file: Path) -> bool:
    with file.open("rb") as f:
        return f.read(_HEAD_BYTES).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")


def unread(files: ExampleFiles) -> tuple[str, str] | None:
    """What is wrong with a directory of lines that holds parquet files as well, and what to do."""
    if not files.unread:
        return None
    names = ", ".join(path.name for path in files.unread[:_NAMED]) + ", ..." * (len(files.unread) > _NAMED)
    what = f"of {files.unread[0].parent} the files train.jsonl and test.jsonl are read, and {names} not"
    return what, "move those out of the directory that are not to be read"


def _half(folder: Path, train: tuple[Path, ...], test: tuple[Path, ...]) -> UserError:
    """Of a folder with parquet files of one part only."""
    absent = "train" if test else "test"
    others = [p for p in sorted(folder.glob("*.parquet")) if p not in train + test]
    if others:
        new = shlex.join(["mv", str(others[0]), str(others[0].with_name(f"{absent}.parquet"))])
        fix = f"type {new} if {others[0].name} is that part"
    elif len(train) == 1:
        fix = f"add it, or type data.source={train[0]} to hold a part of that file out"
    else:
        fix = f"add {absent}.parquet"
    return UserError(f"{folder} has {(train + test)[0].name}, and no {absent}*.parquet", fix)


def used(names: Iterable[str]) -> list[str]:
    """Of a table's columns those that are read: what others hold need not even be readable."""
    return [name for name in COLUMNS if name in names]


def rows(paths: Iterable[Path]) -> Rows:
    """Every row of some files."""
    for path in paths:
        if path.suffix == ".parquet":
            yield from _parquet(path)
        else:
            yield from ((where, _object(path, where, line)) for where, line in all_lines(path))


def sampled(paths: Iterable[Path]) -> Sample:
    """All rows of small files, and both ends and a sample of large ones. UserError as training would have it."""
    parts = [(_sampled_parquet if p.suffix == ".parquet" else _sampled_lines)(p) for p in paths]
    examples = tuple(itertools.chain.from_iterable(part.examples for part in parts))
    return Sample(examples, sum(part.num_rows for part in parts), all(part.complete for part in parts))


def example(where: str, row: Mapping[str, Any]) -> Example:
    """What a row holds; UserError naming the place and what is wrong with it."""
    for key in COLUMNS:
        in_table = _IN_TABLE.fullmatch(where)
        if key not in row and in_table:
            columns = ", ".join(json.dumps(str(name), ensure_ascii=False) for name in list(row)[:_COLUMNS])
            what = f"{where} has no column {key!r}; its columns are {columns}"
            raise UserError(
                what, "name the columns 'question' and 'answer'; an answer ends with '#### ' and its number"
            )
        if key not in row:
            file = _PLACE.fullmatch(where)
            fix = (
                text_lines.rename(key, row)
                or (file and to_questions(file[1], row))
                or 'write {"question": "...", "answer": "... #### n"}'
            )
            raise UserError(f"{where} has no {key!r}; {text_lines.keys_of(row)}", fix)
        if in_table and not isinstance(row[key], str):
            what = f"{where}: column {key!r} holds {text_lines.json_kind(row[key])}, not text"
            fix = "fill it in, or remove the row" if row[key] is None else f"store the column {key!r} as text"
            raise UserError(what, fix)
        if not text_lines.require_text(where, key, row[key]).strip():
            raise UserError(f"{where}: {key} is empty", "fill it in or remove the row")
    number, line, unread = gold(row["answer"])
    if number is None:
        _, marked, behind = row["answer"].partition("####")
        written = marked + behind.partition("\n")[0]
        but = f", but {written[:_SHOWN]!r}" if written else ""
        raise UserError(
            f"{where}: the answer has no '#### n'{but}", "end the worked answer with a line '#### ' and the number"
        )
    if unread:
        what = f"{where}: of the answer {line[:_SHOWN]!r} only {number} would be read"
        raise UserError(what, "write one number behind ####, such as 18, -0.5, 3/7, 1 1/2 or 1e-3, or remove the row")
    return Example(row["question"], number, row["answer"])


def hold_out(
    examples: Sequence[Example], data: GrpoData, seed: int, first: int | None = None
) -> tuple[list[Example], list[Example]]:
    """(train, test) of a single file, by question, so that a question that stands twice in it is never in both. `first`: examples among
    which the test is chosen."""
    questions = list(dict.fromkeys(e.question for e in examples[:first]))
    size = num_held_out(len(questions), data)
    held = set(random.Random(seed).sample(questions, size))
    return [e for e in examples if e.question not in held], [e for e in examples[:first] if e.question in held]


def num_held_out(num_questions: int, data: GrpoData) -> int:
    """Of the different questions of a single file; UserError where that leaves none to train on."""
    size = data.num_test or max(1, num_questions // HELD_OUT)
    if size >= num_questions:
        raise UserError(
            f"{data.source} has {num_questions} different questions, too few to hold {size} out for the test",
            f"type data.num_test={max(1, num_questions // HELD_OUT)}"
            if num_questions > 1
            else "give a file with at least 2 questions",
        )
    return size


def no_examples(source: str, part: str) -> UserError:
    return UserError(
        f"data.source={source} has no {part} examples", "give a set with at least one question in each part"
    )


def _object(path: Path, where: str, line: bytes) -> Mapping[str, Any]:
    try:
        row = text_lines.parse_json(line)
    except UnicodeDecodeError as e:
        raise text_lines.not_utf8(str(path), where, head_of(path) + b"\n" + line) from e
    except text_lines.JsonFault as e:
        raise UserError(f"{where} is not JSON ({e})", "fix that line: one object a line") from e
    if not isinstance(row, dict):
        what = f"{where} is {text_lines.json_kind(row)}, not an object"
        of_objects = isinstance(row, list) and row and isinstance(row[0], dict)
        raise UserError(
            what, text_lines.unlisted(str(path)) if of_objects else 'write {"question": "...", "answer": "... #### n"}'
        )
    return row


def _sampled_lines(path: Path) -> Sample:
    lines, num_rows, complete = sampled_text(path)
    return Sample(tuple(example(where, _object(path, where, line)) for where, line in lines), num_rows, complete)


def _parquet(path: Path) -> Rows:
    with _Parquet(path) as file:
        yield from file.rows(range(file.num_row_groups))


def _sampled_parquet(path: Path) -> Sample:
    with _Parquet(path) as file:
        groups = range(file.num_row_groups)
        if file.num_rows <= _SMALL_ROWS:
            listed = tuple(example(*row) for row in file.rows(groups))
            return Sample(listed, file.num_rows, True)
        ends = [itertools.islice(file.rows(part), _END_ROWS) for part in (groups[:1], groups[-1:])]
        return Sample(tuple(example(*row) for row in itertools.chain(*ends)), file.num_rows, False)


class _Parquet:
    """A parquet file, by the package pyarrow; what is wrong with either is a UserError."""

    def __init__(self, path: Path):
        try:
            import pyarrow.parquet
        except ImportError as e:
            raise UserError("reading parquet files needs the package pyarrow", extras.install("hub")) from e
        self._path = path
        self._faults = (OSError, pyarrow.ArrowException)
        try:
            self._file = pyarrow.parquet.ParquetFile(path)
        except self._faults as e:
            raise self._unreadable(e) from e
        self._names: list[str] = self._file.schema_arrow.names
        self.num_rows: int = self._file.metadata.num_rows
        self.num_row_groups: int = self._file.metadata.num_row_groups

    def __enter__(self) -> _Parquet:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def rows(self, groups: Iterable[int]) -> Rows:
        """Of these row groups, which are those of the whole file or one of its ends."""
        listed = list(groups)
        number = sum(self._file.metadata.row_group(n).num_rows for n in range(listed[0] if listed else 0))
        try:
            for batch in self._file.iter_batches(1024, row_groups=listed, columns=used(self._names)):
                for row in self._values(batch):
                    number += 1
                    yield f"{self._path} row {number}", dict.fromkeys(self._names) | row
        except self._faults as e:
            raise self._unreadable(e) from e

    def _values(self, batch: Any) -> list[dict[str, Any]]:
        try:
            values: list[dict[str, Any]] = batch.to_pylist()
        except (OverflowError, ValueError) as e:  # a date that Python has no value for
            types = {field.name: str(field.type) for field in batch.schema}
            name = next((name for name in types if "string" not in types[name]), None)
            if name is None:
                raise self._unreadable(e) from e
            what = f"{self._path}: column {name!r} holds {types[name]}, not text"
            raise UserError(what, f"store the column {name!r} as text") from e
        return values

    def _unreadable(self, e: Exception) -> UserError:
        if isinstance(e, OSError) and (of_disk := from_os(e, self._path)):
            return of_disk
        if isinstance(e, UnicodeError):
            return UserError(f"{self._path} holds text that is not UTF-8", "write it again as UTF-8")
        return UserError(
            f"{self._path} cannot be read as parquet", "fetch it again, or give train.jsonl and test.jsonl"
        )
