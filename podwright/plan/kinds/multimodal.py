"""What a plan says of multimodal training."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from podwright.errors import UserError
from podwright.plan.checks import inputs, multimodal, this_machine, unused_keys
from podwright.plan.compiled import torch_memory
from podwright.plan.estimates import memory_torch
from podwright.plan.estimates.memory_torch import HostMemory
from podwright.plan.findings import Finding, InconclusiveCheck
from podwright.plan.kinds import CompiledPrograms, PlanPart
from podwright.plan.options import PlanOptions
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.slices import Slice


class MultimodalPlan(PlanPart[MultimodalRecipe]):
    memory_fix = "type --compile"
    unused_keys = unused_keys.MULTIMODAL
    depends = MappingProxyType({**PlanPart.depends, "batch": ("data",)})  # by how many lines there are

    def needed(self, recipe: MultimodalRecipe) -> tuple[str, ...]:
        return tuple(multimodal.needed(recipe.encoders, "peft").values())

    def here(self, recipe: MultimodalRecipe) -> list[Finding]:
        packages = this_machine.packages(multimodal.needed(recipe.encoders, "peft"), "torch")
        return packages + multimodal.compiler(recipe)

    def checks(self, recipe: MultimodalRecipe, where: Slice | None, cwd: Path) -> list[Finding]:
        return multimodal.check(recipe, where, cwd)

    def to_start(self, recipe: MultimodalRecipe, cwd: Path) -> list[Finding]:
        return inputs.to_start(recipe.model.source, cwd)

    def host_memory(self, recipe: MultimodalRecipe, processes: int, cwd: Path) -> HostMemory | None:
        try:
            return memory_torch.multimodal(recipe, multimodal.dimensions(recipe.model, cwd))
        except InconclusiveCheck:
            return None

    def compiled(self, recipe: MultimodalRecipe, where: Slice, options: PlanOptions) -> CompiledPrograms:
        assert options.context is not None
        if options.price is not None or options.context.jax:
            given = "--jax" if options.context.jax else "--price"
            raise UserError(
                f"{given} has no meaning for {recipe.name}: its memory is counted, in PyTorch, and not its time",
                f"leave {given} out",
                "no-effect",
            )
        return torch_memory.compiled(recipe, where, options.context)


PLAN = MultimodalPlan()
