"""How good a set of answers is: accuracy with its interval, strict and flexible, and whether two tests truly differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from podwright.recipe.answer_numbers import extract_flexible, extract_strict, same_number
from podwright.train import confidence


def grade_one(completion: str, answer: str) -> tuple[bool, bool]:
    """(strict, flexible): whether each way of reading the completion finds the right number."""
    return same_number(extract_strict(completion), answer), same_number(extract_flexible(completion), answer)


def summary(
    strict: Sequence[bool], flexible: Sequence[bool], truncated: Sequence[bool], lengths: Sequence[int]
) -> dict[str, Any]:
    """The figures of an `evaluation` event; `lengths` are tokens per answer, all four have one entry an answer.

    `truncated` comes back as a fraction. Without any answer fractions and means are 0 and the intervals say nothing.
    """
    num = len(strict)
    return {
        "num": num,
        "strict": confidence.counted(sum(strict), num),
        "flexible": confidence.counted(sum(flexible), num),
        "truncated": sum(truncated) / max(num, 1),
        "mean_tokens": sum(lengths) / max(num, 1),
    }


def paired(before: Sequence[bool], after: Sequence[bool]) -> dict[str, Any]:
    """{"gained", "lost", "p_value"}: answers that became right and wrong, and the exact two-sided test of McNemar.

    The p-value is that of `gained` heads in gained + lost throws of a fair coin; 1.0 when nothing changed.
    """
    gained = sum(bool(a) and not b for b, a in zip(before, after, strict=True))
    lost = sum(bool(b) and not a for b, a in zip(before, after, strict=True))
    changed = gained + lost
    tail = sum(math.comb(changed, k) for k in range(min(gained, lost) + 1))
    return {"gained": gained, "lost": lost, "p_value": min(1.0, 2 * tail / 2**changed)}
