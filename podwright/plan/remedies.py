"""What to type when programs are too large: settings with which the closed form of their memory fits, or the smallest slice that has some.

Every remedy that is named was planned; where the compiler has said what programs need, the closed form is scaled to its totals.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from podwright.plan.checks import meshes
from podwright.plan.estimates import memory
from podwright.plan.kinds import PlanPart
from podwright.plan.settings import Overrides, changed, differing, divisible_slices, every, halved, typed
from podwright.recipe.dimensions import Dims
from podwright.recipe.kinds import JaxRecipe
from podwright.slices import Slice

R = TypeVar("R", bound=JaxRecipe)

_SMALLEST_TEST = 8  # rows a device


@dataclass(frozen=True)
class MemoryRemedy(Generic[R]):
    """Of a recipe whose programs are too large on `where`. `scales`: the compiler's total of a program by the closed form's."""

    part: PlanPart[R]
    recipe: R
    where: Slice
    cwd: Path
    scales: Mapping[str, float]

    def text(self) -> str:
        dims = self.part.dimensions(self.recipe, self.cwd)
        if dims is None:
            return "take a larger slice"
        if (best := self._best(self.recipe, dims, self.where)) is not None:
            search = "; --fit searches for the fastest" if self.part.searches else ""
            return f"type {self._typed(best, self.where)}{search}"
        nothing = f"no mesh, number of micro-batches or remat of this recipe fits {self.where.name}"
        for larger in self._larger(dims):
            if (best := self._best(self.recipe, dims, larger)) is not None:
                settings = self._typed(best, larger)
                return f"{nothing}; the smallest slice that one fits is {larger.name}: type --on {larger.typed} {settings}".rstrip()
        searched = list(divisible_slices(self.recipe, dims, self.where.accelerator))[-1:]
        above = [where for where in searched if where.num_devices > self.where.num_devices]
        reach = (
            f" or a larger slice, up to {above[0].name}, beyond which batch and model cannot be split" if above else ""
        )
        return f"{nothing}{reach}; {self.less(dims)}"

    def _typed(self, overrides: Overrides, where: Slice) -> str:
        """Those that differ from what the recipe has on `where`, where fsdp=-1 stands for a number."""
        own = dict(zip(meshes.axes(self.recipe), meshes.resolved(self.recipe, where), strict=True))
        other = differing(self.recipe, overrides)
        return typed({k: v for k, v in other.items() if own.get(k.removeprefix("mesh.")) != v})

    def _larger(self, dims: Dims) -> Iterator[Slice]:
        """Of the same accelerator, the smallest first, as long as a batch and a model can be split over them."""
        for where in divisible_slices(self.recipe, dims, self.where.accelerator):
            if where.num_devices > self.where.num_devices:
                yield where

    def _best(self, recipe: R, dims: Dims, where: Slice) -> Overrides | None:
        """The settings that fit and are nearest to the recipe's; those that fit for certain before those that are near the limit."""
        limit = where.accelerator.program_bytes
        own = meshes.resolved(recipe, where)
        fitting: list[tuple[tuple[float, ...], Overrides]] = []
        for overrides in every(recipe, dims, where, functools.partial(self.part.takes, recipe)):
            adjusted, need = self._fitted(recipe, overrides, where)
            if need <= limit:
                near = need > limit * (1 - memory.ERROR)
                fitting.append(((near, *_distance(recipe, own, adjusted)), adjusted))
        return min(fitting, key=lambda candidate: candidate[0])[1] if fitting else None

    def _fitted(self, recipe: R, overrides: Overrides, where: Slice) -> tuple[Overrides, float]:
        """With fewer rows of a test where its program is the only one that is too large; and bytes per device of the largest program."""
        overrides = dict(overrides)
        limit = where.accelerator.program_bytes * (1 - memory.ERROR)
        needs = self._needs(changed(recipe, overrides), where)
        rows = self.part.test_rows(recipe)
        while (
            rows >= 2 * _SMALLEST_TEST * where.num_devices
            and needs["evaluate"] > limit
            and needs["evaluate"] == max(needs.values())
        ):
            rows //= 2
            overrides["evaluation.batch_size"] = rows
            needs = self._needs(changed(recipe, overrides), where)
        return overrides, max(needs.values())

    def _needs(self, recipe: R, where: Slice) -> dict[str, float]:
        entries = self.part.memory(recipe, where, self.cwd)
        return {e.name: e.estimated_gib * memory.GIB * self.scales.get(e.name, 1.0) for e in entries}

    def _smaller(self) -> Iterator[Overrides]:
        """Other values of what is trained, each key by itself, the least change of it first."""
        for key, (value, least) in self.part.lengths(self.recipe).items():
            if value == 0:
                yield {key: least}
            while (value := halved(value)) >= least:
                yield {key: value}

    def _together(self, dims: Dims) -> Overrides | None:
        """Several keys, where none is enough by itself: one after the other as small as it may be, until it fits."""
        held: Overrides = {}
        for overrides in self._smaller():
            recipe = changed(self.recipe, held | overrides)
            if (best := self._best(recipe, dims, self.where)) is not None:
                return held | overrides | differing(recipe, best)
            held |= overrides
        return None

    def less(self, dims: Dims) -> str:
        """What else of the recipe makes it fit, by itself and as much as it takes."""
        ways: list[Overrides] = []
        for overrides in self._smaller():
            key = next(iter(overrides))
            if any(key in way for way in ways):
                continue
            recipe = changed(self.recipe, overrides)
            if (best := self._best(recipe, dims, self.where)) is not None:
                ways.append(overrides | differing(recipe, best))
        if not ways and (together := self._together(dims)) is not None:
            ways = [together]
        if not ways:
            return "take a smaller model"
        return f"type {', or '.join(map(typed, ways))}, which changes what is trained"


def _distance(recipe: JaxRecipe, own: meshes.Shape, overrides: Overrides) -> tuple[float, ...]:
    """How far settings are from the recipe's: the mesh first, then remat, micro-batches and rows of a test."""
    shape = [int(overrides[f"mesh.{axis}"]) for axis in meshes.axes(recipe)]
    moved = sum(abs(math.log(n / max(1, old))) for n, old in zip(shape, own, strict=True))
    parts = int(overrides["training.gradient_accumulation_steps"])
    return (
        round(moved, 6),
        overrides["model.remat"] != recipe.model.remat,
        abs(math.log(parts / recipe.training.gradient_accumulation_steps)),
        "evaluation.batch_size" in overrides,
        *map(float, reversed(shape)),
    )
