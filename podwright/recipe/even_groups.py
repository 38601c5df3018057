"""Groups of GRPO whose gradient is 0: rewards all equal, or completions all left out. How many there were, why, and what to do."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

SAID_AFTER = 5
"""steps in a row, that a run says so"""
MOST = 0.75
"""share of all groups from which on it is said: a model that answers most questions right has half of them"""
FIGURE = "frac_reward_zero_std"


class EvenGroups(NamedTuple):
    share: float
    """of all groups"""
    steps: int
    why: str
    fix: str

    @property
    def text(self) -> str:
        return f"nothing was learned from {100 * self.share:.3g} % of the groups: {self.why}"


def count(steps: Iterable[Mapping[str, Any]]) -> EvenGroups | None:
    """Among the figures of steps; None where most groups taught something."""
    listed = [step for step in steps if isinstance(step.get(FIGURE), Real)]
    share = statistics.fmean(step[FIGURE] for step in listed) if listed else 0.0
    return EvenGroups(share, len(listed), *_reason(listed, share)) if share >= MOST else None


def _reason(steps: Sequence[Mapping[str, Any]], share: float) -> tuple[str, str]:
    """Whether the questions of these groups were too hard or too easy, by their reward beside that of all, or their completions left out."""
    longer = "type a larger rollout.total_generation_steps"
    if statistics.fmean(_known(step, "frac_masked") for step in steps) > share / 2:
        return "all their completions were cut off, and grpo.mask_truncated leaves these out", longer
    every = statistics.fmean(_known(step, "reward") for step in steps)
    # Records of earlier versions do not tell the reward of equal groups apart.
    equal = sum(step[FIGURE] * _known(step, "equal_reward", "reward") for step in steps) / (share * len(steps))
    hard = "take easier questions, a warm start, or a reward for part of an answer"
    if equal and equal < every - 1e-3 * abs(every):
        return (
            f"all completions of a question were rewarded alike, {equal:.3g} on average, less than in the others",
            hard,
        )
    if equal:
        fix = "take harder questions, a higher rollout.temperature or grpo.dynamic_sampling=2"
        return f"all completions of a question were rewarded alike, {equal:.3g} on average", fix if equal > 0 else hard
    if statistics.fmean(_known(step, "completion_clipped") for step in steps) > 0.5:
        return "every reward was 0, and most completions were cut off", longer
    return "every reward was 0", f"check the rewards on completions of samples.jsonl; {hard}"


def _known(step: Mapping[str, Any], *names: str) -> float:
    return next((float(step[name]) for name in names if isinstance(step.get(name), Real)), 0.0)


def notice(recent: Sequence[Mapping[str, Any]], step: int) -> str:
    """Where that was so in the last few steps, of which `step` is the last; "" else."""
    even = count(recent[-SAID_AFTER:])
    if even is None or len(recent) < SAID_AFTER:
        return ""
    return f"in steps {step - SAID_AFTER + 1} to {step} {even.text}; {even.fix}"


def sentence(even: EvenGroups | None) -> str:
    """For a report; "" for None."""
    return f"In {even.steps} steps {even.text}. Next time: {even.fix}." if even else ""
