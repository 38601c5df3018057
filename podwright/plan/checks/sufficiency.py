"""Whether prompts and answers fit into the model's positions, and how often each training example is seen."""

from __future__ import annotations

from pathlib import Path

from podwright.plan.findings import Finding
from podwright.recipe.models import Qwen3Dims
from podwright.recipe.schema import GrpoData, GrpoRecipe, Rollout

HELD_OUT = 10
"""One question in so many is the test of a file without a test set, as data/gsm8k.py has it."""


def context(rollout: Rollout, dims: Qwen3Dims) -> list[Finding]:
    tokens = rollout.max_prompt_length + rollout.total_generation_steps
    if tokens <= dims.max_positions:
        return []
    return [
        Finding(
            "context",
            "error",
            f"rollout.max_prompt_length + total_generation_steps = {tokens}, the model has {dims.max_positions} positions",
            f"type rollout.total_generation_steps={max(1, dims.max_positions - rollout.max_prompt_length)} or less",
        )
    ]


def epochs(recipe: GrpoRecipe, cwd: Path) -> list[Finding]:
    """How long the data lasts, where the examples can be counted."""
    num_train = num_train_examples(recipe.data, cwd)
    if num_train is None:
        return []
    if num_train == 0:
        return [
            Finding(
                "data",
                "error",
                f"data.source={recipe.data.source} has no training examples",
                "type data.num_train=1000, or give a file that holds some",
            )
        ]
    if num_train < recipe.batch_size:
        message = f"batch_size={recipe.batch_size} is more than the {num_train} training examples"
        return [Finding("data", "error", message, f"type batch_size={num_train} or less, or give more data")]
    return [Finding("data", "info", _lasting(recipe, num_train))]


def _lasting(recipe: GrpoRecipe, num_train: int) -> str:
    """Epochs and the steps of one; a prompt that turns out too long is left out, and makes both a little worse."""
    needed, rounds = recipe.training.max_steps * recipe.batch_size, 1 + recipe.grpo.dynamic_sampling
    seen, steps = f"{needed / num_train:.2g}", f"{num_train // recipe.batch_size:,}"
    if rounds > 1:  # a step draws again for groups whose rewards are all equal
        seen, steps = (
            f"{seen} to {rounds * needed / num_train:.2g}",
            f"{num_train // (recipe.batch_size * rounds):,} to {steps}",
        )
    return f"{needed:,} prompts out of {num_train:,} training examples: {seen} epochs; one epoch is {steps} steps"


def num_train_examples(data: GrpoData, cwd: Path) -> int | None:
    """None when they cannot be counted here (a hub id, or data that is not there)."""
    if data.source == "arithmetic":
        return data.num_train
    path = cwd / Path(data.source).expanduser()
    lines = _lines(path / "train.jsonl" if path.is_dir() else path)
    return min(lines, data.num_train) if lines and data.num_train else lines


def num_test_examples(data: GrpoData, cwd: Path) -> int | None:
    """As `num_train_examples`; of a single file what is held out of it, its questions taken to be different ones."""
    if data.source == "arithmetic":
        return data.num_test
    path = cwd / Path(data.source).expanduser()
    if not path.is_dir():
        lines = _lines(path)
        return data.num_test or (lines and max(1, lines // HELD_OUT))
    lines = _lines(path / "test.jsonl")
    return min(lines, data.num_test) if lines and data.num_test else lines


def _lines(path: Path) -> int | None:
    if path.suffix != ".jsonl" or not path.is_file():
        return None
    with path.open("rb") as f:
        return sum(1 for line in f if line.strip())
