"""What `podwright data check` does: everything that is wrong with a source, each thing with its place."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from podwright.data import example_files, layouts, rows, texts, token_files
from podwright.data.example_files import ExampleFiles
from podwright.data.line_files import fault
from podwright.data.shards import progress
from podwright.data.token_files import Shard
from podwright.errors import UserError, counted
from podwright.recipe import corpus, held_out
from podwright.recipe.location import Location
from podwright.recipe.pretrain import TextColumns
from podwright.recipe.schema import GrpoColumns

Record = dict[str, Any]
Columns = GrpoColumns | TextColumns | None
_LISTED = 100
_OF_LINE = ("not-utf8", "not-json", "not-object")  # codes of what is wrong with a line and not with a field


def check(source: str, vocab_size: int | None = None, columns: Columns = None) -> Record:
    """{lines, valid, num_faults, faults: [{line, field, code, message}]} of text; of shards {shards, valid, tokens, max_token,
    num_faults, faults: [{file, offset, code, message}]}, sizes, checksums, ends and ids being held against each other. `columns`: of rows of no
    layout that is read by itself.
    """
    place = Location.of(source)
    if place.local is not None and place.local.is_dir() and example_files.is_of_grpo(place.local):
        return {"source": source, **_examples(source, place.local, columns)}
    if corpus.is_text(source):
        return {"source": source, **_text(place, columns)}
    if columns:
        raise UserError(f"--columns is for rows, and {source} has none", "leave --columns out", "no-effect")
    try:
        if records := token_files.records(place):
            warnings = _unread(place, records)
            if not vocab_size:
                warnings.append(f"the ids of {source} were held against no vocabulary; type --vocab-size V")
            return {"source": source, **_array_records(records, vocab_size), "warnings": warnings}
        files = token_files.look(place)
    except UserError as e:
        if not place.exists():
            raise
        return {"source": source, "shards": 0, "valid": 0, **_listed([_fault(source, None, e.code, str(e))])}
    known = vocab_size or files.vocab_size
    on = progress(files.tokens * files.shards[0].dtype.itemsize)
    listed: list[Record] = []
    faulty = 0
    lowest: list[int] = []
    largest: list[int] = []
    for shard in files.shards:
        wrong, smallest_id, largest_id = _shard(shard, known, on)
        listed, faulty = listed + wrong, faulty + bool(wrong)
        lowest, largest = [*lowest, smallest_id], [*largest, largest_id]
    if files.tokens == files.documents:
        nothing = token_files.nothing_to_predict(source)
        listed.append(_fault(source, None, nothing.code, str(nothing)))
    sizes = {"shards": len(files.shards), "valid": len(files.shards) - faulty}
    ids = {"tokens": files.tokens, "documents": files.documents, "vocab_size": known, "max_token": max(largest)}
    warnings = _unread(place, [shard.place for shard in files.shards])
    if files.tokens > 1 and min(lowest) == max(largest):
        warnings.append(
            f"all {files.tokens:,} tokens of {source} are {largest[0]}; tokenize again, or give other files"
        )
    if unverified := files.unverified():
        warnings.append(unverified)
    return {"source": source, **sizes, **ids, **_listed(listed), "warnings": warnings}


def _examples(source: str, path: Path, columns: Columns) -> Record:
    """Of a directory as of a file, and besides {files: {NAME: the same}}."""
    try:
        files = example_files.files(source, path, training=False)
    except UserError as e:
        return {"lines": 0, "valid": 0, **_listed([fault(0, None, e.code, str(e))])}
    by_file = {str(file): _text(Location.of(str(file)), columns) for file in (*files.train, *files.test)}
    faults = [entry | {"file": file} for file, record in by_file.items() for entry in record.pop("faults")]
    sums = {key: sum(record[key] for record in by_file.values()) for key in ("lines", "valid", "num_faults")}
    warnings = ["; ".join(unread)] if (unread := example_files.unread(files)) else []
    warnings += [] if faults else _shared(source, files, columns)
    return {**sums, "faults": faults[:_LISTED], "warnings": warnings, "files": by_file}


def _shared(source: str, files: ExampleFiles, columns: Columns) -> list[str]:
    """A warning of questions that training has and the test too."""
    training, tested = (
        [_checked(where, row, columns) for file in part for where, row in _entries(Location.of(str(file)), columns)]
        for part in (files.train, files.test)
    )
    if not (equal := held_out.shared(training, tested)):
        return []
    names = files.train[0].name, files.test[0].name
    return ["; ".join(held_out.warning(source, names, equal, len(tested)))]


def _unread(place: Location, read: Sequence[Location]) -> list[str]:
    return ["; ".join(warning) for warning in token_files.unread(place, read)]


def _array_records(files: list[Location], vocab_size: int | None) -> Record:
    """Of a directory of array_record files, which do not say of which vocabulary their ids are."""
    wrong = []
    for file in files:
        try:
            token_files.read_records(file, vocab_size)
        except UserError as e:
            wrong.append(_fault(file.typed, None, e.code, str(e)))
    return {"shards": len(files), "valid": len(files) - len(wrong), **_listed(wrong)}


def _text(place: Location, columns: Columns) -> Record:
    """Of a file of texts, or of questions with answers as GRPO reads them: a row with a question and without a text is one."""
    faults: list[Record] = []
    num_rows = num_empty = 0
    on = progress(place.size())
    try:
        for where, row in _entries(place, columns, on):
            num_rows += 1
            try:
                num_empty += not _checked(where, row, columns).strip()
            except UserError as e:
                line = where.removeprefix(f"{place.typed}:")
                number = int(line) if line.isdigit() else num_rows
                field = "text" if "text" in e.what.removeprefix(where) and e.code not in _OF_LINE else None
                faults.append(fault(number, field, e.code, str(e)))
    except rows.MissingPackage:
        raise
    except UserError as e:  # of the file, which is not read further
        faults.append(fault(0, None, e.code, str(e)))
    if not num_rows and not faults:
        faults.append(fault(0, None, "no-lines", f"{place.typed} holds no lines"))
    valid = num_rows - sum(entry["line"] > 0 for entry in faults)
    warnings = [f"{num_empty:,} of {counted(num_rows, 'text')} are empty; remove these lines"] if num_empty else []
    return {"lines": num_rows, "valid": valid, **_listed(faults), "warnings": warnings}


def _entries(
    place: Location, columns: Columns, on: Callable[[int], None] = lambda size: None
) -> Iterator[tuple[str, str | rows.Row | UserError]]:
    """The rows of a file, or its text."""
    if rows.container(place):
        of_questions = layouts.names_read(columns if isinstance(columns, GrpoColumns) else None)
        of_texts = layouts.names_of_text(columns if isinstance(columns, TextColumns) else None)
        yield from rows.rows_and_faults(place, of_questions | of_texts, on)
    else:
        yield place.typed, next(texts.read(place.typed, progress=on))


def _checked(where: str, entry: str | rows.Row | UserError, columns: Columns) -> str:
    """The text; UserError for what training refuses."""
    if isinstance(entry, UserError):
        raise entry
    if isinstance(entry, str):
        return entry
    if isinstance(columns, TextColumns):
        return layouts.text(where, entry, columns)
    if columns or layouts.is_question(entry):
        return layouts.example(where, entry, columns).question
    return layouts.text(where, entry)


def _shard(shard: Shard, vocab_size: int | None, on: Any) -> tuple[list[Record], int, int]:
    """Its faults, the first of each sort, its smallest and its largest id."""
    name = shard.place.typed
    limit = vocab_size or 1 << 31  # rows are int32
    faults, smallest, largest, checksum, outside, where = [], limit, 0, 0, 0, None
    for offset, ids in token_files.scan(shard):
        on(ids.nbytes)
        checksum = zlib.crc32(ids.tobytes(), checksum)
        smallest, largest = min(smallest, int(ids.min())), max(largest, int(ids.max()))
        if ids.max() >= limit or ids.min() < 0:
            bad = np.flatnonzero((ids < 0) | (ids >= limit))
            where = where or (offset + int(bad[0]), int(ids[bad[0]]))
            outside += len(bad)
    if where is not None:
        outlier = token_files.out_of_range(name, *where, limit)
        more = f", and {outside - 1:,} more" if outside > 1 else ""
        faults.append(_fault(name, where[0], outlier.code, outlier.what + more))
    if shard.crc32 not in (None, checksum):
        what = f"{name} is not what was written: its checksum differs from {corpus.META}"
        faults.append(_fault(name, None, "damaged-tokens", what))
    try:
        token_files.ends(shard, None)
    except UserError as e:
        faults.append(_fault(shard.ends.typed, None, e.code, e.what))
    return faults, smallest, largest


def _fault(file: str, offset: int | None, code: str, message: str) -> Record:
    return {"file": file, "offset": offset, "code": code, "message": message}


def _listed(faults: list[Record]) -> Record:
    return {"num_faults": len(faults), "faults": faults[:_LISTED]}
