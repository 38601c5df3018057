"""What a plan says of a MaxText recipe."""

from __future__ import annotations

from podwright.plan.kinds import PlanPart
from podwright.recipe.maxtext.schema import MaxTextRecipe


class MaxTextPlan(PlanPart[MaxTextRecipe]):
    memory_fix = "type --compile"


PLAN = MaxTextPlan()
