"""Which lines a step sees, and in which shape: a function of the seed and the step, so that a resume needs nothing else.

Lines of like length share a batch. A batch is the same set of lines however many processes and micro-batches it is split into.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import random
from collections.abc import Sequence

import torch
from torch import Tensor

from podwright.data.annotated import AnnotatedExample
from podwright.train.multimodal.networks.model import NOWHERE, MultimodalBatch

_WINDOW = 32  # batches among which lines of like length find each other
_ROUND = 8  # lengths are multiples of it
_SIZES = 16  # sizes from one power of two to the next: each new shape is new memory to a GPU's allocator


@dataclasses.dataclass(frozen=True)
class LineBatches:
    examples: list[AnnotatedExample]
    prompts: list[list[int]]
    responses: list[list[int]]
    features: Tensor
    """[N, M, D]"""
    present: Tensor
    """[N, M]"""

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, rows: slice) -> LineBatches:
        prompts, responses = self.prompts[rows], self.responses[rows]
        return LineBatches(self.examples[rows], prompts, responses, self.features[rows], self.present[rows])

    def take(self, rows: Sequence[int]) -> LineBatches:
        return LineBatches(
            [self.examples[i] for i in rows],
            [self.prompts[i] for i in rows],
            [self.responses[i] for i in rows],
            self.features[rows],
            self.present[rows],
        )

    @functools.cached_property
    def lengths(self) -> list[int]:
        return [len(prompt) + len(response) for prompt, response in zip(self.prompts, self.responses, strict=True)]

    def lengths_at(self, rows: Sequence[int]) -> list[int]:
        return [self.lengths[i] for i in rows]

    @functools.cached_property
    def width(self) -> int:
        """Tokens of the widest row: of the longest line."""
        return widest(max(self.lengths))

    def num_targets(self, rows: Sequence[int]) -> int:
        return sum(len(self.responses[i]) for i in rows)


def steps_per_epoch(num_lines: int, batch_size: int) -> int:
    return math.ceil(num_lines / batch_size)


def epoch(lengths: Sequence[int], batch_size: int, seed: int, number: int) -> list[list[int]]:
    """The batches of epoch `number`: every line once, and the first few again to fill the last batch."""
    rng = random.Random(f"order {seed} {number}")
    order = list(range(len(lengths)))
    rng.shuffle(order)
    wanted = steps_per_epoch(len(order), batch_size) * batch_size
    order = [order[i % len(order)] for i in range(wanted)]
    listed = []
    for start in range(0, wanted, _WINDOW * batch_size):
        window = sorted(order[start : start + _WINDOW * batch_size], key=lambda i: lengths[i])
        listed += [window[i : i + batch_size] for i in range(0, len(window), batch_size)]
    rng.shuffle(listed)
    return listed


def collated(lines: LineBatches, rows: Sequence[int], pad_id: int) -> MultimodalBatch:
    width = _width(lines, rows)
    tokens = torch.full((len(rows), width), pad_id)
    labelled: list[int] = []
    for n, i in enumerate(rows):
        prompt, response = lines.prompts[i], lines.responses[i]
        tokens[n, : len(prompt) + len(response)] = torch.tensor(prompt + response)
        labelled += range(n * width + len(prompt), n * width + len(prompt) + len(response))
    labelled += [NOWHERE] * (rounded(len(labelled)) - len(labelled))
    at = torch.tensor(list(rows))
    return MultimodalBatch(lines.features[at], lines.present[at], tokens, torch.tensor(labelled))


def padding(lines: LineBatches, micro: Sequence[Sequence[int]]) -> float:
    """Share of the tokens of these micro-batches that is padding."""
    room = sum(_width(lines, rows) * len(rows) for rows in micro)
    return 1 - sum(sum(lines.lengths_at(rows)) for rows in micro) / room


def _width(lines: LineBatches, rows: Sequence[int]) -> int:
    return min(rounded(max(lines.lengths_at(rows))), lines.width)


def widest(longest: int) -> int:
    """Tokens of the widest row of lines of which none is longer than `longest`."""
    return _multiple(longest, _ROUND)


def rounded(size: int) -> int:
    """The next of the few sizes that batches have: 16 from each power of two to the next, so at most 1/16 is added."""
    return _multiple(size, max(_ROUND, (1 << max(0, size - 1).bit_length()) // 2 // _SIZES))


def _multiple(size: int, of: int) -> int:
    return -(-size // of) * of


class Order:
    """The micro-batches of each step for one of `size` processes."""

    def __init__(self, lengths: Sequence[int], per_device: int, accumulation: int, rank: int, size: int, seed: int):
        self._lengths, self._seed, self._rank, self._size = lengths, seed, rank, size
        self.per_device, self.batch_size = per_device, per_device * accumulation * size
        self.steps_per_epoch = steps_per_epoch(len(lengths), self.batch_size)
        self._epoch: tuple[int, list[list[int]]] = (-1, [])

    def step(self, number: int) -> tuple[list[int], list[list[int]]]:
        """All lines of step `number` (counted from 0), and those of this process in micro-batches."""
        turn, index = divmod(number, self.steps_per_epoch)
        if self._epoch[0] != turn:
            self._epoch = (turn, epoch(self._lengths, self.batch_size, self._seed, turn))
        rows = self._epoch[1][index]
        own = rows[self._rank :: self._size]
        return rows, [own[i : i + self.per_device] for i in range(0, len(own), self.per_device)]
