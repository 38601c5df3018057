"""How long each program of a step takes, in closed form: to rank settings before a compiler has seen any of them.

Floating-point operations, bytes and collectives follow from the recipe and the mesh, their rates from the hardware's table and the
shares of it that programs reach (roofline.py). Traffic of elementwise operations was read from compiled programs of Qwen3-1.7B and 8B.
`bench/plan_estimates.py` holds the time of a step against the compiled programs'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from podwright.accelerators import Accelerator
from podwright.attention_kernels import DECODED_TOKENS, Kernel
from podwright.plan.compiled.links import Links
from podwright.plan.compiled.roofline import EFFICIENCIES, Efficiency
from podwright.plan.compiled.step_time import runs
from podwright.plan.compiled.work import Collective
from podwright.plan.estimates import memory_pretrain
from podwright.plan.estimates.layers import OPERAND, RecipeOnMesh, dense_layer, matrices
from podwright.plan.estimates.memory_grpo import GrpoOnMesh, decodes_by_kernel, place, prompts, token_counts, trained
from podwright.plan.estimates.preemption import COPY
from podwright.recipe.dimensions import Dims
from podwright.recipe.hybrid import HybridDims
from podwright.recipe.models import Qwen3Dims
from podwright.recipe.pretrain import PretrainRecipe
from podwright.recipe.schema import GrpoRecipe
from podwright.slices import Slice, outer_shape

_ELSEWHERE = Efficiency(0.5, 0.4, 0.8, 0.8, 0.8, 25e9)
# bytes a token: of a layer's elementwise operations for each of hidden_size + FFN width, and of those on logits for each of the vocabulary
_UPDATE_BYTES, _SCORE_BYTES = (74, 18), (17, 6)
_ALL_REDUCES = {"update": 5, "score": 2}  # of a layer's tokens over `tensor`
# Of pretraining: compiled schedules took so much longer than the sum, in the median of 19 settings (docs/log.md).
_UNCOUNTED = 1.13
_HOP_S = 3e-6  # a collective of a few bytes, as every decoded token needs two a layer


def is_rated(compute_dtype: str, row: Accelerator) -> bool:
    """Whether it is known how fast the accelerator reads its memory and multiplies what a recipe computes in."""
    emulated = compute_dtype == "bfloat16" and not row.bf16_flops
    return bool(row.hbm_bandwidth and (row.bf16_flops or row.fp16_flops)) and not emulated


def step_seconds(recipe: GrpoRecipe, dims: Qwen3Dims, shape: Sequence[int], where: Slice) -> dict[str, float]:
    """Seconds of each program in one training step; `shape`: (data, fsdp, tensor)."""
    row = where.accelerator
    at = place(recipe, dims, shape, row)
    seconds = {
        "rollout": _rollout(at, where),
        "score": _pass(at, where, "score") + _copy(at),
        "update": _pass(at, where, "update") + _apart(at, where, trained(at)),
    }
    return {name: times * seconds[name] for name, times in runs(recipe).items()}


def update_seconds(recipe: PretrainRecipe, dims: Dims, shape: Sequence[int], where: Slice) -> float:
    """How long a step of pretraining takes; `shape`: (data, fsdp, context, expert, tensor)."""
    at = memory_pretrain.place(recipe, dims, shape, where.accelerator)
    remat = recipe.model.remat
    row = at.accelerator
    shares = _shares(where.accelerator)
    tokens = memory_pretrain.num_tokens(at)
    if remat == "none":
        recomputed = 0.0
    elif remat == "products" and isinstance(dims, HybridDims):
        recomputed = 0.5
    else:
        recomputed = 1.0
    head = 2 * dims.hidden_size * dims.vocab_size * tokens
    products = dims.forward_flops(tokens, 0) - head
    attention = dims.forward_flops(tokens, recipe.sequence_length / 2) - products - head
    products += tokens * _spare_flops(at)
    # A TPU's kernel runs once if what it gave is kept. Of a row that is split, the last part sees up to twice the mean.
    attention *= 3.5 + (recomputed if remat == "layer" or at.kernel is not Kernel.SPLASH else 0)
    attention *= 2 - 1 / at.mesh["context"]
    compute = ((products * (3 + recomputed) + 4 * head) / shares.matmul + attention / shares.kernel) / at.tensor
    wide = dims.hidden_size + _ffn_width(dims) / at.tensor
    of_layers, of_logits = _UPDATE_BYTES
    moved = tokens * (dims.num_layers * of_layers * wide + of_logits * dims.vocab_size / at.tensor)
    moved += 2 * tokens * memory_pretrain.activation_bytes(at)
    moved += 12 * dims.num_params() / at.shards * (at.micro_batches - 1)
    exchanged_s = _exchanged(at, where, tokens, recomputed)
    return _UNCOUNTED * (compute / _flops(at, row) + moved / row.hbm_bandwidth / shares.hbm + exchanged_s)


def _spare_flops(at: memory_pretrain.PretrainOnMesh) -> float:
    """FLOPs a token of products with rows that no expert fills: each device has room for all tokens of the devices along `expert`."""
    if isinstance(at.dims, Qwen3Dims):
        return 0.0
    d, m = at.dims, at.dims.moe
    rows = memory_pretrain.sorted_tokens(at, d) - m.num_experts_per_tok
    return 6 * rows * d.hidden_size * m.moe_intermediate_size * (d.num_layers - d.num_dense_layers)


def _ffn_width(dims: Dims) -> int:
    """The width of the MLP, or of all experts together, that one token meets."""
    if isinstance(dims, Qwen3Dims):
        return dims.intermediate_size
    return (dims.moe.num_experts_per_tok + dims.moe.num_shared_experts) * dims.moe.moe_intermediate_size


def _exchanged(at: memory_pretrain.PretrainOnMesh, where: Slice, tokens: float, recomputed: float) -> float:
    """Seconds of collectives in pretraining: each micro-batch gathers weights and sums gradients, tokens go over `expert` and back."""
    links = _torus(where)
    dims = at.dims
    micro = at.micro_batches
    experts = at.mesh["expert"]
    holders, used = at.shards // at.tensor // experts, micro * OPERAND / at.tensor / experts
    weights, gradients = used * matrices(dims) * (2 if recomputed else 1), used * dims.num_params()
    hidden = tokens * dims.hidden_size * at.width * dims.num_layers
    copies = at.mesh["data"]
    granules, _ = _granules(at, where)
    return (
        _over(links, "all-gather", weights, holders)
        + _over(links, "reduce-scatter", gradients, holders)
        + _between(at, where, weights + gradients)
        + _over(links, "all-reduce", hidden * _ALL_REDUCES["update"], at.tensor)
        + _over(links, "all-gather", hidden * experts * (2 + recomputed), experts)
        + _over(links, "reduce-scatter", hidden * experts * (2 + recomputed), experts)
        + _over(links, "all-reduce", micro * 4 * dims.num_params() / at.shards, copies // granules)
        + micro * _apart(at, where, dims.num_params())
    )


def _copy(at: GrpoOnMesh) -> float:
    """Of a reference that waits in the hosts' memory, for its one of the scores."""
    grpo = at.recipe.grpo
    moved = at.width * at.dims.num_params() / at.shards
    return moved / COPY / grpo.num_scores if grpo.offload_reference and grpo.beta else 0


def _shares(row: Accelerator) -> Efficiency:
    return EFFICIENCIES.get(row.name, _ELSEWHERE)


def _pass(at: GrpoOnMesh, where: Slice, name: str) -> float:
    """A forward pass over all completions, for the update with the backward one."""
    r, dims, row = at.recipe, at.dims, where.accelerator
    shares = _shares(row)
    tokens, _ = token_counts(at, prompts(at))
    s, g, t = r.rollout.max_prompt_length, r.grpo.num_generations, r.rollout.total_generation_steps
    remat = r.model.remat == "layer"
    frozen = bool(r.model.lora_rank)
    layers = (3 - frozen + remat) if name == "update" else 1
    logits = (4 - frozen) if name == "update" else 1
    products = 2 * dims.num_layers * dims.layer_matmul_params() * tokens / at.tensor * layers
    products += 2 * dims.hidden_size * dims.vocab_size / at.tensor * prompts(at) * g * t * logits
    context = prompts(at) * (s * s / 2 + g * t * (s + t / 2))
    attention = 4 * dims.num_layers * dense_layer(at, dims).heads * context * (3.5 + remat if name == "update" else 1)
    compute = (products / shares.matmul + attention / shares.kernel) / _flops(at, row)
    a, b = _UPDATE_BYTES if name == "update" else _SCORE_BYTES
    wide = dims.hidden_size + dims.intermediate_size / at.tensor
    moved = tokens * (dims.num_layers * a * wide + b * dims.vocab_size / at.tensor)
    if name == "update":  # gradients are read, added to and written for every micro-batch but the first
        moved += 12 * trained(at) / at.shards * (r.training.gradient_accumulation_steps - 1)
    return compute + moved / row.hbm_bandwidth / shares.hbm + _links(at, where, name, tokens)


def _flops(at: RecipeOnMesh[Any, Any], row: Accelerator) -> float:
    """TPUs multiply float32 as bfloat16, GPUs without their matrix units."""
    peak = row.bf16_flops or row.fp16_flops
    return peak / 16 if row.node and at.width == 4 else peak


def _links(at: GrpoOnMesh, where: Slice, name: str, tokens: float) -> float:
    """Gathering weights and summing gradients over `fsdp`, sums of tokens over `tensor`; over `data` it is a part of these."""
    fsdp, tensor = at.mesh["fsdp"], at.tensor
    r = at.recipe
    links = _torus(where)
    parts = r.training.gradient_accumulation_steps if name == "update" else 1
    passes = parts * (2 if name == "update" and r.model.remat == "layer" else 1)
    weights = at.dims.num_layers * at.dims.layer_matmul_params() * OPERAND / tensor
    summed = 4 * trained(at) / tensor * parts if name == "update" else 0.0
    over_tensor = tokens * at.dims.hidden_size * at.width * at.dims.num_layers * _ALL_REDUCES[name]
    over_fsdp = _over(links, "all-gather", weights * passes, fsdp) + _over(links, "reduce-scatter", summed, fsdp)
    between = _between(at, where, weights * passes + summed)
    return over_fsdp + between + _over(links, "all-reduce", over_tensor, tensor)


def _torus(where: Slice) -> Links:
    return Links(where.accelerator, where.dims, _shares(where.accelerator).ici)


def _over(links: Links, kind: str, whole_bytes: float, devices: int) -> float:
    """Seconds of a collective among `devices` devices on arrays of so many bytes once they are whole."""
    return links.seconds(Collective(kind, tuple(range(devices)), int(whole_bytes))) if devices > 1 else 0.0


def _granules(at: RecipeOnMesh[Any, Any], where: Slice) -> tuple[int, int]:
    """How many slices, or machines with GPUs, the axes data and fsdp reach over."""
    outer = outer_shape(list(at.mesh.values()), where.num_granules)
    return (outer[0], outer[1]) if outer else (1, 1)


def _between(at: RecipeOnMesh[Any, Any], where: Slice, whole_bytes: float) -> float:
    """Seconds in which arrays of so many bytes once they are whole are gathered or summed over the machines that fsdp reaches over:
    each device exchanges its part with its counterparts on the other ones."""
    _, n = _granules(at, where)
    return whole_bytes * (n - 1) / at.mesh["fsdp"] / _network(where.accelerator)


def _network(row: Accelerator) -> float:
    """Bytes/s of a device between slices or machines."""
    return row.dcn_bandwidth / row.devices_per_chip * _shares(row).dcn


def _apart(at: RecipeOnMesh[Any, Any], where: Slice, num_trained: int) -> float:
    """Gradients are summed over the slices, or machines with GPUs, that have copies of the weights."""
    n, _ = _granules(at, where)
    return 8 * num_trained / at.shards * (n - 1) / n / _network(where.accelerator)


def _rollout(at: GrpoOnMesh, where: Slice) -> float:
    """Every token reads the weights, the prompts' keys and values, and the completions' own: as far as its loop has room, or by a
    kernel the blocks that there are.
    """
    r, dims, row = at.recipe, at.dims, where.accelerator
    shares = _shares(row)
    width = OPERAND if row.pod else at.width
    s, g, t = r.rollout.max_prompt_length, r.grpo.num_generations, r.rollout.total_generation_steps
    weights = (dims.num_layers * dims.layer_matmul_params() + dims.hidden_size * dims.vocab_size) * width / at.tensor
    own = (t + DECODED_TOKENS) / 2 if decodes_by_kernel(at) else _mean_room(t)
    cache = dims.num_layers * prompts(at) * (s + g * own) * 2 * dense_layer(at, dims).kv_heads * width
    products = 2 * prompts(at) * (g * t + s) * (dims.num_layers * dims.layer_matmul_params()) / at.tensor
    read = t * (weights + cache) / row.hbm_bandwidth / shares.hbm
    links = _torus(where)
    weights_whole = dims.num_params() * width / at.tensor
    gathered = _over(links, "all-gather", weights_whole, at.mesh["fsdp"]) + _between(at, where, weights_whole)
    summed = _over(links, "all-reduce", prompts(at) * g * t * dims.hidden_size * width * dims.num_layers * 2, at.tensor)
    hops = 2 * dims.num_layers * t * _HOP_S if at.tensor > 1 else 0
    busy = max(read, products / _flops(at, row) / shares.matmul)
    return busy + gathered + summed + hops


def _mean_room(most: int) -> float:
    """The mean number of a completion's tokens that decoding reads: train/grpo/rollout.py works in up to four loops."""
    size = max(512, -(-most // 512) * 128)
    rooms = [*range(size, most, size), most]
    return sum(room * (room - before) for before, room in zip([0, *rooms], rooms, strict=False)) / most
