"""Documents of token ids out of any source, read by range: which tokens belong together, wherever they lie.

Files of this machine are memory-mapped, those of a store are asked for range by range; text is tokenized once, into memory.
What a source looks like from outside is `recipe/corpus.py`; text and its tokenizer are `texts.py`; putting documents into rows is `tokens.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grain
import numpy as np

from podwright.data import texts
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.recipe import corpus, document_ends
from podwright.recipe.corpus import Shard
from podwright.recipe.location import Location, ranges

Ids = np.ndarray[Any, Any]
PIECE = 1 << 16
"""Tokens of what stands for a document where nothing says where documents end."""
_READ = 1 << 28  # bytes of tokens that a digest reads
_MARKED, _PLACES = 1 << 20, 64  # bytes of a larger file that it reads at one place, and the number of places
_SCAN = 1 << 22  # tokens at a time


@dataclasses.dataclass(frozen=True)
class Documents:
    parts: tuple[Shard | Ids, ...]
    """files, or arrays in memory"""
    part: Ids
    """[D] the part that each document lies in"""
    start: Ids
    """[D] its first token there"""
    length: Ids
    """[D] in tokens"""
    source: str
    vocab_size: int | None = None
    """ids below it are good; None: not known, and not looked at"""
    tokenizer: Tokenizer | None = None
    mapped: tuple[Ids | None, ...] = ()

    @property
    def tokens(self) -> int:
        return int(self.length.sum())

    def __len__(self) -> int:
        return len(self.length)

    def only(self, which: Ids) -> Documents:
        return dataclasses.replace(self, part=self.part[which], start=self.start[which], length=self.length[which])

    def joined(self, others: Documents) -> Documents:
        """These, and behind them `others` of the same parts."""
        part, start, length = (
            np.concatenate([getattr(self, name), getattr(others, name)]) for name in ("part", "start", "length")
        )
        return dataclasses.replace(self, part=part, start=start, length=length)

    def digest(self, size: int) -> str:
        """Of the first `size` documents: of their tokens up to 256 MiB of them; else of their files and of where in these they lie.

        Of a file so large that says no checksum of its tokens, 64 places are read.
        """
        mark, small = hashlib.sha256(), self._are_small()
        for p in np.unique(self.part[:size]):
            mine = np.flatnonzero(self.part[:size] == p)
            begins, lengths, part, held = self.start[mine], self.length[mine], self.parts[p], self.mapped[p]
            mark.update(lengths.tobytes())
            if isinstance(part, Shard) and not (small and held is not None):
                mark.update(_mark(part).encode() + begins.tobytes())
                continue
            assert held is not None
            for begin, length in zip(begins, lengths, strict=True):
                mark.update(held[begin : begin + length].tobytes())
        return mark.hexdigest()[:32]

    def marks(self, first: int) -> set[bytes]:
        """Of the tokens of each document behind the first so many; none of files of more than 256 MiB."""
        if any(isinstance(part, Shard) for part in self.parts) and not self._are_small():
            return set()
        return {
            hashlib.sha256(ids.tobytes()).digest()
            for ids in self.read([(d, 0, int(self.length[d])) for d in range(first, len(self))])
        }

    def _are_small(self) -> bool:
        here = [held for held in self.mapped if held is not None]
        return len(here) == len(self.parts) and sum(held.nbytes for held in here) <= _READ

    def read(self, pieces: Sequence[tuple[int, int, int]]) -> list[Ids]:
        """Tokens [start, stop) of documents, for each (document, start, stop); UserError for ids outside the vocabulary."""
        where = [(int(self.part[d]), int(self.start[d]) + a, int(self.start[d]) + b) for d, a, b in pieces]
        documents: list[Ids] = []
        there = iter(self._ask([w for w in where if self.mapped[w[0]] is None]))
        for p, a, b in where:
            mapped = self.mapped[p]
            ids = next(there) if mapped is None else mapped[a:b]
            self._held_to_vocabulary(ids, p, a)
            documents.append(ids)
        return documents

    def _ask(self, wanted: list[tuple[int, int, int]]) -> list[Ids]:
        if not wanted:
            return []
        spans = []
        for p, a, b in wanted:
            shard = self.parts[p]
            assert isinstance(shard, Shard)
            item = corpus.ITEM_BYTES[shard.dtype]
            spans.append((shard.place, shard.header + a * item, shard.header + b * item))
        return [np.frombuffer(raw, _dtype(self.parts[p])) for raw, (p, _, _) in zip(ranges(spans), wanted, strict=True)]

    def _held_to_vocabulary(self, ids: Ids, part: int, start: int) -> None:
        if self.vocab_size is None or not ids.size or (ids.max() < self.vocab_size and ids.min() >= 0):
            return
        shard = self.parts[part]
        where = shard.place.typed if isinstance(shard, Shard) else self.source
        at = int(np.flatnonzero((ids >= self.vocab_size) | (ids < 0))[0])
        raise corpus.out_of_range(where, start + at, int(ids[at]), self.vocab_size)


def load(
    source: str,
    *,
    tokenizer: str = "",
    eos_id: int | None = None,
    vocab_size: int | None = None,
    num_documents: int = 0,
    seed: int = 0,
    cwd: Path = Path(),
) -> Documents:
    """The documents of a directory of token shards, a .npy file, a .jsonl or .txt file (all also as URLs), `arithmetic`,
    or a directory of .array_record files.

    Files without a word on where documents end are cut at `eos_id`, or into pieces of 65,536 tokens. `vocab_size` is the
    model's; `num_documents` and `seed` are for `arithmetic`. Raises UserError for whatever is wrong with the source.
    """
    documents = _of_any(source, tokenizer, eos_id, vocab_size, num_documents, seed, cwd)
    if documents.length.max() <= 1:  # the next token of a document's last one is not learned
        by_id = None if corpus.is_text(source) or documents.tokens == 1 else eos_id
        raise document_ends.nothing_to_predict(source, by_id)
    return documents


def _of_any(
    source: str,
    tokenizer: str,
    eos_id: int | None,
    vocab_size: int | None,
    num_documents: int,
    seed: int,
    cwd: Path,
) -> Documents:
    loaded = texts.find_tokenizer(source, tokenizer, cwd)
    if corpus.is_text(source):
        if loaded is None:
            raise UserError(
                f"{source} is text, and there is no tokenizer for it", "name one: bytes, or a Hugging Face directory"
            )
        corpus.fits(loaded.vocab_size, vocab_size, f"the tokenizer {tokenizer}")
        return _tokenized(texts.read(source, num_documents, seed, cwd), source, loaded, vocab_size)
    if records := corpus.records(Location.of(source, cwd)):
        return _recorded(records, source, loaded, vocab_size)
    files = corpus.look(Location.of(source, cwd))
    corpus.fits(files.vocab_size, vocab_size, source)
    part_ends = [ends(shard, files.eos_id if eos_id is None else eos_id) for shard in files.shards]
    mapped = tuple(_mapped(shard) for shard in files.shards)
    known = vocab_size or files.vocab_size or (loaded.vocab_size if loaded else None)
    return _cut(files.shards, part_ends, source, known, loaded, mapped)


def _tokenized(documents: Iterator[str], source: str, tokenizer: Tokenizer, vocab_size: int | None) -> Documents:
    held, lengths = [], []
    for ids in texts.tokenized(documents, tokenizer):
        held.append(np.array(ids, corpus.id_dtype(tokenizer.vocab_size)))
        lengths.append(len(ids))
    if not held:
        raise UserError(f"{source} has no documents", 'give a file with lines such as {"text": "..."}')
    array = np.concatenate(held)
    return _cut((array,), [np.cumsum(lengths)], source, vocab_size, tokenizer, (array,))


def _recorded(files: list[Location], source: str, tokenizer: Tokenizer | None, vocab_size: int | None) -> Documents:
    """Each record a document of little-endian ids, all of them in memory: records do not say how long they are."""
    if vocab_size is None:
        raise UserError(f"{source} does not say how wide its ids are", "name the vocabulary they are of")
    dtype = np.dtype(corpus.id_dtype(vocab_size)).newbyteorder("<")
    parts = []
    for file in files:
        contents = read_records(file, dtype.itemsize)
        parts.append([np.frombuffer(raw, dtype) for raw in contents if raw])
    if not any(parts):
        raise UserError(f"{source} has no documents", "give files with records")
    arrays = tuple(np.concatenate(part) for part in parts if part)
    return _cut(
        arrays, [np.cumsum([len(d) for d in part]) for part in parts if part], source, vocab_size, tokenizer, arrays
    )


@functools.cache
def _mark(shard: Shard) -> str:
    if shard.crc32 is not None:
        return f"{shard.dtype} {shard.tokens} {shard.crc32} {shard.ends_crc32}"
    size = shard.header + shard.tokens * corpus.ITEM_BYTES[shard.dtype]
    last, checksum = max(0, size - _MARKED), 0
    for n in range(_PLACES):
        begin = n * last // (_PLACES - 1)
        checksum = zlib.crc32(shard.place.read(begin, min(size, begin + _MARKED)), checksum)
    return f"{shard.dtype} {shard.tokens} {checksum}"


def require_records(files: Sequence[Location]) -> None:
    """UserError for the first array_record file that cannot be opened."""
    for file in files:
        next(_records(file), None)


def read_records(file: Location, item_bytes: int) -> list[bytes]:
    """Of an array_record file; UserError where one is not a number of ids of `item_bytes` each."""
    contents = list(_records(file))
    for number, raw in enumerate(contents):
        if len(raw) % item_bytes:
            raise UserError(
                f"{file.typed}: record {number} has {len(raw):,} bytes, which are no uint{8 * item_bytes} ids",
                "write ids of that width",
            )
    return contents


def _records(file: Location) -> Iterator[bytes]:
    try:
        opened = grain.sources.ArrayRecordDataSource([file.path])
        for i in range(len(opened)):
            yield opened[i]
    except (RuntimeError, ValueError) as e:  # of the library's C++ side
        raise UserError(f"{file.typed} cannot be read as array_record", "copy it again") from e


def _cut(
    parts: tuple[Any, ...],
    ends: list[Ids],
    source: str,
    vocab_size: int | None,
    tokenizer: Tokenizer | None,
    mapped: Any,
) -> Documents:
    starts = [np.concatenate([[0], e[:-1]]) for e in ends]
    number = np.repeat(np.arange(len(ends), dtype=np.int32), [len(e) for e in ends])
    start, end = np.concatenate(starts).astype(np.int64), np.concatenate(ends).astype(np.int64)
    return Documents(parts, number, start, end - start, source, vocab_size, tokenizer, mapped)


def ends(shard: Shard, eos_id: int | None) -> Ids:
    """Where each document of a shard ends."""
    if shard.documents is not None:
        content = shard.ends.read()
        document_ends.require_checksum(shard, content)
        try:
            written: Ids = np.load(io.BytesIO(content))
        except (ValueError, EOFError) as e:
            raise document_ends.unreadable(shard) from e
        if written.ndim != 1 or written.dtype.kind not in "iu":
            raise document_ends.unreadable(shard)
        written = written.astype(np.int64)
        if (
            len(written) != shard.documents
            or (len(written) and written[-1] != shard.tokens)
            or (np.diff(written, prepend=0) <= 0).any()
        ):
            raise document_ends.misfit(shard)
        return written
    if eos_id is None:
        return np.append(np.arange(PIECE, shard.tokens, PIECE), shard.tokens)
    at = [np.flatnonzero(ids == eos_id) + offset + 1 for offset, ids in scan(shard)]
    return np.union1d(np.concatenate(at), [shard.tokens])


def scan(shard: Shard) -> Iterator[tuple[int, Ids]]:
    """(offset, tokens) from the first to the last, some millions at a time."""
    offset, dtype = 0, _dtype(shard)
    for raw in shard.place.pieces(shard.header, _SCAN * dtype.itemsize):
        ids = np.frombuffer(raw, dtype)
        yield offset, ids
        offset += len(ids)


def _mapped(shard: Shard) -> Ids | None:
    path = shard.place.local
    return None if path is None else np.memmap(path, _dtype(shard), "r", shard.header, (shard.tokens,)).view(np.ndarray)


def _dtype(shard: Any) -> np.dtype[Any]:
    return np.dtype(shard.dtype).newbyteorder("<")
