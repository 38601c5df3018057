"""How each kind of recipe is cut down for a smoke run: few steps, no test in between, fewer examples."""

from __future__ import annotations

import sys
from pathlib import Path

from podwright.errors import expanded
from podwright.recipe.contrastive import ContrastiveRecipe
from podwright.recipe.maxtext.schema import MaxTextRecipe
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.recipe.pretrain import PretrainRecipe
from podwright.recipe.schema import GrpoRecipe

Changes = dict[str, int | str]
"""new values by dotted key"""


def _of_trainer(recipe: GrpoRecipe | PretrainRecipe | MultimodalRecipe | ContrastiveRecipe, steps: int) -> Changes:
    """`steps` steps, no test in between, and a checkpoint on the way."""
    return {
        "training.max_steps": steps,
        "evaluation.every_n_steps": 0,
        "checkpoint.every_n_steps": min(recipe.checkpoint.every_n_steps or steps, max(1, steps // 2)),
    }


def grpo(recipe: GrpoRecipe, steps: int) -> Changes:
    """At most 32 questions in each test, of a single file at most half of its lines; and 20 supervised steps before."""
    num_test = recipe.data.num_test
    most = _lines(expanded(recipe.data.source)) // (2 if num_test else 10)
    changes = _of_trainer(recipe, steps) | {
        "data.num_test": min(num_test or 32, 32, max(1, most)),
        "training.num_epochs": 0,  # of a smoke run the steps are given
    }
    if recipe.warm_start:
        changes["warm_start.max_steps"] = min(recipe.warm_start.max_steps, 20)
    return changes


def pretrain(recipe: PretrainRecipe, steps: int) -> Changes:
    return _of_trainer(recipe, steps)


def media(recipe: MultimodalRecipe | ContrastiveRecipe, steps: int) -> Changes:
    """At most 16 held-out lines."""
    return _of_trainer(recipe, steps) | {"data.num_test": min(recipe.data.num_test or 16, 16)}


def maxtext(recipe: MaxTextRecipe, steps: int) -> Changes:
    return {"arguments.steps": str(steps)}


def _lines(file: Path) -> int:
    """Different lines of a single file, of which the test questions are taken; no limit for other sources."""
    if not file.is_file():
        return sys.maxsize
    return len(set(file.read_bytes().split(b"\n")) - {b""})
