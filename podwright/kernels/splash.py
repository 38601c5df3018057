"""Causal attention on TPUs by JAX's splash attention kernel: scores exist for one block at a time, never for a sequence.

The reference is `models.attention`: `causal`, `grouped` and `packed`. Sizes of blocks follow from the lengths here, by rule.
Shape suffixes: B batch, T queries, U keys, K key-value heads, R query heads per key-value head, D head_dim, V values' head_dim.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

from podwright.attention_kernels import LANES

KEPT = "splash"  # the name of what the kernel gave, for policies of rematerialisation: with it the kernel does not run again
# Wider blocks cost fewer steps but compute more of what the mask hides. Kernel alone: within scoped VMEM from v5e to tpu7x.
MOST_QUERIES, MOST_KEYS = 512, 1024


def causal(
    q_BTKRD: Array,
    k_BUKD: Array,
    v_BUKV: Array,
    segments: tuple[Array, Array] | None = None,
    scale: float | None = None,
    interpret: bool = False,
    attend: Any = None,
) -> Array:
    """Query t sees the keys u <= t + U - T of its own segment, itself always among them. -> BTKRV

    `segments` are integers for the queries, [B, T], and for the keys, [B, U]; `scale`, D^-0.5 if None, is that of the scores.
    The arrays are those of one device. `interpret` runs the kernel's program on any device, for tests. `attend` is this device's
    part of what `make_kernel` gives for queries of which every device has a part; else these are all.
    """
    b, t, k, r, d = q_BTKRD.shape
    u = k_BUKD.shape[1]
    block_t, block_u = _block(t, MOST_QUERIES), _block(u, MOST_KEYS)
    q_BHTD = jnp.einsum("btkrd->bkrtd", q_BTKRD * jnp.asarray(scale or d**-0.5, q_BTKRD.dtype)).reshape(b, k * r, t, d)
    q, keys, values = (
        _filled(q_BHTD, 2, block_t),
        *(_filled(jnp.swapaxes(x, 1, 2), 2, block_u) for x in (k_BUKD, v_BUKV)),
    )
    attend = attend or make_kernel(t, u, k * r, interpret=interpret)
    if segments is None:
        out = jax.vmap(attend)(q, keys, values)
    else:
        ids = kernel.SegmentIds(_filled(segments[0], 1, block_t), _filled(segments[1], 1, block_u))
        out = jax.vmap(attend)(q, keys, values, ids)
    return jnp.einsum("bkrtv->btkrv", out[:, :, :t].reshape(b, k, r, t, -1))


def make_kernel(t: int, u: int, heads: int, parts: int = 1, interpret: bool = False) -> Any:
    """The kernel for so many parts of `t` queries each, the last of which ends with the `u` keys."""
    block_t, block_u = _block(t, MOST_QUERIES), _block(u, MOST_KEYS)
    room = t + -t % block_t
    mask, row = (
        masks.CausalMask((parts * room, u + -u % block_u), offset=u - parts * t),
        np.arange(parts * room, dtype=np.int32),
    )
    mask.q_sequence = row // room * t + row % room
    return kernel.make_splash_mha(
        masks.MultiHeadMask([mask] * heads),
        block_sizes=_sizes(block_t, block_u),
        head_shards=1,
        q_seq_shards=parts,
        residual_checkpoint_name=KEPT,
        interpret=interpret,
    )


def _block(length: int, most: int) -> int:
    """The multiple of LANES, at most `most`, that covers `length` in the fewest equal blocks with the least padding."""
    return -(-length // (-(-length // most) * LANES)) * LANES


def _filled(x: Array, dim: int, block: int) -> Array:
    """Zeros at the end of `dim`, up to a multiple of `block`. No real query sees a key there: all of them are later."""
    return jnp.pad(x, [(0, -x.shape[i] % block if i == dim else 0) for i in range(x.ndim)])


def _sizes(block_t: int, block_u: int) -> kernel.BlockSizes:
    """The same for all three kernels; fused, the backward one would keep the queries' gradient once for every block of keys."""
    return kernel.BlockSizes(
        block_q=block_t,
        block_kv=block_u,
        block_q_dkv=block_t,
        block_kv_dkv=block_u,
        block_q_dq=block_t,
        block_kv_dq=block_u,
    )
