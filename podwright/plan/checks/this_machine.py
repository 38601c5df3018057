"""What this machine lacks to run a recipe: packages, and memory where there is no accelerator. Nothing is imported for it."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import psutil

from podwright import slices
from podwright.accelerators import GIB
from podwright.plan.findings import Finding
from podwright.recipe import extras
from podwright.recipe.kinds import JaxRecipe
from podwright.slices import Slice

if TYPE_CHECKING:
    from podwright.plan.kinds import PlanPart

R = TypeVar("R", bound=JaxRecipe)

_ACCELERATORS = ("nvidia[0-9]*", "accel[0-9]*", "vfio/[0-9]*", "kfd")  # below /dev: GPUs of NVIDIA, TPUs, GPUs of AMD
_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")  # of a container, by version of cgroups
_STATE = ("weights", "optimizer", "reference")


def packages(modules: Sequence[str], extra: str) -> list[Finding]:
    """Those that a trainer here would not find, and the extra that brings them."""
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    if not absent:
        return []
    what = f"{', '.join(absent)} not installed here"
    return [Finding("packages", "error", what, extras.install(extra))]


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
        fix = "type a smaller batch_size, or --on with accelerators; the estimate is made for these"
        return [Finding("memory", "inconclusive", what, fix)]
    return []


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
