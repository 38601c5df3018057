"""What a run in PyTorch tells of its machine: devices, versions, memory, rates."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch

from podwright.accelerators import GIB
from podwright.train import devices
from podwright.train.multimodal.processes.world import World


def environment(world: World, num_params: int, num_trained_params: int) -> dict[str, Any]:
    return {
        "devices": world.size,
        "device_kind": _kind(world),
        "processes": world.size,
        "versions": devices.versions("torch", "transformers", "peft", "timm", "av", "podwright"),
        "num_params": num_params,
        "num_trained_params": num_trained_params,
    }


def rates(flops: float, seconds: float, world: World) -> dict[str, float | None]:
    """`flops`: of the whole step, over all devices."""
    return devices.rates(flops / seconds / world.size, _kind(world))


def _kind(world: World) -> str:
    return torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else "cpu"


def peak_memory_gib(world: World) -> float:
    """Of this process's device; on a CPU, of the process."""
    if world.device.type == "cuda":
        return torch.cuda.max_memory_allocated(world.device) / GIB
    return devices.peak_process_bytes() / GIB


def gauge(world: World) -> devices.Gauge:
    """Of this process's device, by a name that no CUDA_VISIBLE_DEVICES changes."""
    if world.device.type != "cuda":
        return devices.cpu()
    return devices.gpus([f"GPU-{torch.cuda.get_device_properties(world.device).uuid}"])


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
