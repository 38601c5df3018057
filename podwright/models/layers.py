"""Linear layer, norm and rotary positions. Shape suffixes: B batch, N tokens, E hidden, H heads, D head_dim."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class Adapted(NamedTuple):
    """A frozen weight [E, ...] with its low-rank update A [E, r] times B [r, ...]; the scale is in B already (see lora.py)."""

    weight: Array
    a: Array
    b: Array


Weight = Array | Adapted


def linear(x: Array, weight: Weight, apart: bool = False) -> Array:
    """x [..., E] times weight [E, ...] -> [..., ...].

    `apart`: dims of x before E are each sharded, over axes of their own. The gradient of `_product` joins them, for which whole
    rows would be gathered.
    """
    if apart and not isinstance(weight, Adapted):
        return jnp.tensordot(x, weight, 1)
    if isinstance(weight, Adapted):
        return _product(x, weight.weight) + _product(_product(x, weight.a), weight.b)
    return _product(x, weight)


@jax.custom_vjp
def _product(x: Array, weight: Array) -> Array:
    """The gradient is the usual one; it is written out so that of its two factors the smaller one is transposed,
    which on a CPU is a third of the time of a backward pass.
    """
    return jnp.tensordot(x, weight, 1)


def _product_forward(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return jnp.tensordot(x, weight, 1), (x, weight)


def _product_backward(saved: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    x, weight = saved
    inputs, outputs = weight.shape[0], weight.size // weight.shape[0]
    g_2d, x_2d = g.reshape(-1, outputs), x.reshape(-1, inputs)
    d_x = (g_2d @ weight.reshape(inputs, outputs).T).reshape(x.shape)
    d_weight = x_2d.T @ g_2d if inputs <= outputs else (g_2d.T @ x_2d).T
    return d_x, d_weight.reshape(weight.shape)


_product.defvjp(_product_forward, _product_backward)


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """x / sqrt(mean(x^2) + eps) * weight over the last dim, in float32 (Zhang & Sennrich 2019)."""
    x32 = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + eps)
    return (x32 * scale * weight.astype(jnp.float32)).astype(x.dtype)


def rope_angles(positions: Array, head_dim: int, theta: float) -> tuple[Array, Array]:
    """cos and sin of shape positions.shape + (head_dim / 2,), float32 (Su et al. 2021, equation 34)."""
    frequency = theta ** (-jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim)
    angle = positions.astype(jnp.float32)[..., None] * frequency
    return jnp.cos(angle), jnp.sin(angle)


def rotate(x_BNHD: Array, cos_BND: Array, sin_BND: Array) -> Array:
    """Rotary embedding with the two halves of head_dim as real and imaginary part, as Qwen3 has it."""
    real, imaginary = jnp.split(x_BNHD.astype(jnp.float32), 2, axis=-1)
    cos, sin = cos_BND[..., None, :], sin_BND[..., None, :]
    turned = jnp.concatenate([real * cos - imaginary * sin, imaginary * cos + real * sin], axis=-1)
    return turned.astype(x_BNHD.dtype)
