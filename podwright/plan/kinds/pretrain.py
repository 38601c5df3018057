"""What a plan says of pretraining."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

from podwright.errors import UserError
from podwright.plan.checks import meshes, pretrain, this_machine, unused_keys
from podwright.plan.compiled import step_time
from podwright.plan.document import StepEntry
from podwright.plan.estimates import memory_pretrain
from podwright.plan.findings import Finding
from podwright.plan.kinds import CompiledPrograms, PlanPart
from podwright.plan.options import PlanOptions
from podwright.recipe.dimensions import Dims, find
from podwright.recipe.pretrain import PretrainOptimizer, PretrainRecipe
from podwright.slices import Slice


class PretrainPlan(PlanPart[PretrainRecipe]):
    packages = ("jax",)
    unused_keys = unused_keys.PRETRAIN
    closed_form = memory_pretrain
    searches = True
    depends = MappingProxyType({**PlanPart.depends, "data": ("model",)})  # whose vocabulary the ids are held against

    def checks(self, recipe: PretrainRecipe, where: Slice | None, cwd: Path) -> list[Finding]:
        return pretrain.check(recipe, where, cwd)

    def here(self, recipe: PretrainRecipe) -> list[Finding]:
        modules = ("jax", "optax", "orbax", "grain", "tokenizers")
        return this_machine.packages(dict(zip(modules, modules, strict=True)), "jax")

    def dimensions(self, recipe: PretrainRecipe, cwd: Path) -> Dims | None:
        try:
            return find(recipe.model.name, recipe.model.gate, recipe.model.kda)
        except UserError:
            return None

    def programs(self, recipe: PretrainRecipe) -> list[str]:
        return ["update", "evaluate"]

    def takes(self, recipe: PretrainRecipe, mesh: Mapping[str, int | str], shards: int) -> bool:
        return recipe.model.kda != "tokamax" or mesh["mesh.context"] == 1  # a kernel of whole sequences

    def irrelevant(self, program: str) -> Collection[str]:
        return _IRRELEVANT[program]

    def step(self, recipe: PretrainRecipe, where: Slice, cwd: Path, price: float | None) -> StepEntry | None:
        from podwright.plan.estimates import (
            step_time_estimate,
        )  # only where a time is estimated: it takes long to import

        dims = self.dimensions(recipe, cwd)
        if dims is None or not step_time_estimate.is_rated(recipe.model.compute_dtype, where.accelerator):
            return None
        seconds = self.step_seconds(recipe, dims, where)
        return step_time.estimated_pretrain(seconds, recipe, dims, where, price)

    def step_seconds(self, recipe: PretrainRecipe, dims: Dims, where: Slice) -> float:
        from podwright.plan.estimates import step_time_estimate

        return step_time_estimate.update_seconds(recipe, dims, meshes.resolved(recipe, where), where)

    def compiler_package(self, recipe: PretrainRecipe) -> str:
        return "tokamax" if recipe.model.kda == "tokamax" else ""

    def compiled(self, recipe: PretrainRecipe, where: Slice, options: PlanOptions) -> CompiledPrograms:
        from podwright.plan.compiled import verdict  # only where something is compiled: it takes long to import

        dims = self.dimensions(recipe, options.cwd)
        if dims is None:
            raise verdict.unknown_dimensions(recipe.model.name)
        compiled = verdict.compile_programs(self, recipe, dims, where, options)
        step = step_time.compiled_pretrain(compiled, recipe, dims, where, options.price)
        return verdict.results(compiled, where, step)


_HYPERPARAMETERS = tuple(f"optimizer.{key}" for key in PretrainOptimizer.model_fields if key != "name")
_IRRELEVANT = {
    "update": ("evaluation", "seed"),
    "evaluate": ("evaluation", "seed", "training", *_HYPERPARAMETERS),
}
"""of the recipe by program: what train/pretrain/program.py builds it without"""

PLAN = PretrainPlan()
