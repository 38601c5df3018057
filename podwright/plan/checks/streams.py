"""How long the text or the tokens of a pretraining recipe last, by what the readers of training count (train/pretrain/data_check.py)."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import NamedTuple

from podwright.errors import UserError, counted
from podwright.plan.checks import patience, token_lengths
from podwright.plan.findings import Finding, Level
from podwright.recipe import arithmetic_capacity, corpus
from podwright.recipe.arithmetic_capacity import CORPUS_NUMBER, CORPUS_OPERATIONS
from podwright.recipe.corpus import TokenCounts
from podwright.recipe.location import Location
from podwright.recipe.pretrain import PretrainData, PretrainRecipe

_GENERATED_TOKENS = 122
"""of a generated problem, in the mean, with a token for each byte"""
_BYTE_VOCABULARY = 259
_ESTIMATE_WITHIN = 2  # times what is there: an estimate is not wrong by more
_TOKENS = "tokens"
"""code of the record that has the numbers of tokens and documents"""


class SequenceLimits(NamedTuple):
    """What a sequence may have by its model."""

    multiple: int
    """it has a multiple of so many tokens"""
    max_positions: int | None
    """None where the model is not known"""


def _level(counts: TokenCounts, wanted: int, present: int) -> Level:
    """Of data that is too little; an estimate may be wrong."""
    return "warning" if counts.sampled and wanted <= _ESTIMATE_WITHIN * present else "error"


def look(recipe: PretrainRecipe, vocab_size: int, cwd: Path) -> tuple[TokenCounts | None, list[Finding]]:
    """How much there is, where that is known, and what is wrong with it."""
    data = recipe.data
    if data.source == "arithmetic" and data.tokenizer == "bytes":
        return _generated(data, vocab_size)
    if patience.left_out("data"):
        return None, []
    if "://" in data.source:
        try:
            Location.require_client(data.source)
        except UserError as e:
            return None, [Finding("data", "inconclusive", f"how long the data lasts is not known: {e.what}", e.fix)]
    counts, findings = None, []
    for record in token_lengths.checked_texts(recipe, cwd):
        if record.get("code") == _TOKENS:
            counts = TokenCounts(**{field.name: record[field.name] for field in dataclasses.fields(TokenCounts)})
        else:
            findings.append(token_lengths.finding(record))
    return counts, findings


def _generated(data: PretrainData, vocab_size: int) -> tuple[TokenCounts | None, list[Finding]]:
    number = data.num_documents or corpus.GENERATED
    if vocab_size < _BYTE_VOCABULARY:
        what = f"the tokenizer bytes has a vocabulary of {_BYTE_VOCABULARY}, the model one of {vocab_size:,}"
        return None, [Finding("data", "error", what, "train a model with a vocabulary as large")]
    why, certain = _shortage(number)
    if certain:
        return None, [Finding("data", "error", why, _fewer(number))]
    doubts = [Finding("data", "inconclusive", why, _fewer(number))] if why else []
    return TokenCounts(number * _GENERATED_TOKENS, number, "the mean length of a problem"), doubts


def check(recipe: PretrainRecipe, counts: TokenCounts, limits: SequenceLimits) -> list[Finding]:
    """How long the data lasts, or why it is too little. Documents that begin at multiples of some tokens are reckoned to take half of
    one more each."""
    source, length, batch_size = recipe.data.source, recipe.sequence_length, recipe.batch_size
    num_held = recipe.evaluation.num_batches * batch_size
    held = num_held * length + 1
    rows = -(-(_room(recipe, counts) - held) // length)
    all_rows = -(-counts.tokens // length)
    shorter = _shorter(recipe, counts, limits)
    if counts.tokens <= length:
        wrong = f"sequence_length={length:,} is more than all {counts.about} of {source}"
        return [Finding("data", _level(counts, length, counts.tokens), wrong, shorter)]
    if 2 * held > counts.tokens:
        wrong = f"{counted(num_held, 'row')} of {length:,} tokens held out of {source} are most of its {counts.about}"
        return [Finding("data", _level(counts, 2 * held, counts.tokens), wrong, _smaller(recipe, all_rows) or shorter)]
    if rows < batch_size:
        wrong = f"batch_size={batch_size} is more than the {counted(rows, 'row')} of {length:,} tokens in {source}"
        return [Finding("data", _level(counts, batch_size, rows), wrong, _smaller(recipe, all_rows) or shorter)]
    return _lasting(recipe, counts, rows, held)


def largest_batch(rows: int, num_batches: int) -> int:
    """That leaves as many rows to train on as a step takes, and at least as many as are held out, so many batches."""
    return min((rows - 1) // (num_batches + 1), (rows - 1) // (2 * num_batches))


def _room(recipe: PretrainRecipe, counts: TokenCounts) -> int:
    return counts.tokens + (counts.documents or 0) * (recipe.model.document_multiple - 1) // 2


def _smaller(recipe: PretrainRecipe, rows: int) -> str:
    """What to type where a batch, and so many of them that are held out, are more than there is; "" where no batch will do."""
    batch_size, num_batches = recipe.batch_size, recipe.evaluation.num_batches
    fewer = min((rows - 1) // batch_size - 1, (rows - 1) // (2 * batch_size))
    if num_batches > 1 and fewer >= 1:
        return f"type evaluation.num_batches={fewer} or less, or give more data"
    if most := largest_batch(rows, num_batches):
        return f"type batch_size={most} or less, or give more data"
    return ""


def _shorter(recipe: PretrainRecipe, counts: TokenCounts, limits: SequenceLimits) -> str:
    """What to type where no batch is small enough: more made-up problems, or a sequence with which one batch can be held out."""
    length, num_held = recipe.sequence_length, recipe.evaluation.num_batches * recipe.batch_size
    enough = max(2 * (num_held * length + 1), (num_held + recipe.batch_size) * length)
    if recipe.data.source == "arithmetic":
        more = -(-enough * (counts.documents or 1) // counts.tokens)
        if not _shortage(more)[0]:
            return f"type data.num_documents={more} or more"
    size = (counts.tokens // 2 - 1) // recipe.batch_size
    size = min(size, limits.max_positions or size) // limits.multiple * limits.multiple
    give = f"give at least {enough:,} tokens"
    return f"type sequence_length={size} evaluation.num_batches=1, or {give}" if size > 0 else give


def _lasting(recipe: PretrainRecipe, counts: TokenCounts, rows: int, held: int) -> list[Finding]:
    source, batch_size, max_steps = recipe.data.source, recipe.batch_size, recipe.training.max_steps
    about = counts.about
    if counts.documents == 1:
        about += f", the last {held:,} of them held out,"
    documents = f" in {counted(counts.documents, 'document')}" if counts.documents else ""
    how = f" (estimated from {counts.sampled})" if counts.sampled else ""
    seen = f"{max_steps * batch_size / rows:.2g}"
    message = (
        f"{source} holds {about}{documents}{how}: one epoch is {counted(rows // batch_size, 'step')} of "
        f"{batch_size * recipe.sequence_length:,} tokens; training.max_steps={max_steps:,} is {seen} epoch{'s' * (seen != '1')}"
    )
    if not counts.complete:
        message += f"; the rest was not read, `podwright data check {shlex.quote(source)}` reads all of it"
    if counts.looked_at is not None:
        message += (
            f"; of the ids the first {counts.looked_at:,} were looked at, `podwright data check {source}` looks at all"
        )
    findings = [Finding("data", "info", message)]
    num_epochs = recipe.data.num_epochs
    lasts = num_epochs * rows // batch_size
    if num_epochs and lasts < max_steps:
        number = f"{'about ' if counts.sampled else ''}{lasts:,} of {counted(max_steps, 'step')}"
        need = -(-max_steps * batch_size // rows)
        fix = f"type training.max_steps={lasts} or data.num_epochs={need}, or give more data"
        wrong = f"{source} is used up after {number}, {counted(num_epochs, 'epoch')}"
        findings.append(Finding("data", "warning", wrong, fix))
    return findings


def _shortage(num_documents: int) -> tuple[str, bool]:
    return arithmetic_capacity.shortage(num_documents, 1, CORPUS_OPERATIONS, CORPUS_NUMBER)


def _fewer(num_documents: int) -> str:
    fewer, _ = arithmetic_capacity.largest(num_documents, 1, CORPUS_OPERATIONS, CORPUS_NUMBER)
    return f"type data.num_documents={fewer} or less"
