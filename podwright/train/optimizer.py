"""AdamW with warm-up, cosine decay and clipping, out of the recipe; and the sharding of its state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from podwright.models import param

Tree = Any


def schedule(peak: float, warmup_ratio: float, max_steps: int, final_ratio: float = 0.0) -> optax.Schedule:
    """Learning rate by step: linear from 0 over the warm-up (none at ratio 0), then a cosine to `final_ratio` x peak at `max_steps`.

    With a warm-up the first step has rate 0, as in the peers (transformers' cosine schedule, tunix's recipes): it only fills
    AdamW's moments.
    """
    if not warmup_ratio:
        return optax.cosine_decay_schedule(peak, max_steps, final_ratio)
    warmup = min(max(1, round(warmup_ratio * max_steps)), max_steps)
    return optax.warmup_cosine_decay_schedule(0.0, peak, warmup, max(max_steps, warmup + 1), final_ratio * peak)


def of_step(rate: Array | float) -> optax.Schedule:
    """The schedule of an update whose learning rate is known: that of its step.

    What optax counts are updates, and a step may run none. It counts all the same, because the number has a place in every checkpoint.
    """
    return lambda _: rate


def adamw(
    declared: Tree, rate: optax.Schedule, *, b1: float, b2: float, weight_decay: float, max_grad_norm: float
) -> optax.GradientTransformation:
    decays = param.tree_map(lambda p: p.decays, declared)
    return optax.chain(
        optax.clip_by_global_norm(max_grad_norm),
        optax.adamw(rate, b1=b1, b2=b2, weight_decay=weight_decay, mask=decays),
    )


def abstract_state(tx: optax.GradientTransformation, params: Tree, mesh: Mesh) -> Tree:
    """The optimizer's state as ShapeDtypeStructs: moments sharded as their weights, the rest replicated."""
    shapes = jax.eval_shape(tx.init, params)
    replicated = NamedSharding(mesh, PartitionSpec())
    like = {
        (tuple(k.key for k in path), p.shape): p.sharding for path, p in jax.tree_util.tree_leaves_with_path(params)
    }

    def abstract_leaf(path: Any, leaf: Any) -> jax.ShapeDtypeStruct:
        names = tuple(k.key for k in path if isinstance(k, jax.tree_util.DictKey))
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=like.get((names, leaf.shape), replicated))

    return jax.tree_util.tree_map_with_path(abstract_leaf, shapes)


def accumulated(
    gradient: Callable[[Tree, Tree], Tree], params: Tree, batch: Tree, num: int, sharding: NamedSharding
) -> Tree:
    """Sums of `gradient(params, micro_batch)` over `num` micro-batches. Each takes every num-th row, so that no device sits idle.

    `sharding`: of the rows of the batch.
    """
    if num == 1:
        return gradient(params, batch)
    laid = NamedSharding(sharding.mesh, PartitionSpec(None, *sharding.spec))

    def split(x: Array) -> Array:
        x = x.reshape(x.shape[0] // num, num, *x.shape[1:]).swapaxes(0, 1)
        return jax.lax.with_sharding_constraint(x, laid)

    parts = jax.tree.map(split, batch)

    def add(sums: Tree, part: Any) -> tuple[Tree, None]:
        return jax.tree.map(jnp.add, sums, gradient(params, part)), None

    first = jax.tree.map(lambda x: x[0], parts)
    zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(gradient, params, first))
    sums, _ = jax.lax.scan(add, zeros, parts)
    return sums


def apply(tx: optax.GradientTransformation, grads: Tree, opt_state: Tree, params: Tree) -> tuple[Tree, Tree, Array]:
    """New parameters, new state, and the global norm of the gradient before clipping."""
    with jax.named_scope("optimizer"):
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, optax.global_norm(grads).astype(jnp.float32)
