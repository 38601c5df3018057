"""Rows of a file: JSON lines, a JSON list or CSV, each perhaps compressed, and parquet.

Training takes every row, a plan every row of a small file, and both ends and a sample of a large one. JSON and CSV are read without a
library: a fault is named with its line, and a text stays as it is written, where pandas makes 0.1 of "0.10".
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple

from podwright.data import sampled_lines
from podwright.errors import UserError, from_os, message_of
from podwright.recipe import extras, text_lines
from podwright.recipe.paths import require_file

Row = Mapping[str, Any]
LocatedRows = Iterator[tuple[str, Row]]
"""("file:line", "file item n" or "file row n", the row)"""
LocatedFaults = Iterator[tuple[str, Row | UserError]]

COMPRESSIONS = MappingProxyType({".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"})
"""suffix -> name of the compression in fsspec"""
SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
_BOM = b"\xef\xbb\xbf"
_SMALL_BYTES = 8 << 20  # of JSON lines that a plan reads to their end
_SMALL_ROWS, _END_ROWS = 20_000, 2_000  # of parquet files


class MissingPackage(UserError):
    """A package is not installed here that reading needs: nothing is known of the data."""


class SampledRows(NamedTuple):
    """What a plan reads of a file."""

    rows: list[tuple[str, Row | UserError]]
    """as of `rows_and_faults`"""
    total: int
    """rows of the file; an estimate by the length of a row unless `complete`"""
    complete: bool
    """whether every row was read"""


def container(path: Path) -> str:
    """The suffix that says how rows are read, without that of a compression; "" of other files."""
    name = path.name.lower()
    for compression in COMPRESSIONS:
        name = name.removesuffix(compression)
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")


def rows(path: Path, columns: Collection[str]) -> LocatedRows:
    """Every row of a file. `columns`: of a table with types those that are read; others need not even be readable."""
    for where, row in rows_and_faults(path, columns):
        yield where, required(row)


def required(row: Row | UserError) -> Row:
    if isinstance(row, UserError):
        raise row
    return row


def rows_and_faults(path: Path, columns: Collection[str]) -> LocatedFaults:
    """As `rows`, with the fault in the place of a line that is no object; a fault of the file as such is raised."""
    suffix = container(path)
    if suffix == ".parquet":
        yield from _parquet(path, columns)
    elif suffix in (".csv", ".tsv"):
        yield from _csv(path)
    else:
        yield from _json(path)


def sampled(path: Path, columns: Collection[str]) -> SampledRows:
    """All rows of a small file and of one that has to be read from its start; else both ends and a sample."""
    suffix = container(path)
    if suffix == ".parquet":
        return _sampled_parquet(path, columns)
    require_file(str(path), path)
    in_pieces = path.suffix not in COMPRESSIONS and suffix not in (".csv", ".tsv")
    if in_pieces and path.stat().st_size > _SMALL_BYTES and not _is_list(path):
        lines, total = sampled_lines.sampled(path)
        return SampledRows([(where, _object(where, line)) for where, line in lines], total, complete=False)
    every = list(rows_and_faults(path, columns))
    return SampledRows(every, len(every), True)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed; UserError where it cannot be read."""
    faults = Exception if path.suffix in COMPRESSIONS else OSError  # each compression raises types of its own
    try:
        with _file(path) as file:
            yield file
    except UserError:
        raise
    except faults as e:
        known = from_os(e, path) if isinstance(e, OSError) else None
        damaged = UserError(f"{path} cannot be read ({message_of(e)})", "copy or compress it again", "unreadable")
        raise known or damaged from e


def _file(path: Path) -> IO[bytes]:
    if path.suffix not in COMPRESSIONS:
        return path.open("rb")
    try:
        import fsspec
    except ImportError as e:
        raise MissingPackage(f"reading {path.name} needs the package fsspec", extras.install("jax")) from e
    try:
        file = fsspec.open(str(path.absolute()), "rb", compression=COMPRESSIONS[path.suffix]).open()
    except ValueError as e:  # fsspec has zstd where that package is
        raise MissingPackage(f"reading {path.name} needs the package zstandard", "type pip install zstandard") from e
    return io.BufferedReader(file)  # the reader of zstandard has no lines


def _is_list(path: Path) -> bool:
    if container(path) != ".json":
        return False
    with _opened(path) as file:
        return file.read(1 << 10).removeprefix(_BOM).lstrip().startswith(b"[")


def _json(path: Path) -> LocatedFaults:
    """Objects, one a line or in a list."""
    with _opened(path) as file:
        is_first = True
        for number, line in enumerate(file, 1):
            text = line.removeprefix(_BOM) if number == 1 else line
            if not text.strip():
                continue
            if is_first and container(path) == ".json" and text.lstrip().startswith(b"["):
                yield from _items(path, text + file.read())
                return
            is_first = False
            where = f"{path}:{number}"
            yield where, _object(where, text)


def _items(path: Path, text: bytes) -> LocatedFaults:
    for number, item in enumerate(_parsed(str(path), text), 1):
        where = f"{path} item {number}"
        yield where, item if isinstance(item, dict) else _no_object(where, item)


def _object(where: str, line: bytes) -> Row | UserError:
    try:
        value = _parsed(where, line)
    except UserError as e:
        return e
    return value if isinstance(value, dict) else _no_object(where, value)


def _parsed(where: str, text: bytes) -> Any:
    try:
        return text_lines.parse_json(text)
    except UnicodeDecodeError as e:
        raise _not_utf8(where) from e
    except text_lines.JsonFault as e:
        raise UserError(f"{where} is not JSON: {e}", "write one object a line", "not-json") from e


def _no_object(where: str, value: Any) -> UserError:
    return UserError(
        f"{where} is {text_lines.json_kind(value)}, not an object", "write one object a line", "not-object"
    )


def _not_utf8(where: object) -> UserError:
    return UserError(f"{where} is not UTF-8 text", "save it as UTF-8", "not-utf8")


def _csv(path: Path) -> LocatedRows:
    """Rows by the names in the first line, between which tabs, semicolons or commas stand."""
    with _opened(path) as file:
        text = io.TextIOWrapper(file, "utf-8-sig", newline="")
        try:
            header = text.readline()
            separator = max("\t;,", key=header.count)
            # strict: a quote that is not closed would take in the rest of the file
            reader = csv.DictReader(itertools.chain([header], text), delimiter=separator, strict=True)
            for row in reader:
                where = f"{path}:{reader.line_num}"
                if None in row:
                    what = f"{where} has more values than there are columns"
                    raise UserError(what, "put values in double quotes", "not-csv")
                yield where, row
        except UnicodeDecodeError as e:
            raise _not_utf8(path) from e
        except csv.Error as e:
            raise UserError(f"{path} is not CSV ({e})", "put values in double quotes", "not-csv") from e


def _parquet(path: Path, columns: Collection[str]) -> LocatedRows:
    with _ParquetFile(path) as file:
        yield from file.rows(range(file.num_row_groups), columns)


def _sampled_parquet(path: Path, columns: Collection[str]) -> SampledRows:
    with _ParquetFile(path) as file:
        groups = range(file.num_row_groups)
        if file.num_rows <= _SMALL_ROWS:
            return SampledRows(list(file.rows(groups, columns)), file.num_rows, True)
        ends = [itertools.islice(file.rows(part, columns), _END_ROWS) for part in (groups[:1], groups[-1:])]
        return SampledRows(list(itertools.chain(*ends)), file.num_rows, False)


class _ParquetFile:
    """A parquet file, by pyarrow, which reads its row groups one by one and fills no cache, as `datasets` would."""

    def __init__(self, path: Path):
        try:
            import pyarrow.parquet
        except ImportError as e:
            raise MissingPackage(f"reading {path.name} needs the package pyarrow", extras.install("jax")) from e
        self._path = path
        self._faults = (
            OSError,
            pyarrow.ArrowException,
            OverflowError,
            ValueError,
        )  # the last two: values Python has not
        try:
            self._file = pyarrow.parquet.ParquetFile(path)
        except self._faults as e:
            raise self._unreadable(e) from e
        self._names: list[str] = self._file.schema_arrow.names
        self.num_rows: int = self._file.metadata.num_rows
        self.num_row_groups: int = self._file.metadata.num_row_groups

    def __enter__(self) -> _ParquetFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def rows(self, groups: Iterable[int], columns: Collection[str]) -> LocatedRows:
        """Of these row groups, which are those of the whole file or one of its ends."""
        listed = list(groups)
        number = sum(self._file.metadata.row_group(n).num_rows for n in range(listed[0] if listed else 0))
        wanted = [name for name in self._names if name in columns]
        try:
            for batch in self._file.iter_batches(1024, row_groups=listed, columns=wanted):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{self._path} row {number}", dict.fromkeys(self._names) | row
        except self._faults as e:
            raise self._unreadable(e) from e

    def _unreadable(self, e: Exception) -> UserError:
        if isinstance(e, OSError) and (of_disk := from_os(e, self._path)):
            return of_disk
        if isinstance(e, UnicodeError):
            return _not_utf8(self._path)
        return UserError(
            f"{self._path} cannot be read as parquet ({message_of(e, 80)})", "write or fetch it again", "unreadable"
        )
