"""How large a share is, and between what bounds: what every test of answers says of its count."""

from __future__ import annotations

import math
from typing import Any

_Z = 1.959963984540054  # standard normal quantile for two-sided 95 %


def wilson(correct: float, num: int) -> tuple[float, float]:
    """(low, high): the 95 % interval of a proportion (Wilson, JASA 22, 1927); (0, 1) without any trial."""
    if num == 0:
        return 0.0, 1.0
    share, shrink = correct / num, 1 + _Z**2 / num
    middle = (share + _Z**2 / (2 * num)) / shrink
    half = _Z / shrink * math.sqrt(share * (1 - share) / num + _Z**2 / (4 * num**2))
    # At 0 and at all the formula gives exactly 0 and 1, up to rounding.
    return (0.0 if correct == 0 else middle - half), (1.0 if correct == num else middle + half)


def counted(correct: int, num: int) -> dict[str, Any]:
    low, high = wilson(correct, num)
    return {"correct": int(correct), "accuracy": correct / max(num, 1), "low": low, "high": high}
