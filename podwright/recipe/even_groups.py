"""Steps of GRPO in which no group had a difference in its rewards: their gradient is 0. How many there were, why, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

SAID_AFTER = 5
"""steps in a row, that a run says so"""
FIGURE = "frac_reward_zero_std"


class EvenSteps(NamedTuple):
    number: int
    of: int
    why: str
    fix: str


def count(steps: Iterable[Mapping[str, Any]]) -> EvenSteps | None:
    """Among the figures of steps; None where every step had a group that differed."""
    listed = [step for step in steps if isinstance(step.get(FIGURE), int | float)]
    even = [step for step in listed if step[FIGURE] >= 1]
    return EvenSteps(len(even), len(listed), *_reason(even)) if even else None


def _reason(even: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    rewards, cut = ([_known(step, name) for step in even] for name in ("reward", "completion_clipped"))
    if any(rewards):
        fix = "take harder questions, a higher rollout.temperature or grpo.dynamic_sampling=2"
        return f"all completions of a question were rewarded alike, {sum(rewards) / len(rewards):.3g} on average", fix
    if sum(cut) > 0.5 * len(cut):
        return "every reward was 0, and most completions were cut off", "type a larger rollout.total_generation_steps"
    fix = "take easier questions, a warm start, or a reward that counts part of an answer"
    return "every reward was 0", f"check the rewards on completions of samples.jsonl; {fix}"


def _known(step: Mapping[str, Any], name: str) -> float:
    value = step.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def notice(recent: Iterable[Mapping[str, Any]]) -> str:
    """Once in a row of such steps, after the first few; "" else. `recent`: figures of the last steps."""
    last = list(recent)[-SAID_AFTER - 1 :]
    even_steps = count(last[-SAID_AFTER:])
    goes_on = len(last) > SAID_AFTER and count(last[:1]) is not None
    if even_steps is None or even_steps.number < SAID_AFTER or goes_on:
        return ""
    return f"nothing was learned in the last {SAID_AFTER} steps: in no group did rewards differ ({even_steps.why}); {even_steps.fix}"


def sentence(even_steps: EvenSteps | None) -> str:
    """For a report, where that was so in half of the steps or more; "" else."""
    if even_steps is None or 2 * even_steps.number < even_steps.of:
        return ""
    return f"In {even_steps.number} of {even_steps.of} steps nothing was learned, since in no group did rewards differ: {even_steps.why}. Next time: {even_steps.fix}."
