"""What this machine lacks to run a recipe: packages, and memory where there is no accelerator. Nothing is imported for it."""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from podwright import cgroup, extras, slices
from podwright.accelerators import GIB
from podwright.plan.checks import meshes
from podwright.plan.findings import MISSING_PACKAGE, Finding
from podwright.recipe.kinds import JaxRecipe, Recipe
from podwright.shell import Shell
from podwright.slices import Slice

if TYPE_CHECKING:
    from podwright.plan.kinds import PlanPart

R = TypeVar("R", bound=JaxRecipe)
T = TypeVar("T", bound=Recipe)

_ACCELERATORS = ("nvidia[0-9]*", "accel[0-9]*", "vfio/[0-9]*", "kfd")  # below /dev: GPUs of NVIDIA, TPUs, GPUs of AMD
_NUM_DEVICES = re.compile(r"--xla_force_host_platform_device_count=(\d+)")
_STATE = ("weights", "optimizer", "reference")


def packages(modules: Mapping[str, str], extra: str) -> list[Finding]:
    """Those that a trainer here would not find, by module, and the extra that brings them."""
    absent = [package for module, package in modules.items() if importlib.util.find_spec(module) is None]
    if not absent:
        return []
    what = f"{', '.join(absent)} not installed here"
    return [Finding("packages", "error", what, extras.install(extra), MISSING_PACKAGE)]


def gpu_plugin(gpus: Path = Path("/proc/driver/nvidia/gpus")) -> list[Finding]:
    """What keeps jax from the GPUs of this machine, as their driver lists them: a run takes these unless it is to train on CPUs."""
    if not any(gpus.glob("*")) or Shell.hides_gpus() or any(map(importlib.util.find_spec, extras.GPU_PLUGINS)):
        return []
    fix = f"{extras.gpu_fix()}; to train on CPUs, type --on cpu-1"
    what = "jax is installed here without its plugin for NVIDIA GPUs"
    return [Finding("packages", "error", what, fix, MISSING_PACKAGE)]


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
    devices, total = where.num_devices, cgroup.memory_bytes() / GIB
    largest = max(entries, key=lambda e: e.estimated_gib)
    state = devices * max(sum(e.parts_gib.get(name, 0.0) for name in _STATE) for e in entries)
    need = devices * largest.estimated_gib
    if state > total:
        what = f"weights, optimizer and reference need {state:.1f} GiB, and this machine has {total:.1f} GiB of memory"
        fix = "take a smaller model, or type --on with accelerators"
        return [Finding("memory", "error", what, fix, "too-large")]
    if need > total:
        what = f"{largest.name} needs about {need:.1f} GiB, and this machine has {total:.1f} GiB of memory"
        fix = "take smaller batches or a smaller model, or type --on with accelerators; the estimate is made for these"
        return [Finding("memory", "inconclusive", what, fix, "near-the-limit")]
    return []


def host_memory(part: PlanPart[T], recipe: T, processes: int, cwd: Path) -> list[Finding]:
    """Whether what PyTorch trains on so many processes fits into this machine's memory."""
    need = part.host_memory(recipe, processes, cwd)
    total = cgroup.memory_bytes()
    if need is None:
        return []
    who = f"{processes} processes" if processes > 1 else "1 process"
    machine = f"and this machine has {total / GIB:.1f} GiB of memory"
    most = f"training in {who} may need up to {processes * need.most / GIB:.1f} GiB"
    if processes * need.most <= total:
        return [Finding("memory", "info", f"{most}, {machine}")]
    fewer = int(total // need.most)
    fix = "take smaller batches, models or encoders, or type --on with GPUs"
    if 0 < fewer < processes:
        fix = f"type --on cpu-{fewer}"
    if processes * need.least <= total:
        return [Finding("memory", "inconclusive", f"{most}, {machine}", fix, "near-the-limit")]
    what = f"weights, optimizer and inputs of {who} need {processes * need.least / GIB:.1f} GiB, {machine}"
    return [Finding("memory", "error", what, fix, "too-large")]


def devices() -> Slice | None:
    """What jax sees on this machine: its CPU, as one device or as many as XLA_FLAGS says; None where there may be an accelerator."""
    if has_accelerator():
        return None
    number = _NUM_DEVICES.findall(Shell.flags().get("XLA_FLAGS", ""))
    return slices.parse(f"cpu-{number[-1] if number else 1}")


def has_accelerator(dev: Path = Path("/dev")) -> bool:
    return any(True for pattern in _ACCELERATORS for _ in dev.glob(pattern))
