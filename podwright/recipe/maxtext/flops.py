"""Training FLOPs of a MaxText model in closed form, as MaxText's own log counts them.

Counted are matrix products and attention, forward (1) and backward (2); not counted are the optimizer, recomputed activations and
the embedding's lookup. Causal attention counts half of the square, as MaxText does since 2025-07-27 (its pull request 1988). The same
figures as calculate_tflops_training_per_device in src/maxtext/utils/maxtext_utils.py of MaxText e591f30 (2026-08-22).
"""

from __future__ import annotations

from dataclasses import dataclass

from podwright.recipe.maxtext.architectures import Architecture
from podwright.recipe.maxtext.arguments import RunBatch

TRAINING = 3
"""passes: one forward, and twice its FLOPs backward"""


@dataclass(frozen=True)
class Matrices:
    """Parameters of the matrices, by what they are for."""

    attention: int
    """projections of queries, keys, values and the output, in all layers"""
    mlp: int
    """dense MLPs, shared experts, routers and per-layer inputs"""
    experts: int
    """all routed experts"""
    active_experts: int
    """those of them that one token uses"""
    unembedding: int
    embedding: int
    """of what no product uses: the embeddings that are not the unembedding"""

    @property
    def total(self) -> int:
        """All parameters but norms, biases and scales."""
        return self.attention + self.mlp + self.experts + self.unembedding + self.embedding

    @property
    def active(self) -> int:
        """That one token is multiplied with."""
        return self.attention + self.mlp + self.active_experts + self.unembedding


@dataclass(frozen=True)
class Projections:
    queries: int
    keys_values: int
    output: int

    @property
    def total(self) -> int:
        return self.queries + self.keys_values + self.output


@dataclass(frozen=True)
class TokenFlops:
    """FLOPs per token, forward and backward; the mean over a sequence."""

    attention_weights: float
    mlp: float
    experts: float
    unembedding: float
    scores: float
    """attention itself: queries with keys, and probabilities with values"""

    @property
    def total(self) -> float:
        return self.attention_weights + self.mlp + self.experts + self.unembedding + self.scores


def matrices(model: Architecture) -> Matrices:
    """Parameters of `model`, those of multi-token prediction among them."""
    layers, moe_layers = model.num_decoder_layers, model.num_moe_layers
    extra = model.mtp_num_layers
    experts_layers = moe_layers + (extra if moe_layers else 0)
    per_expert = model.mlp_matrices * model.emb_dim * model.moe_mlp_dim
    routed = experts_layers * per_expert
    vocabulary = model.emb_dim * model.vocab_size
    own_inputs = model.vocab_size * layers * model.hidden_size_per_layer_input
    return Matrices(
        attention=sum(projections(model, layer).total for layer in [*range(layers), *[layers - 1] * extra]),
        mlp=_dense(model, extra) + experts_layers * _shared(model) + _layer_inputs(model),
        experts=routed * model.num_experts if moe_layers else 0,
        active_experts=routed * model.num_experts_per_tok if moe_layers else 0,
        unembedding=vocabulary,
        embedding=own_inputs + (0 if model.logits_via_embedding else vocabulary),
    )


def per_token(model: Architecture, length: int) -> TokenFlops:
    """Training FLOPs of one token in sequences of `length` tokens."""
    weights = matrices(model)
    layers = [*range(model.num_decoder_layers), *[model.num_decoder_layers - 1] * model.mtp_num_layers]
    return TokenFlops(
        attention_weights=2.0 * TRAINING * weights.attention,
        mlp=2.0 * TRAINING * weights.mlp,
        experts=2.0 * TRAINING * weights.active_experts,
        unembedding=2.0 * TRAINING * weights.unembedding,
        scores=TRAINING * sum(_scores(model, layer, length) for layer in layers),
    )


def per_device(model: Architecture, batch: RunBatch) -> float:
    """FLOPs of one training step on one device: what MaxText's log divides by seconds to get FLOP/s per device."""
    return per_token(model, batch.length).total * batch.tokens_per_device


def is_global(model: Architecture, layer: int) -> bool:
    """Whether a layer attends to all tokens before it."""
    return (layer + 1) % model.global_every == 0


def projections(model: Architecture, layer: int) -> Projections:
    """Parameters of the matrices around the attention of one layer."""
    d, heads = model.emb_dim, model.num_query_heads
    if model.is_mla:
        qk = model.qk_nope_head_dim + model.qk_rope_head_dim
        rank = model.q_lora_rank
        queries = d * rank + rank * heads * qk if rank else d * heads * qk
        latents = d * (model.kv_lora_rank + model.qk_rope_head_dim)
        keys_values = latents + model.kv_lora_rank * heads * (model.qk_nope_head_dim + model.v_head_dim)
        return Projections(queries, keys_values, d * heads * model.v_head_dim)
    everywhere = is_global(model, layer)
    kv_heads = (model.global_num_kv_heads if everywhere else 0) or model.num_kv_heads
    of_keys = 1 if model.share_kv_projections and everywhere else 2
    if _shares_keys(model, layer):
        of_keys = 0
    width = d * head_dim(model, layer)
    return Projections(heads * width, of_keys * kv_heads * width, heads * width)


def head_dim(model: Architecture, layer: int) -> int:
    """Of the queries of one layer without latent attention."""
    return (model.global_head_dim if is_global(model, layer) else 0) or model.head_dim


def _shares_keys(model: Architecture, layer: int) -> bool:
    return layer >= model.num_decoder_layers - model.num_kv_shared_layers


def _scores(model: Architecture, layer: int, length: int) -> float:
    """Forward FLOPs of attention for one token: the mean over the sequence."""
    if model.is_mla:
        width = model.num_query_heads * (model.qk_nope_head_dim + model.qk_rope_head_dim + model.v_head_dim)
    else:
        width = model.num_query_heads * 2 * head_dim(model, layer)
    return 2.0 * width * context(model, layer, length)


def context(model: Architecture, layer: int, length: int) -> float:
    """Tokens that one token attends to, the mean over the sequence, with the causal mask."""
    if not is_global(model, layer):
        if model.chunk_attn_window_size:
            chunks, rest = divmod(length, model.chunk_attn_window_size)
            return (chunks * model.chunk_attn_window_size**2 + rest**2) / length / 2
        if model.sliding_window_size:
            window = min(model.sliding_window_size, length)
            return window - window**2 / length / 2
    return length / 2


def _dense(model: Architecture, extra: int) -> int:
    """Dense MLPs of all layers; `extra` layers are copies of the last one."""
    dense_layers = model.num_decoder_layers - model.num_moe_layers + (0 if model.num_moe_layers else extra)
    doubled = model.num_kv_shared_layers if model.use_double_wide_mlp else 0
    return (dense_layers + doubled) * model.mlp_matrices * model.emb_dim * model.mlp_dim


def _shared(model: Architecture) -> int:
    """Router and shared experts of one layer with experts."""
    width = model.shared_expert_dim or model.moe_mlp_dim
    return model.emb_dim * (model.num_experts + model.shared_experts * model.mlp_matrices * width)


def _layer_inputs(model: Architecture) -> int:
    """Gemma 4 E2B and E4B: one product for the inputs of all layers, and two in each layer."""
    return 3 * model.num_decoder_layers * model.emb_dim * model.hidden_size_per_layer_input
