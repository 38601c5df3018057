"""What `podwright data check` does: everything that is wrong with a source, each thing with its place."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from podwright.data import documents, texts
from podwright.data.shards import progress
from podwright.errors import UserError
from podwright.recipe import corpus
from podwright.recipe.corpus import Shard
from podwright.recipe.location import Location

Record = dict[str, Any]
_LISTED = 100


def check(source: str, vocab_size: int | None = None) -> Record:
    """{lines, valid, num_faults, faults: [{line, field, message}]} of text; of shards {shards, valid, tokens, max_token,
    num_faults, faults: [{file, offset, message}]}, sizes, checksums, ends and ids being held against each other.
    """
    place = Location.of(source)
    if texts.is_text(source):
        faults: list[Record] = []
        lines = 0
        on = progress(place.size())
        for number, line in enumerate(place.lines(), 1):
            on(len(line))
            if line.strip():
                lines += 1
                faults += _line(place, number, line)
        valid = lines - len(faults)
        if not lines:
            faults.append({"line": 0, "field": None, "message": f"{source} holds no lines"})
        return {"source": source, "lines": lines, "valid": valid, **_listed(faults)}
    try:
        files = corpus.look(place)
    except UserError as e:
        if not place.exists():
            raise
        return {"source": source, "shards": 0, "valid": 0, **_listed([_fault(source, None, e.what)])}
    known = vocab_size or files.vocab_size
    on = progress(files.tokens * corpus.ITEM_BYTES[files.shards[0].dtype])
    listed: list[Record] = []
    faulty = largest = 0
    for shard in files.shards:
        wrong, highest = _shard(shard, known, on)
        listed, faulty, largest = listed + wrong, faulty + bool(wrong), max(largest, highest)
    sizes = {"shards": len(files.shards), "valid": len(files.shards) - faulty}
    ids = {"tokens": files.tokens, "documents": files.documents, "vocab_size": known, "max_token": largest}
    return {"source": source, **sizes, **ids, **_listed(listed)}


def _line(place: Location, number: int, line: bytes) -> Iterator[Record]:
    where = f"{place.typed}:{number}"
    try:
        line.decode() if place.suffix == ".txt" else corpus.text_of(where, line)
    except UnicodeDecodeError:
        yield {"line": number, "field": None, "message": f"{where} is not UTF-8"}
    except UserError as e:
        yield {"line": number, "field": "text" if "text" in e.what.removeprefix(where) else None, "message": e.what}


def _shard(shard: Shard, vocab_size: int | None, on: Any) -> tuple[list[Record], int]:
    """Its faults, the first of each sort, and its largest id."""
    name, limit = shard.place.typed, vocab_size or 1 << 31  # rows are int32
    faults, largest, checksum, outside, where = [], 0, 0, 0, None
    for offset, ids in documents.scan(shard):
        on(ids.nbytes)
        checksum = zlib.crc32(ids.tobytes(), checksum)
        largest = max(largest, int(ids.max()))
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
    return faults, largest


def _fault(file: str, offset: int | None, message: str) -> Record:
    return {"file": file, "offset": offset, "message": message}


def _listed(faults: list[Record]) -> Record:
    return {"num_faults": len(faults), "faults": faults[:_LISTED]}
