"""Causal attention on NVIDIA GPUs by cuDNN, through JAX: scores exist for one block at a time, never for a sequence.

`jax.nn.dot_product_attention` aligns a causal mask top left, so queries and keys are always the same tokens here. The offsets of
packed documents have no public form. Shape suffixes: B batch, N tokens, M documents at most, H query heads, K key-value heads,
R query heads per key-value head, D head_dim, V values' head_dim.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array


def causal(q_BNKRD: Array, k_BNKD: Array, v_BNKV: Array, scale: float | None = None) -> Array:
    """Query n sees the keys up to n. Arrays are those of one device. -> BNKRV"""
    _, n, _, _, d = q_BNKRD.shape
    arrays = _filled(q_BNKRD, k_BNKD, v_BNKV)
    out = jax.nn.dot_product_attention(*arrays, scale=scale or d**-0.5, is_causal=True, implementation="cudnn")
    return out[:, :n, :, : v_BNKV.shape[-1]].reshape(*q_BNKRD.shape[:-1], -1)


def masked(q_BNKRD: Array, k_BNKD: Array, v_BNKV: Array, first_BN: Array, scale: float | None = None) -> Array:
    """Query n sees the keys from number first[n] of its row up to n, by a mask [B, 1, N, N] that all heads share. -> BNKRV"""
    _, n, _, _, d = q_BNKRD.shape
    arrays = _filled(q_BNKRD, k_BNKD, v_BNKV)
    # A token that fills a row up sees what the last one does: without any key its softmax would have no sum.
    first = jnp.pad(first_BN, ((0, 0), (0, n % 2)), mode="edge")
    mask = jnp.arange(n + n % 2) >= first[:, :, None]
    out = jax.nn.dot_product_attention(
        *arrays, mask=mask[:, None], scale=scale or d**-0.5, is_causal=True, implementation="cudnn"
    )
    return out[:, :n, :, : v_BNKV.shape[-1]].reshape(*q_BNKRD.shape[:-1], -1)


def packed(
    q_BNKRD: Array,
    k_BNKD: Array,
    v_BNKV: Array,
    first_BN: Array,
    most: int,
    scale: float | None = None,
) -> Array:
    """Query n sees the keys from number first[n] of its row up to n. No row has more than `most` documents. -> BNKRV"""
    from jax._src.cudnn import fused_attention_stablehlo as private

    _, n, _, _, d = q_BNKRD.shape
    lengths_BM, offsets_BM = segments(first_BN, most)
    out = private.dot_product_attention(
        *_filled(q_BNKRD, k_BNKD, v_BNKV),
        q_seqlen=lengths_BM,
        kv_seqlen=lengths_BM,
        q_offsets=offsets_BM,
        kv_offsets=offsets_BM,
        scale=scale or d**-0.5,
        mask_type=private.MaskType.PADDING_CAUSAL,
    )
    return out[:, :n, :, : v_BNKV.shape[-1]].reshape(*q_BNKRD.shape[:-1], -1)


def segments(first_BN: Array, most: int) -> tuple[Array, Array]:
    """Documents as JAX wants them: lengths [B, M] and the token each begins with [B, M + 1], int32, -1 after the last one."""
    n = first_BN.shape[1]
    begins_BN = first_BN == jnp.arange(n)
    offsets = jnp.sort(jnp.where(begins_BN, jnp.arange(n), n), axis=1)
    offsets = jnp.pad(offsets, ((0, 0), (0, max(0, most + 1 - n))), constant_values=n)[:, : most + 1]
    lengths = jnp.diff(offsets, axis=1)
    return (
        jnp.where(lengths > 0, lengths, -1).astype(jnp.int32),
        jnp.where(offsets < n, offsets, -1).astype(jnp.int32),
    )


def _filled(q_BNKRD: Array, k_BNKD: Array, v_BNKV: Array) -> tuple[Array, Array, Array]:
    """Queries as BNHD, keys and values, with zeros up to an even number of tokens and in values up to the width of the keys.

    JAX refuses gradients of an odd length. Its public form knows one width alone, and so do offsets, which count numbers: those of
    keys are used for values too, and those of queries for the output.
    """
    b, n, k, r, d = q_BNKRD.shape

    def filled(x: Array) -> Array:
        return jnp.pad(x, ((0, 0), (0, n % 2), (0, 0), (0, d - x.shape[-1])))

    return filled(q_BNKRD.reshape(b, n, k * r, d)), filled(k_BNKD), filled(v_BNKV)
