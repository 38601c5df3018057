"""What `python -m podwright.train check` says of pretraining: the data and the tokenizer, by the readers of training.

It runs in a process of its own, without JAX and grain. Small files are read to their end, of larger ones both ends and pieces between.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

from podwright.data import rows, texts, token_files
from podwright.data.texts import SampledTexts
from podwright.data.token_files import TokenFiles
from podwright.data.tokenizer import Tokenizer
from podwright.errors import counted
from podwright.recipe import corpus, dimensions
from podwright.recipe.corpus import TokenCounts
from podwright.recipe.location import Location
from podwright.recipe.pretrain import PretrainData, PretrainRecipe
from podwright.rundir import Record
from podwright.train.answers import collected, record

_GENERATED = 1_000  # problems that stand for all
_IDS = 1 << 23, 1 << 18  # that are looked at, of this machine's files and of a store's: a fraction of a second
_ENDS_BYTES = 1 << 23, 1 << 18  # of the files that say where documents end, likewise


def findings(recipe: PretrainRecipe) -> list[Record]:
    """Each {check, level, code, message, fix}; that of the code `tokens` has their numbers besides."""
    return collected("data", lambda: _records(recipe), extra="jax")


def _records(recipe: PretrainRecipe) -> Iterator[Record]:
    dims = dimensions.find(recipe.model.name, recipe.model.gate, recipe.model.kda)
    counts, warnings = _counts(recipe.data, dims.vocab_size, recipe.seed)
    yield record("data", "info", "", "", "tokens") | dataclasses.asdict(counts)
    for warning in warnings:
        yield record("data", "warning", *warning, "warning")


def _counts(data: PretrainData, vocab_size: int, seed: int) -> tuple[TokenCounts, list[tuple[str, str]]]:
    """How much there is, and (what is wrong, what to do) of what training takes all the same."""
    if corpus.is_text(data.source):
        return _of_text(data, vocab_size, seed)
    place = Location.of(data.source)
    tokenizer = texts.find_tokenizer(data.source, data.tokenizer)
    if records := token_files.records(place):
        return _of_records(records, vocab_size), token_files.unread(place, records)
    files = token_files.look(place)
    token_files.require_fits(files.vocab_size, vocab_size, data.source)
    if tokenizer is not None:
        token_files.require_fits(tokenizer.vocab_size, vocab_size, f"the tokenizer {data.tokenizer or data.source}")
    counts = _of_shards(files, data, vocab_size)
    return counts, token_files.unread(place, [shard.place for shard in files.shards])


def _of_text(data: PretrainData, vocab_size: int, seed: int) -> tuple[TokenCounts, list[tuple[str, str]]]:
    tokenizer = texts.tokenizer_of_text(data.source, data.tokenizer, vocab_size)
    if data.source == "arithmetic":
        total = data.num_documents or corpus.GENERATED
        listed = list(itertools.islice(texts.read("arithmetic", min(total, _GENERATED), seed), _GENERATED))
        size = round(sum(map(len, listed)) * total / len(listed))
        sample = SampledTexts(listed, total, size, 0, complete=total == len(listed))
    else:
        sample = texts.sampled(data.source, columns=data.columns)
    tokenizer.require_known(sample.texts)
    counts = _tokenized(sample, tokenizer, is_bytes=data.tokenizer == "bytes")
    if counts.tokens == counts.documents:
        raise token_files.nothing_to_predict(data.source)
    if not sample.num_empty:
        return counts, []
    about = "" if sample.complete else "about "
    what = f"{data.source}: {about}{sample.num_empty:,} of {counted(sample.documents, 'text')} are empty"
    return counts, [(what, "remove these lines")]


def _tokenized(sample: SampledTexts, tokenizer: Tokenizer, is_bytes: bool) -> TokenCounts:
    """The tokens of a text, by those of what was read; each byte is one where the tokenizer is `bytes`."""
    ends = len(tokenizer.documents([""])[0])  # tokens around every document
    per_byte = 1.0
    if not is_bytes:
        num_bytes = sum(len(text.encode()) for text in sample.texts)
        inner = sum(map(len, tokenizer.documents(sample.texts))) - ends * len(sample.texts)
        per_byte = inner / num_bytes if num_bytes else 0.0
    tokens = round(per_byte * sample.num_bytes) + ends * sample.documents
    return TokenCounts(tokens, sample.documents, estimated=not sample.complete)


def _of_records(records: list[Location], vocab_size: int) -> TokenCounts:
    """Records do not say how long they are: all are read where they are few, else every file is opened."""
    size = sum(file.size() for file in records)
    if size > rows.SMALL_BYTES:
        for file in records:
            token_files.require_record(file)
        item_bytes = np.dtype(token_files.id_dtype(vocab_size)).itemsize
        return TokenCounts(size // item_bytes, None, estimated=True, looked_at=0)
    lengths = [len(ids) for file in records for ids in token_files.read_records(file, vocab_size)]
    return TokenCounts(sum(lengths), sum(map(bool, lengths)))


def _of_shards(files: TokenFiles, data: PretrainData, vocab_size: int) -> TokenCounts:
    """By their headers. Looked at are the first ids of each, and as many ends of documents as are read in a moment."""
    if files.tokens == files.documents:
        raise token_files.nothing_to_predict(data.source)
    in_store = files.place.local is None
    left = _ENDS_BYTES[in_store]
    most = max(1, _IDS[in_store] // len(files.shards))
    seen = num_ends = 0
    for shard in files.shards:
        left -= 8 * (shard.documents or 0)
        if shard.documents and left >= 0:
            token_files.ends(shard, None)
        stop = shard.header + min(most, shard.tokens) * shard.dtype.itemsize
        ids = np.frombuffer(shard.place.read(shard.header, stop), shard.dtype)
        token_files.require_in_vocabulary(ids, vocab_size, shard.place.typed, 0)
        seen += len(ids)
        num_ends += 0 if data.eos_id is None else int((ids == data.eos_id).sum())
    if data.eos_id is not None and not files.documents and seen == num_ends == files.tokens:
        raise token_files.nothing_to_predict(data.source, data.eos_id)
    return TokenCounts(files.tokens, files.documents, looked_at=None if seen == files.tokens else seen)
