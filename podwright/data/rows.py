"""Rows of a file: JSON lines, a JSON list or CSV, each perhaps compressed, parquet, and what the library datasets has saved; of this machine, or at a URL.

Training takes every row, a plan every row of a small file, and both ends and a sample of a large one. JSON and CSV are read without a
library: a fault is named with its line, and a text stays as it is written, where pandas makes 0.1 of "0.10".
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from podwright import extras
from podwright.errors import UserError, from_os, listed, message_of
from podwright.recipe import corpus, text_lines
from podwright.recipe.corpus import COMPRESSIONS
from podwright.recipe.location import Location
from podwright.recipe.paths import absent, require_file

Row = Mapping[str, Any]
LocatedRows = Iterator[tuple[str, Row]]
"""("file:line", "file item n" or "file row n", the row)"""
LocatedFaults = Iterator[tuple[str, Row | UserError]]

_BOM = b"\xef\xbb\xbf"
SMALL_BYTES = 8 << 20
"""of a file that a plan reads to its end"""
_END_BYTES = 1 << 20  # of each end of a larger one
_PIECES, _PIECE_BYTES = 16, 1 << 16  # between the ends
_LONGEST_LINE = 8 << 20  # a piece that has no end of a line within so much is left out
_BLOCK_BYTES = 1 << 18  # that a store is asked for at a time
_SMALL_ROWS, _END_ROWS = 20_000, 2_000  # of parquet files
csv.field_size_limit((1 << 31) - 1)  # characters of a cell; Python's is 131,072


class MissingPackage(UserError):
    """A package is not installed here that reading needs: nothing is known of the data."""


def not_installed(package: str, name: str) -> MissingPackage:
    return MissingPackage(f"reading {name} needs the package {package}", extras.install("jax"), "missing-package")


class SampledRows(NamedTuple):
    """What a plan reads of a file."""

    rows: list[tuple[str, Row | UserError]]
    """as of `rows_and_faults`"""
    total: int
    """rows of the file; an estimate by the length of a row unless `complete`"""
    complete: bool
    """whether every row was read"""
    num_first: int = 0
    """rows at the beginning of `rows` behind which no row was left out"""
    weight: float = 1.0
    """how many rows of the file each of the others stands for"""

    def estimated(self, numbers: Sequence[int]) -> int:
        """The sum over the file of a number of each of `rows`."""
        first, others = numbers[: self.num_first], numbers[self.num_first :]
        return sum(first) + round(self.weight * sum(others))


def container(path: Path | Location) -> str:
    """The suffix that says how rows are read, without that of a compression; "" of other files."""
    return corpus.container(path.typed if isinstance(path, Location) else str(path))


def rows(
    source: Path | Location, columns: Collection[str], read: Callable[[int], None] = lambda size: None
) -> LocatedRows:
    """Every row of a file. `columns`: of a table with types those that are read; others need not even be readable. `read` gets the
    number of bytes of each line of JSON."""
    for where, row in rows_and_faults(source, columns, read):
        yield where, required(row)


def required(row: Row | UserError) -> Row:
    if isinstance(row, UserError):
        raise row
    return row


def rows_and_faults(
    source: Path | Location, columns: Collection[str] | None, read: Callable[[int], None] = lambda size: None
) -> LocatedFaults:
    """As `rows`, with the fault in the place of a line that is no object; a fault of the file as such is raised. `columns` None: all."""
    place = _place(source)
    suffix = container(place)
    if suffix == ".parquet":
        path = _path(place)
        with _parquet_file(path) as file:
            yield from _parquet_rows(path, file, range(file.num_row_groups), columns)
    elif suffix == corpus.ARROW:
        table = _saved(_path(place))
        yield from of_table(place.typed, table, columns, range(len(table)))
    elif suffix in (".csv", ".tsv"):
        yield from _csv(place)
    else:
        yield from _json(place, read)


def sampled(source: Path | Location, columns: Collection[str]) -> SampledRows:
    """All rows of a small file and of one that has to be read from its start; else both ends and a sample."""
    place = _place(source)
    suffix = container(place)
    if suffix == ".parquet":
        return _sampled_parquet(_path(place), columns)
    if suffix == corpus.ARROW:
        return _sampled_saved(place.typed, _saved(_path(place)), columns)
    _require_file(place)
    in_pieces = place.suffix not in COMPRESSIONS and suffix not in (".csv", ".tsv")
    if in_pieces and place.size() > SMALL_BYTES and not _is_list(place):
        return _sampled_lines(place)
    every = list(rows_and_faults(place, columns))
    return SampledRows(every, len(every), True, len(every))


def _place(source: Path | Location) -> Location:
    return source if isinstance(source, Location) else Location(str(source), str(source))


def _path(place: Location) -> Path:
    if place.local is None:
        what = f"{place.typed} is a file of tables in a store, and those are read from this machine only"
        raise UserError(what, "copy it here", "not-local")
    return place.local


def _require_file(place: Location) -> None:
    """UserError for what is no file, such as a pipe, which would never end."""
    if place.local is None:
        return
    if not place.exists():
        raise absent(place.typed, place.local)
    require_file(place.typed, place.local)


@contextlib.contextmanager
def opened(place: Location) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed; UserError where it cannot be read."""
    _require_file(place)
    faults = Exception if place.suffix in COMPRESSIONS else OSError  # each compression raises types of its own
    try:
        with _file(place) as file:
            yield _decompressed(place, file) if place.suffix in COMPRESSIONS else file
    except (UserError, GeneratorExit):
        raise
    except faults as e:
        known = from_os(e, place.typed) if isinstance(e, OSError) else None
        damaged = UserError(
            f"{place.typed} cannot be read ({message_of(e)})", "copy or compress it again", "unreadable"
        )
        raise known or damaged from e


@contextlib.contextmanager
def _file(place: Location) -> Iterator[IO[bytes]]:
    """The bytes of a file as they are."""
    if place.local is None:
        with place.opened(_BLOCK_BYTES) as file:
            yield file
    else:
        with place.local.open("rb") as file:
            yield file


def _decompressed(place: Location, file: IO[bytes]) -> IO[bytes]:
    try:
        import fsspec.compression
    except ImportError as e:
        raise not_installed("fsspec", place.name) from e
    name = COMPRESSIONS[place.suffix]
    if name not in fsspec.compression.compr:  # fsspec has zstd where that package is
        raise MissingPackage(
            f"reading {place.name} needs the package zstandard", "type pip install zstandard", "missing-package"
        )
    return io.BufferedReader(fsspec.compression.compr[name](file, mode="rb"))  # the reader of zstandard has no lines


def _is_list(place: Location) -> bool:
    if container(place) != ".json":
        return False
    with opened(place) as file:
        return file.read(1 << 10).removeprefix(_BOM).lstrip().startswith(b"[")


def _json(place: Location, read: Callable[[int], None]) -> LocatedFaults:
    """Objects, one a line or in a list."""
    with opened(place) as file:
        is_first = True
        for number, line in enumerate(file, 1):
            read(len(line))
            text = line.removeprefix(_BOM) if number == 1 else line
            if not text.strip():
                continue
            if is_first and container(place) == ".json" and text.lstrip().startswith(b"["):
                yield from _items(place.typed, text + file.read())
                return
            where = f"{place.typed}:{number}"
            row = _object(where, text)
            if is_first and isinstance(row, UserError) and not container(place):
                what = f"{place.typed} is of no format that is read"
                raise UserError(what, "give .jsonl, .json, .csv, .tsv or .parquet", "unknown-format")
            is_first = False
            yield where, row


def _sampled_lines(place: Location) -> SampledRows:
    """Rows of both ends of a large file of lines and of pieces between; how many it has is estimated by their length."""
    size = place.size()
    listed = []
    with opened(place) as file:
        for number, line in enumerate(file, 1):
            text = line.removeprefix(_BOM) if number == 1 else line
            if text.strip():
                listed.append((f"{place.typed}:{number}", text))
            if file.tell() >= _END_BYTES:
                break
        first = file.tell()
        end = max(file.tell(), size - _END_BYTES)
        num_first = len(listed)
        looked_at = 0
        starts = []
        if end > first:
            starts = [first + round((end - first) * (n + 0.5) / _PIECES) for n in range(_PIECES)]
        for start in [*starts, end]:
            file.seek(start)
            begin = file.readline(_LONGEST_LINE) if start > first else b"\n"  # of a line that began before
            stop = size if start == end else start + _PIECE_BYTES
            while begin.endswith(b"\n") and file.tell() < stop and (line := file.readline(_LONGEST_LINE)):
                if len(line) == _LONGEST_LINE:
                    break
                looked_at += len(line)
                if line.strip():
                    listed.append((f"{place.typed} at byte {file.tell() - len(line):,}", line))
                begin = line
    weight = (size - first) / looked_at if looked_at else 0.0
    total = num_first + round((len(listed) - num_first) * weight)
    return SampledRows([(where, _object(where, line)) for where, line in listed], total, False, num_first, weight)


def _items(file: str, text: bytes) -> LocatedFaults:
    for number, item in enumerate(_parsed(file, text), 1):
        where = f"{file} item {number}"
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
        raise not_utf8(where) from e
    except text_lines.JsonFault as e:
        raise UserError(f"{where} is not JSON: {e}", "write one object a line", "not-json") from e


def _no_object(where: str, value: Any) -> UserError:
    what = f"{where} is {text_lines.json_kind(value)}, not an object"
    return UserError(what, "write one object a line", "not-object")


def not_utf8(where: object) -> UserError:
    return UserError(f"{where} is not UTF-8 text", "save it as UTF-8", "not-utf8")


def _csv(place: Location) -> LocatedRows:
    """Rows by the names in the first line, between which tabs, semicolons or commas stand."""
    with opened(place) as file:
        text = io.TextIOWrapper(file, "utf-8-sig", newline="")
        try:
            header = text.readline()
            separator = max("\t;,", key=header.count)
            # strict: a quote that is not closed would take in the rest of the file
            reader = csv.DictReader(itertools.chain([header], text), delimiter=separator, strict=True)
            for row in reader:
                where = f"{place.typed}:{reader.line_num}"
                if None in row:
                    what = f"{where} has more values than there are columns"
                    raise UserError(what, "put values in double quotes", "not-csv")
                yield where, row
        except UnicodeDecodeError as e:
            raise not_utf8(place.typed) from e
        except csv.Error as e:
            raise UserError(f"{place.typed} is not CSV ({e})", "put values in double quotes", "not-csv") from e


@contextlib.contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
    """A parquet file of pyarrow, which reads row groups one by one and fills no cache, as `datasets` would."""
    try:
        import pyarrow.parquet
    except ImportError as e:
        raise not_installed("pyarrow", path.name) from e
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield file
    except UnicodeError as e:
        raise not_utf8(path) from e
    except (OSError, pyarrow.ArrowException, OverflowError, ValueError) as e:  # the last two: values Python has not
        of_disk = from_os(e, path) if isinstance(e, OSError) else None
        what = f"{path} cannot be read as parquet ({message_of(e, 60)})"
        raise of_disk or UserError(what, "write or fetch it again", "unreadable") from e


def _sampled_parquet(path: Path, columns: Collection[str]) -> SampledRows:
    with _parquet_file(path) as file:
        groups = range(file.num_row_groups)
        total = file.metadata.num_rows
        if total <= _SMALL_ROWS:
            return SampledRows([*_parquet_rows(path, file, groups, columns)], total, True, total)
        listed: list[tuple[str, Row | UserError]] = []
        for end in (groups[:1], groups[-1:]):
            listed += itertools.islice(_parquet_rows(path, file, end, columns), _END_ROWS)
        return SampledRows(listed, total, False, 0, total / len(listed))


def _parquet_rows(path: Path, file: Any, groups: range, columns: Collection[str] | None) -> LocatedRows:
    """Of these row groups, which are those of the whole file or one of its ends."""
    number = sum(file.metadata.row_group(group).num_rows for group in range(groups.start))
    names = file.schema_arrow.names
    wanted = [name for name in names if columns is None or name in columns]
    for batch in file.iter_batches(1024, row_groups=[*groups], columns=wanted):
        for row in batch.to_pylist():
            number += 1
            yield f"{path} row {number}", dict.fromkeys(names) | row


def _saved(path: Path) -> Any:
    """A data set that the library datasets has written; of one with several parts that to train on."""
    try:
        import datasets
    except ImportError as e:
        raise not_installed("datasets", path.name) from e
    try:
        saved = datasets.load_from_disk(path) if path.is_dir() else datasets.Dataset.from_file(str(path))
        parts = saved if isinstance(saved, dict) else {"train": saved}
        if "train" in parts:
            return parts["train"].with_format(None)
    except Exception as e:  # files that are missing, damaged, or of another program
        what = f"{path} cannot be read by the package datasets ({type(e).__name__}: {message_of(e, 60)})"
        raise UserError(what, "save or copy it again", "unreadable") from e
    fix = f"type data.source={path}/{next(iter(parts))}"
    raise UserError(f"data.source={path} has the parts {listed(parts)}", fix, "no-examples")


def _sampled_saved(name: str, table: Any, columns: Collection[str]) -> SampledRows:
    total = len(table)
    numbers = [*range(total)]
    if total > _SMALL_ROWS:
        del numbers[_END_ROWS:-_END_ROWS]
    listed: list[tuple[str, Row | UserError]] = [*of_table(name, table.select(numbers), columns, numbers)]
    return SampledRows(listed, total, len(numbers) == total, 0, total / max(1, len(numbers)))


def of_table(name: str, table: Any, columns: Collection[str] | None, numbers: Iterable[int]) -> LocatedRows:
    """Rows of a table of the library datasets. `numbers`: where each stands, from 0."""
    names = table.column_names or []  # a set that is streamed may not know them
    wanted = [column for column in names if columns is None or column in columns]
    if names and not wanted:  # of no column there are no rows, and whoever takes the first says which are missing
        yield f"{name} row 1", dict.fromkeys(names)
        return
    for number, row in zip(numbers, table.select_columns(wanted) if names else table, strict=False):
        yield f"{name} row {number + 1}", dict.fromkeys(names) | row
