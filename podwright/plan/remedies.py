"""Settings of a recipe that fit a slice, by the closed form of their memory, and what to type when programs are too large.

Mesh, micro-batches, remat, rows of a test batch and where a reference waits change how fast a recipe runs and what it needs, not what it
computes. `--fit` (fit.py) takes the fastest of those that fit, a remedy the nearest to the recipe's own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from podwright.accelerators import Accelerator
from podwright.plan.checks import meshes
from podwright.plan.estimates import memory
from podwright.plan.kinds import PlanPart
from podwright.plan.settings import Overrides, changed, differing, divisible_slices, every, smaller, typed
from podwright.recipe.dimensions import Dims
from podwright.recipe.kinds import JaxRecipe
from podwright.slices import Slice

R = TypeVar("R", bound=JaxRecipe)

_SMALLEST_TEST = 8  # rows of each part of a test batch
_ADAPTERS = "model.lora_rank"


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
    """The settings of recipes of one kind and one model. `scales`: the compiler's total of a program by the closed form's."""

    part: PlanPart[R]
    dims: Dims
    cwd: Path
    scales: Mapping[str, float]

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

    def nearest(self, recipe: R, where: Slice) -> Candidate[R] | None:
        """The settings that fit and are nearest to the recipe's; those that fit for certain before those that are near the limit."""
        own, limit = meshes.resolved(recipe, where), room(where)
        fitting = [candidate for candidate in self.candidates(recipe, where) if candidate.need_bytes <= limit]

        def distance(candidate: Candidate[R]) -> tuple[float, ...]:
            return (candidate.need_bytes > _certain(where), *_distance(recipe, own, candidate.overrides))

        return min(fitting, key=distance, default=None)

    def _fitted(self, recipe: R, overrides: Overrides, where: Slice, limit: float) -> Candidate[R]:
        overrides = dict(overrides)
        adjusted = changed(recipe, overrides)
        parts = meshes.shards(recipe, meshes.resolved(adjusted, where))
        needs, rows = self._needs(adjusted, where), self.part.test_rows(recipe)
        while rows >= 2 * _SMALLEST_TEST * parts and needs["evaluate"] > _certain(where):
            if needs["evaluate"] < max(needs.values()):
                break
            rows //= 2
            overrides["evaluation.batch_size"] = rows
            adjusted = changed(recipe, overrides)
            needs = self._needs(adjusted, where)
        if max(needs.values()) > limit and (waits := self.part.offloaded(adjusted)):
            overrides |= waits
            adjusted = changed(recipe, overrides)
            needs = self._needs(adjusted, where)
        most = max(needs, key=lambda name: needs[name])
        return Candidate(overrides, adjusted, needs[most], most)

    def _needs(self, recipe: R, where: Slice) -> dict[str, float]:
        entries = self.part.memory(recipe, where, self.cwd, self.dims)
        return {e.name: e.estimated_gib * memory.GIB * self.scales.get(e.name, 1.0) for e in entries}


@dataclass(frozen=True)
class MemoryRemedy(Generic[R]):
    """What to type for a recipe whose programs are too large on `where`. Every remedy that is named was planned."""

    search: MemorySearch[R]
    recipe: R
    where: Slice
    of_target: bool = False
    """whether the GPUs are those of a target, so that no other slice can be typed in its place"""

    def text(self) -> str:
        best = self.search.nearest(self.recipe, self.where)
        if best is None:
            return self.beyond()
        search = "; --fit searches for the fastest" if self.search.part.searches else ""
        return f"type {self._typed(best, self.where)}{search}"

    def beyond(self) -> str:
        """What to type where no settings fit: adapters, the smallest larger slice, or else less of what is trained."""
        larger, adapters = self._larger(), self._with_adapters()
        if larger is None:
            return self._less(adapters)
        where, settings = larger
        if self.of_target:
            more = f"use {where.num_devices} such GPUs with {settings}".removesuffix(" with ")
        else:
            more = f"type --on {where.typed} {settings}".rstrip()
        more += " (the smallest that holds it)"
        return (
            more
            if adapters is None
            else f"type {self._typed(adapters, self.where)} (LoRA), or {more.removeprefix('type ')}"
        )

    def _typed(self, candidate: Candidate[R], where: Slice) -> str:
        """Settings that differ from what the recipe has on `where`, where fsdp=-1 stands for a number; with the compiler where it decides."""
        own = dict(zip(meshes.axes(self.recipe), meshes.resolved(self.recipe, where), strict=True))
        other = differing(self.recipe, candidate.overrides)
        words = typed({k: v for k, v in other.items() if own.get(k.removeprefix("mesh.")) != v})
        near = candidate.need_bytes > _certain(where) and not self.search.scales
        return f"{words} --compile".lstrip() if near else words

    def _larger(self) -> tuple[Slice, str] | None:
        """The smallest slice of the same accelerator that has more devices and fits, and the settings with which it does."""
        each = self.where.gpus_per_host
        for where in divisible_slices(self.recipe, self.search.dims, self.where.accelerator):
            if where.num_devices <= self.where.num_devices or where.num_devices % (each or 1):
                continue
            where = replace(where, gpus_per_host=each)
            if (best := self.search.nearest(self.recipe, where)) is not None:
                return where, self._typed(best, where)
        return None

    def _changed(self, overrides: Overrides) -> Candidate[R] | None:
        """The nearest settings that fit once the recipe has other values of what is trained; with these among them."""
        best = self.search.nearest(changed(self.recipe, overrides), self.where)
        return best and replace(best, overrides=overrides | best.overrides)

    def _with_adapters(self) -> Candidate[R] | None:
        """With adapters, where all parameters are trained and could be frozen."""
        rank, least = self.search.part.lengths(self.recipe).get(_ADAPTERS, (1, 1))
        return self._changed({_ADAPTERS: least}) if rank == 0 else None

    def _less(self, adapters: Candidate[R] | None) -> str:
        """The least change of what is trained with which it fits."""
        others = map(self._changed, smaller(self.search.part.lengths(self.recipe)))
        fitting = adapters or next(filter(None, others), None)
        if fitting is None:
            return "take a smaller model"
        return f"type {self._typed(fitting, self.where)}, which changes what is trained"


def _distance(recipe: JaxRecipe, own: meshes.Shape, overrides: Overrides) -> tuple[float, ...]:
    """How far settings are from the recipe's: the mesh first, then remat, the reference, micro-batches and rows of a test."""
    shape = [int(overrides[f"mesh.{axis}"]) for axis in meshes.axes(recipe)]
    moved = sum(abs(math.log(n / max(1, old))) for n, old in zip(shape, own, strict=True))
    parts = int(overrides["training.gradient_accumulation_steps"])
    return (
        round(moved, 6),
        overrides["model.remat"] != recipe.model.remat,
        "grpo.offload_reference" in overrides,
        abs(math.log(parts / recipe.training.gradient_accumulation_steps)),
        "evaluation.batch_size" in overrides,
        *map(float, reversed(shape)),
    )
