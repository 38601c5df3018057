"""Whether a mesh fits the devices, the model and the batch."""

from __future__ import annotations

from podwright.plan.findings import Finding
from podwright.recipe.models import Qwen3Dims
from podwright.recipe.schema import Recipe


def mesh(recipe: Recipe, num_devices: int | None) -> list[Finding]:
    m = recipe.mesh
    if m.fsdp < 1 and m.fsdp != -1:
        return [Finding("mesh", "error", f"mesh.fsdp={m.fsdp} is no number of devices", "type mesh.fsdp=-1 to use all that remain")]
    fixed = m.data * m.tensor
    if num_devices is None:
        fsdp = m.fsdp
    elif m.fsdp == -1:
        fsdp = num_devices // fixed
        if fsdp * fixed != num_devices:
            return [_product(f"mesh.data x mesh.tensor = {fixed} does not divide {num_devices} devices", num_devices)]
    else:
        fsdp = m.fsdp
        if fixed * fsdp != num_devices:
            return [_product(f"mesh.data x fsdp x tensor = {fixed * fsdp}, but there are {num_devices} devices", num_devices)]
    return [] if fsdp == -1 else _batch(recipe, m.data * fsdp)


def _product(message: str, num_devices: int) -> Finding:
    return Finding("mesh", "error", message, "type mesh.data=1 mesh.fsdp=-1 mesh.tensor=1")


def _batch(recipe: Recipe, shards: int) -> list[Finding]:
    parts = shards * recipe.training.gradient_accumulation_steps
    warm = recipe.warm_start.batch_size if recipe.warm_start else 0
    found = []
    if warm % shards:
        message = f"warm_start.batch_size={warm} cannot be split over {shards} batch shards (data x fsdp)"
        found.append(Finding("batch", "error", message, f"type warm_start.batch_size={-(-warm // shards) * shards}"))
    if recipe.batch_size % parts == 0:
        return found
    message = (
        f"batch_size={recipe.batch_size} cannot be split over {shards} batch shards (data x fsdp) x "
        f"{recipe.training.gradient_accumulation_steps} micro-batches"
    )
    larger = -(-recipe.batch_size // parts) * parts
    return [Finding("batch", "error", message, f"type batch_size={larger}, or another multiple of {parts}"), *found]


def shards(tensor: int, dims: Qwen3Dims) -> list[Finding]:
    """mesh.tensor has to divide everything that is sharded over it."""
    sizes = {
        "attention heads": dims.num_heads,
        "key/value heads": dims.num_kv_heads,
        "FFN width": dims.intermediate_size,
        "vocabulary": dims.vocab_size,
    }
    wrong = [f"{size} {what}" for what, size in sizes.items() if size % tensor]
    if not wrong:
        return []
    legal = [n for n in range(1, dims.num_kv_heads + 1) if all(size % n == 0 for size in sizes.values())]
    fix = f"type mesh.tensor= one of {', '.join(map(str, legal))}"
    return [Finding("mesh", "error", f"mesh.tensor={tensor} does not divide {', '.join(wrong)}", fix)]
