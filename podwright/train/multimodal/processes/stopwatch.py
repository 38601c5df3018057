"""Seconds of this process's device for a part of a step."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import torch

from podwright.train.multimodal.processes.world import World


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
