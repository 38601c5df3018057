"""What one training step of MaxText takes of each resource of a device, in seconds at the peak figures of its data sheet.

Products and attention come from flops.py with what is computed twice (remat.py); bytes of elementwise operations and of routed tokens
from the widths of the layers; collectives from the mesh. maxtext_step_time.py says how much of each peak public runs reach.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from podwright.accelerators import Accelerator
from podwright.errors import UserError
from podwright.plan.compiled.links import Links, torus
from podwright.plan.compiled.work import Collective
from podwright.recipe.maxtext import architectures, flops, remat
from podwright.recipe.maxtext import arguments as arguments_of
from podwright.recipe.maxtext.architectures import Architecture
from podwright.recipe.maxtext.arguments import Arguments
from podwright.recipe.maxtext.remat import Recomputed
from podwright.slices import Slice

_LANES = 128  # of a TPU's registers: the last dim of an array is padded to a multiple of it
_KERNEL_PASSES = 3.5  # of an attention kernel with its gradient, which computes the scores once more (arXiv 2205.14135)
_OPERAND = 2  # bytes of bfloat16
_WIDTH_PASSES = 4  # over activations: forward, computed twice, and twice backward
_EMBEDDINGS_READ = 9  # times that a layer reads or writes something as wide as its embedding, forward
_SLOT_EMBEDDINGS, _SLOT_WIDTHS = (
    6,
    5,
)  # of a token at an expert: sorted, gathered, in and out of both products, put back, summed


@dataclass(frozen=True)
class StepWork:
    """Seconds of one step on one device, each resource alone and at its peak."""

    matmul: float
    """products in bfloat16"""
    quantized: float
    """products in fp8 or int8"""
    attention: float
    elementwise: float
    """memory traffic of everything that is as wide as the layers"""
    routing: float
    """memory traffic of tokens on their way to experts and back"""
    links: float
    """collectives inside a slice"""
    network: float
    """collectives between slices"""

    def values(self) -> tuple[float, ...]:
        """In the order of RESOURCES."""
        return tuple(getattr(self, name) for name in RESOURCES)


RESOURCES = tuple(field.name for field in fields(StepWork))


def work(arguments: Arguments, where: Slice) -> StepWork:
    """UserError for a model, a remat policy, a precision or a mesh that the formula does not cover."""
    model = architectures.find(arguments)
    batch = arguments_of.batch(arguments)
    twice = remat.recomputed(arguments)
    if twice is None:
        what = f"what remat_policy={arguments['remat_policy']} keeps is not known"
        raise UserError(what, "its step time is measured, not predicted", "no-estimate")
    row = where.accelerator
    tokens = batch.tokens_per_device
    peak = quantized_peak(arguments, row)
    products = _products(model, twice, arguments) * tokens
    unembedding = 2.0 * flops.matrices(model).unembedding * (flops.TRAINING + twice.logits) * tokens
    scores = _scores(model, twice, arguments, batch.length) * tokens
    elementwise = tokens * _OPERAND * _WIDTH_PASSES * _widths(model)
    return StepWork(
        matmul=(unembedding + (0.0 if peak else products)) / row.bf16_flops,
        quantized=products / peak if peak else 0.0,
        attention=scores / row.bf16_flops,
        elementwise=elementwise / row.hbm_bandwidth,
        routing=tokens * _OPERAND * _WIDTH_PASSES * _slot_widths(model) / row.hbm_bandwidth,
        links=_links(model, arguments, where),
        network=_network(model, where, batch.micro_batches),
    )


def quantized_peak(arguments: Arguments, row: Accelerator) -> float:
    """FLOP/s of quantized products; 0.0 where there are none."""
    quantization = arguments.get("quantization", "")
    if not quantization:
        return 0.0
    peak = row.peak_flops(arguments_of.precision(arguments))
    if not peak:
        raise UserError(
            f"the speed of quantization={quantization} on {row.name} is not known",
            f"leave quantization out to predict bf16 on {row.name}",
            "no-estimate",
        )
    return peak


def _products(model: Architecture, twice: Recomputed, arguments: Arguments) -> float:
    """FLOPs of a token in all products of the layers, those that run twice counted twice; dropped tokens' room is computed too."""
    weights = flops.matrices(model)
    dropping = not arguments_of.flag(arguments, "sparse_matmul", True)
    has_capacity = dropping and not arguments.get("capacity_factor", "-1").startswith("-")  # which drops nothing
    capacity = max(arguments_of.number(arguments, "capacity_factor", 1.0), 1.0) if has_capacity else 1.0
    repeated = 0.0
    for layer in range(model.num_decoder_layers):
        parts = flops.projections(model, layer)
        repeated += twice.queries * parts.queries + twice.keys_values * parts.keys_values + twice.output * parts.output
    into = 1 - 1 / model.mlp_matrices  # all of an MLP's matrices but the last
    experts = weights.active_experts * capacity
    repeated += twice.mlp * into * (weights.mlp + experts)
    return 2.0 * (flops.TRAINING * (weights.attention + weights.mlp + experts) + repeated)


def _scores(model: Architecture, twice: Recomputed, arguments: Arguments, length: int) -> float:
    """FLOPs of a token in attention kernels: blocks that the mask cuts are computed in full, heads are padded to whole registers."""
    block = arguments_of.integer(arguments, "sa_block_kv", 512)
    passes = _KERNEL_PASSES + twice.scores
    total = 0.0
    for layer in range(model.num_decoder_layers):
        everywhere = flops.is_global(model, layer)
        edge = block if everywhere else arguments_of.integer(arguments, "local_sa_block_kv", block)
        seen = min(flops.context(model, layer, length) + edge / 2 * (1 if everywhere else 2), length)
        if model.is_mla:
            widths = _padded(model.qk_nope_head_dim + model.qk_rope_head_dim) + _padded(model.v_head_dim)
        else:
            widths = 2 * _padded(flops.head_dim(model, layer))
        total += 2.0 * model.num_query_heads * widths * seen
    return passes * total


def _padded(width: int) -> int:
    return -(-width // _LANES) * _LANES


def _widths(model: Architecture) -> float:
    """Numbers that a token's layers read and write in elementwise operations and at the ends of products, forward, without experts."""
    total = 0.0
    dense_layers = model.num_decoder_layers - model.num_moe_layers
    shared = model.shared_experts * (model.shared_expert_dim or model.moe_mlp_dim)
    for layer in range(model.num_decoder_layers):
        parts = flops.projections(model, layer)
        total += _EMBEDDINGS_READ * model.emb_dim + 2 * parts.total / model.emb_dim
    return total + 2 * model.mlp_matrices * (dense_layers * model.mlp_dim + model.num_moe_layers * shared)


def _slot_widths(model: Architecture) -> float:
    """The same for routed experts."""
    width = _SLOT_EMBEDDINGS * model.emb_dim + _SLOT_WIDTHS * model.moe_mlp_dim
    return float(model.num_moe_layers * model.num_experts_per_tok * width)


def _links(model: Architecture, arguments: Arguments, where: Slice) -> float:
    """Weights gathered twice and gradients summed once a micro-batch, activations over the axes that split a layer."""
    mesh = arguments_of.filled(arguments_of.ici(arguments), where.num_devices // where.num_slices)
    if mesh is None:
        raise UserError("the mesh does not come out on these devices", "check ici_fsdp_parallelism", "mesh-not-devices")
    batch = arguments_of.batch(arguments)
    split = mesh["tensor"] * mesh["tensor_sequence"] * mesh["pipeline"]
    sharded = mesh["fsdp"] * mesh["fsdp_transpose"] * mesh["context"]
    weights = flops.matrices(model)
    gradient = 2 if arguments.get("grad_dtype", "float32") == "bfloat16" else 4
    dense = (weights.total - weights.experts - weights.embedding) / split
    per_parameter = 2 * _OPERAND + gradient
    routed = weights.experts / split / mesh["expert"]
    whole_bytes = (dense + routed) * per_parameter * batch.micro_batches
    seconds = _over(where, "all-gather", whole_bytes, sharded)
    rows = batch.tokens_per_device * split * _OPERAND * model.emb_dim
    seconds += _over(where, "all-reduce", 5 * model.num_decoder_layers * rows, split)
    slots = batch.tokens_per_device * model.num_experts_per_tok * model.num_moe_layers * _OPERAND * model.emb_dim
    seconds += _over(where, "all-to-all", 2 * _WIDTH_PASSES * slots, mesh["expert"])
    heads = model.num_kv_heads * model.head_dim * 2 * _OPERAND
    rows = batch.tokens_per_device * mesh["context"] * heads * model.num_decoder_layers
    return seconds + _over(where, "all-gather", 3 * rows, mesh["context"])


def _over(where: Slice, kind: str, whole_bytes: float, devices: int) -> float:
    """Seconds of a collective among `devices` devices of a slice on an array of so many bytes once it is whole."""
    if devices == 1:
        return 0.0
    row = where.accelerator
    dims = where.dims if devices == where.devices_per_granule else torus(row, devices)
    return Links(row, dims, 1.0).seconds(Collective(kind, tuple(range(devices)), int(whole_bytes)))


def _network(model: Architecture, where: Slice, micro_batches: int) -> float:
    """Gradients, or weights and gradients, of each device's share cross the network between slices."""
    n = where.num_slices
    if n == 1:
        return 0.0
    share = flops.matrices(model).total / (where.num_devices / n)
    rate = where.accelerator.dcn_bandwidth / where.accelerator.devices_per_chip
    return share * 8 * micro_batches * (n - 1) / n / rate
