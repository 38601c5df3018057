"""Whether a mesh fits the devices and the links between them, the model and the batch; and which meshes of a slice do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from podwright.accelerators import GIB
from podwright.plan.findings import Finding
from podwright.plan.topology import factorisations, refusal
from podwright.recipe.models import Qwen3Dims
from podwright.recipe.schema import Recipe
from podwright.slices import Slice, outer_shape

AXES = ("data", "fsdp", "tensor")
"""in the order of the trainer's mesh: what needs the fastest links stands last"""

Shape = tuple[int, ...]

# mesh axis -> the dims that are split over it, as models/param.py has them
_SPLIT = {
    "fsdp": {"hidden_size": "a hidden size of {}"},
    "tensor": {
        "num_heads": "{} attention heads",
        "num_kv_heads": "{} key/value heads",
        "intermediate_size": "an FFN width of {}",
        "vocab_size": "a vocabulary of {}",
    },
}
_LISTED = 8


def place(where: Slice, recipe: Recipe) -> list[Finding]:
    """What a slice is, in the counts that its name leaves open."""
    row = where.accelerator
    if not (row.pod or row.node):
        return []
    shape = f" ({where.topology}{' each' if where.num_slices > 1 else ''})" if row.pod else ""
    hosts = f"{where.num_hosts} hosts of {where.chips_per_host}" if where.num_hosts > 1 else "1 host"
    each = f" ({row.devices_per_chip} a chip)" if row.devices_per_chip > 1 else ""
    message = f"{where.name}: {where.num_chips} {'chips' if row.pod else 'GPUs'}{shape} on {hosts}"
    message += f", {where.num_devices} devices{each} of {row.hbm_bytes / GIB:.1f} GiB"
    if row.pod and row.pod.counts != "chips":
        message += f"; the N of {row.name}-N counts {row.pod.counts}, 2 a chip"
    found = [Finding("slice", "info", message)]
    if not row.bf16_flops and recipe.model.compute_dtype == "bfloat16":
        found.append(Finding("slice", "warning", f"{row.name} has no bfloat16 units", "type model.compute_dtype=float32"))
    return found


def mesh(recipe: Recipe, dims: Qwen3Dims | None, where: Slice | None) -> list[Finding]:
    """`where` is None when only the machine itself knows its devices; then what depends on their number is left to the trainer."""
    m = recipe.mesh
    if m.fsdp < 1 and m.fsdp != -1:
        return [Finding("mesh", "error", f"mesh.fsdp={m.fsdp} is no number of devices", "type mesh.fsdp=-1 to use all that remain")]
    if where is None:
        shape: Shape = (m.data, m.fsdp, m.tensor)
        return _division(recipe, dims, shape, None) or (_batch(recipe, m.data * m.fsdp) if m.fsdp > 0 else [])
    fixed, shape = m.data * m.tensor, resolved(recipe, where)
    if math.prod(shape) != where.num_devices:
        product = (
            f"mesh.data x mesh.tensor = {fixed} does not divide" if m.fsdp == -1 else f"mesh.data x fsdp x tensor = {math.prod(shape)}, but"
        )
        message = f"{product} {'' if m.fsdp == -1 else 'there are '}{where.num_devices} devices"
        return [Finding("mesh", "error", message, _instead(recipe, dims, where, shape)), *_division(recipe, dims, (1, 1, m.tensor), where)]
    found = _links(recipe, dims, where, shape) + _division(recipe, dims, shape, where)
    # what to do about the batch is a question for a mesh that exists
    return found if any(f.level == "error" for f in found) else found + _batch(recipe, m.data * shape[1])


def legal(recipe: Recipe, dims: Qwen3Dims | None, where: Slice) -> list[Shape]:
    """Every mesh over all devices of `where` that the trainer can make and that divides model and batch."""
    return [s for s in mappable(dims, where) if not _batch(recipe, s[0] * s[1])]


def typed(shape: Sequence[int], recipe: Recipe) -> str:
    """The overrides that make this mesh; what is 1 in the recipe and stays 1 is left out."""
    before = (recipe.mesh.data, recipe.mesh.fsdp, recipe.mesh.tensor)
    return " ".join(f"mesh.{axis}={n}" for axis, n, old in zip(AXES, shape, before, strict=True) if n != 1 or old != 1)


def resolved(recipe: Recipe, where: Slice) -> Shape:
    """The mesh with the number that fsdp=-1 stands for."""
    m = recipe.mesh
    return (m.data, where.num_devices // (m.data * m.tensor) if m.fsdp == -1 else m.fsdp, m.tensor)


def spanned(shape: Shape, devices: Sequence[int]) -> str:
    """The axes along which `devices` differ, by their numbers in a mesh of `shape`: 'fsdp', or 'data x fsdp'."""
    along = {"data": shape[1] * shape[2], "fsdp": shape[2], "tensor": 1}
    return " x ".join(axis for axis, n in zip(AXES, shape, strict=True) if len({d // along[axis] % n for d in devices}) > 1)


def over_links(where: Slice, shape: Sequence[int]) -> str:
    """Why the trainer cannot lay a mesh of `shape` over `where`; "" where it can. The product is taken to be right."""
    outer = outer_shape(shape, where.num_granules)
    if outer is None:
        return f"{AXES[0]} x {AXES[1]} = {shape[0] * shape[1]} cannot be shared out to {where.num_granules} {_granules(where)}"
    found = refusal(where, [n // o for n, o in zip(shape, outer, strict=True)])
    return f"{found} (axis {found.axis} is {AXES[found.axis]})" if found else ""


def divides(axes: Mapping[str, int], dims: Mapping[str, int]) -> list[Finding]:
    """Whether each dim, {what it is, with {} for its size: size}, can be split over all of `axes`, {mesh axis: size}, together."""
    parts = math.prod(axes.values())
    wrong = [what.format(size) for what, size in dims.items() if size % parts]
    if not wrong:
        return []
    product = " x ".join(f"mesh.{axis}" for axis in axes)
    most = math.gcd(*dims.values())
    kept = math.gcd(most, parts)
    if axes.keys() == {"tensor"}:
        fix = f"type mesh.tensor= one of {', '.join(str(n) for n in range(1, most + 1) if most % n == 0)}"
    else:
        copies = parts // kept
        fix = f"make {product} {kept} and mesh.data {copies} times as large; {_price(copies)}"
    return [Finding("mesh", "error", f"{product}={parts} does not divide {', '.join(wrong)}", fix)]


def _division(recipe: Recipe, dims: Qwen3Dims | None, shape: Shape, where: Slice | None) -> list[Finding]:
    if dims is None:
        return []
    found = []
    for axis, size in zip(AXES, shape, strict=True):
        if size > 0 and axis in _SPLIT:
            found += divides({axis: size}, {what: getattr(dims, name) for name, what in _SPLIT[axis].items()})
    return [replace(f, fix=_instead(recipe, dims, where, shape)) for f in found] if where else found


def _price(copies: int) -> str:
    return f"each device then holds {copies} times the weights and optimizer state"


def _links(recipe: Recipe, dims: Qwen3Dims | None, where: Slice, shape: Shape) -> list[Finding]:
    why = over_links(where, shape)
    if why:
        wanted = " x ".join(f"{axis}={n}" for axis, n in zip(AXES, shape, strict=True))
        return [
            Finding("mesh", "error", f"mesh {wanted} does not fit the links of {where.name}: {why}", _instead(recipe, dims, where, shape))
        ]
    outer = outer_shape(shape, where.num_granules)
    if outer is None or outer[1] == 1:
        return []
    row = where.accelerator
    message = (
        f"mesh.fsdp={shape[1]} reaches over {outer[1]} {_granules(where)}: every layer's weights cross a network of "
        f"{row.dcn_bandwidth / 1e9:.3g} GB/s a chip, where the links inside have {row.ici_bandwidth / 1e9:.0f}"
    )
    return [Finding("mesh", "warning", message, f"type mesh.data={where.num_granules} to keep weights inside, if they fit")]


def _granules(where: Slice) -> str:
    return "machines" if where.accelerator.node else "slices"


def mappable(dims: Qwen3Dims | None, where: Slice) -> list[Shape]:
    split = [math.gcd(*(getattr(dims, name) for name in _SPLIT.get(axis, {}))) if dims else 0 for axis in AXES]
    shapes = factorisations(where.num_devices, len(AXES))
    return [s for s in shapes if all(most % n == 0 for most, n in zip(split, s, strict=True)) and not over_links(where, s)]


def _instead(recipe: Recipe, dims: Qwen3Dims | None, where: Slice, wanted: Shape) -> str:
    """What to type for a mesh that works, the nearest to the wanted one first."""

    def far(shape: Shape) -> tuple[float, ...]:
        changed = sum(abs(math.log(n / max(old, 1))) for n, old in zip(shape, wanted, strict=True))
        return (round(changed, 6), shape[2], shape[0])

    shapes = sorted(mappable(dims, where), key=far)  # never empty: everything over `data` always works
    good = [s for s in shapes if not _batch(recipe, s[0] * s[1])]
    if not good:
        larger = _larger(recipe, shapes[0][0] * shapes[0][1])
        return f"type {typed(shapes[0], recipe)} {' '.join(f'{key}={size}' for key, size in larger.items())}"
    more = f", or {len(good) - _LISTED} more (--json has them)" if len(good) > _LISTED else ""
    copies = good[0][0] // max(wanted[0], 1)
    price = f" ({_price(copies)})" if copies > 1 else ""
    return f"type {typed(good[0], recipe)}{price}{''.join(f', or {typed(s, recipe)}' for s in good[1:_LISTED])}{more}"


def _batch(recipe: Recipe, shards: int) -> list[Finding]:
    found, micro = [], recipe.training.gradient_accumulation_steps
    for key, larger in _larger(recipe, shards).items():
        if key == "batch_size":
            message = f"batch_size={recipe.batch_size} cannot be split over {shards} batch shards (data x fsdp) x {micro} micro-batches"
            fix = f"type batch_size={larger}, or another multiple of {shards * micro}"
        else:
            assert recipe.warm_start
            message = f"{key}={recipe.warm_start.batch_size} cannot be split over {shards} batch shards (data x fsdp)"
            fix = f"type {key}={larger}"
        found.append(Finding("batch", "error", message, fix))
    return found


def _larger(recipe: Recipe, shards: int) -> dict[str, int]:
    """Batch sizes that `shards` does not divide, and the next ones that it does."""
    parts = {"batch_size": (recipe.batch_size, shards * recipe.training.gradient_accumulation_steps)}
    if recipe.warm_start:
        parts["warm_start.batch_size"] = (recipe.warm_start.batch_size, shards)
    return {key: -(-size // num) * num for key, (size, num) in parts.items() if size % num}
