"""How each kind of recipe is cut down for a smoke run: few steps, no test in between, fewer examples."""

from __future__ import annotations

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
    """At most 32 questions in each test, and 20 supervised steps before."""
    changes = _of_trainer(recipe, steps) | {
        "data.num_test": min(recipe.data.num_test or 32, 32),
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
