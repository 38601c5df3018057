"""What a plan says of contrastive training."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from podwright.errors import UserError
from podwright.plan.checks import contrastive, multimodal, this_machine, unused_keys
from podwright.plan.estimates import memory_torch
from podwright.plan.estimates.memory_torch import HostMemory
from podwright.plan.findings import Finding
from podwright.plan.kinds import CompiledPrograms, PlanPart
from podwright.plan.options import PlanOptions
from podwright.recipe.contrastive import ContrastiveRecipe
from podwright.slices import Slice


class ContrastivePlan(PlanPart[ContrastiveRecipe]):
    unused_keys = unused_keys.CONTRASTIVE
    depends = MappingProxyType({**PlanPart.depends, "batch": ("data",)})  # by how many lines there are

    def needed(self, recipe: ContrastiveRecipe) -> tuple[str, ...]:
        return tuple(multimodal.needed(recipe.encoders).values())

    def here(self, recipe: ContrastiveRecipe) -> list[Finding]:
        return this_machine.packages(multimodal.needed(recipe.encoders), "torch")

    def checks(self, recipe: ContrastiveRecipe, where: Slice | None, cwd: Path) -> list[Finding]:
        return contrastive.check(recipe, where, cwd)

    def to_start(self, recipe: ContrastiveRecipe, cwd: Path) -> list[Finding]:
        return contrastive.to_start(recipe, cwd)

    def host_memory(self, recipe: ContrastiveRecipe, processes: int, cwd: Path) -> HostMemory:
        return memory_torch.contrastive(recipe, processes)

    def compiled(self, recipe: ContrastiveRecipe, where: Slice, options: PlanOptions) -> CompiledPrograms:
        what = f"{recipe.name} trains heads behind frozen encoders, and there is nothing to compile"
        raise UserError(what, "leave --compile out", "no-compiler")


PLAN = ContrastivePlan()
