"""How much memory each program of a recipe needs on a device, in closed form: no compiler, no jax, a fraction of a millisecond.

What arrays there are follows from the recipe and the mesh. How many of a layer's arrays exist at one time was read from buffer
assignments of the TPU compiler; `bench/plan_estimates.py` holds every total against the compiler's (docs/plan.md has the table).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podwright.accelerators import GIB, Accelerator
from podwright.plan.findings import Finding
from podwright.recipe.models import Qwen3Dims, logits_chunk
from podwright.recipe.schema import GrpoRecipe

PARTS = {
    "weights": "what is trained, float32, and frozen weights",
    "optimizer": "both moments of AdamW",
    "reference": "the frozen policy that the KL is measured to",
    "gradients": "of the weights, float32; twice while micro-batches are added up",
    "copies": "weights in the dtype they are computed with, gathered where a program reads them whole",
    "activations": "what the forward pass keeps of every layer for the backward one",
    "layer": "the arrays of one layer while it is computed",
    "vocabulary": "logits of one chunk, and the gradient of the output embedding",
    "cache": "keys and values of prompts and completions",
    "batch": "tokens and their log-probabilities",
}
ERROR = 0.15  # how far from the compiler's total an estimate may be (docs/plan.md)
ON_CHIP = (
    0.1 * GIB
)  # what a TPU's compiler finds room for beside the HBM, where arrays are small enough: heads narrower than the lanes
OPERAND = 2  # bytes of a number that enters a product: a TPU rounds float32 to bfloat16 there, and what is only multiplied is kept so
LANES = 128  # kernels/splash.py takes heads that fill a TPU's lanes; a test holds them together


@dataclass(frozen=True)
class Estimate:
    """One program; bytes per device by the names of PARTS, those that are not 0."""

    name: str
    parts: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.parts.values())


@dataclass(frozen=True)
class GrpoOnMesh:
    """A recipe on a mesh of (data, fsdp, tensor) devices."""

    recipe: GrpoRecipe
    dims: Qwen3Dims
    shape: Sequence[int]
    kernel: bool
    """attention keeps no scores: the TPU's kernel"""

    @property
    def shards(self) -> int:
        """that weights are split over"""
        return self.shape[1] * self.shape[2]

    @property
    def tensor(self) -> int:
        return self.shape[2]

    @property
    def rows(self) -> float:
        """prompts of a device"""
        return self.recipe.batch_size / (self.shape[0] * self.shape[1])

    @property
    def width(self) -> int:
        """bytes of a number that is computed with"""
        return 4 if self.recipe.model.compute_dtype == "float32" else 2

    @property
    def heads(self) -> float:
        """a token's queries, in numbers"""
        return self.dims.num_heads * self.dims.head_dim / self.tensor

    @property
    def kv_heads(self) -> float:
        return self.dims.num_kv_heads * self.dims.head_dim / self.tensor


def has_kernel(row: Accelerator, head_dim: int) -> bool:
    """Whether attention is the TPU's kernel, which keeps no scores (kernels/splash.py)."""
    return row.pod is not None and head_dim % LANES == 0


def estimates(
    recipe: GrpoRecipe, dims: Qwen3Dims, shape: Sequence[int], row: Accelerator, names: Sequence[str]
) -> list[Estimate]:
    """Every program in `names` on a mesh of `shape`: (data, fsdp, tensor)."""
    at = GrpoOnMesh(recipe, dims, shape, has_kernel(row, dims.head_dim))
    found = {name: _of(at, name, row) for name in names}
    return [Estimate(name, {part: parts[part] for part in PARTS if parts.get(part)}) for name, parts in found.items()]


def entry(one: Estimate, limit_bytes: float) -> dict[str, Any]:
    parts = {name: round(size / GIB, 4) for name, size in one.parts.items()}
    return {
        "name": one.name,
        "estimated_gib": round(one.total / GIB, 4),
        "limit_gib": round(limit_bytes / GIB, 4),
        "parts_gib": parts,
    }


def findings(entries: list[dict[str, Any]], smaller: Callable[[str], str]) -> list[Finding]:
    """What the estimates mean, and by `smaller` what to type for a program. Within their error of the limit only a compiler can tell."""
    found = []
    for e in entries:
        need, limit = e["estimated_gib"], e["limit_gib"]
        largest = ", ".join(
            f"{part} {gib:.1f}" for part, gib in sorted(e["parts_gib"].items(), key=lambda p: -p[1])[:3]
        )
        said = f"{e['name']} needs about {need:.1f} of {limit:.1f} GiB per device ({largest})"
        if need > limit * (1 + ERROR):
            found.append(Finding("memory", "error", said, smaller(e["name"])))
        elif need > limit * (1 - ERROR):
            found.append(Finding("memory", "warning", f"{said}, too near to tell", "type --compile"))
    if entries and not found:
        most = max(entries, key=lambda e: e["estimated_gib"])
        found.append(
            Finding(
                "memory",
                "info",
                f"{most['name']} needs most memory, about {most['estimated_gib']:.1f} of {most['limit_gib']:.1f} GiB",
            )
        )
    return found


def smaller(name: str, recipe: GrpoRecipe, shards: int) -> str:
    """What to type when program `name` is too large; `shards`: data x fsdp."""
    if name in ("update", "warm_start") and recipe.model.remat == "none":
        return "type model.remat=layer"
    parts = recipe.training.gradient_accumulation_steps
    larger = next((n for n in range(parts + 1, recipe.batch_size + 1) if recipe.batch_size % (n * shards) == 0), None)
    if name == "update" and larger:
        return f"type training.gradient_accumulation_steps={larger}, or take a larger slice"
    if name == "evaluate" and recipe.evaluation.batch_size > shards:
        return f"type evaluation.batch_size={max(1, recipe.evaluation.batch_size // 2)}"
    return "type a smaller batch_size or rollout.total_generation_steps, or take a larger slice"


def _of(at: GrpoOnMesh, name: str, row: Accelerator) -> dict[str, float]:
    if name == "warm_start":
        at = _supervised(at)
    if name == "score":
        used = _score(at)
    elif name in ("update", "warm_start"):
        used = _update(at)
    elif name == "evaluate":
        used = _decode(at, math.ceil(at.recipe.evaluation.batch_size / (at.shape[0] * at.shape[1])), 1)
    else:
        used = _decode(at, at.rows, at.recipe.grpo.num_generations)
    total = sum(used.values())
    outside = max(0.0, total - (ON_CHIP if row.pod and not at.kernel else 0)) / total
    return _kept(at) | {part: size * outside for part, size in used.items()}


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
    return GrpoOnMesh(r.model_copy(update=changed), at.dims, at.shape, at.kernel)


def trained(at: GrpoOnMesh) -> int:
    """Parameters with a gradient and moments."""
    rank = at.recipe.model.lora_rank
    return at.dims.num_lora_params(rank) if rank else at.dims.num_params()


def _held(at: GrpoOnMesh) -> float:
    """Of these, those that one device holds. Of an adapter one half is split over fsdp, the other over tensor."""
    if at.recipe.model.lora_rank:
        return trained(at) * (1 / at.shape[1] + 1 / at.tensor) / 2
    return trained(at) / at.shards


def _kept(at: GrpoOnMesh) -> dict[str, float]:
    """What stays on a device through the whole run."""
    whole, rank = at.dims.num_params(), at.recipe.model.lora_rank
    frozen = whole * at.width / at.shards if rank else 0
    return {
        "weights": 4 * _held(at) + frozen,
        "optimizer": 8 * _held(at),
        "reference": 4 * whole / at.shards if at.recipe.grpo.beta > 0 and not rank else 0,
    }


def _layer_weights(at: GrpoOnMesh) -> float:
    """Of one layer, in the dtype it is computed with, whole but for `tensor`."""
    return at.dims.layer_matmul_params() * OPERAND / at.tensor


def _cast(at: GrpoOnMesh) -> float:
    """The layers' weights as they are sharded, in the dtype that they are computed with."""
    return 0 if at.recipe.model.lora_rank else at.dims.num_layers * at.dims.layer_matmul_params() * OPERAND / at.shards


def _head(at: GrpoOnMesh) -> float:
    """Numbers of the output embedding on a device."""
    return at.dims.vocab_size * at.dims.hidden_size / at.tensor


def token_counts(at: GrpoOnMesh, rows: float) -> tuple[float, float]:
    """Tokens of `rows` groups, and keys: each completion has its prompt's before its own."""
    r = at.recipe
    s, g, t = r.rollout.max_prompt_length, r.grpo.num_generations, r.rollout.total_generation_steps
    return rows * (s + g * t), rows * g * (s + t) + rows * s


def _scores(at: GrpoOnMesh, rows: float) -> float:
    """Numbers of the scores of one layer where no kernel works them off block by block."""
    r = at.recipe
    s, g, t = r.rollout.max_prompt_length, r.grpo.num_generations, r.rollout.total_generation_steps
    return 0 if at.kernel else rows * at.dims.num_heads / at.tensor * (g * t * (s + t) + s * s)


def _score(at: GrpoOnMesh) -> dict[str, float]:
    e, f = at.dims.hidden_size, at.dims.intermediate_size / at.tensor
    tokens, _ = token_counts(at, at.rows)
    # sums over `tensor` come and go in buffers of their own
    layer = tokens * OPERAND * (2 * f + (3 * e if at.tensor > 1 else 0)) + 4 * _scores(at, at.rows)
    chunk = 4 * logits_chunk(at.dims.vocab_size) * at.dims.vocab_size / at.tensor
    return _larger(at, layer, tokens * e * at.width, chunk) | {"batch": 4 * tokens}


def _larger(at: GrpoOnMesh, layer: float, hidden: float, chunk: float) -> dict[str, float]:
    """Of the two moments that may need most: inside a layer, or with a chunk's logits and the final `hidden` states.

    An output embedding that is the input's too is gathered once and stays; one of its own exists for the logits only, unless it
    is frozen, and nothing keeps the compiler from gathering it at the beginning.
    """
    weights, head = _cast(at) + _layer_weights(at), _head(at) * OPERAND
    early = at.dims.tie_word_embeddings or at.recipe.model.lora_rank
    inside = {"layer": layer, "copies": weights + (head if early else 0)}
    end = {"layer": hidden, "vocabulary": chunk, "copies": weights + head}
    return max(inside, end, key=lambda parts: sum(parts.values()))


def _update(at: GrpoOnMesh) -> dict[str, float]:
    r = at.recipe
    e, f, parts = at.dims.hidden_size, at.dims.intermediate_size / at.tensor, r.training.gradient_accumulation_steps
    tokens, keys = token_counts(at, at.rows / parts)
    rows = keys / tokens
    if r.model.remat == "layer":
        saved = tokens * e * at.width
        half = 3 * e + 2 * at.heads + 2 * at.kv_heads * rows
        layer = tokens * (5 * f * at.width + half * OPERAND + 8 * e) + 8 * _scores(at, at.rows / parts)
    else:
        half = (6 if at.width == 2 else 3) * f + 3 * e + 2 * at.heads + 2 * at.kv_heads * rows
        saved = tokens * (half * at.width + 4 * (4 * e + 2 * at.heads + 2 * at.kv_heads)) + 4 * _scores(
            at, at.rows / parts
        )
        layer = tokens * (2 * f + 2 * e) * at.width
    hidden = tokens * e * (at.width + 4)
    chunk = (
        (4 + at.width) * logits_chunk(at.dims.vocab_size) * at.dims.vocab_size / at.tensor
    )  # logits, and their gradient
    head = 0 if r.model.lora_rank else 4 * _head(at)
    inside = _larger(at, layer, hidden, chunk)
    return inside | {
        "vocabulary": inside.get("vocabulary", 0) + head,
        "gradients": 4 * _held(at) * (2 if parts > 1 else 1),
        "activations": at.dims.num_layers * saved,
        "batch": 4 * 4 * at.rows * r.grpo.num_generations * r.rollout.total_generation_steps,
    }


def _decode(at: GrpoOnMesh, rows: float, generations: int) -> dict[str, float]:
    """Every layer's weights whole but for `tensor`, and room for the longest completions."""
    r, whole = at.recipe, at.dims.num_params()
    tokens = rows * (r.rollout.max_prompt_length + generations * r.rollout.total_generation_steps)
    return {
        "copies": whole * OPERAND * (1 / at.tensor + (0 if r.model.lora_rank else 1 / at.shards)),
        "cache": at.dims.num_layers * tokens * 2 * at.kv_heads * OPERAND,
        "vocabulary": 3 * 4 * rows * generations * at.dims.vocab_size / at.tensor,
        "batch": 8 * tokens,
    }
