"""A model whose layers have KDA or MLA and a dense MLP or experts: its weights and the forward pass over packed documents.

Layers repeat in groups. The groups that have a dense MLP come first and are written out; the others are stacked and scanned, so that
one group is compiled however many there are. Shape suffixes: B rows, N tokens, E hidden, X experts, L layers with experts, V vocabulary.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from podwright.kernels import splash
from podwright.models import kda, layers, mla, moe, param
from podwright.models.param import Param
from podwright.recipe.hybrid import HybridDims, Kda

Tree = dict[str, Any]
KEPT = {
    "attention": ("attention", splash.KEPT),
    "products": ("attention", splash.KEPT, kda.KEPT, moe.KEPT),
}  # of a layer, by `remat`


def declare(dims: HybridDims) -> Tree:
    """Every weight. Standard deviation 0.02, smaller where a residual branch ends, as in models/qwen3.py."""
    e = dims.hidden_size
    first = _num_first(dims)
    params: Tree = {
        "embed": Param((dims.vocab_size, e), ("vocab", "embed")),
        "first": {str(i): _declare_layer(dims, i) for i in range(first)},
        "norm": Param((e,), (None,), "ones"),
        "lm_head": Param((dims.vocab_size, e), ("vocab", "embed")),
    }
    if first < dims.num_layers:
        group = {str(i): _declare_layer(dims, first + i) for i in range(dims.group_size)}
        params["groups"] = param.stacked(group, ((dims.num_layers - first) // dims.group_size,))
    return params


def _num_first(dims: HybridDims) -> int:
    """Layers of the groups that have a dense MLP."""
    assert dims.num_layers % dims.group_size == 0
    return -(-dims.num_dense_layers // dims.group_size) * dims.group_size


def _declare_layer(dims: HybridDims, i: int) -> Tree:
    e = dims.hidden_size
    norm = Param((e,), (None,), "ones")
    attention = kda.declare(dims) if isinstance(dims.attention(i), Kda) else mla.declare(dims)
    mlp = _declare_mlp(dims) if i < dims.num_dense_layers else moe.declare(dims)
    return {"attention_norm": norm, "attention": attention, "mlp_norm": norm, "mlp": mlp}


def _declare_mlp(dims: HybridDims) -> Tree:
    e, f = dims.hidden_size, dims.intermediate_size
    return {
        "gate": Param((e, f), ("embed", "ffn"), matrix=(1, 1)),
        "up": Param((e, f), ("embed", "ffn"), matrix=(1, 1)),
        "down": Param((f, e), ("ffn", "embed"), scale=0.02 / (2 * dims.num_layers) ** 0.5, matrix=(1, 1)),
    }


def new_bias(dims: HybridDims) -> Array:
    """The routers' biases before the first step, [L, X] float32."""
    return jnp.zeros((dims.num_layers - dims.num_dense_layers, dims.moe.num_experts), jnp.float32)


def hidden(
    dims: HybridDims,
    params: Tree,
    bias_LX: Array,
    tokens_BN: Array,
    positions_BN: Array,
    segment_ids_BN: Array | None,
    dtype: Any,
    remat: str,
    mesh: Mesh,
) -> tuple[Array, Array]:
    """(final hidden states [B, N, E], choices [L, X] that fell on each expert). `remat`: see recipe/pretrain.py.

    Documents of a row are told apart by `segment_ids_BN`, and see nothing of each other; None: a row is one document.
    """
    batch = NamedSharding(mesh, param.tokens(mesh))

    def layer(x: Array, w: Tree, bias_X: Array | None, i: int) -> tuple[Array, Array | None]:
        linear = isinstance(dims.attention(i), Kda)
        with jax.named_scope("kda" if linear else "mla"):
            y = layers.rms_norm(x, w["attention_norm"], dims.norm_eps)
            if linear:
                out = kda.apply(dims, w["attention"], y, segment_ids_BN, mesh)
            else:
                out = mla.apply(dims, w["attention"], y, positions_BN, segment_ids_BN, mesh)
            x = jax.lax.with_sharding_constraint(x + checkpoint_name(out, "attention"), batch)
        with jax.named_scope("mlp" if bias_X is None else "experts"):
            y = layers.rms_norm(x, w["mlp_norm"], dims.norm_eps)
            if bias_X is None:
                out, load = _mlp(dims, w["mlp"], y, mesh), None
            else:
                out, load_BX = moe.apply(dims, w["mlp"], bias_X, y, mesh)
                load = load_BX.sum(0)
            return jax.lax.with_sharding_constraint(x + out, batch), load

    def remat_layer(x: Array, w: Tree, bias_X: Array | None, i: int) -> tuple[Array, Array | None]:
        def run(x: Array, w: Tree, bias_X: Array | None) -> tuple[Array, Array | None]:
            return layer(x, w, bias_X, i)

        if remat == "none":
            return run(x, w, bias_X)
        return jax.checkpoint(run, policy=jax.checkpoint_policies.save_only_these_names(*KEPT.get(remat, ())))(
            x, w, bias_X
        )

    with jax.named_scope("embedding"):
        x = jax.lax.with_sharding_constraint(_embedded(params["embed"].astype(dtype), tokens_BN, mesh), batch)
    first, dense, loads = len(params["first"]), dims.num_dense_layers, []
    for i in range(first):
        x, load = remat_layer(x, params["first"][str(i)], bias_LX[i - dense] if i >= dense else None, i)
        loads += [] if load is None else [load[None]]
    if "groups" in params:
        biases_GX = bias_LX[first - dense :].reshape(-1, dims.group_size, dims.moe.num_experts)

        def group(x: Array, each: tuple[Tree, Array]) -> tuple[Array, Array]:
            w, bias = each
            loads = []
            for i in range(dims.group_size):
                x, load = remat_layer(x, w[str(i)], bias[i], first + i)
                loads.append(load)
            return x, jnp.stack([load for load in loads if load is not None])

        x, load_GX = jax.lax.scan(group, x, (params["groups"], biases_GX))
        loads.append(load_GX.reshape(-1, dims.moe.num_experts))
    return layers.rms_norm(x, params["norm"], dims.norm_eps), jnp.concatenate(loads)


def _embedded(embed_VE: Array, tokens_BN: Array, mesh: Mesh) -> Array:
    """Every device looks up its part of E for all tokens, and the parts are exchanged for tokens. -> BNE

    With parts of rows in two steps, context first: the compiler knows no way to do both at once but to gather everything.
    """
    x_BNE = embed_VE[tokens_BN]
    if param.parts_of_rows(mesh) == 1:
        return x_BNE
    others = tuple(axis for axis in param.batch_axes(mesh) if axis != "data")
    return jax.lax.with_sharding_constraint(x_BNE, NamedSharding(mesh, PartitionSpec("data", "context", others)))


def _mlp(dims: HybridDims, weights: Tree, x_BNE: Array, mesh: Mesh) -> Array:
    w = param.gathered(_declare_mlp(dims), weights, x_BNE.dtype, mesh)
    linear = functools.partial(layers.linear, apart=param.parts_of_rows(mesh) > 1)
    return linear(jax.nn.silu(linear(x_BNE, w["gate"])) * linear(x_BNE, w["up"]), w["down"])
