"""Whether a mesh fits the devices and the links between them, the model and the batch; and which meshes of a slice do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from podwright.accelerators import GIB
from podwright.errors import counted
from podwright.plan.checks.topology import factorisations, refusal
from podwright.plan.findings import Finding
from podwright.recipe.dimensions import Dims
from podwright.recipe.hybrid import CHUNK, HybridDims
from podwright.recipe.kinds import JaxRecipe
from podwright.recipe.models import Qwen3Dims
from podwright.recipe.pretrain import PretrainRecipe
from podwright.recipe.schema import MOST_ROWS, GrpoRecipe
from podwright.slices import MOST_DEVICES, Slice, outer_shape

BATCH_AXES = ("data", "fsdp", "expert")
"""that a batch is split over, where a recipe's mesh has them"""

Shape = tuple[int, ...]
"""sizes of a mesh's axes, in the recipe's order: what needs the fastest links stands last"""


def described(where: Slice) -> str:
    """What a slice of TPUs or a set of GPUs is, in the counts that its name leaves open."""
    row = where.accelerator
    shape = f" ({where.topology}{' each' if where.num_slices > 1 else ''})" if row.pod else ""
    hosts = f"{where.num_hosts} hosts of {where.chips_per_host}" if where.num_hosts > 1 else "1 host"
    each = f" ({row.devices_per_chip} a chip)" if row.devices_per_chip > 1 else ""
    message = f"{where.name}: {counted(where.num_chips, 'chip' if row.pod else 'GPU')}{shape} on {hosts}"
    message += f", {counted(where.num_devices, 'device')}{each} of {row.hbm_bytes / GIB:.1f} GiB"
    if row.pod and row.pod.counts != "chips":
        message += f"; the N of {row.name}-N counts {row.pod.counts}, 2 a chip"
    return message


def place(where: Slice, recipe: JaxRecipe) -> list[Finding]:
    """What a slice is, and whether it computes in the recipe's precision."""
    row = where.accelerator
    if not (row.pod or row.node):
        return []
    findings = [Finding("slice", "info", described(where))]
    if not row.bf16_flops and recipe.model.compute_dtype == "bfloat16":
        what = f"{row.name} has no bfloat16 units: what the compiler does instead takes time that is not known here"
        findings.append(Finding("slice", "inconclusive", what, "type model.compute_dtype=float32", "no-bfloat16"))
    return findings


def axes(recipe: JaxRecipe) -> tuple[str, ...]:
    """Of the recipe's mesh."""
    return tuple(type(recipe.mesh).model_fields)


def shards(recipe: JaxRecipe, shape: Shape) -> int:
    """How many parts a batch is split into."""
    return math.prod(n for axis, n in zip(axes(recipe), shape, strict=True) if axis in BATCH_AXES)


def mesh(recipe: JaxRecipe, dims: Dims | None, where: Slice | None) -> list[Finding]:
    """`where` is None when only the machine itself knows its devices; then what depends on their number is left to the trainer."""
    fsdp = recipe.mesh.fsdp
    if fsdp < 1 and fsdp != -1:
        what = f"mesh.fsdp={fsdp} is no number of devices"
        return [Finding("mesh", "error", what, "type mesh.fsdp=-1 to use all that remain", "not-devices")]
    if where is None:
        return _on_any_machine(recipe, dims)
    shape = resolved(recipe, where)
    if math.prod(shape) != where.num_devices:
        others = [axis for axis in axes(recipe) if axis != "fsdp"]
        fixed = math.prod(getattr(recipe.mesh, axis) for axis in others)
        message = f"{' x '.join(f'mesh.{axis}' for axis in others)} = {fixed} does not divide"
        if fsdp != -1:
            message = f"mesh.{' x '.join(axes(recipe))} = {math.prod(shape)}, not"
        message = f"{message} {counted(where.num_devices, 'device')}"
        fault = Finding("mesh", "error", message, _instead(recipe, dims, where, shape), "mesh-not-devices")
        return [fault, *_division(recipe, dims, (1, 1, *requested(recipe)[2:]), where)]
    findings = _links(recipe, dims, where, shape) + _division(recipe, dims, shape, where)
    if all(f.level != "error" for f in findings):  # what to do about the batch is a question for a mesh that exists
        findings += batch(recipe, shards(recipe, shape))
    return findings


def _on_any_machine(recipe: JaxRecipe, dims: Dims | None) -> list[Finding]:
    """What is wrong with a mesh on whatever devices."""
    shape = requested(recipe)
    number = math.prod(max(1, n) for n in shape)
    if number > MOST_DEVICES:
        what = f"mesh.{' x '.join(axes(recipe))} = {number:,} is more than the {MOST_DEVICES:,} devices of the largest slices"
        fix = f"type {typed([-1 if axis == 'fsdp' else 1 for axis in axes(recipe)], recipe)}"
        return [Finding("mesh", "error", what, fix, "mesh-not-devices")]
    findings = _division(recipe, dims, shape, None)
    if not findings and recipe.mesh.fsdp > 0:
        return batch(recipe, shards(recipe, shape))
    return findings


def legal(recipe: JaxRecipe, dims: Dims | None, where: Slice) -> list[Shape]:
    """Every mesh over all devices of `where` that the trainer can make and that divides model and batch."""
    return [s for s in mappable(recipe, dims, where) if not batch(recipe, shards(recipe, s))]


def named(recipe: JaxRecipe, dims: Dims | None, where: Slice) -> list[dict[str, int]]:
    """The legal meshes, by axis."""
    return [dict(zip(axes(recipe), shape, strict=True)) for shape in legal(recipe, dims, where)]


def typed(shape: Sequence[int], recipe: JaxRecipe) -> str:
    """The overrides that make this mesh; what is 1 in the recipe and stays 1 is left out."""
    named = zip(axes(recipe), shape, requested(recipe), strict=True)
    return " ".join(f"mesh.{axis}={n}" for axis, n, old in named if n != 1 or old != 1)


def resolved(recipe: JaxRecipe, where: Slice) -> Shape:
    """The mesh with the number that fsdp=-1 stands for."""
    shape = requested(recipe)
    others = math.prod(n for axis, n in zip(axes(recipe), shape, strict=True) if axis != "fsdp")
    return tuple(where.num_devices // others if n == -1 else n for n in shape)


def requested(recipe: JaxRecipe) -> Shape:
    """The mesh as the recipe has it, -1 in the place of what remains."""
    return tuple(getattr(recipe.mesh, axis) for axis in axes(recipe))


def spanned(mesh: Mapping[str, int], devices: Sequence[int]) -> str:
    """The axes of `mesh` along which `devices` differ, by their numbers in it: 'fsdp', or 'data x fsdp'."""
    along = 1
    spanning = list[str]()
    for axis, n in reversed(list(mesh.items())):
        if len({d // along % n for d in devices}) > 1:
            spanning.insert(0, axis)
        along *= n
    return " x ".join(spanning)


def over_links(where: Slice, mesh: Mapping[str, int]) -> str:
    """Why the trainer cannot lay `mesh` over `where`; "" where it can. The product is taken to be right."""
    names = list(mesh)
    shape = list(mesh.values())
    outer = outer_shape(shape, where.num_granules)
    if outer is None:
        return f"{names[0]} x {names[1]} = {shape[0] * shape[1]} cannot be shared out to {where.num_granules} {_granules(where)}"
    refused = refusal(where, [n // o for n, o in zip(shape, outer, strict=True)])
    return f"{refused.brief} (axis {refused.axis} is {names[refused.axis]})" if refused else ""


def _split(recipe: JaxRecipe, dims: Dims) -> dict[str, dict[str, int]]:
    """What is split over each mesh axis, as models/param.py has it: {axis: {words for it, with {} for its size: size}}."""
    if isinstance(dims, Qwen3Dims):
        return {
            "fsdp": {"a hidden size of {}": dims.hidden_size},
            "context": {"the {} part that a dense model's sequences have": 1},
            "expert": {"the {} MLP of a dense layer": 1},
            "tensor": {
                "{} attention heads": dims.num_heads,
                "{} key/value heads": dims.num_kv_heads,
                "an FFN width of {}": dims.intermediate_size,
                "a vocabulary of {}": dims.vocab_size,
            },
        }
    latents = {"queries' latents of {}": dims.mla.q_lora_rank} if dims.mla.q_lora_rank else {}
    kda = {"{} KDA heads": dims.kda.num_heads} if dims.kda else {}
    return {
        "fsdp": {"a hidden size of {}": dims.hidden_size, **latents, "keys' latents of {}": dims.mla.kv_lora_rank},
        "context": _parts(recipe, dims),
        "expert": {"{} experts": dims.moe.num_experts},
        "tensor": {
            "{} MLA heads": dims.mla.num_heads,
            **kda,
            "an FFN width of {}": dims.intermediate_size,
            "experts of width {}": dims.moe.moe_intermediate_size,
            "a vocabulary of {}": dims.vocab_size,
        },
    }


def _parts(recipe: JaxRecipe, dims: HybridDims) -> dict[str, int]:
    """What a sequence consists of, none of which two devices can share."""
    if not isinstance(recipe, PretrainRecipe):
        return {}
    n = recipe.sequence_length
    if dims.kda:
        return {f"the {{}} chunks of {CHUNK} tokens in sequence_length={n}": n // CHUNK}
    return {"sequence_length={}": n}


def _division(recipe: JaxRecipe, dims: Dims | None, shape: Shape, where: Slice | None) -> list[Finding]:
    """Whether every dim can be split over its axis. `where` None: what an axis cannot split is left to the axis `data`."""
    findings: list[Finding] = []
    split = _split(recipe, dims) if dims else {}
    for axis, size in zip(axes(recipe), shape, strict=True):
        parts = split.get(axis, {})
        wrong = [what.format(dim) for what, dim in parts.items() if size > 0 and dim % size]
        if not wrong:
            continue
        fitting = math.gcd(size, *parts.values())
        fix = f"type mesh.{axis}={fitting} mesh.data={recipe.mesh.data * size // fitting}"
        if where:
            fix = _instead(recipe, dims, where, shape)
        elif axis == "tensor":
            fix = f"type mesh.tensor={fitting}"
        message = f"mesh.{axis}={size} does not divide {', '.join(wrong)}"
        findings.append(Finding("mesh", "error", message, fix, "mesh-does-not-divide"))
    return findings


def _links(recipe: JaxRecipe, dims: Dims | None, where: Slice, shape: Shape) -> list[Finding]:
    named = dict(zip(axes(recipe), shape, strict=True))
    if why := over_links(where, named):
        wanted = " x ".join(f"{axis}={n}" for axis, n in named.items() if n > 1)
        message = f"mesh {wanted} does not fit the links of {where.name}: {why}"
        return [Finding("mesh", "error", message, _instead(recipe, dims, where, shape), "mesh-not-on-links")]
    outer = outer_shape(shape, where.num_granules)
    if outer is None or outer[1] == 1:
        return []
    row = where.accelerator
    message = (
        f"mesh.fsdp={shape[1]} reaches over {outer[1]} {_granules(where)}: every layer's weights cross a network of "
        f"{row.dcn_bandwidth / 1e9:.3g} GB/s a chip, where the links inside have {row.ici_bandwidth / 1e9:.0f}"
    )
    fix = f"type mesh.data={where.num_granules} to keep weights inside, if they fit"
    return [Finding("mesh", "warning", message, fix, "slow-network")]


def _granules(where: Slice) -> str:
    return "machines" if where.accelerator.node else "slices"


def largest_axes(recipe: JaxRecipe, dims: Dims) -> dict[str, int]:
    """By axis what its size must divide, so that the model can be split over it; 0 where it may be anything."""
    split = _split(recipe, dims)
    return {axis: math.gcd(*split.get(axis, {}).values()) for axis in axes(recipe)}


def mappable(recipe: JaxRecipe, dims: Dims | None, where: Slice) -> list[Shape]:
    """Every mesh over all devices of `where` that the trainer can make and that divides the model."""
    names = axes(recipe)
    most = list(largest_axes(recipe, dims).values()) if dims else [0] * len(names)
    shapes = factorisations(where.num_devices, len(names))
    fitting = [s for s in shapes if all(m % n == 0 for m, n in zip(most, s, strict=True))]
    return [s for s in fitting if not over_links(where, dict(zip(names, s, strict=True)))]


def _instead(recipe: JaxRecipe, dims: Dims | None, where: Slice, wanted: Shape) -> str:
    """What to type for the mesh that works and is nearest to the wanted one; `slice.meshes` of a plan's JSON lists all."""

    def far(shape: Shape) -> tuple[float, ...]:
        changed = sum(abs(math.log(n / max(old, 1))) for n, old in zip(shape, wanted, strict=True))
        return (round(changed, 6), *reversed(shape[2:]), shape[0])

    shapes = sorted(mappable(recipe, dims, where), key=far)  # never empty: everything over `data` always works
    good = next((shape for shape in shapes if not batch(recipe, shards(recipe, shape))), None)
    if good is not None:
        return f"type {typed(good, recipe)}"
    larger = _larger(recipe, shards(recipe, shapes[0]))
    return f"type {typed(shapes[0], recipe)} {' '.join(f'{key}={size}' for key, (_, size) in larger.items())}"


def batch(recipe: JaxRecipe, shards: int) -> list[Finding]:
    """Errors of batches that cannot be split into so many shards."""
    findings = []
    over = " x ".join(axis for axis in axes(recipe) if axis in BATCH_AXES)
    for key, (size, larger) in _larger(recipe, shards).items():
        micro = f" x {recipe.training.gradient_accumulation_steps} micro-batches" if key == "batch_size" else ""
        message = f"{key}={size} cannot be split over {shards} batch shards ({over}){micro}"
        findings.append(Finding("batch", "error", message, f"type {key}={larger}", "batch-does-not-divide"))
    return findings


def _larger(recipe: JaxRecipe, shards: int) -> dict[str, tuple[int, int]]:
    """Batch sizes that `shards` does not divide, and the next ones that it does; the ones below where a recipe allows none above."""
    parts = {"batch_size": (recipe.batch_size, shards * recipe.training.gradient_accumulation_steps)}
    if isinstance(recipe, GrpoRecipe) and recipe.warm_start:
        parts["warm_start.batch_size"] = (recipe.warm_start.batch_size, shards)
    wrong = {}
    for key, (size, num) in parts.items():
        if size % num:
            above, last = -(-size // num) * num, MOST_ROWS // num * num
            wrong[key] = (size, min(above, last))
    return wrong
