"""What a plan says of pretraining: the model, the sequence, the data."""

from __future__ import annotations

from pathlib import Path

from podwright.accelerators import GIB
from podwright.errors import UserError, abbreviated
from podwright.plan.checks import meshes, streams
from podwright.plan.findings import Finding, of_error
from podwright.recipe import corpus
from podwright.recipe.dimensions import Dims, find
from podwright.recipe.hybrid import CHUNK, HybridDims
from podwright.recipe.pretrain import PretrainRecipe
from podwright.slices import Slice, outer_shape

TOKAMAX_ON = ("v6e", "tpu7x")


def check(recipe: PretrainRecipe, where: Slice | None, cwd: Path) -> list[Finding]:
    findings = meshes.place(where, recipe) if where else []
    try:
        dims: Dims | None = find(recipe.model.name, recipe.model.gate, recipe.model.kda)
    except UserError as e:
        dims = None
        findings.append(of_error("model", e))
    if dims:
        total, active = dims.num_params(), dims.num_active_params()
        what = f"{recipe.model.name} has {abbreviated(total)} parameters"
        if isinstance(dims, HybridDims):
            what += f", {abbreviated(active)} active per token"
        findings.append(Finding("model", "info", what))
        findings += _sequence(recipe, dims)
    if recipe.model.kda == "tokamax" and where and where.accelerator.name not in TOKAMAX_ON:
        message = f"model.kda=tokamax is a kernel for {' and '.join(TOKAMAX_ON)}, not for {where.name}"
        findings.append(Finding("model", "error", message, "type model.kda=chunked", "wrong-accelerator"))
    if recipe.model.kda == "tokamax" and recipe.mesh.context > 1:
        message = f"model.kda=tokamax needs whole sequences, and mesh.context={recipe.mesh.context} splits them"
        findings.append(
            Finding("model", "error", message, "type mesh.context=1 or model.kda=chunked", "split-sequences")
        )
    findings += _stream(recipe, dims, cwd)
    mesh_findings = meshes.mesh(recipe, dims, where)
    if dims and where and all(f.level != "error" for f in mesh_findings):
        mesh_findings += _between(recipe, dims, where)
    return findings + mesh_findings


def _between(recipe: PretrainRecipe, dims: Dims, where: Slice) -> list[Finding]:
    """What replicas on several slices send each other."""
    shape = meshes.resolved(recipe, where)
    copies = (outer_shape(shape, where.num_granules) or shape)[0]
    if where.num_granules == 1 or copies == 1:
        return []
    row, parts = where.accelerator, recipe.training.gradient_accumulation_steps
    gradients = (
        dims.num_params() * (2 if recipe.model.compute_dtype == "bfloat16" else 4) * shape[0] / where.num_devices
    )
    seconds = parts * 2 * (copies - 1) / copies * gradients * row.devices_per_chip / row.dcn_bandwidth
    message = (
        f"mesh.data={shape[0]} lies over {copies} slices: for every micro-batch, {parts} a step, each device's gradients of "
        f"{gradients / GIB:.2f} GiB cross a network of {row.dcn_bandwidth / 1e9:.3g} GB/s a chip, "
        f"{seconds:.2g} s a step if nothing hides it"
    )
    return [Finding("mesh", "info", message)]


def _stream(recipe: PretrainRecipe, dims: Dims | None, cwd: Path) -> list[Finding]:
    data = recipe.data
    if dims is None:
        return []
    if not corpus.is_text(data.source) and data.eos_id is not None and data.eos_id >= dims.vocab_size:
        message = f"data.eos_id={data.eos_id:,} is outside the vocabulary of {dims.vocab_size:,}"
        return [
            Finding(
                "data",
                "error",
                message,
                "type data.eos_id=null for that of the token shards, or the right one",
                "outside-vocabulary",
            )
        ]
    counts, findings = streams.look(recipe, dims.vocab_size, cwd)
    if counts is None:
        return findings
    return [*streams.check(recipe, counts), *findings]


def _multiple(recipe: PretrainRecipe, dims: Dims | None) -> int:
    """Of tokens, that a sequence must have."""
    chunk = CHUNK if isinstance(dims, HybridDims) and dims.kda else 1
    return chunk * recipe.mesh.context


def _sequence(recipe: PretrainRecipe, dims: Dims) -> list[Finding]:
    n = recipe.sequence_length
    multiple = _multiple(recipe, dims)
    most = dims.max_positions // multiple * multiple
    if n > dims.max_positions:
        message = f"sequence_length={n} is more than the {dims.max_positions} positions of {recipe.model.name}"
        return [Finding("context", "error", message, f"type sequence_length={most} or less", "too-long")]
    if not isinstance(dims, HybridDims) or not dims.kda or n % CHUNK == 0:
        return []
    below = n // multiple * multiple
    above = -(-n // multiple) * multiple
    near = [size for size in (below, above) if 0 < size <= most]
    message = f"sequence_length={n} is no multiple of {CHUNK}, the tokens that KDA takes at a time"
    return [
        Finding(
            "context",
            "error",
            message,
            f"type {', or '.join(f'sequence_length={size}' for size in near)}",
            "length-does-not-divide",
        )
    ]
