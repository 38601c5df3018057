"""Kimi Delta Attention by the Pallas TPU kernel of the library tokamax, held against its definition (bench/kda_definition.py), for bounded decays alone.

Its own segments need a bound on their number and fill each up to 64 tokens. Here a document begins with a decay that leaves nothing of
the state, which the kernel's exponents bear at the first token of a block of 16 alone. Nothing falls back to another form.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from podwright.errors import UserError
from podwright.kernels.kda import documents

FORGOTTEN = -90.0  # exp of it is below float32's smallest normal number


def chunked(
    q_BNHK: Array,
    k_BNHK: Array,
    v_BNHV: Array,
    g_BNHK: Array,
    beta_BNH: Array,
    segment_ids_BN: Array | None = None,
) -> Array:
    """`kernels.kda.chunked` for g >= -5, tokens that are whole chunks, and documents that begin at multiples of 16 tokens. -> BNHV

    What comes out where segment_ids is 0 means nothing: there stands no document.
    """
    if segment_ids_BN is not None:
        runs_BN = documents(segment_ids_BN)
        begins_BN = (jnp.diff(runs_BN, axis=1, prepend=runs_BN[:, :1]) > 0) & (segment_ids_BN > 0)
        g_BNHK = jnp.where(begins_BN[:, :, None, None], FORGOTTEN, g_BNHK)
    heads_first = (jnp.moveaxis(x, 2, 0) for x in (q_BNHK, k_BNHK, v_BNHV, g_BNHK, beta_BNH))
    attend, cross_compile = library()
    with cross_compile(
        True
    ):  # else it asks for this machine's own devices, which may not be those that are compiled for
        out, _ = attend(*heads_first, scale=1.0, implementation="mosaic")
    return jnp.moveaxis(out, 0, 2)


def library() -> tuple[Any, Any]:
    """Its function, and its switch for compiling for other devices than this machine's."""
    try:
        from tokamax.config import cross_compile
        from tokamax.ops import kimi_delta_attention
    except ImportError as e:
        what = f"model.kda=tokamax: the library tokamax is missing or too old here ({e})"
        raise UserError(
            what, "in Python 3.12 or newer type: pip install 'tokamax>=0.0.17', or model.kda=chunked", "missing-package"
        ) from e
    return kimi_delta_attention, cross_compile
