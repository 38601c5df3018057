"""What to type for a batch that both the mesh and the data can have: remedies of the two would lead from one to the other and back."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from podwright.plan.checks import meshes
from podwright.plan.checks.meshes import Shape
from podwright.plan.findings import Finding
from podwright.plan.settings import Overrides, differing, typed
from podwright.recipe.dimensions import Dims
from podwright.recipe.kinds import JaxRecipe
from podwright.recipe.schema import GrpoRecipe
from podwright.slices import Slice, sold

_TYPED = re.compile(r"(?<![\w.])batch_size=(\d+)")


def within(
    findings: list[Finding],
    recipe: JaxRecipe,
    dims: Dims | None,
    where: Slice | None,
    rows: Callable[[], int | None],
    more: Callable[[int, int], str],
) -> list[Finding]:
    """`findings` with remedies that name a batch which the other side refuses replaced. `rows`: how many there are to train on, None where
    that is not known; `more`: what else to do for so many in place of so many."""
    if not any(f.level == "error" and _TYPED.search(f.fix) for f in findings):
        return findings
    most = rows()
    if most is None:
        return findings
    return [replace(f, fix=_fix(f, recipe, dims, where, most, more)) for f in findings]


def _fix(
    finding: Finding,
    recipe: JaxRecipe,
    dims: Dims | None,
    where: Slice | None,
    most: int,
    more: Callable[[int, int], str],
) -> str:
    match = _TYPED.search(finding.fix)
    if finding.level != "error" or match is None:
        return finding.fix
    size = int(match[1])
    if size <= most and (finding.check != "data" or (where is None and size % _parts(recipe) == 0)):
        return finding.fix
    if (settings := next(_settings(recipe, dims, where, most), None)) is not None:
        return f"type {typed(settings)}, or {more(recipe.batch_size, most)}"
    if where is not None and (smaller := _smaller_slice(recipe, dims, where, most)):
        return f"type {smaller}, or {more(recipe.batch_size, most)}"
    return f"type batch_size={size}, and {more(size, most)}"


def _settings(recipe: JaxRecipe, dims: Dims | None, where: Slice | None, most: int) -> Iterator[Overrides]:
    """Batches of at most `most` rows with the mesh that they need, the nearest to the recipe's first."""
    if where is None:
        fixed = meshes.requested(recipe)
        yield from _batches(recipe, {}, meshes.shards(recipe, tuple(max(1, n) for n in fixed)), most)
        return
    own = meshes.resolved(recipe, where)

    def far(shape: Shape) -> tuple[float, ...]:
        moved = sum(abs(math.log(n / max(1, old))) for n, old in zip(shape, own, strict=True))
        return (round(moved, 6), *map(float, reversed(shape)))

    for shape in sorted(meshes.mappable(recipe, dims, where), key=far):
        mesh: Overrides = {f"mesh.{axis}": n for axis, n in zip(meshes.axes(recipe), shape, strict=True)}
        yield from _batches(recipe, {} if shape == own else differing(recipe, mesh), meshes.shards(recipe, shape), most)


def _batches(recipe: JaxRecipe, mesh: Overrides, shards: int, most: int) -> Iterator[Overrides]:
    for parts in dict.fromkeys((_parts(recipe), 1)):
        unit = shards * parts
        wanted = -(-recipe.batch_size // unit) * unit
        size = wanted if wanted <= most else most // unit * unit
        if size:
            settings: Overrides = {**mesh, "batch_size": size, "training.gradient_accumulation_steps": parts}
            start = recipe.warm_start if isinstance(recipe, GrpoRecipe) else None
            if start is not None:
                settings["warm_start.batch_size"] = -(-start.batch_size // shards) * shards
            yield differing(recipe, settings) or settings


def _smaller_slice(recipe: JaxRecipe, dims: Dims | None, where: Slice, most: int) -> str:
    """The largest one that is smaller and takes such a batch, as it is typed; "" for none."""
    smaller = list(sold(where.accelerator, where.num_devices - 1))
    for other in reversed(smaller):
        if (settings := next(_settings(recipe, dims, other, most), None)) is not None:
            return f"--on {other.typed} {typed(settings)}"
    return ""


def _parts(recipe: JaxRecipe) -> int:
    return recipe.training.gradient_accumulation_steps
