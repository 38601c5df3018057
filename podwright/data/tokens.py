"""Rows of packed tokens to train a language model on: which token stands in which row of which epoch, and who reads which row.

Documents come in an order drawn by (seed, epoch), one after another, and the stream is cut every `sequence_length` tokens, so that no
token is lost or seen twice in an epoch and every epoch has as many rows; documents may be told to begin at multiples of a
number of tokens, with nothing before them. The rows come in an order of their own, or the pieces
of a long document would stand in one batch. Row i is a function of the sources, the seed and i alone: a resume needs only the step.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator
from typing import Any

import grain
import numpy as np

from podwright.data.documents import Documents
from podwright.data.token_files import Ids
from podwright.errors import UserError

Row = dict[str, Ids]
_THREADS, _AHEAD = 8, 16  # batches; most of a thread's time goes by while a store answers
_KEPT = 2  # epochs whose order is kept: the one that ends and the one that is read ahead
_ENDLESS = 1 << 40  # steps; grain reckons lengths in floating point
_HOLDOUT = 1 << 32  # in an epoch's place: the draw that holds documents out


class Rows:
    """`len(rows)` rows an epoch; row i of all epochs, i counted on over them, is `rows[i]`.

    A row has, each [sequence_length]: tokens and targets (the next token) int32; segment_ids int32, 1, 2, ... by document
    and 0 where nothing stands; positions int32, from 0 in each document; loss_mask bool, where the target belongs to the same document.
    """

    def __init__(
        self,
        documents: Documents,
        sequence_length: int,
        *,
        seed: int = 0,
        limit: int | None = None,
        multiple_of: int = 1,
    ):
        self.documents, self.sequence_length, self.seed = documents, sequence_length, seed
        self._room = _room(documents, multiple_of)
        self._tokens = int(self._room.sum())
        self._rows = -(-self._tokens // sequence_length)
        self._limit = limit or self._rows
        self._orders: dict[int, tuple[Ids, Ids, Ids]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return min(self._limit, self._rows)

    def __iter__(self) -> Iterator[Row]:
        """One epoch."""
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> Row:
        epoch, turn = divmod(i, len(self))
        order, ends, turns = self._order(epoch)
        first = int(turns[turn]) * self.sequence_length
        last = min(first + self.sequence_length + 1, self._tokens)
        at = int(np.searchsorted(ends, first, "right"))
        pieces, starts, here = [], [], first
        while here < last:
            begin = int(ends[at - 1]) if at else 0
            number = int(order[at])
            size = int(self.documents.length[number])
            if here - begin < size:
                pieces.append((number, here - begin, min(last - begin, size)))
                starts.append(here - first)
            here, at = min(last, int(ends[at])), at + 1
        return _packed(self.documents.read(pieces), starts, self.sequence_length)

    def _order(self, epoch: int) -> tuple[Ids, Ids, Ids]:
        """The documents in the order of an epoch, where each ends in the stream, and the order of the rows."""
        with self._lock:
            if epoch not in self._orders:
                order = _drawn(len(self.documents), self.seed, epoch, 0)
                turns = _drawn(self._rows, self.seed, epoch, 1) if self._limit >= self._rows else np.arange(self._limit)
                self._orders = dict([*self._orders.items()][1 - _KEPT :])
                self._orders[epoch] = (order, np.cumsum(self._room[order]), turns)
            return self._orders[epoch]


def _drawn(size: int, *seed: int) -> Ids:
    """A permutation; PCG64's raw bits are the same with every version of NumPy, the permutations it makes of them are not."""
    return np.argsort(np.random.PCG64(list(seed)).random_raw(size), kind="stable")


def _room(documents: Documents, multiple_of: int) -> Ids:
    """Tokens that each document takes in the stream."""
    return -(-documents.length // multiple_of) * multiple_of


def _packed(pieces: list[Ids], starts: list[int], length: int) -> Row:
    ids, segments, positions = (np.zeros(length + 1, np.int32) for _ in range(3))
    for number, (here, piece) in enumerate(zip(starts, pieces, strict=True), 1):
        stop = here + len(piece)
        ids[here:stop], segments[here:stop], positions[here:stop] = piece, number, np.arange(len(piece))
    mask = (segments[:-1] > 0) & (segments[:-1] == segments[1:])
    return {
        "tokens": ids[:-1],
        "targets": np.where(mask, ids[1:], 0).astype(np.int32),
        "segment_ids": segments[:-1],
        "positions": positions[:-1],
        "loss_mask": mask,
    }


def split(
    everything: Documents,
    sequence_length: int,
    holdout: int = 0,
    seed: int = 0,
    multiple_of: int = 1,
    first: int | None = None,
) -> tuple[Rows, Rows | None]:
    """(training, held out): documents drawn by `seed` that fill `holdout` rows are never trained on; None when holdout is 0.

    Where these would be most of the tokens, as of a single document, the last of them is cut: its end is held out, the rest trains.
    `first`: the number of documents among which they are drawn, where others were appended since.
    """
    documents = everything.only(np.arange(len(everything))[:first])
    appended = everything.only(np.arange(len(everything))[len(documents) :])
    if documents.tokens <= sequence_length:
        raise UserError(
            f"sequence_length={sequence_length:,} is more than all {documents.tokens:,} tokens of {documents.source}",
            f"type a sequence_length of {max(1, documents.tokens // 10):,} or less, or give more data",
            "too-few-tokens",
        )
    if not holdout:
        return Rows(everything, sequence_length, seed=seed, multiple_of=multiple_of), None
    order = _drawn(len(documents), seed, _HOLDOUT)
    wanted = holdout * sequence_length + 1
    count = int(np.searchsorted(np.cumsum(_room(documents, multiple_of)[order]), wanted)) + 1
    held = documents.only(np.sort(order[:count]))
    rest = documents.only(np.sort(order[count:]))
    if count >= len(documents) or held.tokens > documents.tokens // 2:
        if 2 * wanted > documents.tokens:
            raise UserError(
                f"{holdout} rows of {sequence_length:,} tokens held out of {documents.source} are most of its {documents.tokens:,} tokens "
                f"in {len(documents):,} documents",
                "hold out fewer rows, or give more data",
                "too-few-tokens",
            )
        before = int(_room(documents, multiple_of)[order[: count - 1]].sum())
        rest, held = _cut(documents, order, count, wanted - before)
    make_rows = functools.partial(Rows, sequence_length=sequence_length, seed=seed, multiple_of=multiple_of)
    return make_rows(rest.joined(appended)), make_rows(held, limit=holdout)


def _cut(documents: Documents, order: Ids, count: int, wanted: int) -> tuple[Documents, Documents]:
    """(training, held out) where of the last of the first `count` documents in `order` only `wanted` tokens are held out."""
    last = int(order[count - 1])
    size = int(documents.length[last])
    kept = max(0, size - wanted)
    before = documents.only(np.append(np.sort(order[: count - 1]), last))
    after = documents.only(np.append(np.sort(order[count:]), last))
    before.start[-1], before.length[-1] = before.start[-1] + kept, size - kept
    after.length[-1] = kept
    return after.only(np.flatnonzero(after.length)), before


class Batches:
    """Batches {name: [rows of this process, sequence_length]} in order, read ahead by threads, until the data is used up."""

    def __init__(self, dataset: Any, num_steps: int | None):
        self._dataset = dataset
        self.num_steps = num_steps
        """steps from the first of the run on; None: the data is repeated for ever"""
        self.waited_s = 0.0
        """seconds that the last batch was waited for"""

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Row:
        began = time.monotonic()
        batch: Row = next(self._dataset)
        self.waited_s = time.monotonic() - began
        return batch

    def close(self) -> None:
        self._dataset.close()


class _Mine:
    """The rows of one process, step after step from `start_step` on: what grain reads."""

    def __init__(self, rows: Rows, batch_size: int, start_step: int, mine: range, num_steps: int | None):
        self._rows, self._batch_size, self._start, self._mine = rows, batch_size, start_step, mine
        steps = _ENDLESS if num_steps is None else max(0, num_steps - start_step)
        self._size = steps * len(mine)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, i: Any) -> Row:
        step, k = divmod(int(i), len(self._mine))
        return self._rows[(self._start + step) * self._batch_size + self._mine[k]]


def batches(
    rows: Rows, batch_size: int, start_step: int = 0, process_rows: slice | None = None, max_epochs: int | None = None
) -> Batches:
    """The batches from step `start_step` on; this process gets the rows `process_rows` of each batch (default: all).

    Batch s holds the rows s * batch_size ... of all epochs. After `max_epochs` of them (None: never) there are no more;
    what does not fill a batch is left out. UserError when one epoch does not fill a batch.
    """
    if len(rows) < batch_size:
        raise UserError(
            f"batch_size={batch_size} is more than the {len(rows):,} rows of {rows.sequence_length:,} tokens in {rows.documents.source}",
            f"type batch_size={len(rows)} or less, or give more data",
            "too-few-tokens",
        )
    num_steps = None if max_epochs is None else max_epochs * len(rows) // batch_size
    mine = range(batch_size)[process_rows or slice(None)]
    source = _Mine(rows, batch_size, start_step, mine, num_steps)
    dataset = grain.MapDataset.source(source).batch(len(mine))
    return Batches(
        iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=_THREADS, prefetch_buffer_size=_AHEAD))), num_steps
    )
