"""How good a set of answers is: accuracy with its interval, strict and flexible, and whether two tests truly differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from podwright.train.grpo.answers import extract_flexible, extract_strict, same_number

_Z = 1.959963984540054  # standard normal quantile for two-sided 95 %


def grade_one(completion: str, answer: str) -> tuple[bool, bool]:
    """(strict, flexible): whether each way of reading the completion finds the right number."""
    return same_number(extract_strict(completion), answer), same_number(extract_flexible(completion), answer)


def extracted(completion: str) -> str | None:
    """The number that the flexible grade looks at."""
    return extract_flexible(completion)


def summary(strict: Sequence[bool], flexible: Sequence[bool], truncated: Sequence[bool], lengths: Sequence[int]) -> dict[str, Any]:
    """The figures of an `evaluation` event; `lengths` are tokens per answer, all four have one entry an answer.

    `truncated` comes back as a fraction. Without any answer fractions and means are 0 and the intervals say nothing.
    """
    num = len(strict)
    assert num == len(flexible) == len(truncated) == len(lengths), "one entry of each an answer"
    return {
        "num": num,
        "strict": _accuracy(sum(strict), num),
        "flexible": _accuracy(sum(flexible), num),
        "truncated": sum(truncated) / max(num, 1),
        "mean_tokens": sum(lengths) / max(num, 1),
    }


def wilson(correct: int, num: int) -> tuple[float, float]:
    """(low, high): the 95 % interval of a proportion (Wilson, JASA 22, 1927); (0, 1) without any trial."""
    if num == 0:
        return 0.0, 1.0
    share, shrink = correct / num, 1 + _Z**2 / num
    middle = (share + _Z**2 / (2 * num)) / shrink
    half = _Z / shrink * math.sqrt(share * (1 - share) / num + _Z**2 / (4 * num**2))
    # At 0 and at all the formula gives exactly 0 and 1, up to rounding.
    return (0.0 if correct == 0 else middle - half), (1.0 if correct == num else middle + half)


def paired(before: Sequence[bool], after: Sequence[bool]) -> dict[str, Any]:
    """{"gained", "lost", "p_value"}: answers that became right and wrong, and the exact two-sided test of McNemar.

    The p-value is that of `gained` heads in gained + lost throws of a fair coin; 1.0 when nothing changed.
    """
    gained = sum(bool(a) and not b for b, a in zip(before, after, strict=True))
    lost = sum(bool(b) and not a for b, a in zip(before, after, strict=True))
    changed = gained + lost
    tail = sum(math.comb(changed, k) for k in range(min(gained, lost) + 1))
    return {"gained": gained, "lost": lost, "p_value": min(1.0, 2 * tail / 2**changed)}


def _accuracy(correct: int, num: int) -> dict[str, Any]:
    low, high = wilson(correct, num)
    return {"correct": int(correct), "accuracy": correct / max(num, 1), "low": low, "high": high}
