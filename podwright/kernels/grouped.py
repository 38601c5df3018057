"""Products of rows with the matrix of their group, rows sorted by group: JAX's megablox kernel on TPUs, whole blocks of rows on CPUs,
jax.lax.ragged_dot elsewhere.

What the kernel needs of its tiles is decided here. Shape suffixes: M rows, G groups, I inputs, O outputs, N blocks of R rows.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental.pallas.ops.tpu.megablox.gmm import gmm, tgmm

LANES = 128
# Of a tile; more are read less often, but want more scoped VMEM, of which v5p gives 16 MiB. A group's matrix is read once for all
# of its rows where all its inputs are in one tile. Of the inputs of a weight's gradient, half as many.
MOST_ROWS, MOST_INPUTS, MOST_OUTPUTS = 512, 2560, 640
BLOCK = 64  # rows of `matmul_of_blocks`: fewer fill groups up with less, more make larger products


def supported(platform: str, *widths: int) -> bool:
    """The kernel is a TPU's, and its tiles have whole lanes."""
    return platform == "tpu" and all(width % LANES == 0 for width in widths)


def matmul(x_MI: Array, weight_GIO: Array, sizes_G: Array) -> Array:
    """The first sizes[0] rows times weight[0], and so on; rows after the last group are zero. -> MO"""
    return jax.lax.ragged_dot(x_MI, weight_GIO, sizes_G)


def matmul_of_blocks(x_MI: Array, weight_GIO: Array, sizes_G: Array) -> Array:
    """`matmul` where all sizes are multiples of BLOCK. XLA's CPU compiler makes of a ragged product one of all rows with every group."""
    groups, i, o = weight_GIO.shape
    x_NRI = x_MI.reshape(-1, BLOCK, i)
    ends_G = jnp.cumsum(sizes_G // BLOCK)
    group_N = (jnp.arange(len(x_NRI))[:, None] >= ends_G).sum(1)
    hit_NG = (group_N[:, None] == jnp.arange(groups)).astype(
        weight_GIO.dtype
    )  # a product, for its gradient would be a scatter
    weight_NIO = (hit_NG @ weight_GIO.reshape(groups, -1)).reshape(-1, i, o)
    return jnp.matmul(x_NRI, weight_NIO).reshape(-1, o)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def kernel_matmul(x_MI: Array, weight_GIO: Array, sizes_G: Array, interpret: bool = False) -> Array:
    """`matmul` by the kernel, for arrays of one device; rows after the last group are not written, nor are their gradients."""
    x, rows = _filled(x_MI)
    _, i, o = weight_GIO.shape
    tiles = (rows, *_tiles(i, o, x.dtype))
    return gmm(x, weight_GIO, sizes_G, x.dtype, tiles, interpret=interpret)[: len(x_MI)]


def _forward(x: Array, weight: Array, sizes: Array, interpret: bool) -> Any:
    return kernel_matmul(x, weight, sizes, interpret), (x, weight, sizes)


def _backward(interpret: bool, saved: Any, g: Array) -> Any:
    x, weight, sizes = saved
    (_, i, o), m = weight.shape, len(x)
    (x, rows), (g, _) = _filled(x), _filled(g)
    d_x = gmm(g, weight, sizes, x.dtype, (rows, *_tiles(o, i, x.dtype)), transpose_rhs=True, interpret=interpret)
    tiles = (rows, *_tiles(i, o, x.dtype, MOST_INPUTS // 2))
    d_weight = tgmm(x.swapaxes(0, 1), g, sizes, weight.dtype, tiles, interpret=interpret)
    return d_x[:m], d_weight, None


kernel_matmul.defvjp(_forward, _backward)


def _tiles(inputs: int, outputs: int, dtype: Any, most_inputs: int = MOST_INPUTS) -> tuple[int, int]:
    return _tile(inputs, most_inputs * 2 // jnp.dtype(dtype).itemsize), _tile(outputs, MOST_OUTPUTS)


def _tile(width: int, most: int) -> int:
    """The widest tile that divides `width`."""
    return max(n for n in range(LANES, min(width, most) + 1, LANES) if width % n == 0)


def _filled(x_MI: Array) -> tuple[Array, int]:
    """Rows up to a multiple of a tile's, and how many these are."""
    m = len(x_MI)
    rows = min(MOST_ROWS, -(-m // LANES) * LANES)
    return jnp.pad(x_MI, ((0, -m % rows), (0, 0))), rows
