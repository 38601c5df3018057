"""The static plan of a recipe, as the tests of its checks ask for it."""

from pathlib import Path

from podwright.plan import kinds
from podwright.plan.document import SliceEntry
from podwright.plan.findings import Finding
from podwright.plan.make import make
from podwright.plan.options import Destination, PlanOptions
from podwright.recipe.kinds import Recipe
from podwright.slices import Slice


def check(recipe: Recipe, where: Slice | None, cwd: Path) -> list[Finding]:
    part = kinds.of(recipe)
    return (part.here(recipe) if where is None else []) + part.checks(recipe, where, cwd)


def slice_entry(recipe: Recipe, where: Slice, cwd: Path) -> SliceEntry:
    entry = make(recipe, Destination(where.name, where), PlanOptions(cwd=cwd)).slice
    assert entry is not None
    return entry
