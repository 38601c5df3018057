"""How much memory the programs of GRPO need on a device, in closed form.

The programs: rollouts, scores, updates, the supervised steps of a warm start, and tests.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from podwright.accelerators import GIB, Accelerator
from podwright.attention_kernels import DECODED_TOKENS, MOST_SCORES, QUERIES, Kernel, Layout
from podwright.plan.estimates import layers
from podwright.plan.estimates.layers import OPERAND, DenseLayer, Parts, RecipeOnMesh, dense_layer
from podwright.plan.estimates.memory import Estimate, of_parts
from podwright.recipe.models import Qwen3Dims, logits_chunk
from podwright.recipe.schema import GrpoRecipe

# what a TPU's compiler finds room for beside the HBM, where arrays are small enough: heads narrower than the lanes
ON_CHIP = 0.1 * GIB

GrpoOnMesh = RecipeOnMesh[GrpoRecipe, Qwen3Dims]


def estimates(
    recipe: GrpoRecipe, dims: Qwen3Dims, shape: Sequence[int], row: Accelerator, names: Sequence[str]
) -> list[Estimate]:
    """Every program in `names` on a mesh of `shape`: (data, fsdp, tensor)."""
    at = place(recipe, dims, shape, row)
    return [of_parts(name, _program(at, name)) for name in names]


def place(recipe: GrpoRecipe, dims: Qwen3Dims, shape: Sequence[int], row: Accelerator) -> GrpoOnMesh:
    return layers.place(recipe, dims, shape, row, Layout.GROUPS)


def _program(at: GrpoOnMesh, name: str) -> Parts:
    if name == "warm_start":
        at = _supervised(at)
    if name == "score":
        used = _score(at)
    elif name in ("update", "warm_start"):
        used = _update(at)
    elif name == "evaluate":
        used = _decode(at, math.ceil(at.recipe.evaluation.batch_size / at.batch_shards), 1)
    else:
        used = _decode(at, prompts(at), at.recipe.grpo.num_generations)
    total = sum(used.values())
    outside = max(0.0, total - (ON_CHIP if at.accelerator.pod and at.kernel is Kernel.PLAIN else 0)) / total
    return _resident(at, name) | {part: size * outside for part, size in used.items()}


def _supervised(at: GrpoOnMesh) -> GrpoOnMesh:
    """The warm start is an update of all parameters on groups of one completion, without a reference."""
    r = at.recipe
    assert r.warm_start
    changed = {
        "model": r.model.model_copy(update={"lora_rank": 0}),
        "grpo": r.grpo.model_copy(update={"num_generations": 1, "beta": 0.0}),
        "training": r.training.model_copy(update={"gradient_accumulation_steps": 1}),
        "batch_size": r.warm_start.batch_size,
    }
    return dataclasses.replace(at, recipe=r.model_copy(update=changed))


def prompts(at: GrpoOnMesh) -> float:
    """Of a device."""
    return at.recipe.batch_size / at.batch_shards


def trained(at: GrpoOnMesh) -> int:
    """Parameters with a gradient and moments."""
    return _num_trained(at.recipe, at.dims)


def _num_trained(recipe: GrpoRecipe, dims: Qwen3Dims) -> int:
    rank = recipe.model.lora_rank
    return dims.num_lora_params(rank) if rank else dims.num_params()


def trained_state(recipe: GrpoRecipe, dims: Qwen3Dims) -> Parts:
    """Of all devices together, what training changes and a checkpoint holds."""
    number = _num_trained(recipe, dims)
    return layers.state(number, number)


def token_counts(at: GrpoOnMesh, rows: float) -> tuple[float, float]:
    """Tokens of `rows` groups, and keys: each completion has its prompt's before its own."""
    r = at.recipe
    s, g, t = r.rollout.max_prompt_length, r.grpo.num_generations, r.rollout.total_generation_steps
    return rows * (s + g * t), rows * g * (s + t) + rows * s


def _held(at: GrpoOnMesh) -> float:
    """Of the trained parameters, those of one device. Of an adapter one half is split over fsdp, the other over tensor."""
    if at.recipe.model.lora_rank:
        return trained(at) * (1 / at.mesh["fsdp"] + 1 / at.tensor) / 2
    return trained(at) / at.shards


def _resident(at: GrpoOnMesh, name: str) -> Parts:
    """What is on a device through the whole run, and of a reference that is offloaded what is there while the program runs."""
    total = at.dims.num_params()
    rank = at.recipe.model.lora_rank
    parts = layers.state(_held(at), _held(at))
    parts["weights"] += total * at.width / at.shards if rank else 0
    penalised = at.recipe.grpo.beta > 0
    held = penalised and not rank and (name == "score" or not at.recipe.grpo.offload_reference)
    if name == "score" and not penalised and not rank:  # of the policy, in the dtype that it is computed with
        parts["weights"] += at.width * total / at.shards
    return parts | {"reference": at.width * total / at.shards if held else 0}


def _scores(at: GrpoOnMesh, rows: float) -> float:
    """Numbers of the scores of one layer that exist at one time where no kernel works them off block by block."""
    r = at.recipe
    s, g, t = r.rollout.max_prompt_length, r.grpo.num_generations, r.rollout.total_generation_steps
    if at.kernel is not Kernel.PLAIN:
        return 0
    scores = rows * at.query_heads * (g * t * (s + t) + s * s)
    if at.accelerator.node and 4 * scores > MOST_SCORES:
        return rows * at.query_heads * g * min(QUERIES, s + t) * (s + t)
    return scores


def _score(at: GrpoOnMesh) -> Parts:
    rows = prompts(at)
    layer = dense_layer(at, at.dims)
    tokens, _ = token_counts(at, rows)
    layer_bytes = tokens * OPERAND * layer.forward + 4 * _scores(at, rows)
    chunk = at.logits_bytes(logits_chunk(at.dims.vocab_size))
    return _larger(at, layer, layer_bytes, tokens * layer.hidden * at.width, chunk) | {"batch": 4 * tokens}


def _larger(at: GrpoOnMesh, layer: DenseLayer, layer_bytes: float, hidden: float, chunk: float) -> Parts:
    """Of the two moments that may need most: inside a layer, or with a chunk's logits and the final `hidden` states.

    An output embedding that is the input's too is gathered once and stays; one of its own exists for the logits only, unless it
    is frozen, and nothing keeps the compiler from gathering it at the beginning.
    """
    rank = at.recipe.model.lora_rank
    weights, head = (0 if rank else at.cast_bytes) + layer.gathered_bytes, at.embedding * OPERAND
    early = at.dims.tie_word_embeddings or rank
    within = {"layer": layer_bytes, "copies": weights + (head if early else 0)}
    end = {"layer": hidden, "vocabulary": chunk, "copies": weights + head}
    return layers.most(within, end)


def _update(at: GrpoOnMesh) -> Parts:
    r = at.recipe
    layer = dense_layer(at, at.dims)
    parts = at.micro_batches
    rows = prompts(at) / parts
    tokens, keys = token_counts(at, rows)
    remat = r.model.remat
    keys_each = keys / tokens
    scores = _scores(at, rows)
    keeps_scores = remat == "none" and not layer.gpu
    saved = tokens * layer.kept_bytes(remat, keys_each) + (4 * scores if keeps_scores else 0)
    as_rows = keys - rows * r.rollout.max_prompt_length  # tokens, where each completion is a row with its prompt
    queries_each = as_rows / tokens if at.kernel is Kernel.CUDNN else 1.0
    layer_bytes = tokens * layer.backward_bytes(remat, keys_each, queries_each) + at.kernel_bytes(as_rows)
    layer_bytes += 0 if keeps_scores else 8 * scores
    hidden = tokens * layer.hidden * (at.width + 4)
    chunk = at.logits_bytes(logits_chunk(at.dims.vocab_size), 4 + at.width)  # logits, and their gradient
    peak = _larger(at, layer, layer_bytes, hidden, chunk)
    return peak | {
        "vocabulary": peak.get("vocabulary", 0) + (0 if r.model.lora_rank else 4 * at.embedding),
        "gradients": 4 * _held(at) * (2 if parts > 1 else 1),
        "activations": at.dims.num_layers * saved,
        "batch": 4 * 4 * prompts(at) * r.grpo.num_generations * r.rollout.total_generation_steps,
    }


def _decode(at: GrpoOnMesh, rows: float, generations: int) -> Parts:
    """Every layer's weights whole but for `tensor`, and room for the longest completions."""
    r = at.recipe
    total = at.dims.num_params()
    s, t = r.rollout.max_prompt_length, r.rollout.total_generation_steps
    block = DECODED_TOKENS if decodes_by_kernel(at) else 1
    tokens = rows * (s + -s % block + generations * (t + -t % block))
    return {
        "copies": total * OPERAND * (1 / at.tensor + (0 if r.model.lora_rank else 1 / at.shards)),
        "cache": at.dims.num_layers * tokens * 2 * dense_layer(at, at.dims).kv_heads * OPERAND,
        "vocabulary": at.logits_bytes(rows * generations, 3 * 4),
        "batch": 8 * tokens,
    }


def decodes_by_kernel(at: GrpoOnMesh) -> bool:
    return layers.kernel_of(at.recipe, at.dims, at.accelerator, Layout.DECODE) is Kernel.TRITON
