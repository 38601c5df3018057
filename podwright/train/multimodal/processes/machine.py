"""What a run in PyTorch tells of its machine: devices, versions, memory, rates."""

from __future__ import annotations

import resource
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
    on_gpu = world.device.type == "cuda"
    peak = (
        torch.cuda.max_memory_allocated(world.device)
        if on_gpu
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    )
    return peak / GIB


def gauge(world: World) -> devices.Gauge:
    """Of this process's device, by a name that no CUDA_VISIBLE_DEVICES changes."""
    if world.device.type != "cuda":
        return devices.cpu()
    return devices.gpus([f"GPU-{torch.cuda.get_device_properties(world.device).uuid}"])
