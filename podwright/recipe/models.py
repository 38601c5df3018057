"""Dimensions of the models we know, and the counts that follow from them in closed form."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from podwright.errors import UserError, listed, nearest
from podwright.recipe.schema import GrpoRecipe
from podwright.recipe.yaml_file import facts


@dataclasses.dataclass(frozen=True)
class Qwen3Dims:
    """A dense Qwen3. Field names follow Hugging Face's config.json where it has one."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    tie_word_embeddings: bool
    rope_theta: float = 1e6
    norm_eps: float = 1e-6
    max_positions: int = 40960

    def layer_matmul_params(self) -> int:
        """Weights of one layer that take part in a matrix product."""
        attention = self.hidden_size * self.head_dim * (2 * self.num_heads + 2 * self.num_kv_heads)
        return attention + 3 * self.hidden_size * self.intermediate_size

    def num_params(self) -> int:
        norms = 2 * self.hidden_size + 2 * self.head_dim
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        return embeddings + self.num_layers * (self.layer_matmul_params() + norms) + self.hidden_size

    def num_lora_params(self, rank: int) -> int:
        """Parameters of adapters on every matrix product of every layer."""
        queries, keys = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        ends = (
            2 * (self.hidden_size + queries)
            + 2 * (self.hidden_size + keys)
            + 3 * (self.hidden_size + self.intermediate_size)
        )
        return self.num_layers * rank * ends

    def num_active_params(self) -> int:
        """Weights that a token is multiplied with, the output embedding's among them."""
        return self.num_layers * self.layer_matmul_params() + self.vocab_size * self.hidden_size

    def forward_flops(self, tokens: float, context: float, logits_tokens: float | None = None) -> float:
        """FLOPs of a forward pass: 2 per weight and token, 4 x context x q-width per token for attention.

        `context` is the mean number of keys a token attends to; `logits_tokens` of the `tokens` get logits, all if None.
        """
        logits_tokens = tokens if logits_tokens is None else logits_tokens
        matmul = 2 * self.num_layers * self.layer_matmul_params() * tokens
        attention = 4 * self.num_layers * self.num_heads * self.head_dim * context * tokens
        return matmul + attention + 2 * self.hidden_size * self.vocab_size * logits_tokens


def logits_chunk(vocab_size: int) -> int:
    """Tokens per device whose logits exist at one time. Every chunk reads the head once more, and its gradient; caches like small ones."""
    return 2048 if vocab_size >= 1 << 15 else 512


def step_flops(dims: Qwen3Dims, recipe: GrpoRecipe, prompt_tokens: int, new_tokens: int, updates: bool = True) -> float:
    """Useful FLOPs of a GRPO step on so many tokens: sampling, scores, forward and backward; padding and recomputation not counted.
    A step that `updates` nothing only samples.

    A backward pass counts twice its forward pass; once with LoRA, where the weights get no gradient. Each prompt counts
    once a pass, its completions share it.
    """
    mean_prompt, mean_new = (
        prompt_tokens / recipe.batch_size,
        new_tokens / (recipe.batch_size * recipe.grpo.num_generations),
    )
    context = (prompt_tokens * mean_prompt / 2 + new_tokens * (mean_prompt + mean_new / 2)) / (
        prompt_tokens + new_tokens
    )
    forward = dims.forward_flops(prompt_tokens + new_tokens, context, new_tokens)
    if not updates:
        return forward
    backward = 1 if recipe.model.lora_rank else 2
    return forward * (1 + recipe.grpo.num_scores + (1 + backward) * recipe.grpo.num_iterations)


ROWS = facts(__file__)
MODELS = {name: Qwen3Dims(**row) for name, row in ROWS["qwen3"].items()}


# What must be equal for weights to fit; the rest of the dimensions only says how they are used.
_SHAPES = (
    "hidden_size",
    "intermediate_size",
    "num_layers",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "vocab_size",
    "tie_word_embeddings",
)


def find(name: str) -> Qwen3Dims:
    if name not in MODELS:
        raise unknown(name, MODELS)
    return MODELS[name]


def unknown(name: str, known: Iterable[str]) -> UserError:
    names = list(known)
    guess = nearest(name, names)
    fix = f"type model.name={guess}" if guess else f"known: {', '.join(names)}"
    return UserError(f"model.name={name!r} is not a known model", fix, "unknown-model")


def check_name(name: str, source: str, dims: Qwen3Dims) -> None:
    """A checkpoint's config.json decides; a name that is a row of the table must agree with it, any other name is a label."""
    known = MODELS.get(name, dims)
    differing = [key for key in _SHAPES if getattr(dims, key) != getattr(known, key)]
    if differing:
        has = listed(f"{key}={getattr(dims, key)} instead of {getattr(known, key)}" for key in differing)
        raise UserError(
            f"model.source={source} is no {name}: it has {has}",
            "change model.source, or call it by a name of its own, as in model.name=mine",
            "dimensions-contradict",
        )
