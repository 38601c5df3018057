"""How much memory the programs of pretraining need on a device, in closed form: no compiler, no jax, like memory.py for GRPO.

A program needs most at one of three moments: within a layer of the backward pass, with the logits of a chunk, or when the optimizer
has all gradients. Layers of a group overlap in the backward pass as far as memory allows, so what a layer with experts needs is
counted for its group. `bench/plan_estimates.py` holds the totals against the compiler's (docs/plan.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from podwright.accelerators import Accelerator
from podwright.plan.estimates.memory import OPERAND, PARTS, Estimate, has_kernel
from podwright.recipe.dimensions import Dims
from podwright.recipe.hybrid import HybridDims, Kda
from podwright.recipe.models import Qwen3Dims, logits_chunk
from podwright.recipe.pretrain import PretrainRecipe

# models/moe.py works on so many sorted tokens at a time, models/attention.py without the kernel on so many queries of a row; a test
# holds them together
MOST_ROWS, QUERIES = 2**18, 512
# How many arrays exist at one time in a layer with experts, read from buffer assignments: of sorted tokens x hidden_size and x FFN width,
# of the gathered weights of experts, bytes of everything else for each number of the hidden state, and arrays of tokens around a loop
_SORTED, _WIDE, _EXPERTS, _OTHERS, _LOOPED = 3.25, 2.0, 1.5, 20, 5
# and, where nothing is computed again, bytes that are kept of a layer for each number of the hidden state, whole and split over `tensor`
_WHOLE, _SPLIT = 12, 38
_SCORES = 16  # bytes for each score in the backward pass: scores, shares and the gradients of both, float32
_Parts = dict[str, float]


@dataclass(frozen=True)
class PretrainOnMesh:
    """A recipe on a mesh of (data, fsdp, context, expert, tensor) devices."""

    recipe: PretrainRecipe
    dims: Dims
    shape: Sequence[int]
    kernel: bool
    """attention keeps no scores: the TPU's kernel"""

    @property
    def shards(self) -> int:
        """that weights are split over"""
        return math.prod(self.shape[1:])

    @property
    def tensor(self) -> int:
        return self.shape[4]

    @property
    def parts(self) -> int:
        return self.recipe.training.gradient_accumulation_steps

    @property
    def tokens(self) -> float:
        """of a device, in all micro-batches"""
        data, fsdp, context, expert, _ = self.shape
        return self.recipe.batch_size * self.recipe.sequence_length / (data * fsdp * context * expert)

    @property
    def width(self) -> int:
        """bytes of a number that is computed with"""
        return 4 if self.recipe.model.compute_dtype == "float32" else 2

    @property
    def head(self) -> float:
        """numbers of the output embedding on a device that uses it"""
        return self.dims.vocab_size * self.dims.hidden_size / self.tensor

    @property
    def cast(self) -> float:
        """bytes of the layers' weights as they are sharded, in the dtype that they are computed with"""
        return OPERAND * _matrices(self.dims) / self.shards

    def scores(self, tokens: float) -> float:
        """Numbers of the scores that exist at one time where no kernel works them off block by block."""
        heads = self.dims.num_heads if isinstance(self.dims, Qwen3Dims) else self.dims.mla.num_heads
        length = self.recipe.sequence_length
        queries = tokens * min(1.0, QUERIES * self.shape[2] / length)
        return 0 if self.kernel else queries * length * heads / self.tensor


def estimates(
    recipe: PretrainRecipe, dims: Dims, shape: Sequence[int], row: Accelerator, names: Sequence[str]
) -> list[Estimate]:
    """Every program in `names` on a mesh of `shape`: (data, fsdp, context, expert, tensor)."""
    at = PretrainOnMesh(
        recipe, dims, shape, has_kernel(row, dims.head_dim if isinstance(dims, Qwen3Dims) else dims.mla.v_head_dim)
    )
    found = {name: _kept(at) | (_update(at) if name == "update" else _evaluate(at)) for name in names}
    return [Estimate(name, {part: parts[part] for part in PARTS if parts.get(part)}) for name, parts in found.items()]


def _matrices(dims: Dims) -> int:
    """Parameters of the layers' products."""
    if isinstance(dims, Qwen3Dims):
        return dims.num_layers * dims.layer_matmul_params()
    return dims.num_params() - 2 * dims.vocab_size * dims.hidden_size


def _kept(at: PretrainOnMesh) -> _Parts:
    """What stays on a device through the whole run: Muon has one moment, for matrices alone, AdamW two."""
    total = at.dims.num_params()
    adam = total - _matrices(at.dims) if at.recipe.optimizer.name == "muon" else total
    return {"weights": 4 * total / at.shards, "optimizer": (4 * (total - adam) + 8 * adam) / at.shards}


def _update(at: PretrainOnMesh) -> _Parts:
    tokens = at.tokens / at.parts
    gradients = 4 * at.dims.num_params() / at.shards
    sums = 2 * gradients if at.parts > 1 else 0  # of the micro-batches before, and with this one
    saved = sum(_saved(at, layer) for layer in range(at.dims.num_layers)) * tokens
    inside = _dense(at, tokens) if isinstance(at.dims, Qwen3Dims) else _experts(at, at.dims, tokens)
    inside |= {
        "gradients": gradients + sums,
        "activations": saved,
        "layer": inside["layer"] + _SCORES * at.scores(tokens),
    }
    loss = {
        "gradients": sums / 2,
        "activations": saved,
        "layer": tokens * at.dims.hidden_size * (at.width + 4),
        "copies": at.cast + OPERAND * at.head,
        "vocabulary": _chunk(at, tokens) + 4 * at.head,
    }
    end = {"gradients": gradients, "vocabulary": 2 * 4 * at.head}
    return max((inside, loss, end), key=lambda parts: sum(parts.values()))


def _chunk(at: PretrainOnMesh, tokens: float) -> float:
    return 4 * min(tokens, logits_chunk(at.dims.vocab_size)) * at.dims.vocab_size / at.tensor


def _saved(at: PretrainOnMesh, layer: int) -> float:
    """Bytes a token that the forward pass keeps of a layer for the backward one; `model.remat` decides."""
    e, remat = at.dims.hidden_size * at.width, at.recipe.model.remat
    if isinstance(at.dims, Qwen3Dims):
        d = at.dims
        heads, keys, f = (
            d.num_heads * d.head_dim / at.tensor,
            d.num_kv_heads * d.head_dim / at.tensor,
            d.intermediate_size / at.tensor,
        )
        if remat == "none":
            half = (6 if at.width == 2 else 3) * f + 3 * d.hidden_size + 2 * heads + 2 * keys
            return half * at.width + 4 * (4 * d.hidden_size + 2 * heads + 2 * keys)
        return e + (heads * at.width if remat != "layer" and at.kernel else 0)
    if remat == "layer":
        return e
    if remat == "none":
        return _WHOLE * at.dims.hidden_size + _SPLIT * at.dims.hidden_size / at.tensor
    attention, m = at.dims.attention(layer), at.dims.moe
    kept = 2.0 * e
    if remat == "products":
        kept += 5 * attention.width / at.tensor * at.width if isinstance(attention, Kda) else 0
        if layer >= at.dims.num_dense_layers:
            kept += m.num_experts_per_tok * 2 * m.moe_intermediate_size / at.tensor * at.width
    return kept


def _dense(at: PretrainOnMesh, tokens: float) -> _Parts:
    """A layer of a dense model in the backward pass."""
    d = at.dims
    assert isinstance(d, Qwen3Dims)
    heads, keys, f = (
        d.num_heads * d.head_dim / at.tensor,
        d.num_kv_heads * d.head_dim / at.tensor,
        d.intermediate_size / at.tensor,
    )
    weights = OPERAND * d.layer_matmul_params() / at.tensor
    if at.recipe.model.remat == "none":  # every layer's are kept as they were gathered
        return {
            "layer": tokens * (2 * f + 2 * d.hidden_size) * at.width,
            "copies": d.num_layers * weights + OPERAND * at.head,
        }
    half = 3 * d.hidden_size + 2 * heads + 2 * keys
    layer = tokens * (5 * f * at.width + half * OPERAND + 8 * d.hidden_size + 8 * heads + 4 * keys)
    return {"layer": layer, "copies": at.cast + weights + OPERAND * at.head}


def _experts(at: PretrainOnMesh, d: HybridDims, tokens: float) -> _Parts:
    """The layers of a group in the backward pass, and both embeddings' gradients, which are whole until then."""
    e, f = d.hidden_size, d.moe.moe_intermediate_size / at.tensor
    rows, chunks = _sorted_rows(at, d, tokens)
    of_experts = at.width * rows * (_SORTED * e + _WIDE * f)
    layer = d.group_size * (of_experts + _OTHERS * tokens * e / at.tensor)
    if chunks > 1:  # loops over chunks run one after the other, and have their inputs and outputs as whole arrays
        layer += (1 - d.group_size) * of_experts + d.group_size * _LOOPED * at.width * tokens * e
    return {
        "layer": layer,
        "copies": _EXPERTS * _gathered(at, d) + 2 * OPERAND * at.head,
        "vocabulary": 2 * 4 * at.head,
    }


def _sorted_rows(at: PretrainOnMesh, d: HybridDims, tokens: float) -> tuple[float, int]:
    """Tokens once for each expert that they go to, of those that are worked on at a time; and in how many chunks all are."""
    ranks = at.shape[3]
    rows = tokens * ranks * min(d.moe.num_experts_per_tok, d.moe.num_experts // ranks)
    chunks = math.ceil(rows / MOST_ROWS)
    while tokens % chunks:
        chunks += 1
    return rows / chunks, chunks


def _gathered(at: PretrainOnMesh, d: HybridDims) -> float:
    """Bytes of one layer's experts on a device that uses them."""
    return OPERAND * 3 * d.hidden_size * d.moe.moe_intermediate_size * d.moe.num_experts / at.shape[3] / at.tensor


def _evaluate(at: PretrainOnMesh) -> _Parts:
    d, tokens, e = at.dims, at.tokens, at.dims.hidden_size
    copies = at.cast + OPERAND * at.head
    if isinstance(d, HybridDims):
        rows, f = _sorted_rows(at, d, tokens)[0], d.moe.moe_intermediate_size / at.tensor
        layer = at.width * (rows * (2 * e + f) + 2 * tokens * e) + 4 * at.scores(tokens)
        return {"layer": layer, "copies": copies + _gathered(at, d), "vocabulary": _chunk(at, tokens)}
    f = d.intermediate_size / at.tensor
    layer = tokens * at.width * (2 * f + (3 * e if at.tensor > 1 else 0) + e) + 4 * at.scores(tokens)
    inside = {"layer": layer, "copies": copies + OPERAND * d.layer_matmul_params() / at.tensor}
    end = {"layer": tokens * e * at.width, "copies": copies, "vocabulary": _chunk(at, tokens)}
    return max(inside, end, key=lambda parts: sum(parts.values()))
