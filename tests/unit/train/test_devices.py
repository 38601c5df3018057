"""The thread that samples a device: of this process on CPUs; of a GPU as NVML tells it, in its units."""

import csv
import os
import statistics
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

from podwright.rundir import DEVICE_COLUMNS, RunDir, read_jsonl
from podwright.train import devices
from podwright.train.emit import Emitter


def sampled(run: RunDir, gauge: Any, busy_s: float) -> list[dict[str, str]]:
    path = run.devices(1, 0)
    with devices.watched(path, gauge, Emitter(run, 1, True), first_s=0.05):
        until = time.process_time() + busy_s
        while time.process_time() < until:
            sum(range(1000))
    with path.open(newline="") as f:
        assert f.readline().strip() == ",".join(DEVICE_COLUMNS)
        f.seek(0)
        return list(csv.DictReader(f))


def test_a_process_on_cpus_is_sampled_until_it_ends(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    before = time.time()
    rows = sampled(run, devices.cpu, 0.4)
    times = [float(row["time_s"]) for row in rows]  # to the millisecond
    assert len(rows) >= 4 and round(before, 3) <= times[0] <= times[-1] <= round(time.time(), 3)
    one_core = 100 / len(os.sched_getaffinity(0))
    middle = statistics.median(
        float(r["utilization_percent"]) for r in rows
    )  # one sample of 50 ms counts in ticks of 10 ms
    assert 0.1 * one_core < middle < 1.5 * one_core
    assert {r["device"] for r in rows} == {"cpu"} and {r["power_w"] for r in rows} == {""}
    assert 5 < float(rows[-1]["memory_mib"]) < float(rows[-1]["memory_total_mib"])
    assert len(sampled(run, devices.cpu, 0.0)) == len(rows) + 1, "a second start goes on in the same file"


class Told(Exception):
    pass


def nvml(**answers: Any) -> types.ModuleType:
    """The functions of nvidia-ml-py that are called, with its units: bytes, mW; a board that tells no power raises NVMLError."""
    module = types.ModuleType("pynvml")

    def refuse(handle: Any) -> int:
        raise Told("Not Supported")

    known = {
        "NVMLError": Told,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
        "nvmlDeviceGetIndex": lambda handle: 3,
        "nvmlDeviceGetUtilizationRates": lambda handle: types.SimpleNamespace(gpu=87, memory=40),
        "nvmlDeviceGetMemoryInfo": lambda handle: types.SimpleNamespace(
            total=80 * 2**30, used=20 * 2**30, free=60 * 2**30
        ),
        "nvmlDeviceGetPowerUsage": refuse,
        "nvmlDeviceGetTemperature": lambda handle, sensor: 61,
    }
    for name, value in (known | answers).items():
        setattr(module, name, value)
    return module


def test_a_gpu_is_asked_by_its_uuid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    (row,) = sampled(RunDir(tmp_path), lambda: devices.gpus(["GPU-1"]), 0.0)
    del row["time_s"]
    assert list(row.values()) == ["gpu3", "87", "20480", "81920", "", "61"]
    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlDeviceGetPowerUsage=lambda handle: 312_500))
    assert [row["power_w"] for row in devices.gpus(["GPU-1", "GPU-2"])()] == [312.5, 312.5]


class Driver:
    """The two functions of CUDA's driver that are called, of a machine with one device."""

    @staticmethod
    def cuDeviceGet(device: Any, ordinal: int) -> int:
        device._obj.value = 7
        return 0 if ordinal == 0 else 101

    @staticmethod
    def cuDeviceGetUuid_v2(uuid: Any, device: Any) -> int:
        uuid._obj[:] = range(16)
        return 0 if device.value == 7 else 101


def test_a_gpu_of_jax_has_the_uuid_that_nvml_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: Driver if name == "libcuda.so.1" else None)
    assert devices.cuda_uuid(0) == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    with pytest.raises(RuntimeError, match=r"does not know device 1 \(error 101\)"):
        devices.cuda_uuid(1)


def test_what_cannot_be_sampled_is_said_once_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    run = RunDir(tmp_path)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with devices.watched(run.devices(1, 0), lambda: devices.gpus(["GPU-1"]), Emitter(run, 1, True)):
        pass
    (event,) = read_jsonl(run.events)
    assert (
        "not written down: the package nvidia-ml-py is not installed; type pip install nvidia-ml-py" in event["message"]
    )
    assert not run.devices(1, 0).exists()
    run.attempt(2).mkdir(parents=True)
    run.devices(2, 0).mkdir()
    with devices.watched(run.devices(2, 0), devices.cpu, Emitter(run, 2, True)):
        pass
    assert "no longer written down: IsADirectoryError" in capsys.readouterr().out
