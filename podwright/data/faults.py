"""What `podwright data check` does: everything that is wrong with a source, each thing with its place."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from podwright.data import documents, example_files, gsm8k, layouts, rows
from podwright.data.example_files import ExampleFiles
from podwright.data.shards import progress
from podwright.errors import UserError
from podwright.recipe import corpus, document_ends, held_out, text_lines
from podwright.recipe.corpus import Shard
from podwright.recipe.location import Location

Record = dict[str, Any]
_LISTED = 100


def check(source: str, vocab_size: int | None = None) -> Record:
    """{lines, valid, num_faults, faults: [{line, field, message}]} of text; of shards {shards, valid, tokens, max_token,
    num_faults, faults: [{file, offset, message}]}, sizes, checksums, ends and ids being held against each other.
    """
    if source == "arithmetic":
        what = "arithmetic is generated when it is read: there is no file to check"
        raise UserError(what, "type podwright plan with data.source=arithmetic, or podwright data tokenize arithmetic")
    place = Location.of(source)
    if corpus.is_text(source):
        return {"source": source, **_text(place)}
    if place.local is not None and example_files.is_of_grpo(place.local):
        return {"source": source, **_examples(source, place.local)}
    try:
        if records := corpus.records(place):
            return {"source": source, **_array_records(records, vocab_size), "warnings": _unread(place, records)}
        files = corpus.look(place)
    except UserError as e:
        if not place.exists():
            raise
        return {"source": source, "shards": 0, "valid": 0, **_listed([_fault(source, None, str(e))])}
    known = vocab_size or files.vocab_size
    on = progress(files.tokens * corpus.ITEM_BYTES[files.shards[0].dtype])
    listed: list[Record] = []
    faulty = 0
    lowest: list[int] = []
    largest: list[int] = []
    for shard in files.shards:
        wrong, smallest_id, largest_id = _shard(shard, known, on)
        listed, faulty = listed + wrong, faulty + bool(wrong)
        lowest, largest = [*lowest, smallest_id], [*largest, largest_id]
    if files.tokens == files.documents:
        listed.append(_fault(source, None, str(document_ends.nothing_to_predict(source))))
    sizes = {"shards": len(files.shards), "valid": len(files.shards) - faulty}
    ids = {"tokens": files.tokens, "documents": files.documents, "vocab_size": known, "max_token": max(largest)}
    warnings = _unread(place, [shard.place for shard in files.shards])
    if files.tokens > 1 and min(lowest) == max(largest):
        warnings.append(
            f"all {files.tokens:,} tokens of {source} are {largest[0]}; tokenize again, or give other files"
        )
    if unverified := document_ends.unverified(files):
        warnings.append(unverified)
    return {"source": source, **sizes, **ids, **_listed(listed), "warnings": warnings}


def _examples(source: str, path: Path) -> Record:
    """Of a table as of lines; of a directory besides {files: {NAME: the same}}."""
    if path.is_file():
        return _table(path)
    try:
        files = example_files.files(source, path)
    except UserError as e:
        return {"lines": 0, "valid": 0, **_listed([{"line": 0, "field": None, "message": str(e)}])}
    by_file = {
        str(file): _text(Location.of(str(file))) if file.name.endswith(".jsonl") else _table(file)
        for file in (*files.train, *files.test)
    }
    faults = [fault | {"file": file} for file, record in by_file.items() for fault in record.pop("faults")]
    sums = {key: sum(record[key] for record in by_file.values()) for key in ("lines", "valid", "num_faults")}
    warnings = ["; ".join(unread)] if (unread := example_files.unread(files)) else []
    warnings += [] if faults else _shared(source, files)
    return {**sums, "faults": faults[:_LISTED], "warnings": warnings, "files": by_file}


def _shared(source: str, files: ExampleFiles) -> list[str]:
    """A warning of questions that training has and the test too."""
    training, tested = (
        [example.question for file in part for example in gsm8k.read(file)] for part in (files.train, files.test)
    )
    if not (equal := held_out.shared(training, tested)):
        return []
    names = files.train[0].name, files.test[0].name
    return ["; ".join(held_out.warning(source, names, equal, len(tested)))]


def _table(path: Path) -> Record:
    faults: list[Record] = []
    num_rows = 0
    try:
        for where, row in rows.rows(path, layouts.names_read(None)):
            num_rows += 1
            try:
                layouts.example(where, row)
            except UserError as e:
                faults.append({"line": num_rows, "field": None, "message": str(e)})
        if not num_rows:
            raise UserError(f"{path} holds no rows", "give a file with rows")
    except UserError as e:  # of the file, which is not read further
        faults.append({"line": 0, "field": None, "message": str(e)})
    return {"lines": num_rows, "valid": num_rows - sum(fault["line"] > 0 for fault in faults), **_listed(faults)}


def _unread(place: Location, read: Sequence[Location]) -> list[str]:
    names = corpus.unread(place, read)
    return ["; ".join(corpus.not_read(place, names))] if names else []


def _array_records(files: list[Location], vocab_size: int | None) -> Record:
    """Of a directory of array_record files; the width of ids is known by the vocabulary only."""
    item_bytes = corpus.ITEM_BYTES[corpus.id_dtype(vocab_size)] if vocab_size else 1
    wrong = []
    for file in files:
        try:
            documents.read_records(file, item_bytes)
        except UserError as e:
            wrong.append(_fault(file.typed, None, str(e)))
    return {"shards": len(files), "valid": len(files) - len(wrong), **_listed(wrong)}


def _text(place: Location) -> Record:
    on = progress(place.size())
    faults: list[Record] = []
    num_lines = num_empty = 0
    undecoded: dict[int, bytes] = {}
    try:
        for number, line in enumerate(corpus.lines(place), 1):
            on(len(line))
            if not line.strip():
                continue
            num_lines += 1
            if text_lines.is_utf8(line):
                wrong = list(_line(place, number, line))
                faults += wrong
                if not wrong and place.suffix != ".txt":
                    text = text_lines.parse_json(line).get("text")  # None of questions with answers
                    num_empty += text is not None and not text.strip()
            else:
                undecoded[number] = b"" if undecoded else line
    except UserError as e:
        if num_lines:
            raise
        faults.append({"line": 0, "field": None, "message": str(e)})
    else:
        if not num_lines and not (place.suffix == ".txt" and place.size()):  # white space is a document
            faults.append({"line": 0, "field": None, "message": f"{place.typed} holds no lines"})
    valid = num_lines - sum(fault["line"] > 0 for fault in faults) - len(undecoded)
    faults += _undecoded(place, undecoded)
    warnings = ["; ".join(corpus.empty_texts(num_empty, num_lines))] if num_empty else []
    return {
        "lines": num_lines,
        "valid": valid,
        **_listed(sorted(faults, key=lambda f: f["line"])),
        "warnings": warnings,
    }


def _undecoded(place: Location, lines: dict[int, bytes]) -> Iterator[Record]:
    """One fault for all lines that are not UTF-8: their cause is one of the file. `lines`: the content of the first."""
    if lines:
        first, *others = lines
        error = corpus.not_utf8(place, f"{place.typed}:{first}", lines[first], others)
        yield {"line": first, "field": None, "message": str(error)}


def _line(place: Location, number: int, line: bytes) -> Iterator[Record]:
    where = f"{place.typed}:{number}"
    try:
        if place.suffix != ".txt" and not _of_grpo(where, line):
            corpus.text_of(place, where, line)
        elif b"\0" in line:
            what = f"{where} is not text: it holds NUL bytes, as a binary file does"
            raise UserError(what, "give a file of text, as UTF-8")
    except UserError as e:
        is_text = "text" in e.what.removeprefix(where)
        yield {"line": number, "field": "text" if is_text else None, "message": str(e)}


def _of_grpo(where: str, line: bytes) -> bool:
    """Whether a line is a question with its answer, as GRPO reads them, and no text; UserError for what training refuses of it."""
    try:
        row = text_lines.parse_json(line)
    except text_lines.JsonFault:
        return False
    if not isinstance(row, dict) or not layouts.is_question(row):
        return False
    layouts.example(where, row)
    return True


def _shard(shard: Shard, vocab_size: int | None, on: Any) -> tuple[list[Record], int, int]:
    """Its faults, the first of each sort, its smallest and its largest id."""
    name, limit = shard.place.typed, vocab_size or 1 << 31  # rows are int32
    faults, smallest, largest, checksum, outside, where = [], limit, 0, 0, 0, None
    for offset, ids in documents.scan(shard):
        on(ids.nbytes)
        checksum = zlib.crc32(ids.tobytes(), checksum)
        smallest, largest = min(smallest, int(ids.min())), max(largest, int(ids.max()))
        if ids.max() >= limit or ids.min() < 0:
            bad = np.flatnonzero((ids < 0) | (ids >= limit))
            where = where or (offset + int(bad[0]), int(ids[bad[0]]))
            outside += len(bad)
    if where is not None:
        message = corpus.out_of_range(name, *where, limit).what
        faults.append(_fault(name, where[0], message + (f", and {outside - 1:,} more" if outside > 1 else "")))
    if shard.crc32 not in (None, checksum):
        faults.append(_fault(name, None, f"{name} is not what was written: its checksum differs from {corpus.META}"))
    try:
        documents.ends(shard, None)
    except UserError as e:
        faults.append(_fault(shard.ends.typed, None, e.what))
    return faults, smallest, largest


def _fault(file: str, offset: int | None, message: str) -> Record:
    return {"file": file, "offset": offset, "message": message}


def _listed(faults: list[Record]) -> Record:
    return {"num_faults": len(faults), "faults": faults[:_LISTED]}
