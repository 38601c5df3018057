"""Whether prompt and completion of a GRPO recipe fit into the positions of its model, and which lengths do."""

from __future__ import annotations

from podwright.errors import UserError
from podwright.recipe.schema import Rollout


def exceeded(rollout: Rollout, positions: int) -> UserError | None:
    """Where a prompt and a completion may have more tokens together than the model has positions."""
    prompt, completion = rollout.max_prompt_length, rollout.total_generation_steps
    if prompt + completion <= positions:
        return None
    what = (
        f"rollout.max_prompt_length={prompt} and rollout.total_generation_steps={completion} are {prompt + completion:,} tokens, "
        f"the model has {positions:,} positions"
    )
    return UserError(what, f"type {typed(rollout, *possible(rollout, positions, prompt, completion))}", "too-long")


def possible(rollout: Rollout, positions: int, longest: int, longest_answer: int = 0) -> tuple[int, int]:
    """max_prompt_length and total_generation_steps that the model has positions for, in tokens: those of the recipe, or more where
    the longest prompt and the longest worked answer have more. What is above half the positions gives way."""
    prompt = max(longest, rollout.max_prompt_length)
    completion = max(longest_answer, rollout.total_generation_steps)
    if prompt + completion > positions:
        prompt = longest  # room that no prompt takes
    if prompt + completion > positions:
        half = positions // 2
        prompt, completion = (
            min(prompt, max(half, positions - completion)),
            min(completion, max(half, positions - prompt)),
        )
    return prompt, completion


def typed(rollout: Rollout, prompt: int, completion: int) -> str:
    """The two lengths as overrides, without one that the recipe has already."""
    lengths = {"max_prompt_length": prompt, "total_generation_steps": completion}
    return " ".join(f"rollout.{key}={value}" for key, value in lengths.items() if getattr(rollout, key) != value)
