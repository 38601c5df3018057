"""Causal attention within documents on Hopper and Blackwell by the library tokamax, whose mask has the first key of every query.

Shape suffixes: B batch, N tokens, K key-value heads, R query heads per key-value head, D head_dim.
"""

from __future__ import annotations

from typing import Any

from jax import Array


def load() -> Any:
    """The library's class of masks and its kernel. To be called before a program is traced.

    Its import changes what jax takes for the context of a trace: a program within whose trace it happened is compiled again at its
    second step, 12 s for Qwen3-0.6B on an H200.
    """
    from tokamax._src.ops.attention.base import Mask
    from tokamax._src.ops.attention.pallas_mosaic_gpu import PallasMosaicGpuFlashAttention

    return Mask, PallasMosaicGpuFlashAttention


def packed(q_BNKRD: Array, k_BNKD: Array, v_BNKD: Array, first_BN: Array, scale: float | None = None) -> Array:
    """Query n sees the keys from number first[n] of its row up to n. Arrays are those of one device. -> BNKRD"""
    b, n, k, r, d = q_BNKRD.shape
    make_mask, make_kernel = load()
    mask, attend = make_mask(k_start=first_BN[:, None], is_causal=True), make_kernel()
    out = attend(q_BNKRD.reshape(b, n, k * r, d), k_BNKD, v_BNKD, logits_scale=scale or d**-0.5, mask=mask)
    return out.reshape(b, n, k, r, d)
