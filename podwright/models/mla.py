"""Multi-head latent attention as it is trained (arXiv 2405.04434): keys and values are made from their latents, not absorbed.

Shape suffixes: B rows, N tokens, E hidden, L a latent's rank, H heads, D query and key head_dim (first without positions, then
with), V the values' head_dim. Norms before it and the residual around it are the caller's.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from podwright.models import attention, layers, param
from podwright.models.param import Param
from podwright.recipe.hybrid import HybridDims, Mla

Tree = dict[str, Any]
NORM_EPS = 1e-6  # of the latents' norms; published implementations do not take it from the config


def declare(dims: HybridDims) -> Tree:
    """The weights of one layer."""
    m, e = dims.mla, dims.hidden_size
    h, d = m.num_heads, m.qk_head_dim
    out_scale = 0.02 / (2 * dims.num_layers) ** 0.5  # as in models/qwen3.py
    params = {
        "kv_a": Param((e, m.kv_lora_rank + m.qk_rope_head_dim), ("embed", None), matrix=(1, 1)),
        "kv_a_norm": Param((m.kv_lora_rank,), (None,), "ones"),
        "kv_b": Param((m.kv_lora_rank, h, m.qk_nope_head_dim + m.v_head_dim), ("latent", "heads", None), matrix=(1, 2)),
        "o": Param((h, m.v_head_dim, e), ("heads", None, "embed"), scale=out_scale, matrix=(2, 1)),
    }
    if m.q_lora_rank:
        params["q_a"] = Param((e, m.q_lora_rank), ("embed", None), matrix=(1, 1))
        params["q_a_norm"] = Param((m.q_lora_rank,), (None,), "ones")
        params["q_b"] = Param((m.q_lora_rank, h, d), ("latent", "heads", None), matrix=(1, 2))
    else:
        params["q"] = Param((e, h, d), ("embed", "heads", None), matrix=(1, 2))
    if m.head_gate:
        params["head_gate"] = Param((e, h), ("embed", "heads"))
    return params


def apply(
    dims: HybridDims,
    weights: Tree,
    x_BNE: Array,
    positions_BN: Array,
    segment_ids_BN: Array | None,
    mesh: Mesh,
) -> Array:
    """Causal attention of each document over itself, documents told apart by `segment_ids_BN` (None: a row is one). -> BNE

    `weights` are a layer's as they are stored; they are gathered here, in the dtype of `x_BNE`.
    """
    m, parts = dims.mla, param.parts_of_rows(mesh)
    linear = functools.partial(layers.linear, apart=parts > 1)
    w = param.gathered(declare(dims), weights, x_BNE.dtype, mesh)
    q, kv_a = _queries(m, w, x_BNE, linear), linear(x_BNE, _in_halves(m, w["kv_a"]))
    latent, k_rope = kv_a[..., : m.kv_lora_rank], kv_a[..., None, m.kv_lora_rank :]
    latent = layers.rms_norm(latent, w["kv_a_norm"], NORM_EPS)
    if m.rope_theta is not None:
        angle = positions_BN.astype(jnp.float32)[..., None] * frequencies(m)
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        q = jnp.concatenate(
            [q[..., : m.qk_nope_head_dim], layers.rotate(q[..., m.qk_nope_head_dim :], cos, sin)], axis=-1
        )
        k_rope = layers.rotate(k_rope, cos, sin)

    def keys_and_values(latent: Array, k_rope: Array, kv_b: Array) -> tuple[Array, Array]:
        kv = layers.linear(latent, kv_b)
        k_nope, v = kv[..., : m.qk_nope_head_dim], kv[..., m.qk_nope_head_dim :]
        return jnp.concatenate([k_nope, jnp.broadcast_to(k_rope, (*k_nope.shape[:-1], m.qk_rope_head_dim))], axis=-1), v

    if parts > 1:
        made_of = (latent, k_rope), w["kv_b"], keys_and_values
        out_BNHV = attention.packed_across(mesh, q, *made_of, segment_ids_BN, softmax_scale(m), m.v_head_dim)
    else:
        out_BNHV = attention.packed(
            mesh, q, *keys_and_values(latent, k_rope, w["kv_b"]), segment_ids_BN, softmax_scale(m)
        )
    if m.head_gate:
        gate_BNH = jax.nn.sigmoid(linear(x_BNE, w["head_gate"]).astype(jnp.float32))
        out_BNHV *= gate_BNH[..., None].astype(out_BNHV.dtype)
    return linear(out_BNHV.reshape(*x_BNE.shape[:-1], -1), w["o"].reshape(-1, dims.hidden_size))


def _queries(m: Mla, w: Tree, x_BNE: Array, linear: Any) -> Array:
    if not m.q_lora_rank:
        return linear(x_BNE, _in_halves(m, w["q"]))
    latent = layers.rms_norm(linear(x_BNE, w["q_a"]), w["q_a_norm"], NORM_EPS)
    return linear(latent, _in_halves(m, w["q_b"]))


def _in_halves(m: Mla, weight: Array) -> Array:
    """The outputs that are turned, in the pairs (0, 1), (2, 3), ..., with all first ones before all second ones.

    Order does not matter to a product of queries and keys, and weights are smaller than what they make.
    """
    plain, turned = weight[..., : -m.qk_rope_head_dim], weight[..., -m.qk_rope_head_dim :]
    turned = turned.reshape(*turned.shape[:-1], -1, 2).swapaxes(-1, -2).reshape(turned.shape)
    return jnp.concatenate([plain, turned], axis=-1)


def frequencies(m: Mla) -> np.ndarray:
    """Radians a token by which each pair turns, [D_rope / 2] float32; YaRN's are divided by `factor` where they are slow."""
    assert m.rope_theta is not None
    pairs = m.qk_rope_head_dim // 2
    full = m.rope_theta ** (-np.arange(pairs) / pairs)
    if m.yarn is None:
        return full.astype(np.float32)
    yarn, theta = m.yarn, m.rope_theta

    def pair_that_turns(times: float) -> float:
        """so often within the original context, counted in pairs (section 3.2)"""
        return pairs * math.log(yarn.original_max_positions / (times * 2 * math.pi)) / math.log(theta)

    low = max(math.floor(pair_that_turns(yarn.beta_fast)), 0)
    high = min(math.ceil(pair_that_turns(yarn.beta_slow)), m.qk_rope_head_dim - 1)
    slow = np.clip((np.arange(pairs) - low) / max(high - low, 1e-3), 0, 1)
    return (full * (1 - slow) + full / yarn.factor * slow).astype(np.float32)


def softmax_scale(m: Mla) -> float:
    grown = 1.0 if m.yarn is None else 0.1 * m.yarn.mscale * math.log(m.yarn.factor) + 1.0
    return float(m.qk_head_dim**-0.5 * grown * grown)
