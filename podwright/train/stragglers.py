"""Which process the others wait for: one that takes longer, window after window, over what it does in a step before it meets them."""

from __future__ import annotations

import socket
import statistics
from collections.abc import Callable
from typing import Any

_WINDOW = 20  # steps between which processes compare
_IN_A_ROW = 3
_MUCH = 1.3
_OF_A_STEP = 0.05  # that it has to cost


class Stragglers:
    def __init__(self, size: int, gather: Callable[[Any], list[Any]]):
        """`gather`: the values (of JSON) of all `size` processes, by process; every process has to call it."""
        self._size, self._gather = size, gather
        self._own: list[float] = []
        self._steps: list[float] = []
        self._slow: dict[int, int] = {}
        self._named: set[int] = set()

    def stepped(self, own_s: float, step_s: float) -> list[str]:
        """What there is to say after a step of `step_s`, `own_s` of them before this process met others; the same in all of them."""
        if self._size == 1:
            return []
        self._own.append(own_s)
        self._steps.append(step_s)
        if len(self._own) < _WINDOW:
            return []
        medians = self._gather([socket.gethostname(), statistics.median(self._own), statistics.median(self._steps)])
        self._own, self._steps = [], []
        slow = slower([own for _, own, _ in medians], max(step for _, _, step in medians))
        self._slow = {rank: self._slow.get(rank, 0) + 1 for rank in slow}
        new = [rank for rank, windows in self._slow.items() if windows >= _IN_A_ROW and rank not in self._named]
        self._named |= set(new)
        return [
            f"rank {rank} (host {medians[rank][0]}) takes {slow[rank]:.1f} times as long as the others for its part of a step "
            f"({medians[rank][1]:.3g} s), and all wait for it: look at devices-{rank}.csv for heat and power, and at what else its host does"
            for rank in new
        ]


def slower(own: list[float], step_s: float) -> dict[int, float]:
    """Rank -> how many times the median of the others it takes, where that is much, and of a step too."""
    factors = {}
    for rank, seconds in enumerate(own):
        others = statistics.median(own[:rank] + own[rank + 1 :])
        if seconds > _MUCH * others and seconds - others > _OF_A_STEP * step_s:
            factors[rank] = seconds / max(others, 1e-9)
    return factors
