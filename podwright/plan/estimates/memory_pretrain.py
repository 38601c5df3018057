"""How much memory the programs of pretraining need on a device, in closed form.

The update needs most at one of three moments: within a layer of the backward pass, with the logits of a chunk, or when the optimizer
has all gradients. Layers of a group overlap in the backward pass as far as memory allows, so what a layer with experts needs is
counted for its group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from podwright.accelerators import Accelerator
from podwright.attention_kernels import QUERIES, Kernel, Layout
from podwright.plan.estimates import layers
from podwright.plan.estimates.layers import OPERAND, Parts, RecipeOnMesh, dense_layer
from podwright.plan.estimates.memory import Estimate, of_parts
from podwright.recipe.dimensions import Dims
from podwright.recipe.hybrid import HybridDims, Kda
from podwright.recipe.models import Qwen3Dims, logits_chunk
from podwright.recipe.pretrain import PretrainRecipe

MOST_ROWS = 2**18  # sorted tokens that models/moe.py works on at a time; a test holds them together
# How many arrays exist at one time in a layer with experts, read from buffer assignments: of sorted tokens x hidden_size and x FFN width,
# of the gathered weights of experts, bytes of everything else for each number of the hidden state, and arrays of tokens around a loop
_SORTED, _WIDE, _EXPERTS, _OTHERS, _LOOPED = 3.25, 2.0, 1.5, 20, 5
# and, where nothing is computed again, bytes that are kept of a layer for each number of the hidden state, unsplit and split over `tensor`
_UNSPLIT, _SPLIT = 12, 38
_DIVISORS = 1 << 12  # that are tried for the number of chunks; beyond them the fewest that may be enough count
_SCORES = 16  # bytes for each score in the backward pass: scores, shares and the gradients of both, float32; on GPUs shares are not
_MASK = 3  # bytes for each query and key: whether it is seen, and that as a bfloat16 that is added to a score

PretrainOnMesh = RecipeOnMesh[PretrainRecipe, Dims]


def estimates(
    recipe: PretrainRecipe, dims: Dims, shape: Sequence[int], row: Accelerator, names: Sequence[str]
) -> list[Estimate]:
    """Every program in `names` on a mesh of `shape`: (data, fsdp, context, expert, tensor)."""
    at = place(recipe, dims, shape, row)
    resident = _resident(at)
    return [of_parts(name, resident | (_update(at) if name == "update" else _evaluate(at))) for name in names]


def place(recipe: PretrainRecipe, dims: Dims, shape: Sequence[int], row: Accelerator) -> PretrainOnMesh:
    return layers.place(recipe, dims, shape, row, Layout.PACKED)


def trained_state(recipe: PretrainRecipe, dims: Dims) -> Parts:
    """Of all devices together, what training changes and a checkpoint holds: Muon has one moment, for matrices alone, AdamW two."""
    total = dims.num_params()
    adam = total - layers.matrices(dims) if recipe.optimizer.name == "muon" else total
    return layers.state(total, adam)


def _resident(at: PretrainOnMesh) -> Parts:
    """What stays on a device through the whole run."""
    return {part: size / at.shards for part, size in trained_state(at.recipe, at.dims).items()}


def num_tokens(at: PretrainOnMesh) -> float:
    """Of a device, in all micro-batches."""
    return at.recipe.batch_size * at.recipe.sequence_length / at.batch_shards


def _scores(at: PretrainOnMesh, tokens: float) -> float:
    """Numbers of the scores that exist at one time where no kernel works them off block by block."""
    length = at.recipe.sequence_length
    queries = tokens * min(1.0, QUERIES * at.mesh["context"] / length)
    return queries * length * at.query_heads if at.kernel is Kernel.PLAIN else 0


def _mask_bytes(at: PretrainOnMesh, tokens: float) -> float:
    """Of the documents of rows, for each query and key, where cuDNN is told of them by a mask."""
    return _MASK * tokens * at.recipe.sequence_length if at.kernel is Kernel.CUDNN_MASK else 0


def _logits(at: PretrainOnMesh, tokens: float) -> float:
    """Bytes of those of one chunk."""
    return at.logits_bytes(min(tokens, logits_chunk(at.dims.vocab_size)))


def _update(at: PretrainOnMesh) -> Parts:
    tokens = num_tokens(at) / at.micro_batches
    gradients = 4 * at.dims.num_params() / at.shards
    sums = 2 * gradients if at.micro_batches > 1 else 0  # of the micro-batches before, and with this one
    saved = activation_bytes(at) * tokens
    layer_parts = _dense(at, at.dims, tokens) if isinstance(at.dims, Qwen3Dims) else _experts(at, at.dims, tokens)
    each = 8 + 2 * at.width if at.accelerator.node else _SCORES
    layer_parts |= {
        "gradients": gradients + sums,
        "activations": saved,
        "layer": layer_parts["layer"] + each * _scores(at, tokens) + _mask_bytes(at, tokens) + at.kernel_bytes(tokens),
    }
    loss = {
        "gradients": sums / 2,
        "activations": saved,
        "layer": tokens * at.dims.hidden_size * (at.width + 4),
        "copies": at.cast_bytes + OPERAND * at.embedding,
        "vocabulary": _logits(at, tokens) + 4 * at.embedding,
    }
    end = {"gradients": gradients, "vocabulary": 2 * 4 * at.embedding}
    return layers.most(layer_parts, loss, end)


def activation_bytes(at: PretrainOnMesh) -> float:
    """What the forward pass keeps of all layers, for each token."""
    return sum(_saved(at, layer) for layer in range(at.dims.num_layers))


def _saved(at: PretrainOnMesh, layer: int) -> float:
    """Bytes a token that the forward pass keeps of a layer for the backward one; `model.remat` decides."""
    e, remat = at.dims.hidden_size * at.width, at.recipe.model.remat
    if isinstance(at.dims, Qwen3Dims):
        dense = dense_layer(at, at.dims)
        attended = dense.heads * at.width if remat in ("attention", "products") and at.kernel is Kernel.SPLASH else 0
        return dense.kept_bytes(remat) + attended
    if remat == "layer":
        return e
    if remat == "none":
        return _UNSPLIT * at.dims.hidden_size + _SPLIT * at.dims.hidden_size / at.tensor
    attention = at.dims.attention(layer)
    m = at.dims.moe
    kept = 2.0 * e
    if remat == "products":
        kept += 5 * attention.width / at.tensor * at.width if isinstance(attention, Kda) else 0
        if layer >= at.dims.num_dense_layers:
            kept += sorted_tokens(at, at.dims) * 2 * m.moe_intermediate_size / at.tensor * at.width
    return kept


def _dense(at: PretrainOnMesh, dims: Qwen3Dims, tokens: float) -> Parts:
    """A layer of a dense model in the backward pass."""
    layer = dense_layer(at, dims)
    remat = at.recipe.model.remat
    if remat == "none" and not layer.gpu:  # every layer's weights are kept as they were gathered
        return {
            "layer": tokens * layer.backward_bytes(remat),
            "copies": dims.num_layers * layer.gathered_bytes + OPERAND * at.embedding,
        }
    each = layer.backward_bytes(remat) + (0 if layer.gpu else 8 * layer.heads + 4 * layer.kv_heads)
    return {"layer": tokens * each, "copies": at.cast_bytes + layer.gathered_bytes + OPERAND * at.embedding}


def _experts(at: PretrainOnMesh, d: HybridDims, tokens: float) -> Parts:
    """The layers of a group in the backward pass, and both embeddings' gradients, which are whole until then."""
    e, f = d.hidden_size, d.moe.moe_intermediate_size / at.tensor
    rows, chunks = _sorted_rows(at, d, tokens)
    of_experts = at.width * rows * (_SORTED * e + _WIDE * f)
    layer = d.group_size * (of_experts + _OTHERS * tokens * e / at.tensor)
    if chunks > 1:  # loops over chunks run one after the other, and have their inputs and outputs as whole arrays
        layer += (1 - d.group_size) * of_experts + d.group_size * _LOOPED * at.width * tokens * e
    return {
        "layer": layer,
        "copies": _EXPERTS * _gathered(at, d) + 2 * OPERAND * at.embedding,
        "vocabulary": 2 * 4 * at.embedding,
    }


def sorted_tokens(at: PretrainOnMesh, d: HybridDims) -> int:
    """Rows for each token of a device that its experts have room for: those of all devices along `expert` may come."""
    ranks = at.mesh["expert"]
    return ranks * min(d.moe.num_experts_per_tok, d.moe.num_experts // ranks)


def _sorted_rows(at: PretrainOnMesh, d: HybridDims, tokens: float) -> tuple[float, int]:
    """Tokens once for each expert that they go to, of those that are worked on at a time; and in how many chunks all are."""
    rows = tokens * sorted_tokens(at, d)
    least = math.ceil(rows / MOST_ROWS)
    chunks = next((n for n in range(least, least + _DIVISORS) if tokens % n == 0), least)
    return rows / chunks, chunks


def _gathered(at: PretrainOnMesh, d: HybridDims) -> float:
    """Bytes of one layer's experts on a device that uses them."""
    m = d.moe
    return OPERAND * 3 * d.hidden_size * m.moe_intermediate_size * m.num_experts / at.mesh["expert"] / at.tensor


def _evaluate(at: PretrainOnMesh) -> Parts:
    d = at.dims
    tokens = num_tokens(at)
    copies = at.cast_bytes + OPERAND * at.embedding
    if isinstance(d, HybridDims):
        rows, f = _sorted_rows(at, d, tokens)[0], d.moe.moe_intermediate_size / at.tensor
        layer_bytes = at.width * (rows * (2 * d.hidden_size + f) + 2 * tokens * d.hidden_size) + 4 * _scores(at, tokens)
        return {"layer": layer_bytes, "copies": copies + _gathered(at, d), "vocabulary": _logits(at, tokens)}
    layer = dense_layer(at, d)
    layer_bytes = tokens * at.width * (layer.forward + layer.hidden) + 4 * _scores(at, tokens)
    end = {"layer": tokens * layer.hidden * at.width, "copies": copies, "vocabulary": _logits(at, tokens)}
    return layers.most({"layer": layer_bytes, "copies": copies + layer.gathered_bytes}, end)
