"""What is observed around a run in JAX while it trains: whether it hangs, and what its devices do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax

from podwright.train import devices, mesh
from podwright.train.emit import Emitter
from podwright.train.step_times import StepTimes
from podwright.train.watchdog import Patience, Watchdog

PATIENCE = Patience()


@contextlib.contextmanager
def observed(emit: Emitter) -> Iterator[Watchdog]:
    """In every process of the run, from its start to its end. What has a pace is to be marked by `Watchdog.pacing`."""
    rank = jax.process_index()
    watchdog = Watchdog(emit, (rank, jax.process_count()), (mesh.tell, mesh.look_up), PATIENCE)
    with devices.watched(emit.run.devices(emit.attempt, rank), _gauge, emit), watchdog.watching(), watchdog.resting():
        yield watchdog


def step_times(advice: str = "") -> StepTimes:
    return StepTimes(jax.process_count(), mesh.gathered, advice)


def _gauge() -> devices.Gauge:
    """Of this process's devices, by names that no CUDA_VISIBLE_DEVICES changes."""
    local = jax.local_devices()
    if local[0].platform == "gpu":
        return devices.gpus([devices.cuda_uuid(device.local_hardware_id) for device in local])
    if local[0].platform == "cpu":
        return devices.cpu()
    return lambda: [_memory(device) for device in local]


def _memory(device: jax.Device) -> devices.Sample:
    """What jax knows of a TPU: the memory that this process uses of it."""
    stats = device.memory_stats() or {}
    return {
        "device": f"{device.platform}{device.local_hardware_id}",
        "memory_mib": devices.mib(stats.get("bytes_in_use")),
        "memory_total_mib": devices.mib(stats.get("bytes_limit")),
    }
