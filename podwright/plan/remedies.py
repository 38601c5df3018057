"""Settings of a recipe that fit a slice, by the closed form of their memory, and what to type where none do.

Mesh, micro-batches, remat, rows of a test batch and where a reference waits change how fast a recipe runs and what it needs, not what it
computes. `--fit` (fit.py) takes the fastest of those that fit.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from podwright.accelerators import Accelerator
from podwright.plan.checks import meshes
from podwright.plan.estimates import memory
from podwright.plan.kinds import PlanPart
from podwright.plan.settings import Overrides, changed, divisible_slices, every, typed
from podwright.recipe.dimensions import Dims
from podwright.recipe.kinds import JaxRecipe
from podwright.slices import Slice

R = TypeVar("R", bound=JaxRecipe)

LESS = "take a smaller model, shorter sequences or a smaller batch, or train adapters by model.lora_rank"
"""what to do where no slice holds a recipe"""
_SMALLEST_TEST = 8  # rows of each part of a test batch


@dataclass(frozen=True)
class Candidate(Generic[R]):
    """Settings by their recipe keys, and what they are estimated to need and to take."""

    overrides: Overrides
    recipe: R
    need_bytes: float
    """of the program that needs most, per device"""
    program: str
    step_s: float = math.nan
    """where a search ranks by it"""

    @property
    def typed(self) -> str:
        return typed(self.overrides)


def room(where: Slice) -> float:
    """Bytes per device that an estimate may need: up to the limit where a compiler can have the last word, else clear of it by as much as an
    estimate may be off."""
    from podwright.plan.compiled import compile as aot  # only for memory: it takes long to import

    return where.accelerator.program_bytes if aot.has_compiler(where) else _certain(where)


def _certain(where: Slice) -> float:
    return where.accelerator.program_bytes * (1 - memory.ERROR)


@dataclass(frozen=True)
class MemorySearch(Generic[R]):
    """The settings of recipes of one kind and one model."""

    part: PlanPart[R]
    dims: Dims
    cwd: Path

    def candidates(self, recipe: R, where: Slice) -> Iterator[Candidate[R]]:
        """All that divide model and batch, each with fewer rows of a test where its program alone is too large, and with the reference
        on the hosts where another one is."""
        limit = room(where)
        for overrides in every(recipe, self.dims, where, functools.partial(self.part.takes, recipe)):
            yield self._fitted(recipe, overrides, where, limit)

    def slices(self, recipe: R, row: Accelerator) -> Iterator[Slice]:
        """Those of an accelerator that some settings fit, the smallest first."""
        for where in divisible_slices(recipe, self.dims, row):
            limit = room(where)
            if any(candidate.need_bytes <= limit for candidate in self.candidates(recipe, where)):
                yield where

    def beyond(self, recipe: R, where: Slice, of_target: bool) -> str:
        """What to type where no settings fit `where`: adapters, or the smallest slice that fits, or else less of what is trained.
        `of_target`: its GPUs are those of a target, and no other slice can be typed."""
        ways = [f"type {overrides} --fit (LoRA)" for overrides in self._adapters(recipe, where)]
        ways += self._larger(recipe, where, of_target)
        if not ways:
            return LESS
        others = [way.removeprefix("type ") for way in ways[1:]]
        return ", or ".join([ways[0], *others])

    def _adapters(self, recipe: R, where: Slice) -> list[str]:
        """The least change of what is trained with which adapters fit, as it is typed."""
        limit = room(where)
        for overrides in self.part.with_adapters(recipe):
            if any(way.need_bytes <= limit for way in self.candidates(changed(recipe, overrides), where)):
                return [typed(overrides)]
        return []

    def _larger(self, recipe: R, where: Slice, of_target: bool) -> list[str]:
        for other in self.slices(recipe, where.accelerator):
            if other.num_devices > where.num_devices and other.num_devices % (where.gpus_per_host or 1) == 0:
                if of_target:
                    return [f"use {other.num_devices} such GPUs, the fewest that hold it"]
                return [f"type --on {other.typed} --fit, the smallest that holds it"]
        return []

    def _fitted(self, recipe: R, overrides: Overrides, where: Slice, limit: float) -> Candidate[R]:
        overrides = dict(overrides)
        adjusted = changed(recipe, overrides)
        parts = meshes.shards(recipe, meshes.resolved(adjusted, where))
        needs = self._needs(adjusted, where)
        rows = self.part.test_rows(recipe)
        while rows >= 2 * _SMALLEST_TEST * parts and needs["evaluate"] > _certain(where):
            if needs["evaluate"] < max(needs.values()):
                break
            rows //= 2
            overrides["evaluation.batch_size"] = rows
            adjusted = changed(recipe, overrides)
            needs = self._needs(adjusted, where)
        if max(needs.values()) > limit:
            waits = self.part.offloaded(adjusted)
            if waits:
                overrides |= waits
                adjusted = changed(recipe, overrides)
                needs = self._needs(adjusted, where)
        most = max(needs, key=lambda name: needs[name])
        return Candidate(overrides, adjusted, needs[most], most)

    def _needs(self, recipe: R, where: Slice) -> dict[str, float]:
        entries = self.part.memory(recipe, where, self.cwd, self.dims)
        return {e.name: e.estimated_gib * memory.GIB for e in entries}
