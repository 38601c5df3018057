"""Answers that always parse: what is the same in every answer is written, not asked for; a field is one of its values.

A value is found by walking the tree of its tokens, the likeliest branch at a time; a text is any tokens that leave JSON whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from typing import Any

import torch
from torch import Tensor

from podwright.data.tokenizer import Tokenizer
from podwright.recipe import answers
from podwright.recipe.answers import AnswerSchema
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.train.multimodal import updates
from podwright.train.multimodal.networks.model import Phase2

Choice = list[int] | Tensor
"""ids that may stand next, or a mask of them"""
Writing = Generator[int | Choice, int, None]
"""gives tokens to write, and choices, which are answered with one of them"""


class Grammar:
    """What may stand where, in the tokens of one tokenizer."""

    def __init__(self, tokenizer: Tokenizer, schema: AnswerSchema, max_new_tokens: int):
        self.tokenizer, self.schema, self.max_new_tokens = tokenizer, schema, max_new_tokens
        empty = schema.pieces(dict.fromkeys((*schema.fields, *schema.texts), ""))
        self.fixed = [tokenizer.encode(text) for field, text in empty if not field]
        """what stands before each field, and after the last"""
        self.values = {}
        for field, options in schema.options.items():
            self.values[field] = {value: tokenizer.encode(answers.written(value)) for value in options}
        alone = [tokenizer.decode([i], skip_special_tokens=False) for i in range(tokenizer.vocab_size)]
        free = []
        for text in alone:
            needs_escape = any(c in '"\\' or c < " " for c in text)
            free.append(bool(text) and not needs_escape)
        self.free = torch.tensor(free)
        self.free[[*tokenizer.stop_ids, tokenizer.pad_id, tokenizer.end_id]] = False
        self.begins = self.free & torch.tensor([bool(text.strip()) for text in alone])

    def writing(self, texts: bool) -> Writing:
        """One answer; without `texts` it ends after the fields."""
        chosen: dict[str, Any] = {}
        for n, field in enumerate(self.schema.fields):
            yield from self.fixed[n]
            chosen[field] = yield from self._value(field, chosen, self.fixed[n + 1][0])
        if not texts:
            return
        for n, _ in enumerate(self.schema.texts, len(self.schema.fields)):
            yield from self.fixed[n]
            yield from self._text(self.fixed[n + 1][0])
        yield from self.fixed[-1]

    def _value(self, field: str, chosen: dict[str, Any], after: int) -> Generator[int | Choice, int, Any]:
        """`after` is what follows a value; choosing it ends one that is the beginning of another."""
        left = self.values[field]
        if self.schema.is_rating(field):
            left = {value: left[value] for value in self.schema.allowed(field, chosen)}
        depth = 0
        while len(left) > 1:
            complete = [value for value, ids in left.items() if len(ids) == depth]
            branches = {ids[depth] for ids in left.values() if len(ids) > depth}
            among = sorted(branches | ({after} if complete else set()))
            token = among[0] if len(among) == 1 else (yield among)
            if complete and token == after:
                return complete[0]
            left = {value: ids for value, ids in left.items() if len(ids) > depth and ids[depth] == token}
            depth += 1
            yield token
        ((value, ids),) = left.items()
        yield from ids[depth:]
        return value

    def _text(self, after: int) -> Writing:
        open_ = self.free.clone()
        open_[after] = True
        for n in range(self.max_new_tokens):
            token = yield (open_ if n else self.begins)
            if token == after and n:
                return
            yield token


@dataclasses.dataclass
class _Row:
    writing: Writing
    next: int | Choice | None
    """a token that is to be written, or a choice; None at the end"""
    written: list[int] = dataclasses.field(default_factory=list)

    def settle(self, logits: Tensor) -> None:
        """Make the choice that is open by the `logits` of the newest token."""
        if isinstance(self.next, list):
            self.next = self.writing.send(self.next[int(logits[self.next].argmax())])
        elif isinstance(self.next, Tensor):
            mask = self.next.to(logits.device)
            known = logits[: len(mask)].masked_fill(
                ~mask, float("-inf")
            )  # a model may have more rows than its tokenizer has tokens
            self.next = self.writing.send(int(known.argmax()))

    def take(self, pad_id: int) -> int:
        """The token to feed next; padding after the end."""
        if self.next is None:
            return pad_id
        assert isinstance(self.next, int)
        token = self.next
        self.written.append(token)
        self.next = next(self.writing, None)
        return token


@torch.no_grad()
def answered(
    model: Phase2,
    grammar: Grammar,
    recipe: MultimodalRecipe,
    prompts: Sequence[list[int]],
    features: Tensor,
    present: Tensor,
    *,
    texts: bool,
) -> list[str]:
    """The likeliest answer to each prompt with its features, as the text of JSON; with `texts` false its beginning."""
    device, pad_id = features.device, grammar.tokenizer.pad_id
    was_training = model.training
    model.eval()
    rows = []
    for _ in prompts:
        writing = grammar.writing(texts)
        rows.append(_Row(writing, next(writing)))
    with updates.autocast(recipe, device):
        soft = model.projector(features, present)
        width = max(map(len, prompts))
        tokens = torch.tensor([[pad_id] * (width - len(p)) + p for p in prompts], device=device)
        num_soft = soft.shape[1]
        seen = torch.tensor([[0] * (width - len(p)) + [1] * (num_soft + len(p)) for p in prompts], device=device)
        inputs = torch.cat([soft, model.embed(tokens).to(soft.dtype)], 1)
        # soft tokens stand first in a line, so padding goes between them and the left edge
        order = torch.stack([_rolled(inputs.shape[1], width - len(p), num_soft) for p in prompts]).to(device)
        inputs = inputs.gather(1, order[..., None].expand_as(inputs))
        positions = (seen.cumsum(1) - 1).clamp(min=0)
        cache = None
        while True:
            out = model.llm.model(
                inputs_embeds=inputs, attention_mask=seen, position_ids=positions, past_key_values=cache, use_cache=True
            )
            cache, newest = out.past_key_values, out.last_hidden_state[:, -1]
            choosing = [n for n, row in enumerate(rows) if not isinstance(row.next, int | None)]
            if choosing:
                for n, logits in zip(choosing, model.llm.lm_head(newest[choosing]).float(), strict=True):
                    rows[n].settle(logits)
            if all(row.next is None for row in rows):
                break
            fed = torch.tensor([[row.take(pad_id)] for row in rows], device=device)
            inputs = model.embed(fed).to(soft.dtype)
            seen = torch.cat([seen, torch.ones_like(fed)], 1)
            positions = seen.sum(1, keepdim=True) - 1
    model.train(was_training)
    return [grammar.tokenizer.decode(row.written, skip_special_tokens=False) for row in rows]


def _rolled(length: int, padding: int, soft: int) -> Tensor:
    """Where each place of a row comes from: padding, which stood after the soft tokens, moves before them."""
    first = torch.arange(soft, soft + padding)
    return torch.cat([first, torch.arange(soft), torch.arange(soft + padding, length)])
