"""How long the text or the tokens of a pretraining recipe last, by what the readers of training count (train/pretrain/data_check.py)."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

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


def look(recipe: PretrainRecipe, vocab_size: int, cwd: Path) -> tuple[TokenCounts | None, list[Finding]]:
    """How much there is, where that is known, and what is wrong with it."""
    data = recipe.data
    if data.source == "arithmetic" and data.tokenizer == "bytes":
        return _generated(data, vocab_size)
    if patience.left_out("data"):
        return None, []
    if "://" in data.source:
        why = _unreachable(data.source)
        if why:
            what = f"how long the data lasts is not known: {why.what}"
            return None, [Finding("data", "inconclusive", what, why.fix, why.code)]
    counts, findings = None, []
    for record in token_lengths.checked_texts(recipe, cwd):
        if record.get("code") == _TOKENS:
            counts = TokenCounts(**{field.name: record[field.name] for field in dataclasses.fields(TokenCounts)})
        else:
            findings.append(token_lengths.finding(record))
    return counts, findings


def _unreachable(source: str) -> UserError | None:
    """The client of a store that does not answer tries again for minutes, which no plan waits for."""
    try:
        Location.require_client(source)
    except UserError as e:
        return e
    why = patience.no_connection(source)
    if not why:
        return None
    return UserError(f"{source} cannot be reached: {why}", "check the network, or copy the data here", "no-connection")


def _generated(data: PretrainData, vocab_size: int) -> tuple[TokenCounts | None, list[Finding]]:
    number = data.num_documents or corpus.GENERATED
    if vocab_size < _BYTE_VOCABULARY:
        what = f"the tokenizer bytes has a vocabulary of {_BYTE_VOCABULARY}, the model one of {vocab_size:,}"
        return None, [
            Finding("data", "error", what, "train a model with a vocabulary as large", "vocabulary-too-small")
        ]
    why, certain = _shortage(number)
    findings = []
    if why:
        fewer, _ = arithmetic_capacity.largest(number, 1, CORPUS_OPERATIONS, CORPUS_NUMBER)
        level: Level = "error" if certain else "inconclusive"
        findings = [Finding("data", level, why, f"type data.num_documents={fewer} or less", "too-few-problems")]
    counts = TokenCounts(number * _GENERATED_TOKENS, number, estimated=True)
    return None if certain else counts, findings


def check(recipe: PretrainRecipe, counts: TokenCounts) -> list[Finding]:
    """How long the data lasts, or why it is too little. Documents that begin at multiples of some tokens are reckoned to take half of
    one more each."""
    source, length, batch_size = recipe.data.source, recipe.sequence_length, recipe.batch_size
    num_held = recipe.evaluation.num_batches * batch_size
    held = num_held * length + 1
    padding = (counts.documents or 0) * (recipe.model.document_multiple - 1) // 2
    rows = -(-(counts.tokens + padding - held) // length)
    if counts.tokens <= length:
        wrong = f"sequence_length={length:,} is more than all {counts.about} of {source}"
        wanted, present = length, counts.tokens
    elif 2 * held > counts.tokens:
        wrong = f"{counted(num_held, 'row')} of {length:,} tokens held out of {source} are most of its {counts.about}"
        wanted, present = 2 * held, counts.tokens
    elif rows < batch_size:
        wrong = f"batch_size={batch_size} is more than the {counted(rows, 'row')} of {length:,} tokens in {source}"
        wanted, present = batch_size, rows
    else:
        return _lasting(recipe, counts, rows, held)
    # an estimate may be wrong
    level: Level = "warning" if counts.estimated and wanted <= _ESTIMATE_WITHIN * present else "error"
    return [Finding("data", level, wrong, _remedy(recipe, counts), "too-few-tokens")]


def _remedy(recipe: PretrainRecipe, counts: TokenCounts) -> str:
    """What to do about too little data."""
    length, num_held = recipe.sequence_length, recipe.evaluation.num_batches * recipe.batch_size
    enough = max(2 * (num_held * length + 1), (num_held + recipe.batch_size) * length)
    if recipe.data.source == "arithmetic":
        more = -(-enough * (counts.documents or 1) // counts.tokens)
        if not _shortage(more)[0]:
            return f"type data.num_documents={more} or more"
    return f"give at least {enough:,} tokens, or type a smaller batch_size or sequence_length"


def _lasting(recipe: PretrainRecipe, counts: TokenCounts, rows: int, held: int) -> list[Finding]:
    source, batch_size, max_steps = recipe.data.source, recipe.batch_size, recipe.training.max_steps
    about = counts.about
    if counts.documents == 1:
        about += f", the last {held:,} of them held out,"
    documents = f" in {counted(counts.documents, 'document')}" if counts.documents else ""
    seen = f"{max_steps * batch_size / rows:.2g}"
    message = (
        f"{source} holds {about}{documents}: one epoch is {counted(rows // batch_size, 'step')} of "
        f"{batch_size * recipe.sequence_length:,} tokens; training.max_steps={max_steps:,} is {seen} epoch{'s' * (seen != '1')}"
    )
    if counts.looked_at is not None:
        message += f"; {counts.looked_at:,} of its ids were looked at"
    if source != "arithmetic" and (counts.looked_at is not None or counts.estimated):
        message += f"; `podwright data check {shlex.quote(source)}{recipe.data.check_options}` reads all"
    findings = [Finding("data", "info", message)]
    num_epochs = recipe.data.num_epochs
    lasts = num_epochs * rows // batch_size
    if num_epochs and lasts < max_steps:
        number = f"{'about ' if counts.estimated else ''}{lasts:,} of {counted(max_steps, 'step')}"
        need = -(-max_steps * batch_size // rows)
        fix = f"type training.max_steps={lasts} or data.num_epochs={need}, or give more data"
        wrong = f"{source} is used up after {number}, {counted(num_epochs, 'epoch')}"
        findings.append(Finding("data", "warning", wrong, fix, "data-used-up"))
    return findings


def _shortage(num_documents: int) -> tuple[str, bool]:
    return arithmetic_capacity.shortage(num_documents, 1, CORPUS_OPERATIONS, CORPUS_NUMBER)
