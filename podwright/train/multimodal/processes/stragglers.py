"""Which process the others wait for: one that takes longer, window after window, over what it does in a step before it meets them."""

from __future__ import annotations

import contextlib
import socket
import statistics
import time
from collections.abc import Iterator

import torch

from podwright.train.multimodal.processes.world import World

_WINDOW = 20  # steps between which processes compare
_IN_A_ROW = 3
_MUCH = 1.3
_OF_A_STEP = 0.05  # that it has to cost


class Stopwatch:
    """Seconds of this process's device, added up; to be read once the device has been waited for."""

    def __init__(self, world: World):
        self._on_gpu = world.device.type == "cuda"
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._seconds = 0.0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        if not self._on_gpu:
            begin = time.perf_counter()
            yield
            self._seconds += time.perf_counter() - begin
            return
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        yield
        end.record()
        self._events.append((start, end))

    def seconds(self) -> float:
        return self._seconds + sum(start.elapsed_time(end) for start, end in self._events) / 1000


class Stragglers:
    def __init__(self, world: World):
        self._world = world
        self._own: list[float] = []
        self._whole: list[float] = []
        self._slow: dict[int, int] = {}
        self._named: set[int] = set()

    def stepped(self, own_s: float, step_s: float) -> list[str]:
        """What there is to say after a step of `step_s`, `own_s` of them before this process met others; the same in all of them."""
        if self._world.size == 1:
            return []
        self._own.append(own_s)
        self._whole.append(step_s)
        if len(self._own) < _WINDOW:
            return []
        told = self._world.gathered(
            (socket.gethostname(), statistics.median(self._own), statistics.median(self._whole))
        )
        self._own, self._whole = [], []
        slow = slower([own for _, own, _ in told], max(whole for _, _, whole in told))
        self._slow = {rank: self._slow.get(rank, 0) + 1 for rank in slow}
        new = [rank for rank, windows in self._slow.items() if windows >= _IN_A_ROW and rank not in self._named]
        self._named |= set(new)
        return [
            f"rank {rank} (host {told[rank][0]}) takes {slow[rank]:.1f} times as long as the others for its part of a step "
            f"({told[rank][1]:.3g} s), and all wait for it: look at devices-{rank}.csv for heat and power, and at what else its host does"
            for rank in new
        ]


def slower(own: list[float], step_s: float) -> dict[int, float]:
    """Rank -> how many times the median of the others it takes, where that is much, and of a step too."""
    found = {}
    for rank, seconds in enumerate(own):
        others = statistics.median(own[:rank] + own[rank + 1 :])
        if seconds > _MUCH * others and seconds - others > _OF_A_STEP * step_s:
            found[rank] = seconds / max(others, 1e-9)
    return found
