"""The static plan of a recipe, as the tests of its checks ask for it."""

import contextlib
from pathlib import Path

import pytest

from podwright.plan import kinds
from podwright.plan.checks import token_lengths
from podwright.plan.document import SliceEntry
from podwright.plan.findings import Finding
from podwright.plan.make import make
from podwright.plan.options import Destination, PlanOptions
from podwright.recipe.kinds import Recipe
from podwright.recipe.load import parse
from podwright.rundir import Record
from podwright.slices import Slice
from podwright.train import entry

SMALL_CONFIG = {
    "model_type": "qwen3",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "vocab_size": 384,
}
"""of a config.json"""
DRAWN_GRPO = [
    "qwen3-1.7b-gsm8k-grpo",
    "model.source=random",
    "data.source=arithmetic",
    "data.num_train=1000",
    "data.num_test=200",
    "batch_size=32",
]
"""a recipe that needs no file and no network"""


def check(recipe: Recipe, where: Slice | None, cwd: Path) -> list[Finding]:
    part = kinds.of(recipe)
    return (part.here(recipe) if where is None else []) + part.checks(recipe, where, cwd)


def slice_entry(recipe: Recipe, where: Slice, cwd: Path) -> SliceEntry:
    entry = make(recipe, Destination(where.name, where), PlanOptions(cwd=cwd)).slice
    assert entry is not None
    return entry


def ask_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compute half answers in the test's process, and each question anew."""

    def ask(words: list[str], recipe: Record, cwd: Path) -> tuple[list[Record], str]:
        parsed = parse(recipe)
        with contextlib.chdir(cwd):
            return entry.of(parsed.kind).check(parsed, words[1:]), ""

    monkeypatch.setattr(token_lengths, "_ask", ask)
    monkeypatch.setattr(token_lengths, "_checked", token_lengths._checked.__wrapped__)
