"""Questions as padded token rows, and the order in which training uses them: a pure function of seed and count."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from podwright.data.layouts import Example
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.recipe import schema
from podwright.train.grpo.token_limits import PromptTokens, TokenLimits


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
        orders = {}
        for epoch in np.unique(epochs):
            orders[int(epoch)] = np.random.default_rng([seed, int(epoch)]).permutation(len(self))
        return np.array([orders[int(epoch)][n % len(self)] for epoch, n in zip(epochs, counts, strict=True)])


@dataclasses.dataclass(frozen=True)
class PromptRows:
    """Every question of a part as a chat prompt, however long."""

    examples: Sequence[Example]
    texts: Sequence[str]
    rows: Sequence[list[int]]

    def lengths(self) -> list[int]:
        """In tokens."""
        return [len(row) for row in self.rows]

    def fitting(self, max_length: int, pad_id: int) -> Prompts:
        """Those of at most `max_length` tokens; the others are counted, never cut."""
        kept = [i for i, row in enumerate(self.rows) if len(row) <= max_length]
        return Prompts(
            tuple(self.examples[i] for i in kept),
            tuple(self.texts[i] for i in kept),
            pad([self.rows[i] for i in kept], max_length, pad_id),
            np.array([len(self.rows[i]) for i in kept], np.int32),
            len(self.rows) - len(kept),
        )


def load_tokenizer(path: Path, vocab_size: int) -> Tokenizer:
    """The tokenizer in `path`; UserError where it cannot be read or has ids that a model of `vocab_size` has no row for."""
    loaded = Tokenizer.load(path)
    if loaded.vocab_size > vocab_size:
        raise UserError(
            f"the tokenizer of {path} has {loaded.vocab_size} tokens, the model {vocab_size}",
            "give a checkpoint whose embeddings were resized with its tokenizer",
            "vocabulary-too-small",
        )
    outside = [i for i in loaded.stop_ids if not 0 <= i < vocab_size]
    if outside:
        what = f"eos_token_id={outside[0]} of {path} is outside the model's vocabulary of {vocab_size}"
        raise UserError(
            what,
            "write the id of the token that ends an answer into its generation_config.json",
            "token-outside-vocabulary",
        )
    return loaded


def learned_tokenizer(train: Sequence[Example], vocab_size: int) -> Tokenizer:
    """That of random weights: the same for the same training examples."""
    return Tokenizer.train(["\n".join([*filter(None, [e.system]), e.question, e.solution]) for e in train], vocab_size)


def tokenized(examples: Sequence[Example], tokenizer: Tokenizer, data: schema.GrpoData) -> PromptRows:
    """UserError for a tokenizer or a chat template that makes no prompts of these questions."""
    tokenizer.require_messages("")
    texts = [tokenizer.chat(e.question, data.instruction, data.enable_thinking, e.system) for e in examples]
    tokenizer.require_known(e.question for e in examples)
    rows = [tokenizer.encode(text) for text in texts]
    if not all(rows):
        raise UserError(
            "the tokenizer makes a prompt without a token", "give another tokenizer or chat template", "empty-prompt"
        )
    return PromptRows(examples, texts, rows)


def worked_answers(examples: Sequence[Example], tokenizer: Tokenizer) -> list[list[int]]:
    """Each with the stop token at its end."""
    return [[*tokenizer.encode(e.solution), tokenizer.stop_ids[0]] for e in examples]


def encode(
    examples: Sequence[Example], tokenizer: Tokenizer, data: schema.GrpoData, rollout: schema.Rollout, positions: int
) -> Prompts:
    """The questions of a test that fit; UserError where none does, or there is none. `positions`: of the model."""
    if not examples:
        raise UserError("there is no question to test on", "give data with at least one question", "no-examples")
    encoded = tokenized(examples, tokenizer, data)
    TokenLimits(rollout, positions, [PromptTokens("test", len(examples), encoded.lengths())]).require()
    return encoded.fitting(rollout.max_prompt_length, tokenizer.pad_id)


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
