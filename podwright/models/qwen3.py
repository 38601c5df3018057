"""Qwen3 (dense): its weights, the forward pass over groups, and the decode step with a cache.

Shape suffixes: B batch, N tokens, V vocabulary, E hidden, P prompts, S prompt tokens, G completions per prompt,
T completion tokens, K key-value heads, R query heads per key-value head, D head_dim. Prompts are padded on the right;
a completion's positions go on from its prompt's true length. The leading dim of each weight under 'layers' is the layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from podwright.kernels import decode, splash
from podwright.models import attention, layers
from podwright.models.param import COMPUTE_RULES, Param, batch_axes, platform
from podwright.recipe.models import Qwen3Dims

Tree = dict[str, Any]
KEPT = "products"
"""of a layer, by `remat: none` on GPUs"""
UNROLLED_LAYERS = 8  # so few compile quickly side by side, and their activations need no common buffer
Attend = Callable[[Array, Array, Array], Array]


def declare(dims: Qwen3Dims) -> Tree:
    """Every weight of the model. Standard deviation 0.02 as in the published config (initializer_range)."""
    n, e, f, d = dims.num_layers, dims.hidden_size, dims.intermediate_size, dims.head_dim
    h, k = dims.num_heads, dims.num_kv_heads
    out_scale = 0.02 / (2 * n) ** 0.5  # residual branches start smaller the deeper the model (Radford et al. 2019)
    params: Tree = {
        "embed": Param((dims.vocab_size, e), ("vocab", "embed")),
        "layers": {
            "attention_norm": Param((n, e), ("layers", None), "ones"),
            "q": Param((n, e, h, d), ("layers", "embed", "heads", None), matrix=(1, 2)),
            "k": Param((n, e, k, d), ("layers", "embed", "kv_heads", None), matrix=(1, 2)),
            "v": Param((n, e, k, d), ("layers", "embed", "kv_heads", None), matrix=(1, 2)),
            "q_norm": Param((n, d), ("layers", None), "ones"),
            "k_norm": Param((n, d), ("layers", None), "ones"),
            "o": Param((n, h, d, e), ("layers", "heads", None, "embed"), scale=out_scale, matrix=(2, 1)),
            "mlp_norm": Param((n, e), ("layers", None), "ones"),
            "gate": Param((n, e, f), ("layers", "embed", "ffn"), matrix=(1, 1)),
            "up": Param((n, e, f), ("layers", "embed", "ffn"), matrix=(1, 1)),
            "down": Param((n, f, e), ("layers", "ffn", "embed"), scale=out_scale, matrix=(1, 1)),
        },
        "norm": Param((e,), (None,), "ones"),
    }
    if not dims.tie_word_embeddings:
        params["lm_head"] = Param((dims.vocab_size, e), ("vocab", "embed"))
    return params


def head(params: Tree) -> Array:
    """The output embedding, shape [V, E]."""
    return params["lm_head"] if "lm_head" in params else params["embed"]


def cast(params: Tree, dtype: Any) -> Tree:
    return jax.tree.map(lambda w: w.astype(dtype), params)


def frozen(params: Tree, dtype: Any) -> Tree:
    """Weights that no update changes, in the dtype that they are computed with; of the last norm that is float32."""
    return cast(params, dtype) | {"norm": params["norm"]}


def gathered(dims: Qwen3Dims, w: Tree, dtype: Any, mesh: Mesh) -> Tree:
    """One layer's weights as they are computed with: cast, and whole but for the tensor axis.

    Left to itself the TPU compiler multiplies with one device's part after the other and reads every token for each of them.
    """
    declared = declare(dims)["layers"]

    def laid(x: Array, *axes: Any) -> Array:
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec(*axes)))

    def gather(name: str, x: layers.Weight) -> layers.Weight:
        axes = declared[name].spec(mesh, COMPUTE_RULES)[1:]
        if not isinstance(x, layers.Adapted):
            return laid(x, *axes)
        inputs = x.a.ndim - 1
        return layers.Adapted(laid(x.weight, *axes), laid(x.a, *axes[:inputs], None), laid(x.b, None, *axes[inputs:]))

    return {name: gather(name, x) for name, x in cast(w, dtype).items()}


def _layer(dims: Qwen3Dims, w: Tree, x_BNE: Array, cos: Array, sin: Array, attend: Attend) -> Array:
    """One pre-norm block. `attend(q BNKRD, k BNKD, v BNKD) -> BNKRD` decides who sees whom."""
    b, num, _ = x_BNE.shape
    with jax.named_scope("attention"):
        y = layers.rms_norm(x_BNE, w["attention_norm"], dims.norm_eps)
        q, k, v = (checkpoint_name(x, KEPT) for x in _project(dims, w, y))
        q = layers.rotate(layers.rms_norm(q, w["q_norm"], dims.norm_eps), cos, sin)
        k = layers.rotate(layers.rms_norm(k, w["k_norm"], dims.norm_eps), cos, sin)
        out = attend(q.reshape(b, num, dims.num_kv_heads, -1, dims.head_dim), k, v)
        x_BNE = x_BNE + layers.linear(
            out.reshape(b, num, -1), jax.tree.map(lambda m: m.reshape(-1, m.shape[-1]), w["o"])
        )
    with jax.named_scope("mlp"):
        y = layers.rms_norm(x_BNE, w["mlp_norm"], dims.norm_eps)
        gate, up = (checkpoint_name(x, KEPT) for x in _gate_and_up(w, y))
        return x_BNE + layers.linear(jax.nn.silu(gate) * up, w["down"])


def _project(dims: Qwen3Dims, w: Tree, y_BNE: Array) -> tuple[Array, Array, Array]:
    """Queries, keys and values, [B, N, heads, D]."""
    if "qkv" not in w:
        return layers.linear(y_BNE, w["q"]), layers.linear(y_BNE, w["k"]), layers.linear(y_BNE, w["v"])
    joined = layers.linear(y_BNE, w["qkv"])
    q = joined[..., :-2, :].reshape(*y_BNE.shape[:-1], dims.num_heads, dims.head_dim)
    return q, joined[..., -2, :], joined[..., -1, :]


def _gate_and_up(w: Tree, y_BNE: Array) -> tuple[Array, Array]:
    if "gate_up" not in w:
        return layers.linear(y_BNE, w["gate"]), layers.linear(y_BNE, w["up"])
    joined = layers.linear(y_BNE, w["gate_up"])
    return joined[..., 0, :], joined[..., 1, :]


class Group(NamedTuple):
    """Prompts, each with G completions."""

    prompts_PS: Array
    lengths_P: Array
    completions_PGT: Array


def group_hidden(dims: Qwen3Dims, params: Tree, group: Group, dtype: Any, remat: str, batch: NamedSharding) -> Array:
    """Final hidden states [P, G, T, E] whose logits predict completions_PGT, token by token.

    Each prompt goes through the layers once, whatever G is; gradients of all its completions meet in it.
    """
    p, s = group.prompts_PS.shape
    _, g, t = group.completions_PGT.shape
    tokens = jnp.concatenate([group.prompts_PS, group.completions_PGT.reshape(p, g * t)], axis=1)
    own = jnp.broadcast_to(group.lengths_P[:, None, None] + jnp.arange(t), (p, g, t)).reshape(p, g * t)
    positions = jnp.concatenate([jnp.broadcast_to(jnp.arange(s), (p, s)), own], axis=1)
    cos, sin = layers.rope_angles(positions, dims.head_dim, dims.rope_theta)

    mesh = batch.mesh
    assert isinstance(mesh, Mesh)

    def attend(q: Array, k: Array, v: Array) -> Array:
        return attention.of_groups(mesh, q, k, v, group.lengths_P, s, g)

    x = _through_layers(dims, params, tokens, cos, sin, attend, dtype, remat, batch)
    last_PE = jnp.take_along_axis(x[:, :s], group.lengths_P[:, None, None] - 1, axis=1)
    before_PGTE = jnp.concatenate(
        [jnp.broadcast_to(last_PE[:, None], (p, g, 1, x.shape[-1])), x[:, s:].reshape(p, g, t, -1)[:, :, :-1]], axis=2
    )
    return layers.rms_norm(before_PGTE, params["norm"], dims.norm_eps)


def packed_hidden(
    dims: Qwen3Dims,
    params: Tree,
    tokens_BN: Array,
    positions_BN: Array,
    segment_ids_BN: Array | None,
    dtype: Any,
    remat: str,
    mesh: Mesh,
) -> Array:
    """Final hidden states [B, N, E] of rows of documents, which see nothing of each other. `remat`: see recipe/pretrain.py."""
    batch = NamedSharding(mesh, PartitionSpec(batch_axes(mesh)))
    cos, sin = layers.rope_angles(positions_BN, dims.head_dim, dims.rope_theta)

    def attend(q: Array, k: Array, v: Array) -> Array:
        return attention.packed_groups(mesh, q, k, v, segment_ids_BN)

    x = _through_layers(dims, params, tokens_BN, cos, sin, attend, dtype, remat, batch)
    return layers.rms_norm(x, params["norm"], dims.norm_eps)


def _through_layers(
    dims: Qwen3Dims,
    params: Tree,
    tokens_BN: Array,
    cos: Array,
    sin: Array,
    attend: Attend,
    dtype: Any,
    remat: str,
    batch: NamedSharding,
) -> Array:
    """Of the last layer, before the norm. For the gradient `remat` 'none' keeps all, 'layer' nothing, others what a TPU's kernel gave."""
    mesh = batch.mesh
    assert isinstance(mesh, Mesh)

    def block(x: Array, w: Tree) -> tuple[Array, None]:
        return jax.lax.with_sharding_constraint(
            _layer(dims, gathered(dims, w, dtype, mesh), x, cos, sin, attend), batch
        ), None

    if remat != "none":
        kept = () if remat == "layer" else (splash.KEPT,)
        block = jax.checkpoint(block, policy=jax.checkpoint_policies.save_only_these_names(*kept))
    elif platform(mesh) == "gpu":
        # All but these products costs more to write and read, in float32 for a norm, than to compute again; that of o needs what attention
        # gave, which is computed again anyway.
        block = jax.checkpoint(block, policy=jax.checkpoint_policies.save_only_these_names(KEPT))
    with jax.named_scope("embedding"):
        x = jax.lax.with_sharding_constraint(params["embed"].astype(dtype)[tokens_BN], batch)
    return jax.lax.scan(block, x, params["layers"], unroll=dims.num_layers <= UNROLLED_LAYERS)[0]


def hidden(
    dims: Qwen3Dims, params: Tree, tokens_BN: Array, dtype: Any, mesh: Mesh
) -> tuple[Array, tuple[Array, Array]]:
    """Final hidden states [B, N, E] of plain sequences, and the keys and values of every layer, [layers, B, N, K, D]."""
    positions = jnp.broadcast_to(jnp.arange(tokens_BN.shape[1]), tokens_BN.shape)
    cos, sin = layers.rope_angles(positions, dims.head_dim, dims.rope_theta)

    def block(x: Array, w: Tree) -> tuple[Array, tuple[Array, Array]]:
        kept = []

        def attend(q: Array, k: Array, v: Array) -> Array:
            kept.append((k, v))
            return attention.of_prompts(mesh, q, k, v)

        x = _layer(dims, cast(w, dtype), x, cos, sin, attend)
        return x, kept[0]

    x, cache = jax.lax.scan(block, params["embed"].astype(dtype)[tokens_BN], params["layers"])
    return layers.rms_norm(x, params["norm"], dims.norm_eps), cache


class Cache(NamedTuple):
    """Keys and values of one layer while decoding: the prompt's, shared by its group, and each completion's own."""

    prompt_k_PKDS: Array
    prompt_v_PKSD: Array
    k_PKGDT: Array
    v_PKGTD: Array


def new_cache(k_PSKD: Array, v_PSKD: Array, num_generations: int, max_new_tokens: int) -> Cache:
    p, _, heads, d = k_PSKD.shape
    own = (p, heads, num_generations)
    return Cache(
        jnp.einsum("pskd->pkds", k_PSKD),
        jnp.swapaxes(v_PSKD, 1, 2),
        jnp.zeros((*own, d, max_new_tokens), k_PSKD.dtype),
        jnp.zeros((*own, max_new_tokens, d), v_PSKD.dtype),
    )


def for_decoding(dims: Qwen3Dims, params: Tree) -> list[Tree]:
    """Layer by layer, with q, k and v in one product and gate and up in another, since a token's products are small.

    Whole arrays spare the loop from slicing the stack at every token; joining by key-value head, and gate beside up,
    leaves every part on the device of the tensor axis that has it.
    """
    return [_joined(dims, jax.tree.map(lambda w, i=i: w[i], params["layers"])) for i in range(dims.num_layers)]


def _joined(dims: Qwen3Dims, w: Tree) -> Tree:
    w = dict(w)
    q, k, v, gate, up = (w.pop(name) for name in ("q", "k", "v", "gate", "up"))
    q_EKRD = q.reshape(q.shape[0], dims.num_kv_heads, -1, dims.head_dim)
    return w | {
        "qkv": jnp.concatenate([q_EKRD, k[:, :, None], v[:, :, None]], axis=2),
        "gate_up": jnp.stack([gate, up], axis=1),
    }


def decode_step(
    dims: Qwen3Dims,
    mesh: Mesh,
    params: Tree,
    per_layer: list[Tree],
    tokens_PG: Array,
    lengths_P: Array,
    t: Array,
    caches: list[Cache | decode.BlockCache],
    room: int,
) -> tuple[Array, list[Cache | decode.BlockCache]]:
    """Hidden states [P, G, E] after completion token number `t` (from 0) of every row, and the caches with it in place.

    `t` is below `room`, and no more of a completion's keys and values than that are read. The kernel reads as far as `t` anyway.
    """
    p, g = tokens_PG.shape
    cos, sin = layers.rope_angles(jnp.broadcast_to((lengths_P + t)[:, None], (p, g)), dims.head_dim, dims.rope_theta)
    prompt_mask_PS = jnp.arange(caches[0].prompt_v_PKSD.shape[2]) < lengths_P[:, None]
    own_mask_TU = (jnp.arange(room) <= t)[None]
    x = params["embed"][tokens_PG]
    for i, w in enumerate(per_layer):

        def attend(q: Array, k: Array, v: Array, i: int = i) -> Array:
            old = caches[i]
            if isinstance(old, decode.BlockCache):
                caches[i] = filled = decode.with_token(old, k, v, t)
                return attention.of_tokens(mesh, q, filled, lengths_P, t)
            k_own = jax.lax.dynamic_update_slice(old.k_PKGDT, jnp.swapaxes(k, 1, 2)[..., None], (0, 0, 0, 0, t))
            v_own = jax.lax.dynamic_update_slice(old.v_PKGTD, jnp.swapaxes(v, 1, 2)[:, :, :, None], (0, 0, 0, t, 0))
            caches[i] = old._replace(k_PKGDT=k_own, v_PKGTD=v_own)
            prompt = (old.prompt_k_PKDS, old.prompt_v_PKSD)
            own = k_own[..., :room], v_own[..., :room, :]
            return attention.grouped(q[:, :, None], prompt, own, prompt_mask_PS, own_mask_TU)[:, :, 0]

        x = _layer(dims, w, x, cos, sin, attend)
    return layers.rms_norm(x, params["norm"], dims.norm_eps), caches
