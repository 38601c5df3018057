"""Settings of GRPO that a run takes, and that do not do what their names say: limits of the ratio, and tokens to sample among."""

from __future__ import annotations

from podwright.plan.findings import Finding
from podwright.recipe.models import Qwen3Dims
from podwright.recipe.schema import GrpoRecipe


def check(recipe: GrpoRecipe, dims: Qwen3Dims | None) -> list[Finding]:
    """Warnings. `dims` None: the vocabulary is not known here.

    `train/grpo/loss.py` keeps ratios between 1 - epsilon and 1 + epsilon_high; cispo has the upper limit alone.
    """
    low, high, top_k = recipe.grpo.epsilon, recipe.grpo.epsilon_high, recipe.rollout.top_k
    faults: list[tuple[str, str]] = []
    if recipe.grpo.loss != "cispo" and low >= 1:
        what = f"grpo.epsilon={low:g} clips no ratio from below: 1 - {low:g} is not above 0, and a ratio is"
        faults.append((what, "type grpo.epsilon=0.2"))
    if recipe.grpo.loss != "cispo" and high is not None and high < low:
        what = f"grpo.epsilon_high={high:g} is below grpo.epsilon={low:g}: a ratio may rise less than it may fall"
        faults.append((what, f"type grpo.epsilon_high={low:g} or more, or null for the same"))
    if dims is not None and top_k >= dims.vocab_size:
        what = f"rollout.top_k={top_k} keeps all {dims.vocab_size:,} tokens of the vocabulary"
        faults.append((what, "type rollout.top_k=0, or a smaller one"))
    return [Finding("model", "warning", what, fix, "no-effect") for what, fix in faults]
