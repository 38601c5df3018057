"""How long programs take on the CPU of this machine: a sum of four counts, each times what it costs here.

The prices are measured once a machine, in seconds: small programs of this package run in a child process, and least squares says
what an operation of a product, a byte, a byte of newly mapped memory and an instruction cost in them. Left out: caches.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podwright.accelerators import CPU
from podwright.plan.compiled import child, hlo, roofline
from podwright.plan.compiled.cache import Progress, exclusive, keep, writable
from podwright.plan.compiled.environment import Compiler
from podwright.recipe import load
from podwright.recipe.models import MODELS, Qwen3Dims
from podwright.shell import Shell

RESOURCES = ("compute", "memory", "page faults", "overhead")
PROGRAMS = ("update", "score", "rollout")
PROBES = (
    (MODELS["qwen3-micro"], 16, 8),
    (MODELS["qwen3-micro"], 64, 8),
    (Qwen3Dims(512, 1536, 2, 8, 4, 64, 8192, True), 4, 4),
)
"""dimensions, prompts, completions of each: a tiny model in two batches, and products as wide as a larger one has"""
ROUNDS, ROUND_S, LIMIT_S = 3, 0.3, 600

MAPPED_ANEW = 32 * 1024**2
"""bytes from which glibc's malloc maps new pages at every call (mallopt(3), M_MMAP_THRESHOLD), with a fault for each of them"""
_ROW = dataclasses.replace(CPU, bf16_flops=1.0, hbm_bandwidth=1.0, ici_bandwidth=1.0, dcn_bandwidth=1.0)
_PEAK = roofline.Efficiency(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
_SWEEPS = 5000
_BUSY = 0.15

Units = tuple[float, ...]
"""of one run: operations of products, bytes moved, bytes of memory mapped anew, instructions started"""


@dataclasses.dataclass(frozen=True)
class Prices:
    seconds: Units
    """per unit, with all devices at work"""
    machine: str
    others: float
    """share of the machine that other processes used while it was calibrated"""

    @property
    def summary(self) -> str:
        named = zip(self.seconds, ("GFLOP/s", "GB/s", "GB/s of new memory"), strict=False)
        rates = [f"{1e-9 / each:.3g} {unit}" for each, unit in named if each]
        busy = f"; others used {self.others:.0%} of it meanwhile" if self.others > _BUSY else ""
        return f"calibrated on this machine ({self.machine}): {', '.join(rates)}, {1e6 * self.seconds[3]:.2g} us an instruction{busy}"

    def cost(self, module: hlo.Module, chips: tuple[int, ...], temporaries: int) -> roofline.Cost:
        """Of one run of `module` on devices that share the machine; `temporaries`: bytes of each that it needs while it runs."""
        counted = _counted(module, chips)
        parts = zip(RESOURCES, self.seconds, _units(counted, temporaries), strict=True)
        counted.limits = {name: each * units for name, each, units in parts}
        counted.predicted_s = sum(counted.limits.values())
        counted.notes = [*(note for note in counted.notes if "bytes alone" not in note), self.summary]
        return counted


def _counted(module: hlo.Module, chips: tuple[int, ...]) -> roofline.Cost:
    return roofline.cost(module, _ROW, chips, _PEAK)


def _units(cost: roofline.Cost, temporaries: int) -> Units:
    sent = sum(size for _, _, size, _ in cost.collectives)
    return cost.flops, cost.hbm_bytes + sent, float(temporaries if temporaries > MAPPED_ANEW else 0), cost.starts


def prices(
    num_devices: int,
    dtype: str,
    made_of: Sequence[Any],
    compiler: Compiler,
    cache: Path,
    runner: Shell,
    progress: Progress,
) -> Prices | None:
    """Those kept in `cache`, or measured now (half a minute); None when the measurement failed.

    `made_of`: versions, flags and sources with which they hold.
    """
    machine = f"{processor()}, {os.cpu_count()} cores, {num_devices} device{'s' * (num_devices > 1)}, {dtype}"
    name = f"cpu-{hashlib.sha256(json.dumps([machine, *made_of], sort_keys=True).encode()).hexdigest()[:24]}"
    kept = cache / f"{name}.json"
    if (known := _read(kept, machine)) is not None:
        return known
    with exclusive("calibration", progress):
        return _read(kept, machine) or _measured(num_devices, dtype, machine, compiler, kept, runner, progress)


def _measured(
    num_devices: int, dtype: str, machine: str, compiler: Compiler, kept: Path, runner: Shell, progress: Progress
) -> Prices | None:
    folder = writable(kept.with_suffix(""))
    records = timed(
        [_job(*probe, num_devices, dtype) for probe in PROBES], folder, num_devices, compiler, runner, progress
    )
    if not records:
        return None
    units = [_units(_counted(hlo.read(folder / f"{r['name']}.txt"), (num_devices,)), r["temporaries"]) for r in records]
    measured = Prices(fitted(units, [r["seconds"] for r in records]), machine, max(r["others"] for r in records))
    ratios = {
        r["name"]: round(sum(map(float.__mul__, measured.seconds, u)) / r["seconds"], 3)
        for r, u in zip(records, units, strict=True)
    }
    keep(kept, json.dumps(dataclasses.asdict(measured) | {"predicted_by_measured": ratios}))
    shutil.rmtree(folder)
    return measured


def _read(kept: Path, machine: str) -> Prices | None:
    """None where nothing was kept, or what was is damaged."""
    try:
        stored = json.loads(kept.read_text())
        flop_s, byte_s, fresh_byte_s, start_s = map(float, stored["seconds"])
        return Prices((flop_s, byte_s, fresh_byte_s, start_s), machine, float(stored["others"]))
    except (OSError, ValueError, LookupError, TypeError):
        return None


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def timed(
    jobs: Sequence[dict[str, Any]],
    folder: Path,
    num_devices: int,
    compiler: Compiler,
    runner: Shell,
    progress: Progress,
) -> list[dict[str, Any]]:
    """What train/measure.py says of each program of `jobs`, and its text in `folder`; [] when it failed, with its log left there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    spec, record = folder / "spec.json", folder / "record.jsonl"
    spec.write_text(json.dumps({"jobs": jobs, "rounds": ROUNDS, "seconds": ROUND_S}))
    argv = [compiler.python, "-m", "podwright.train", "measure", str(spec), str(record)]
    child.run(
        runner,
        argv,
        cwd=Path.cwd(),
        env=compiler.env | environment(num_devices),
        log=folder / "log.txt",
        limit_s=LIMIT_S,
        tick=lambda seconds, pid: progress("calibration", "timing small programs on this machine", seconds),
    )
    if not record.exists():
        return []
    return [json.loads(line) for line in record.read_text().splitlines()]


def environment(num_devices: int) -> dict[str, str]:
    """Of a child that sees so many CPU devices."""
    return {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"--xla_force_host_platform_device_count={num_devices}"}


def _job(dims: Qwen3Dims, prompts: int, completions: int, num_devices: int, dtype: str) -> dict[str, Any]:
    rows = -(-prompts // num_devices) * num_devices
    overrides = [
        f"batch_size={rows}",
        f"grpo.num_generations={completions}",
        f"mesh.data={num_devices}",
        f"model.compute_dtype={dtype}",
    ]
    recipe = load.load("qwen3-tiny-arithmetic-grpo", [*overrides, "model.name=probe", "mesh.fsdp=1"])
    return {"recipe": recipe.model_dump(mode="json"), "dims": dataclasses.asdict(dims), "programs": PROGRAMS}


def fitted(units: Sequence[Units], seconds: Sequence[float]) -> Units:
    """Prices, none below zero, with the least squares of predicted / measured - 1; by coordinate descent."""
    rows = [tuple(unit / each for unit in row) for row, each in zip(units, seconds, strict=True)]
    scale = [max(column) or 1.0 for column in zip(*rows, strict=True)]
    rows = [tuple(x / most for x, most in zip(row, scale, strict=True)) for row in rows]
    prices = [0.0] * len(scale)
    left = [1.0] * len(rows)
    for _ in range(_SWEEPS):
        for j, before in enumerate(prices):
            squares = sum(row[j] ** 2 for row in rows)
            step = sum(row[j] * rest for row, rest in zip(rows, left, strict=True)) / squares if squares else 0.0
            prices[j] = max(before + step, 0.0)
            left = [rest - row[j] * (prices[j] - before) for row, rest in zip(rows, left, strict=True)]
    return tuple(price / most for price, most in zip(prices, scale, strict=True))
