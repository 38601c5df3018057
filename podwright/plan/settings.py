"""The settings of a recipe that change what it needs and how fast it is, not what it computes: mesh, micro-batches, remat, rows of a test,
where the reference waits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TypeVar, cast, get_args

from podwright.accelerators import Accelerator
from podwright.plan.checks.meshes import BATCH_AXES, axes, largest_axes, mappable, shards
from podwright.recipe.dimensions import Dims
from podwright.recipe.kinds import JaxRecipe, Recipe
from podwright.recipe.schema import divisors
from podwright.rundir import flat
from podwright.slices import MOST_DEVICES, Slice, sold

R = TypeVar("R", bound=Recipe)
_MOST_PARTS = 64  # numbers of micro-batches that a search tries: batches below 10,000 have no more divisors
Overrides = dict[str, int | str]
"""new values by dotted key"""


def every(
    recipe: JaxRecipe, dims: Dims, where: Slice, takes: Callable[[Overrides, int], bool] = lambda mesh, shards: True
) -> Iterator[Overrides]:
    """All that divide the model and the batch over the devices of `where`. `takes`: whether the rest of the recipe can have a mesh that
    splits a batch into so many shards."""
    for shape in mappable(recipe, dims, where):
        mesh: Overrides = {f"mesh.{axis}": n for axis, n in zip(axes(recipe), shape, strict=True)}
        num_shards = shards(recipe, shape)
        if not takes(mesh, num_shards):
            continue
        if recipe.batch_size % num_shards:
            continue
        for parts in divisors(recipe.batch_size // num_shards)[:_MOST_PARTS]:
            for remat in get_args(type(recipe.model).model_fields["remat"].annotation):
                yield {**mesh, "training.gradient_accumulation_steps": parts, "model.remat": remat}


def divisible_slices(recipe: JaxRecipe, dims: Dims, row: Accelerator) -> Iterator[Slice]:
    """Of an accelerator those over which batch and model can be split, the smallest first: more devices than the last one has, no setting
    of the recipe can use."""
    most = most_devices(recipe, dims)
    return (where for where in sold(row, min(most, MOST_DEVICES)) if most % where.num_devices == 0)


def most_devices(recipe: JaxRecipe, dims: Dims) -> int:
    """That batch and model can be split over; the devices of every mesh divide it."""
    return recipe.batch_size * math.prod(
        n or 1 for axis, n in largest_axes(recipe, dims).items() if axis not in BATCH_AXES
    )


def changed(recipe: R, overrides: Overrides) -> R:
    """The recipe with other values; `overrides` has dotted keys of at most one section."""
    sections: dict[str, Overrides] = {}
    values: Overrides = {}
    for key, value in overrides.items():
        section, dot, name = key.partition(".")
        if dot:
            sections.setdefault(section, {})[name] = value
        else:
            values[key] = value
    updated = {name: getattr(recipe, name).model_copy(update=values) for name, values in sections.items()}
    return cast(R, recipe.model_copy(update={**values, **updated}))


def differing(recipe: JaxRecipe, overrides: Overrides) -> Overrides:
    """Those that are not the recipe's own values."""
    before = flat(recipe.model_dump())
    return {key: value for key, value in overrides.items() if before[key] != value}


def typed(overrides: Overrides) -> str:
    return " ".join(f"{key}={str(value).lower() if value is True else value}" for key, value in overrides.items())
