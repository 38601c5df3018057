"""Questions as padded token rows, and the order in which training uses them: a pure function of seed and count."""

from __future__ import annotations

import dataclasses

import numpy as np

from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.recipe import schema
from podwright.recipe.worked_examples import Example


@dataclasses.dataclass(frozen=True)
class Prompts:
    examples: tuple[Example, ...]
    texts: tuple[str, ...]
    tokens_NS: np.ndarray
    """int32, padded on the right"""
    lengths_N: np.ndarray
    left_out: int
    """prompts longer than max_prompt_length, which are not here"""

    def __len__(self) -> int:
        return len(self.examples)

    def take(self, indices: np.ndarray) -> Prompts:
        return Prompts(
            tuple(self.examples[i] for i in indices),
            tuple(self.texts[i] for i in indices),
            self.tokens_NS[indices],
            self.lengths_N[indices],
            0,
        )

    def indices(self, used: int, size: int, seed: int) -> np.ndarray:
        """The next `size` questions after `used` of them: every epoch is a new shuffle, no question is skipped."""
        counts = np.arange(used, used + size)
        epochs = counts // len(self)
        orders = {int(e): np.random.default_rng([seed, int(e)]).permutation(len(self)) for e in np.unique(epochs)}
        return np.array([orders[int(e)][n % len(self)] for e, n in zip(epochs, counts, strict=True)])


def encode(examples: list[Example], tokenizer: Tokenizer, data: schema.GrpoData, max_length: int) -> Prompts:
    """Chat-formatted questions that fit `max_length` tokens; the others are counted, never cut."""
    texts = [tokenizer.chat(e.question, data.instruction, data.enable_thinking) for e in examples]
    rows = [tokenizer.encode(text) for text in texts]
    kept = [i for i, row in enumerate(rows) if len(row) <= max_length]
    if not kept:
        shortest = min((len(row) for row in rows), default=0)
        raise UserError(
            f"none of the {len(rows)} prompts fits rollout.max_prompt_length={max_length}",
            f"type rollout.max_prompt_length={shortest} or more" if rows else "give data with at least one question",
        )
    return Prompts(
        tuple(examples[i] for i in kept),
        tuple(texts[i] for i in kept),
        pad([rows[i] for i in kept], max_length, tokenizer.pad_id),
        np.array([len(rows[i]) for i in kept], np.int32),
        len(rows) - len(kept),
    )


def pad(rows: list[list[int]], length: int, pad_id: int) -> np.ndarray:
    """int32 [len(rows), length], filled up on the right."""
    out = np.full((len(rows), length), pad_id, np.int32)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def bucket(longest: int, limit: int) -> int:
    """The number of token columns to work on: `limit` halved as often as `longest` still fits, at most three times.

    Few sizes, so that a program is compiled at most four times; the largest is the one that the plan looked at.
    """
    size = limit
    while size % 2 == 0 and size // 2 >= max(longest, -(-limit // 8)):
        size //= 2
    return size
