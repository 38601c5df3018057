"""What a process's devices do while it trains, sampled into devices-K.csv by a thread: busy, memory, power, temperature.

GPUs are asked by NVIDIA's own library, so that no process is started; of a CPU it is what this process has of its cores and memory.
A sample that cannot be taken or written ends the sampling, never the training.
"""

from __future__ import annotations

import contextlib
import csv
import ctypes
import os
import platform
import resource
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from podwright import growing_file
from podwright.accelerators import by_device_kind
from podwright.errors import UserError
from podwright.extras import installed_version
from podwright.rundir import DEVICE_COLUMNS
from podwright.train.emit import Emitter

Sample = dict[str, Any]
"""of a device: the columns without the time; None for what the device does not tell"""
Gauge = Callable[[], list[Sample]]
"""samples all devices of the process"""
_MIB = 2**20


def num_nvidia_gpus(folder: Path = Path("/proc/driver/nvidia/gpus")) -> int:
    """Of this machine, as the driver knows them, whatever a framework sees."""
    return len(list(folder.glob("*")))


def versions(*packages: str) -> dict[str, str]:
    """Of Python and of those packages that are installed."""
    installed = {name: version for name in packages if (version := installed_version(name))}
    return {"python": platform.python_version()} | installed


def rates(flops: float, kind: str) -> dict[str, float | None]:
    """What a device of a `kind` does, by its FLOP/s; MFU is null where the peak is not known."""
    chip = by_device_kind(kind)
    return {"tflops_per_device": flops / 1e12, "mfu": flops / chip.bf16_flops if chip and chip.bf16_flops else None}


def peak_process_bytes() -> int:
    """Of this process's memory; macOS counts bytes, others KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def expected_gpus(environment: Mapping[str, str], num_here: int) -> int:
    """GPUs of this machine that an attempt is to use: as many as its target has, else the `num_here` of the machine; 0 where CPUs or
    another platform are chosen, or the GPUs are hidden."""
    if target := int(environment.get("PODWRIGHT_GPUS_PER_NODE", "0")):
        return target
    platforms = environment.get("JAX_PLATFORMS", "cuda").split(",")
    if not {"cuda", "gpu", ""} & set(platforms) or environment.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1"):
        return 0
    return num_here


def require_gpus(
    framework: str, seen: int, environment: Mapping[str, str], num_here: int, fix: str, local: int = 0
) -> None:
    """UserError where the target or this machine has GPUs and a framework has none for this process: on CPUs it would take days.

    `num_here`: NVIDIA GPUs of this machine. `local`: the process's number on its host, where each sees the GPUs of all, as with PyTorch.
    """
    there = expected_gpus(environment, num_here)
    if not there or seen > local:
        return
    what = f"host {socket.gethostname()} has {there} GPU(s), and {framework} sees {seen}"
    if seen:
        raise UserError(
            f"{what}, too few for process {local} of this host", "lower tasks_per_node of the target", "too-few-gpus"
        )
    to_cpus = "type --on cpu-1"
    if "PODWRIGHT_GPUS_PER_NODE" in environment:
        to_cpus = "set gpus_per_node of the target to 0"
    raise UserError(what, f"{fix}, and look at nvidia-smi; to train on CPUs, {to_cpus}", "gpus-not-seen")


@contextlib.contextmanager
def watched(path: Path, gauge: Callable[[], Gauge], emit: Emitter, first_s: float = 0.2) -> Iterator[None]:
    """Sampled every `first_s`, later every 1/500 of the time so far, at most 50 times `first_s` apart; once more at the end."""
    try:
        measure = gauge()
    except Exception as e:
        emit.notice(f"the use of the devices is not written down: {e}")
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_sample, args=(path, measure, ended, first_s), name="devices", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(5.0)  # a driver may hang


def _sample(path: Path, measure: Gauge, ended: threading.Event, first_s: float) -> None:
    begin = time.monotonic()
    last = False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", newline="", buffering=1) as f:
            rows = csv.DictWriter(f, DEVICE_COLUMNS)
            if not f.tell():
                rows.writeheader()
            while not last:
                last = ended.wait(max(first_s, min(50 * first_s, (time.monotonic() - begin) / 500)))
                now = round(time.time(), 3)
                rows.writerows({"time_s": now} | sample for sample in measure())
    except Exception as e:
        with contextlib.suppress(OSError):
            growing_file.drop_torn(path)
        print(f"the use of the device is no longer written down: {type(e).__name__}: {e}", flush=True)


def cpu() -> Gauge:
    process, cores = (
        psutil.Process(),
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count() or 1,
    )
    total = psutil.virtual_memory().total
    process.cpu_percent()  # the first call only begins the count

    def measure() -> list[Sample]:
        sample = {
            "device": "cpu",
            "utilization_percent": round(process.cpu_percent() / cores, 1),
            "memory_mib": mib(process.memory_info().rss),
            "memory_total_mib": mib(total),
        }
        return [sample]

    return measure


def mib(num_bytes: int | None) -> int | None:
    return num_bytes if num_bytes is None else round(num_bytes / _MIB)


def cuda_uuid(ordinal: int) -> str:
    """As NVML has it, `GPU-...`, of the device that is number `ordinal` in this process, which has CUDA at work."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device = ctypes.c_int()
    raw = (ctypes.c_ubyte * 16)()
    for code in (
        cuda.cuDeviceGet(ctypes.byref(device), ordinal),
        cuda.cuDeviceGetUuid_v2(ctypes.byref(raw), device),
    ):
        if code:
            raise RuntimeError(f"the CUDA driver does not know device {ordinal} (error {code})")
    return f"GPU-{uuid.UUID(bytes=bytes(raw))}"


def gpus(uuids: Sequence[str]) -> Gauge:
    """`uuids` as NVML has them, `GPU-...`. Memory is all that is in use on a GPU, by whomever."""
    try:
        import pynvml
    except ImportError as e:
        raise RuntimeError("the package nvidia-ml-py is not installed; type pip install nvidia-ml-py") from e
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByUUID(name) for name in uuids]

    def ask(question: Callable[..., Any], handle: Any, *more: Any) -> Any:
        try:
            return question(handle, *more)
        except pynvml.NVMLError:  # not every board tells everything
            return None

    def measure(handle: Any) -> Sample:
        busy, memory, power = (
            ask(q, handle)
            for q in (
                pynvml.nvmlDeviceGetUtilizationRates,
                pynvml.nvmlDeviceGetMemoryInfo,
                pynvml.nvmlDeviceGetPowerUsage,
            )
        )
        return {
            "device": f"gpu{pynvml.nvmlDeviceGetIndex(handle)}",
            "utilization_percent": busy and busy.gpu,
            "memory_mib": memory and mib(memory.used),
            "memory_total_mib": memory and mib(memory.total),
            "power_w": None if power is None else power / 1000,  # told in mW
            "temperature_c": ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        }

    return lambda: [measure(handle) for handle in handles]
