"""Whether the mesh of a MaxText recipe comes out on a slice, fits the links between its chips, and divides the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import shorten

from podwright.errors import UserError, counted
from podwright.plan.checks.topology import factorisations, refusal
from podwright.plan.findings import Finding, of_error
from podwright.recipe.maxtext import arguments as arguments_of
from podwright.recipe.maxtext import sharding
from podwright.recipe.maxtext.architectures import Architecture
from podwright.recipe.maxtext.arguments import FREE, Arguments
from podwright.slices import Slice

_CHANGED = ("data", "fsdp", "fsdp_transpose", "tensor", "context")
"""axes that a remedy may change"""
_MANY = 512
"""devices of a slice, above which data parallelism was reported to cost speed"""
DATA_PRICE = (
    "with arguments.ici_data_parallelism each device holds {copies} times the weights; above 512 devices DeepSeek3-671B was reported to "
    "lose about 45 % per chip by it"
)


@dataclass(frozen=True)
class MaxTextMesh:
    """What the arguments ask for, on the devices of a slice. Sizes by axis; None where they do not come out."""

    within: Mapping[str, int] | None
    """of one slice (ici)"""
    between: Mapping[str, int] | None
    """of the slices (dcn)"""

    def size(self, *axes: str) -> int:
        assert self.within and self.between
        return math.prod(self.within[axis] * self.between[axis] for axis in axes)


def resolved(arguments: Arguments, where: Slice) -> MaxTextMesh:
    """UserError for a size that is no number."""
    per_slice = where.num_devices // where.num_slices
    within = arguments_of.filled(arguments_of.ici(arguments), per_slice)
    between = arguments_of.dcn(arguments)
    if where.num_slices == 1:  # MaxText does not look at the dcn axes of a single slice
        between = dict.fromkeys(between, 1)
    return MaxTextMesh(within, arguments_of.filled(between, where.num_slices))


def check(arguments: Arguments, model: Architecture | None, where: Slice) -> list[Finding]:
    try:
        mesh = resolved(arguments, where)
        dims = sharding.dims(model, arguments) if model else []
    except UserError as e:
        return [of_error("mesh", e)]
    per_slice = where.num_devices // where.num_slices
    if mesh.within is None:
        wanted = arguments_of.ici(arguments)
        fix = _instead(arguments, wanted, dims, where)
        number = counted(per_slice, "device") + (" of each slice" if where.num_slices > 1 else "")
        return [_wrong_product("ici", wanted, number, where, fix)]
    if mesh.between is None:
        wanted = arguments_of.dcn(arguments)
        fix = "type arguments.dcn_data_parallelism=-1"
        return [_wrong_product("dcn", wanted, counted(where.num_slices, "slice"), where, fix)]
    message = f"mesh of a slice: {_shown(mesh.within)}"
    if where.num_slices > 1:
        message += f"; over {where.num_slices} slices: {_shown(mesh.between)}"
    copies = mesh.within["data"]
    if copies > 1 and per_slice > _MANY:
        message += f"; {DATA_PRICE.format(copies=copies)}"
    findings = [Finding("mesh", "info", message)]
    findings += _on_links(arguments, mesh.within, dims, where)
    findings += _division(arguments, mesh, dims, where)
    return findings


def _wrong_product(network: str, wanted: Mapping[str, int], number: str, where: Slice, fix: str) -> Finding:
    """`number`: in words, what the product of the axes should be."""
    free = [f"{network}_{axis}_parallelism" for axis, n in wanted.items() if n == FREE]
    if len(free) > 1:
        message = f"{' and '.join(free)} are both -1, and only one axis can take what is left"
        return Finding("mesh", "error", message, f"type arguments.{free[0]}=1", "mesh-not-devices")
    taken = {f"{network}_{axis}_parallelism": n for axis, n in wanted.items() if n not in (1, FREE)}
    shown = " x ".join(f"{key}={n}" for key, n in taken.items()) or "1"
    relation = "does not divide" if free else "is not"
    message = f"{shown} = {math.prod(taken.values())} {relation} the {number} of {where.name}"
    return Finding("mesh", "error", message, fix, "mesh-not-devices")


def _shown(mesh: Mapping[str, int]) -> str:
    return " x ".join(f"{axis}={n}" for axis, n in mesh.items() if n > 1) or "1"


def _on_links(
    arguments: Arguments, within: Mapping[str, int], dims: list[sharding.ShardedDim], where: Slice
) -> list[Finding]:
    for key in ("custom_mesh", "custom_mesh_and_rule", "subslice_shape"):
        if arguments.get(key):
            what = f"{key}={arguments[key]} lays the mesh over the links in a way that is not known here"
            return [Finding("mesh", "inconclusive", what, "type --compile", "unknown-mesh")]
    refused = _refusal(arguments, within, where)
    if not refused:
        return []
    message = f"mesh {_shown(within)} does not fit the links of {where.name}: {refused}"
    return [Finding("mesh", "error", message, _instead(arguments, within, dims, where), "mesh-not-on-links")]


def _refusal(arguments: Arguments, within: Mapping[str, int], where: Slice) -> str:
    axes = arguments_of.axes(arguments)
    split = arguments_of.flag(arguments, "allow_split_physical_axes")
    refused = refusal(where, [within[axis] for axis in axes], split=split)
    return f"{refused.brief} (axis {refused.axis} is {axes[refused.axis]})" if refused else ""


def _division(arguments: Arguments, mesh: MaxTextMesh, dims: list[sharding.ShardedDim], where: Slice) -> list[Finding]:
    wrong = [dim for dim in dims if dim.size % mesh.size(*dim.axes)]
    if not wrong:
        return []
    assert mesh.within
    parts = sorted((f"{_product_of(dim, mesh)} does not divide {dim.what}, {dim.size}" for dim in wrong), key=len)
    what, fix = shorten("; ".join(parts), 160, placeholder=" ..."), _instead(arguments, mesh.within, dims, where)
    return [Finding("mesh", "error", what, fix, "mesh-does-not-divide")]


def _product_of(dim: sharding.ShardedDim, mesh: MaxTextMesh) -> str:
    named = [f"{axis}={n}" for axis in dim.axes if (n := mesh.size(axis)) > 1]
    product = mesh.size(*dim.axes)
    return f"{' x '.join(named)} = {product}" if len(named) > 1 else "".join(named)


def _instead(arguments: Arguments, wanted: Mapping[str, int], dims: list[sharding.ShardedDim], where: Slice) -> str:
    """What to type for the mesh that works and is nearest to the wanted one."""
    per_slice = where.num_devices // where.num_slices
    fixed = math.prod(max(n, 1) for axis, n in wanted.items() if axis not in _CHANGED)
    other = f"set axes whose product is {per_slice}"
    if per_slice % fixed:
        return other
    first = {axis: max(n, 1) for axis, n in wanted.items()}
    left = max(per_slice // math.prod(first.values()), 1)
    first |= {axis: left for axis, n in wanted.items() if n == FREE}
    ones = dict.fromkeys(wanted, 1)
    factors = factorisations(per_slice // fixed, len(_CHANGED))
    meshes = [first | dict(zip(_CHANGED, sizes, strict=True)) for sizes in factors]
    for mesh in sorted(meshes, key=lambda mesh: _distance(mesh, first)):
        divides = all(dim.size % MaxTextMesh(mesh, ones).size(*dim.axes) == 0 for dim in dims)
        if divides and not _refusal(arguments, mesh, where):
            return f"type {_typed(mesh, wanted)}"
    return other


def _distance(mesh: Mapping[str, int], first: Mapping[str, int]) -> tuple[float, ...]:
    """Doublings from `first`; of equals those with fewer axes, and those that add nothing to data and tensor."""
    far = sum(abs(math.log2(mesh[axis] / first[axis])) for axis in _CHANGED)
    added = [max(mesh[axis] / first[axis], 1.0) for axis in ("context", "fsdp_transpose", "tensor", "data")]
    return (round(far, 6), sum(mesh[axis] > 1 for axis in _CHANGED), *added)


def _typed(mesh: Mapping[str, int], wanted: Mapping[str, int]) -> str:
    return " ".join(f"arguments.ici_{axis}_parallelism={n}" for axis, n in mesh.items() if n != wanted[axis])
