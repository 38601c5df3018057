"""What a plan says of a MaxText recipe."""

from __future__ import annotations

from podwright.plan.compiled import maxtext
from podwright.plan.kinds import CompiledPrograms, PlanPart
from podwright.plan.options import PlanOptions
from podwright.recipe.maxtext.schema import MaxTextRecipe
from podwright.slices import Slice


class MaxTextPlan(PlanPart[MaxTextRecipe]):
    memory_fix = "type --compile"

    def compiled(self, recipe: MaxTextRecipe, where: Slice, options: PlanOptions) -> CompiledPrograms:
        return maxtext.compiled(recipe, where, options)


PLAN = MaxTextPlan()
