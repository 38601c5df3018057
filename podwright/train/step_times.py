"""What the times of steps say: which process the others wait for, and when steps wait for their data.

Medians of a window of steps are compared, so that a step that compiles or opens the data says nothing.
"""

from __future__ import annotations

import socket
import statistics
from collections.abc import Callable
from typing import Any

_WINDOW = 20  # steps
_IN_A_ROW = 3  # windows
_MUCH = 1.3
_OF_A_STEP = 0.05  # that a slow process has to cost
_WAITING = 0.2  # of a step


class StepTimes:
    def __init__(self, size: int, gather: Callable[[Any], list[Any]], advice: str = ""):
        """`gather`: the values (of JSON) of all `size` processes, by process; every process has to call it. `advice`: what to change where
        steps wait for data, in keys that the kind of the recipe has."""
        self._size, self._gather, self._advice = size, gather, advice
        self._times: list[tuple[float, float, float]] = []
        self._slow: dict[int, int] = {}
        self._named: set[int] = set()

    def stepped(self, own_s: float, step_s: float, wait_s: float = 0.0) -> list[str]:
        """What there is to say after a step of `step_s`: `own_s` of them before this process met others, `wait_s` without data."""
        self._times.append((own_s, step_s, wait_s))
        if len(self._times) < _WINDOW:
            return []
        own_s, step_s, wait_s = (statistics.median(column) for column in zip(*self._times, strict=True))
        self._times = []
        notices = self._stragglers(own_s, step_s) if self._size > 1 else []
        if self._advice and wait_s > _WAITING * step_s:
            share = 100 * wait_s / step_s
            sentence = (
                f"waiting for data takes {share:.0f} % of the time of the last {_WINDOW} steps ({wait_s:.3g} s a step)"
            )
            notices.append(f"{sentence}: {self._advice}")
            self._advice = ""  # once is enough
        return notices

    def _stragglers(self, own_s: float, step_s: float) -> list[str]:
        """Of each process that was slow in so many windows in a row; the same in all processes."""
        medians = self._gather([socket.gethostname(), own_s, step_s])
        slow = slower([own for _, own, _ in medians], max(step for _, _, step in medians))
        self._slow = {rank: self._slow.get(rank, 0) + 1 for rank in slow}
        notices = []
        for rank, windows in self._slow.items():
            if windows >= _IN_A_ROW and rank not in self._named:
                self._named.add(rank)
                host, seconds, _ = medians[rank]
                notices.append(
                    f"rank {rank} (host {host}) takes {slow[rank]:.1f} times as long as the others for its part of a step "
                    f"({seconds:.3g} s), and all wait for it: look at devices-{rank}.csv, and at what else its host does"
                )
        return notices


def slower(own: list[float], step_s: float) -> dict[int, float]:
    """Rank -> how many times the median of the others it takes, where that is much, and of a step too."""
    factors = {}
    for rank, seconds in enumerate(own):
        others = statistics.median(own[:rank] + own[rank + 1 :])
        if seconds > _MUCH * others and seconds - others > _OF_A_STEP * step_s:
            factors[rank] = seconds / max(others, 1e-9)
    return factors
