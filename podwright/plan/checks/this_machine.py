"""What this machine lacks to run a recipe: packages, and memory where there is no accelerator. Nothing is imported for it."""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import psutil

from podwright import slices
from podwright.accelerators import GIB
from podwright.plan.checks import meshes
from podwright.plan.findings import Finding
from podwright.plan.settings import changed, smaller, typed
from podwright.recipe import extras
from podwright.recipe.kinds import JaxRecipe, Recipe
from podwright.shell import Shell
from podwright.slices import Slice

if TYPE_CHECKING:
    from podwright.plan.kinds import PlanPart

R = TypeVar("R", bound=JaxRecipe)
T = TypeVar("T", bound=Recipe)

_ACCELERATORS = ("nvidia[0-9]*", "accel[0-9]*", "vfio/[0-9]*", "kfd")  # below /dev: GPUs of NVIDIA, TPUs, GPUs of AMD
_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")  # of a container, by version of cgroups
_NUM_DEVICES = re.compile(r"--xla_force_host_platform_device_count=(\d+)")
_STATE = ("weights", "optimizer", "reference")


def packages(modules: Sequence[str], extra: str) -> list[Finding]:
    """Those that a trainer here would not find, and the extra that brings them."""
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    if not absent:
        return []
    what = f"{', '.join(absent)} not installed here"
    return [Finding("packages", "error", what, extras.install(extra))]


def gpu_plugin(gpus: Path = Path("/proc/driver/nvidia/gpus")) -> list[Finding]:
    """What keeps jax from the GPUs of this machine, as their driver lists them: a run takes these unless it is to train on CPUs."""
    if not any(gpus.glob("*")) or Shell.hides_gpus() or any(map(importlib.util.find_spec, extras.GPU_PLUGINS)):
        return []
    fix = f"{extras.GPU_FIX.replace(' there', '')}; to train on CPUs, type --on cpu-1"
    return [Finding("packages", "error", "jax is installed here without its plugin for NVIDIA GPUs", fix)]


def mesh(part: PlanPart[R], recipe: R, cwd: Path) -> list[Finding]:
    """What keeps the trainer from a mesh over the CPU devices of this machine; with an accelerator only the trainer knows their number."""
    where = devices()
    findings = meshes.mesh(recipe, part.dimensions(recipe, cwd), where) if where else []
    return [finding for finding in findings if finding.level == "error"]


def memory(part: PlanPart[R], recipe: R, where: Slice | None, cwd: Path) -> list[Finding]:
    """Whether weights and optimizer fit into this machine's memory, where the CPU trains: `where` has CPU devices, or is not known
    and there is no accelerator. Beyond that the estimate is one for accelerators, and says nothing for certain."""
    if where is None and has_accelerator():
        return []
    if where is None:  # the mesh may be for more devices than there are: what all of them hold is the same
        where = slices.parse(f"cpu-{math.prod(max(1, n) for n in recipe.mesh.model_dump().values())}")
    entries = part.memory(recipe, where, cwd)
    if not entries:
        return []
    devices, total = where.num_devices, ram_bytes() / GIB
    largest = max(entries, key=lambda e: e.estimated_gib)
    state = devices * max(sum(e.parts_gib.get(name, 0.0) for name in _STATE) for e in entries)
    need = devices * largest.estimated_gib
    if state > total:
        what = f"weights, optimizer and reference need {state:.1f} GiB, and this machine has {total:.1f} GiB of memory"
        fix = "take a smaller model, or type --on with accelerators"
        return [Finding("memory", "error", what, fix)]
    if need > total:
        what = f"{largest.name} needs about {need:.1f} GiB, and this machine has {total:.1f} GiB of memory"
        fix = _smaller(part, recipe, where, cwd, total)
        return [
            Finding(
                "memory", "inconclusive", what, f"{fix}, or type --on with accelerators; the estimate is made for these"
            )
        ]
    return []


def _smaller(part: PlanPart[R], recipe: R, where: Slice, cwd: Path, total_gib: float) -> str:
    """The largest value of a key that is enough by itself, batches before other keys."""
    shards = meshes.shards(recipe, meshes.resolved(recipe, where))
    lengths = {"evaluation.batch_size": (part.test_rows(recipe), 1), **part.lengths(recipe)}
    keys = sorted(lengths, key=lambda key: not key.endswith("batch_size"))
    for overrides in smaller({key: lengths[key] for key in keys}):
        candidate = changed(recipe, overrides)
        need_gib = max(entry.estimated_gib for entry in part.memory(candidate, where, cwd)) * where.num_devices
        if need_gib <= total_gib and not meshes.batch(candidate, shards):
            return f"type {typed(overrides)}"
    return "take a smaller model"


def host_memory(part: PlanPart[T], recipe: T, processes: int, cwd: Path) -> list[Finding]:
    """Whether what PyTorch trains on so many processes fits into this machine's memory."""
    need, total = part.host_memory(recipe, processes, cwd), ram_bytes()
    if need is None:
        return []
    who = f"{processes} processes" if processes > 1 else "1 process"
    machine = f"and this machine has {total / GIB:.1f} GiB of memory"
    if processes * need.least > total:
        what = f"weights, optimizer and inputs of {who} need {processes * need.least / GIB:.1f} GiB, {machine}"
        return [Finding("memory", "error", what, _fewer(part, recipe, processes, cwd, total))]
    most = f"training in {who} may need up to {processes * need.most / GIB:.1f} GiB"
    if processes * need.most > total:
        return [Finding("memory", "inconclusive", f"{most}, {machine}", _fewer(part, recipe, processes, cwd, total))]
    return [Finding("memory", "info", f"{most}, {machine}")]


def _fewer(part: PlanPart[T], recipe: T, processes: int, cwd: Path, total: float) -> str:
    """Fewer processes, or smaller batches, with which it fits by the same estimate."""

    def fits(candidate: T, number: int) -> bool:
        need = part.host_memory(candidate, number, cwd)
        return need is not None and number * need.most <= total

    number = processes
    while number > 1:
        number //= 2
        if fits(recipe, number):
            return f"type --on cpu-{number}"
    for overrides in smaller(part.lengths(recipe)):
        if fits(changed(recipe, overrides), processes):
            return f"type {typed(overrides)}"
    return "take a smaller model or smaller encoders.image_size and encoders.audio_seconds, or type --on with GPUs"


def devices() -> Slice | None:
    """What jax sees on this machine: its CPU, as one device or as many as XLA_FLAGS says; None where there may be an accelerator."""
    if has_accelerator():
        return None
    number = _NUM_DEVICES.findall(Shell.flags().get("XLA_FLAGS", ""))
    return slices.parse(f"cpu-{number[-1] if number else 1}")


def has_accelerator(dev: Path = Path("/dev")) -> bool:
    return any(True for pattern in _ACCELERATORS for _ in dev.glob(pattern))


def ram_bytes(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Of this machine, or of the container that this is in."""
    sizes = [psutil.virtual_memory().total]
    for name in _LIMITS:
        try:
            sizes.append(int((cgroup / name).read_text()))
        except (OSError, ValueError):  # ValueError: "max"
            continue
    return min(sizes)
