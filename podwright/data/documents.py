"""Documents of token ids out of any source, read by range: which tokens belong together, wherever they lie.

Files of this machine are memory-mapped, those of a store are asked for range by range; text is tokenized once, into memory.
Files of tokens are `token_files.py`; text and its tokenizer are `texts.py`; putting documents into rows is `tokens.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from podwright.data import texts, token_files
from podwright.data.token_files import Ids, Shard
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.recipe import corpus
from podwright.recipe.location import Location, ranges
from podwright.recipe.pretrain import TextColumns

_READ = 1 << 28  # bytes of tokens that a digest reads
_MARKED, _PLACES = 1 << 20, 64  # bytes of a larger file that it reads at one place, and the number of places


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
        mark = hashlib.sha256()
        small = self._are_small()
        for p in np.unique(self.part[:size]):
            mine = np.flatnonzero(self.part[:size] == p)
            begins, lengths = self.start[mine], self.length[mine]
            part, held = self.parts[p], self.mapped[p]
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
        spans = [(d, 0, int(self.length[d])) for d in range(first, len(self))]
        return {hashlib.sha256(ids.tobytes()).digest() for ids in self.read(spans)}

    def _are_small(self) -> bool:
        here = [held for held in self.mapped if held is not None]
        return len(here) == len(self.parts) and sum(held.nbytes for held in here) <= _READ

    def read(self, pieces: Sequence[tuple[int, int, int]]) -> list[Ids]:
        """Tokens [start, stop) of documents, for each (document, start, stop); UserError for ids outside the vocabulary."""
        where = []
        for document, start, stop in pieces:
            begin = int(self.start[document])
            where.append((int(self.part[document]), begin + start, begin + stop))
        documents: list[Ids] = []
        there = iter(self._ask([w for w in where if self.mapped[w[0]] is None]))
        for p, a, b in where:
            mapped = self.mapped[p]
            ids = next(there) if mapped is None else mapped[a:b]
            part = self.parts[p]
            name = part.place.typed if isinstance(part, Shard) else self.source
            token_files.require_in_vocabulary(ids, self.vocab_size, name, a)
            documents.append(ids)
        return documents

    def _ask(self, wanted: list[tuple[int, int, int]]) -> list[Ids]:
        if not wanted:
            return []
        spans = []
        for p, a, b in wanted:
            shard = self.parts[p]
            assert isinstance(shard, Shard)
            item = shard.dtype.itemsize
            spans.append((shard.place, shard.header + a * item, shard.header + b * item))
        dtypes = [self.parts[p].dtype for p, _, _ in wanted]
        return [np.frombuffer(raw, dtype) for raw, dtype in zip(ranges(spans), dtypes, strict=True)]


def load(
    source: str,
    *,
    tokenizer: str = "",
    eos_id: int | None = None,
    vocab_size: int | None = None,
    num_documents: int = 0,
    seed: int = 0,
    columns: TextColumns | None = None,
) -> Documents:
    """The documents of a directory of token shards, a .npy file, a file of text (all also as URLs), `arithmetic`, or a directory of
    .array_record files.

    Files without a word on where documents end are cut at `eos_id`, or into pieces of 65,536 tokens. `vocab_size` is the
    model's; `num_documents` and `seed` are for `arithmetic`. Raises UserError for whatever is wrong with the source.
    """
    if corpus.is_text(source):
        named = texts.tokenizer_of_text(source, tokenizer, vocab_size)
        documents = _tokenized(texts.read(source, num_documents, seed, columns), source, named, vocab_size)
    else:
        documents = _of_files(source, tokenizer, eos_id, vocab_size)
    if documents.length.max() <= 1:  # the next token of a document's last one is not learned
        by_id = None if corpus.is_text(source) or documents.tokens == 1 else eos_id
        raise token_files.nothing_to_predict(source, by_id)
    return documents


def _of_files(source: str, tokenizer: str, eos_id: int | None, vocab_size: int | None) -> Documents:
    loaded = texts.find_tokenizer(source, tokenizer)
    if records := token_files.records(Location.of(source)):
        return _recorded(records, source, loaded, vocab_size)
    files = token_files.look(Location.of(source))
    token_files.require_fits(files.vocab_size, vocab_size, source)
    end_id = files.eos_id if eos_id is None else eos_id
    ends = [token_files.ends(shard, end_id) for shard in files.shards]
    mapped = tuple(_mapped(shard) for shard in files.shards)
    known = vocab_size or files.vocab_size or (loaded.vocab_size if loaded else None)
    return _cut(files.shards, ends, source, known, loaded, mapped)


def _tokenized(documents: Iterator[str], source: str, tokenizer: Tokenizer, vocab_size: int | None) -> Documents:
    held, lengths = [], []
    for ids in texts.tokenized(documents, tokenizer):
        held.append(np.array(ids, token_files.id_dtype(tokenizer.vocab_size)))
        lengths.append(len(ids))
    if not held:
        raise texts.no_documents(source)
    array = np.concatenate(held)
    return _cut((array,), [np.cumsum(lengths)], source, vocab_size, tokenizer, (array,))


def _recorded(files: list[Location], source: str, tokenizer: Tokenizer | None, vocab_size: int | None) -> Documents:
    """Each record a document of little-endian ids, all of them in memory: records do not say how long they are."""
    if vocab_size is None:
        raise UserError(
            f"{source} does not say how wide its ids are", "name the vocabulary they are of", "no-vocabulary"
        )
    arrays, ends = [], []
    for file in files:
        part = [ids for ids in token_files.read_records(file, vocab_size) if ids.size]
        if part:
            arrays.append(np.concatenate(part))
            ends.append(np.cumsum([len(document) for document in part]))
    if not arrays:
        raise UserError(f"{source} has no documents", "give files with records", "no-examples")
    return _cut(tuple(arrays), ends, source, vocab_size, tokenizer, tuple(arrays))


@functools.cache
def _mark(shard: Shard) -> str:
    if shard.crc32 is not None:
        return f"{shard.dtype.name} {shard.tokens} {shard.crc32} {shard.ends_crc32}"
    size = shard.header + shard.tokens * shard.dtype.itemsize
    last = max(0, size - _MARKED)
    checksum = 0
    for n in range(_PLACES):
        begin = n * last // (_PLACES - 1)
        checksum = zlib.crc32(shard.place.read(begin, min(size, begin + _MARKED)), checksum)
    return f"{shard.dtype.name} {shard.tokens} {checksum}"


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


def _mapped(shard: Shard) -> Ids | None:
    path = shard.place.local
    return None if path is None else np.memmap(path, shard.dtype, "r", shard.header, (shard.tokens,)).view(np.ndarray)
