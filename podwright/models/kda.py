"""The layer of Kimi Delta Attention: its weights and the forward pass around the kernel.

Its decays are either those of Kimi-Linear (softplus, low rank) or of Ling 3.0 (bounded, full rank), as `recipe.hybrid.Kda` says.
Shape suffixes: B batch, N tokens, E hidden, H heads, D head_dim.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, PartitionSpec

from podwright.errors import UserError
from podwright.kernels import kda as kernel
from podwright.kernels import kda_tokamax
from podwright.models import layers
from podwright.models.param import Param, parts_of_rows, tokens
from podwright.recipe.hybrid import HybridDims, Kda

Tree = dict[str, Any]
KEPT = "projections"  # the name of what the layer's products gave, its last one aside
FLOAT32 = ("a_log", "dt_bias")  # not to be cast to the dtype of the products


def declare(dims: HybridDims) -> dict[str, Param]:
    """The weights of one layer."""
    kda = _kda(dims)
    e, h, d, r = dims.hidden_size, kda.num_heads, kda.head_dim, kda.gate_rank

    def gate(name: str) -> dict[str, Param]:
        if not r:
            return {name: Param((e, h, d), ("embed", "heads", None), matrix=(1, 2))}
        return {
            f"{name}_down": Param((e, r), ("embed", None), matrix=(1, 1)),
            f"{name}_up": Param((r, h, d), (None, "heads", None), matrix=(1, 2)),
        }

    params = {name: Param((e, h, d), ("embed", "heads", None), matrix=(1, 2)) for name in ("q", "k", "v")}
    taps = (3 * kda.conv_size) ** -0.5  # the spread of a convolution's usual, uniform start
    params |= {f"{x}_conv": Param((kda.conv_size, h, d), (None, "heads", None), scale=taps) for x in ("q", "k", "v")}
    params |= gate("decay") | gate("gate")
    return params | {
        "a_log": Param((h,), ("heads",), "log_rate"),
        "dt_bias": Param((h, d), ("heads", None), "time_step"),
        "beta": Param((e, h), ("embed", "heads"), matrix=(1, 1)),
        "norm": Param((d,), (None,), "ones"),
        "o": Param((h, d, e), ("heads", None, "embed"), scale=0.02 / (2 * dims.num_layers) ** 0.5, matrix=(2, 1)),
    }


def _kda(dims: HybridDims) -> Kda:
    assert dims.kda is not None
    return dims.kda


def apply(
    dims: HybridDims, w: Tree, x_BNE: Array, segment_ids_BN: Array | None = None, mesh: Mesh | None = None
) -> Array:
    """What one layer's attention adds to the residual stream, without the norm before it. -> BNE

    Weights are those of one layer; products are in x's dtype. Tokens of another segment id are not seen, nor those beyond them.
    On a `mesh`, rows and their parts are shared out as batches are, heads to tensor, and each device goes along its own tokens.
    """
    kda, linear = _kda(dims), functools.partial(layers.linear, apart=parts_of_rows(mesh) > 1)
    w = {name: x if name in FLOAT32 else x.astype(x_BNE.dtype) for name, x in w.items()}
    q, k, v = (checkpoint_name(linear(x_BNE, w[name]), KEPT) for name in ("q", "k", "v"))
    g = _log_decay(kda, _gate(linear, w, "decay", x_BNE), w["a_log"], w["dt_bias"])
    beta = jax.nn.sigmoid(linear(x_BNE, w["beta"]).astype(jnp.float32))
    o = _along(kda, mesh)(q, k, v, g, beta, *(w[f"{name}_conv"] for name in ("q", "k", "v")), segment_ids_BN)
    o = _gated_norm(o, w["norm"], _gate(linear, w, "gate", x_BNE), dims.norm_eps)
    return linear(o.reshape(*o.shape[:2], -1), w["o"].reshape(-1, w["o"].shape[-1]))


def _gate(linear: Any, w: Tree, name: str, x_BNE: Array) -> Array:
    """What a gate is made of, [B, N, H, D]."""
    if name in w:
        return checkpoint_name(linear(x_BNE, w[name]), KEPT)
    return checkpoint_name(linear(linear(x_BNE, w[f"{name}_down"]), w[f"{name}_up"]), KEPT)


# What follows is arithmetic of single elements in float32: cheaper to do again for the gradient than to keep. Where a layer is computed
# again as a whole, it is not done a third time: the compiler may take what it finds.
_recompute = functools.partial(jax.checkpoint, prevent_cse=False)


@jax.custom_vjp
def _convolved(x_BNHD: Array, taps: Array, documents_BN: Array | None) -> Array:
    """SiLU of a sum over the token and those just before it in its document, each channel by itself; the last tap is the token's."""
    return jax.nn.silu(_sum_of_earlier(x_BNHD, taps, documents_BN)).astype(x_BNHD.dtype)


def _sum_of_earlier(x: Array, taps: Array, documents: Array | None) -> Array:
    taps = taps.astype(jnp.float32)
    return sum(
        (_shifted(x, back, documents) * taps[-1 - back] for back in range(1, len(taps))),
        x.astype(jnp.float32) * taps[-1],
    )


def _convolved_forward(x: Array, taps: Array, documents: Array | None) -> Any:
    return _convolved(x, taps, documents), (x, taps, documents)


def _convolved_backward(saved: Any, g: Array) -> Any:
    # Written out because the gradient of a shift would be an array in memory for each tap: 2.5 instead of 10.6 GB for [4, 8192, 20, 128].
    x, taps, documents = saved
    total = _sum_of_earlier(x, taps, documents)
    gate = jax.nn.sigmoid(total)
    d = (g.astype(jnp.float32) * gate * (1 + total * (1 - gate))).astype(x.dtype)
    taps32, d32 = taps.astype(jnp.float32), d.astype(jnp.float32)
    d_x, d_taps = d32 * taps32[-1], [jnp.sum(d32 * x.astype(jnp.float32), (0, 1))]
    for back in range(1, len(taps)):
        d_x += _shifted(d, -back, documents) * taps32[-1 - back]
        d_taps.append(jnp.sum(d32 * _shifted(x, back, documents), (0, 1)))
    return d_x.astype(x.dtype), jnp.stack(d_taps[::-1]).astype(taps.dtype), None


_convolved.defvjp(_convolved_forward, _convolved_backward)


def _shifted(x_BNHD: Array, by: int, documents_BN: Array | None) -> Array:
    """In float32 the token `by` places before each token, or after it where `by` is negative; 0 where it is of another document."""

    def shift(x: Array, fill: Any) -> Array:
        room = [(by, -by, 0) if dim == 1 else (0, 0, 0) for dim in range(x.ndim)]
        return jax.lax.pad(x, jnp.asarray(fill, x.dtype), room)

    there = shift(x_BNHD, 0).astype(jnp.float32)
    if documents_BN is None:
        return there
    return jnp.where((shift(documents_BN, -1) == documents_BN)[..., None, None], there, 0.0)


@functools.partial(_recompute, static_argnums=1)
def _unit(x: Array, scale: float) -> Array:
    x32 = x.astype(jnp.float32)
    return (x32 * (scale * jax.lax.rsqrt(jnp.sum(x32 * x32, axis=-1, keepdims=True) + 1e-6))).astype(x.dtype)


@functools.partial(_recompute, static_argnums=0)
def _log_decay(kda: Kda, f_BNHD: Array, a_log_H: Array, bias_HD: Array) -> Array:
    """At most 0, in float32."""
    f = f_BNHD.astype(jnp.float32) + bias_HD.astype(jnp.float32)
    rate = jnp.exp(a_log_H.astype(jnp.float32))[:, None]
    if kda.gate == "bounded":
        return kda.lower_bound * jax.nn.sigmoid(rate * f)
    return -rate * jax.nn.softplus(f)


@functools.partial(_recompute, static_argnums=3)
def _gated_norm(o_BNHD: Array, weight_D: Array, gate_BNHD: Array, eps: float) -> Array:
    normed = layers.rms_norm(o_BNHD.astype(jnp.float32), weight_D, eps)
    return (normed * jax.nn.sigmoid(gate_BNHD.astype(jnp.float32))).astype(o_BNHD.dtype)


def check(kda: Kda, mesh: Mesh) -> None:
    """UserError where what is to run it cannot run on the devices of `mesh`, or is not installed."""
    platform = mesh.devices.flat[0].platform
    if kda.kernel == "tokamax":
        if platform != "tpu":
            raise UserError(
                f"model.kda=tokamax is a kernel for TPUs, and these devices are of {platform}",
                "type model.kda=chunked",
                "wrong-accelerator",
            )
        kda_tokamax.library()


def _along(kda: Kda, mesh: Mesh | None) -> Any:
    """What mixes tokens: convolutions and the recurrence, of a device's own rows and heads."""
    bounded = kda.gate == "bounded" and kda.lower_bound >= kernel.BOUND
    split = parts_of_rows(mesh) > 1
    attend: Any = functools.partial(kernel.across, axis="context") if split else kernel.chunked
    attend = functools.partial(attend, bounded=bounded)
    if kda.kernel == "tokamax":
        assert bounded and not split, "a plan refuses it"
        attend = kda_tokamax.chunked
    reach = kda.conv_size - 1

    def convolved(x: Array, taps: Array, documents: Array | None) -> Array:
        if not split:
            return _convolved(x, taps, documents)
        return _convolved(jnp.concatenate([kernel.from_left(x, reach, "context"), x], 1), taps, documents)[:, reach:]

    def along(*arrays: Any) -> Array:
        *qkv, g, beta = arrays[:5]
        *taps, ids_BN = arrays[5:]
        longer = (
            jnp.concatenate([kernel.from_left(ids_BN, reach, "context"), ids_BN], 1)
            if split and ids_BN is not None
            else ids_BN
        )
        documents = None if longer is None else kernel.documents(longer)
        q, k, v = (convolved(x, tap, documents) for x, tap in zip(qkv, taps, strict=True))
        return attend(_unit(q, kda.head_dim**-0.5), _unit(k, 1.0), v, g, beta, ids_BN)

    if mesh is None:
        return along
    heads, taps = tokens(mesh, "tensor"), PartitionSpec(None, "tensor")
    return jax.shard_map(
        along, mesh=mesh, in_specs=(*[heads] * 5, *[taps] * 3, tokens(mesh)), out_specs=heads, check_vma=False
    )
