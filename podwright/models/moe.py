"""Mixture of experts: who computes what is decided here, and no token is ever dropped (arXiv 2412.19437, section 2.1.2).

Every device routes and sorts its own tokens. Experts' weights are stored in parts and gathered over fsdp while they are used;
along the expert axis each device has experts of its own instead, sees the tokens of all, and gives back sums.
Shape suffixes: B rows, N tokens of a row, T tokens, E hidden, X experts, K choices of a token, R = K*T choices, F an expert's width.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, PartitionSpec

from podwright.kernels import grouped
from podwright.models import param
from podwright.models.param import COMPUTE_RULES, Param
from podwright.recipe.hybrid import HybridDims, Moe

Tree = dict[str, Any]
MOST_ROWS = 2**18  # rows of sorted tokens that exist at one time on a device; what is more goes chunk by chunk

KEPT = "experts"  # the name of what experts' first products gave


class Product(NamedTuple):
    multiply: Callable[[Array, Array, Array], Array]
    """see kernels/grouped.py"""
    block: int = 1
    """rows of an expert are a multiple of so many"""


def declare(dims: HybridDims) -> Tree:
    """The weights of one layer.

    The router's bias is no weight: see `updated_bias`.
    """
    m, e = dims.moe, dims.hidden_size
    x, f = m.num_experts, m.moe_intermediate_size
    shared = f * m.num_shared_experts
    out_scale = 0.02 / (2 * dims.num_layers) ** 0.5  # as in models/qwen3.py
    return {
        "router": Param((e, x), ("embed", None)),
        "gate": Param((x, e, f), ("experts", "embed", "ffn"), matrix=(1, 1)),
        "up": Param((x, e, f), ("experts", "embed", "ffn"), matrix=(1, 1)),
        "down": Param((x, f, e), ("experts", "ffn", "embed"), scale=out_scale, matrix=(1, 1)),
        "shared_gate": Param((e, shared), ("embed", "ffn"), matrix=(1, 1)),
        "shared_up": Param((e, shared), ("embed", "ffn"), matrix=(1, 1)),
        "shared_down": Param((shared, e), ("ffn", "embed"), scale=out_scale, matrix=(1, 1)),
    }


def apply(dims: HybridDims, weights: Tree, bias_X: Array, x_BNE: Array, mesh: Mesh) -> tuple[Array, Array]:
    """(output BNE, load BX). `load` counts how many choices of each row fell on each expert, int32.

    `weights` are a layer's as they are stored. Sorted tokens and what experts make of them are computed again for the gradient.
    """
    declared = declare(dims)
    stored = {name: p.spec(mesh) for name, p in declared.items()}
    used = {name: p.spec(mesh, COMPUTE_RULES) for name, p in declared.items()}
    tokens, rows = param.tokens(mesh), PartitionSpec(param.batch_axes(mesh))

    def local(weights: Tree, bias: Array, x: Array) -> tuple[Array, Array]:
        return _layer(dims, {name: _Part(w, stored[name], used[name]) for name, w in weights.items()}, bias, x, mesh)

    run = jax.shard_map(
        local, mesh=mesh, in_specs=(stored, PartitionSpec(), tokens), out_specs=(tokens, rows), check_vma=False
    )
    return run({name: weights[name] for name in declared}, bias_X, x_BNE)


class _Part(NamedTuple):
    """What a device stores of a weight."""

    value: Array
    stored: PartitionSpec
    used: PartitionSpec

    def gathered(self, dtype: Any) -> Array:
        """Cast, and gathered over the axes that the devices which use it do not differ in."""
        return _gathered(self.value.astype(dtype), self.stored, self.used)


def _gathered(x: Array, stored: PartitionSpec, used: PartitionSpec) -> Array:
    for dim, (parts, kept) in enumerate(zip(stored, used, strict=True)):
        axes = tuple(axis for axis in _axes(parts) if axis not in _axes(kept))
        if axes:
            x = jax.lax.all_gather(x, axes, axis=dim, tiled=True)
    return x


def _axes(entry: Any) -> tuple[str, ...]:
    return (entry,) if isinstance(entry, str) else entry or ()


def _layer(dims: HybridDims, w: dict[str, _Part], bias_X: Array, x_BNE: Array, mesh: Mesh) -> tuple[Array, Array]:
    """On one device, its own tokens."""
    m, dtype = dims.moe, x_BNE.dtype
    b, n, e = x_BNE.shape
    x_TE = x_BNE.reshape(b * n, e)
    router = w["router"].gathered(jnp.float32)
    logits = jnp.matmul(x_TE.astype(jnp.float32), router, precision=jax.lax.Precision.HIGHEST)
    chosen_TK, share_TK = route(m, logits, bias_X)
    load_BX = (chosen_TK.reshape(b, -1, 1) == jnp.arange(m.num_experts)).sum(1, dtype=jnp.int32)
    if param.parts_of_rows(mesh) > 1:
        load_BX = jax.lax.psum(load_BX, "context")

    ranks = mesh.shape.get("expert", 1)
    num_chunks = _chunks(b * n, ranks * min(m.num_experts_per_tok, m.num_experts // ranks))

    def experts(x: Array, chosen: Array, share: Array) -> Array:
        # beside each other before they are gathered, so that rows are read once for both
        gate_up = jnp.concatenate([w["gate"].value.astype(dtype), w["up"].value.astype(dtype)], axis=-1)
        gate_up = _gathered(gate_up, w["gate"].stored, w["gate"].used)
        down = w["down"].gathered(dtype)
        product = _product(mesh, e, down.shape[1])

        def chunk(args: tuple[Array, ...]) -> Array:
            x, chosen, share = args
            if ranks == 1:
                return routed(x, chosen, share, gate_up, down, 0, product)
            x, chosen, share = (jax.lax.all_gather(a, "expert", tiled=True) for a in args)
            out = routed(x, chosen, share, gate_up, down, jax.lax.axis_index("expert") * down.shape[0], product)
            return jax.lax.psum_scatter(out, "expert", tiled=True)

        if num_chunks == 1:
            return chunk((x, chosen, share))
        parts = (a.reshape(num_chunks, -1, a.shape[-1]) for a in (x, chosen, share))
        return jax.lax.map(jax.checkpoint(chunk), tuple(parts)).reshape(x.shape)

    out = jax.checkpoint(experts)(x_TE, chosen_TK, share_TK) + jax.checkpoint(functools.partial(_shared, w, dtype))(
        x_TE
    )
    if mesh.shape.get("tensor", 1) > 1:
        out = jax.lax.psum(out, "tensor")
    return out.reshape(x_BNE.shape), load_BX


def _chunks(tokens: int, rows_per_token: int) -> int:
    """The fewest equal chunks that have MOST_ROWS rows at most."""
    return next(
        c
        for c in range(1, tokens + 1)
        if tokens % c == 0 and (tokens // c) * rows_per_token <= max(MOST_ROWS, rows_per_token)
    )


def _product(mesh: Mesh, *widths: int) -> Product:
    platform = param.platform(mesh)
    if grouped.supported(platform, *widths):
        return Product(grouped.kernel_matmul)
    return Product(grouped.matmul_of_blocks, grouped.BLOCK) if platform == "cpu" else Product(grouped.matmul)


def _shared(w: dict[str, _Part], dtype: Any, x_TE: Array) -> Array:
    """The expert that every token meets."""
    gate, up, down = (w[f"shared_{name}"].gathered(dtype) for name in ("gate", "up", "down"))
    return (jax.nn.silu(x_TE @ gate) * (x_TE @ up)) @ down


def route(m: Moe, logits_TX: Array, bias_X: Array) -> tuple[Array, Array]:
    """Experts of each token and their shares, [T, K]. The bias decides who is chosen, and has no part in the shares."""
    score = jax.nn.sigmoid(logits_TX)
    wanted = jax.lax.stop_gradient(score) + bias_X
    if m.n_group > 1:
        groups = wanted.reshape(len(wanted), m.n_group, -1)
        best = jax.lax.top_k(jax.lax.top_k(groups, 2)[0].sum(-1), m.topk_group)[1]
        kept = (best[:, :, None] == jnp.arange(m.n_group)).any(1)
        wanted = jnp.where(kept[:, :, None], groups, -jnp.inf).reshape(wanted.shape)
    chosen = jax.lax.top_k(wanted, m.num_experts_per_tok)[1]
    hit_TKX = chosen[:, :, None] == jnp.arange(m.num_experts)  # in place of a gather, whose gradient would be a scatter
    share = jnp.where(hit_TKX, score[:, None], 0).sum(-1)
    return chosen, share / (share.sum(-1, keepdims=True) + 1e-20) * m.routed_scaling_factor


def updated_bias(m: Moe, bias_X: Array, load_X: Array) -> Array:
    """Once an optimizer step, from the load of the whole global batch (section 2.1.2); leading dims are layers."""
    load = load_X.astype(jnp.float32)
    return bias_X + m.bias_update_rate * jnp.sign(load.mean(-1, keepdims=True) - load)


def routed(
    x_TE: Array,
    chosen_TK: Array,
    share_TK: Array,
    gate_up: Array,
    down: Array,
    first: Array | int,
    product: Product,
) -> Array:
    """What the experts from `first` on, [X, E, 2F] and [X, F, E], make of the tokens that chose them, times the shares. -> TE"""
    (num, f), k = down.shape[:2], chosen_TK.shape[1]
    own_R = (
        chosen_TK.T.reshape(-1) - first
    )  # choice by choice, not token by token: sums over choices are then of whole arrays
    own_R = jnp.where((own_R >= 0) & (own_R < num), own_R, num)
    sizes = (own_R[:, None] == jnp.arange(num)).sum(0, dtype=jnp.int32)
    order = jnp.argsort(own_R)  # stable; the other experts' choices come last
    plan = _Plan(order[: len(x_TE) * min(k, num)], jnp.argsort(order), sizes.sum())
    if product.block > 1:
        plan, sizes = _filled(plan, own_R, sizes, product.block)
    z = checkpoint_name(product.multiply(_spread(x_TE, plan), gate_up, sizes), KEPT)
    share = _sorted(share_TK.T.reshape(-1), plan)
    # shares before the second product: the gradient then needs nothing that comes after it
    hidden = jax.nn.silu(z[:, :f].astype(jnp.float32)) * z[:, f:] * share[:, None]
    return _collect(product.multiply(hidden.astype(x_TE.dtype), down, sizes), len(x_TE), plan)


class _Plan(NamedTuple):
    """How choices are sorted by expert. Rows beyond `num` are no one's here, and may hold anything."""

    order: Array
    """choice of each row, for as many rows as there can be; choice c is a choice of token c % T, and R is none"""
    row: Array
    """of each choice"""
    num: Array


def _filled(plan: _Plan, own_R: Array, sizes: Array, block: int) -> tuple[_Plan, Array]:
    """The same with every expert's rows up to a multiple of `block`, and how many these are. What fills them has a share of 0."""
    padded = -(-sizes // block) * block
    ends, padded_ends = (jnp.append(jnp.cumsum(x), 0) for x in (sizes, padded))
    num_rows = (-(-len(plan.order) // block) + len(sizes)) * block
    moved = jnp.append(padded_ends[:-1] - padded - ends[:-1] + sizes, num_rows)  # rows of others go beyond all
    at = jnp.arange(num_rows)
    expert = (at[:, None] >= padded_ends[:-1]).sum(1)
    before = at - moved[expert]
    order = jnp.where(before < ends[expert], plan.order[jnp.clip(before, 0, len(plan.order) - 1)], len(own_R))
    return _Plan(order, plan.row + moved[own_R], padded_ends[-2]), padded


@jax.custom_vjp
def _spread(x_TE: Array, plan: _Plan) -> Array:
    """The token of every row. Its transpose is `_collect`, and both only gather: scattering is slow."""
    return x_TE[plan.order % len(x_TE)]


def _spread_forward(x: Array, plan: _Plan) -> Any:
    return _spread(x, plan), (plan, len(x))


def _spread_backward(saved: Any, g: Array) -> Any:
    plan, num_tokens = saved
    return _collect(g, num_tokens, plan), None


_spread.defvjp(_spread_forward, _spread_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _collect(y_RE: Array, num_tokens: int, plan: _Plan) -> Array:
    """Sums of the rows of each token. -> TE"""
    row = plan.row.reshape(-1, num_tokens)
    out = jnp.zeros((num_tokens, y_RE.shape[1]), jnp.float32)
    for choice in row:
        out += jnp.where((choice < plan.num)[:, None], y_RE[jnp.minimum(choice, len(y_RE) - 1)], 0)
    return out.astype(y_RE.dtype)


_collect.defvjp(lambda y, t, plan: (_collect(y, t, plan), plan), lambda t, plan, g: (_spread(g, plan), None))


@jax.custom_vjp
def _sorted(share: Array, plan: _Plan) -> Array:
    return share.at[plan.order].get(mode="fill", fill_value=0)


def _sorted_backward(plan: _Plan, g: Array) -> Any:
    return jnp.where(plan.row < plan.num, g[jnp.minimum(plan.row, len(g) - 1)], 0), None


_sorted.defvjp(lambda share, plan: (_sorted(share, plan), plan), _sorted_backward)
