"""Which dimension of a model's weights each mesh axis of MaxText splits: its size must be a multiple of the product of these axes.

Source: logical_axis_rules in src/maxtext/configs/base.yml and the rules of deepseek3-671b-2dfsdp.yml, the axes of kernels in
src/maxtext/layers/moe.py (MaxText e591f30, 2026-08-22). A dimension that does not divide is refused by JAX when the state is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podwright.recipe.maxtext import arguments as arguments_of
from podwright.recipe.maxtext.architectures import Architecture

_EVERYTHING = ("fsdp", "fsdp_transpose", "context", "context_usp_ulysses", "expert")
_TENSOR = ("tensor", "tensor_sequence")


class ShardedDim(NamedTuple):
    what: str
    size: int
    axes: tuple[str, ...]


def dims(model: Architecture, arguments: Mapping[str, str]) -> list[ShardedDim]:
    """Of the weights of `model`."""
    if arguments.get("model_name") == "deepseek3-671b-2dfsdp":
        return _two_dims(model)
    on_fsdp = any(arguments_of.flag(arguments, key) for key in ("shard_exp_on_fsdp", "fsdp_shard_on_exp"))
    on_fsdp = on_fsdp or arguments_of.flag(arguments, "use_2d_fsdp_sharding")
    rows = [
        ShardedDim("the hidden size", model.emb_dim, _EVERYTHING),
        ShardedDim("the vocabulary", model.vocab_size, _TENSOR),
    ]
    rows.append(ShardedDim("the number of query heads", model.num_query_heads, _TENSOR))
    if model.is_mla:
        rows.append(ShardedDim("the rank of the keys' latents (kv_lora_rank)", model.kv_lora_rank, _EVERYTHING))
        if model.q_lora_rank:
            rows.append(ShardedDim("the rank of the queries' latents (q_lora_rank)", model.q_lora_rank, _EVERYTHING))
    else:
        rows.append(ShardedDim("the number of key/value heads", model.num_kv_heads, _TENSOR))
    if model.num_moe_layers < model.num_decoder_layers:
        rows.append(ShardedDim("the width of an MLP", model.mlp_dim, ("fsdp_transpose", *_TENSOR)))
    if model.num_moe_layers:
        axes = ("fsdp", "context", "context_usp_ulysses") if on_fsdp else ("expert",)
        rows.append(ShardedDim("the number of experts", model.num_experts, axes))
        rows.append(ShardedDim("the width of an expert", model.moe_mlp_dim, ("fsdp_transpose", *_TENSOR)))
    return rows


def _two_dims(model: Architecture) -> list[ShardedDim]:
    second = ("fsdp_transpose", "expert")
    return [
        ShardedDim("the hidden size", model.emb_dim, ("fsdp", "fsdp_transpose")),
        ShardedDim("the rank of the keys' latents (kv_lora_rank)", model.kv_lora_rank, ("fsdp",)),
        ShardedDim("the rank of the queries' latents (q_lora_rank)", model.q_lora_rank, ("fsdp",)),
        ShardedDim("the number of experts", model.num_experts, ("fsdp",)),
        ShardedDim("the number of query heads", model.num_query_heads, second),
        ShardedDim("the width of an MLP", model.mlp_dim, second),
        ShardedDim("the width of an expert", model.moe_mlp_dim, second),
    ]
