"""What a plan says of a MaxText recipe."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from podwright.errors import UserError
from podwright.plan.checks import maxtext as checks
from podwright.plan.compiled import maxtext
from podwright.plan.document import StepEntry
from podwright.plan.estimates import maxtext_state, maxtext_step_time
from podwright.plan.findings import Finding
from podwright.plan.kinds import CompiledPrograms, PlanPart
from podwright.plan.options import PlanOptions
from podwright.recipe.maxtext import architectures, argument_types
from podwright.recipe.maxtext.architectures import Architecture
from podwright.recipe.maxtext.schema import MaxTextRecipe
from podwright.slices import Slice


class MaxTextPlan(PlanPart[MaxTextRecipe]):
    memory_fix = "type --compile"

    def files(self, recipe: MaxTextRecipe) -> list[str]:
        return [recipe.maxtext] if recipe.maxtext else []

    def written_for(self, recipe: MaxTextRecipe) -> Slice:
        return checks.written_for(recipe)

    def checks(self, recipe: MaxTextRecipe, where: Slice | None, cwd: Path) -> list[Finding]:
        findings = checks.check(recipe, where, cwd)
        if where is None or self.dimensions(recipe, cwd) is None or any(f.level == "error" for f in findings):
            return findings  # which say that the model is not known
        return findings + maxtext_state.check(recipe, where) + maxtext_step_time.check(recipe, where)

    def dimensions(self, recipe: MaxTextRecipe, cwd: Path) -> Architecture | None:
        """None for a model that is not known, and for one with keys of a fork, which may change its layers."""
        if argument_types.unknown(recipe.arguments):
            return None
        try:
            return architectures.find(recipe.arguments)
        except UserError:
            return None

    def step(self, recipe: MaxTextRecipe, where: Slice, cwd: Path, price: float | None) -> StepEntry | None:
        return maxtext_step_time.entry(recipe, where, price) if self.dimensions(recipe, cwd) else None

    def compiled(self, recipe: MaxTextRecipe, where: Slice, options: PlanOptions) -> CompiledPrograms:
        """Memory from the compiler; the step time stays the estimate, which the compiler says nothing about."""
        programs = maxtext.compiled(recipe, where, options)
        return dataclasses.replace(programs, step=self.step(recipe, where, options.cwd, options.price))

    def settled(self, finding: Finding, compiled: CompiledPrograms) -> bool:
        """MaxText has read every argument, made the mesh and sharded the model when its step has a size."""
        sized = any(program.verdict in ("fits", "too large") for program in compiled.programs)
        answered = finding.check in ("model", "mesh") or "type --compile" in finding.fix
        return sized and finding.level == "inconclusive" and answered


PLAN = MaxTextPlan()
