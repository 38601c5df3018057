"""The definition of Kimi Delta Attention (arXiv 2510.26692), token by token: what its kernels are held against in tests and benches.

A head's state S [K, V] is zero where a document begins; token t makes S <- (I - beta k k^T) diag(exp g) S + beta k v^T and reads S^T q.
Shape suffixes: B batch, N tokens, H heads, K key dim, V value dim.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from podwright.kernels.kda import documents


def recurrent(
    q_BNHK: jax.Array,
    k_BNHK: jax.Array,
    v_BNHV: jax.Array,
    g_BNHK: jax.Array,
    beta_BNH: jax.Array,
    segment_ids_BN: jax.Array | None = None,
) -> jax.Array:
    """One token after the other, which is too slow for training. -> BNHV"""
    b, n, h, k = q_BNHK.shape
    runs = jnp.zeros((b, n), jnp.int32) if segment_ids_BN is None else documents(segment_ids_BN)
    begins_BN = jnp.diff(runs, axis=1, prepend=runs[:, :1]) > 0

    def step(state: jax.Array, token: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        q, k, v, g, beta, begins = token
        state = jnp.where(begins[:, None, None, None], 0.0, jnp.exp(g)[..., None] * state)
        wrong = v - jnp.einsum("bhk,bhkv->bhv", k, state, precision="highest")
        state = state + jnp.einsum("bhk,bhv->bhkv", beta[..., None] * k, wrong)
        return state, jnp.einsum("bhk,bhkv->bhv", q, state, precision="highest")

    tokens = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), (q_BNHK, k_BNHK, v_BNHV, g_BNHK, beta_BNH, begins_BN))
    state = jnp.zeros((b, h, k, v_BNHV.shape[-1]), jnp.promote_types(g_BNHK.dtype, jnp.float32))
    return jnp.moveaxis(jax.lax.scan(step, state, tokens)[1], 0, 1).astype(v_BNHV.dtype)
