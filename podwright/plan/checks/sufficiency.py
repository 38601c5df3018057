"""Whether prompts and answers fit into the model's positions."""

from __future__ import annotations

from podwright.plan.findings import Finding
from podwright.recipe.models import Qwen3Dims
from podwright.recipe.schema import Rollout


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
