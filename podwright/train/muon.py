"""Muon (Jordan 2024, with the step size of arXiv 2502.16982) for hidden matrices, AdamW for the rest; no leaf is ever whole on a device.

A device orthogonalizes whole matrices. Where its mesh axes hold parts of matrices, they are exchanged so that each device of the
axes gets one matrix at a time, and back; matrices it holds whole never leave it. Momentum and all else stay where the weights are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.sharding import Mesh

from podwright.models import param
from podwright.models.param import RULES, Param, Rules

Tree = Any
COEFFICIENTS = (3.4445, -4.775, 2.0315)  # of the quintic that drives singular values to about 1 in so many steps
NUM_STEPS = 5
EPS = 1e-8
RMS = 0.2  # of an update, as AdamW's are about (equation 4): both kinds of leaves share one learning rate


class MuonState(NamedTuple):
    num_updates: Array
    mu: Tree
    """mean of the gradients, of matrices only"""


def muon(
    declared: Tree,
    mesh: Mesh,
    rate: optax.Schedule,
    *,
    momentum: float,
    weight_decay: float,
    adam_b1: float,
    adam_b2: float,
    adam_weight_decay: float,
    max_grad_norm: float,
    dtype: Any = jnp.bfloat16,
    rules: Rules = RULES,
) -> optax.GradientTransformation:
    """Leaves that are declared with `matrix` get Muon, the others AdamW, whose decay spares what `Param.decays` spares.

    `dtype`: of the orthogonalization and of what goes over the links; moments have the weights' own. `rules`: where weights lie.
    """
    matrices = param.tree_map(lambda p: p.matrix is not None, declared)
    others = param.tree_map(lambda p: p.matrix is None, declared)
    decays = param.tree_map(lambda p: p.decays, declared)
    return optax.chain(
        optax.clip_by_global_norm(max_grad_norm),
        optax.masked(
            optax.chain(
                _scale_by_muon(declared, mesh, rules, momentum, dtype),
                optax.add_decayed_weights(weight_decay),
                optax.scale_by_learning_rate(rate),
            ),
            matrices,
        ),
        optax.masked(optax.adamw(rate, b1=adam_b1, b2=adam_b2, weight_decay=adam_weight_decay, mask=decays), others),
    )


def _scale_by_muon(declared: Tree, mesh: Mesh, rules: Rules, beta: float, dtype: Any) -> optax.GradientTransformation:
    def init(params: Tree) -> MuonState:
        return MuonState(jnp.zeros([], jnp.int32), jax.tree.map(jnp.zeros_like, params))

    def update(grads: Tree, state: MuonState, params: Tree | None = None) -> tuple[Tree, MuonState]:
        num = state.num_updates + 1
        ahead, now = 1 - beta ** (num + 1), 1 - beta**num  # bias corrections, as optax has them
        mu = jax.tree.map(lambda m, g: beta * m + (1 - beta) * g, state.mu, grads)

        def moved(p: Param, m: Any, g: Any) -> Any:
            if p.matrix is None:
                return g
            nesterov = beta * m / ahead + (1 - beta) * g / now
            return RMS * max(sizes(p)) ** 0.5 * orthogonalized(p, nesterov.astype(dtype), mesh, rules).astype(g.dtype)

        return param.tree_map(moved, declared, mu, grads), MuonState(num, mu)

    return optax.GradientTransformation(init, update)


def sizes(p: Param) -> tuple[int, int]:
    """Inputs and outputs of a matrix."""
    assert p.matrix
    last = p.shape[len(p.shape) - sum(p.matrix) :]
    return math.prod(last[: p.matrix[0]]), math.prod(last[p.matrix[0] :])


def newton_schulz(x: Array) -> Array:
    """A matrix with the singular vectors of `x` and singular values near 1; all is computed in the dtype of `x`, the norm in float32."""
    if x.shape[0] > x.shape[1]:
        return newton_schulz(x.T).T
    a, b, c = COEFFICIENTS
    wide = x.astype(jnp.float32)
    x = (wide / (jnp.linalg.norm(wide) + EPS)).astype(x.dtype)

    def step(_: Any, x: Array) -> Array:
        gram = x @ x.T
        return a * x + (b * gram + c * (gram @ gram)) @ x

    return jax.lax.fori_loop(0, NUM_STEPS, step, x)


def orthogonalized(p: Param, x: Array, mesh: Mesh, rules: Rules) -> Array:
    """Every matrix of the leaf `x` through `newton_schulz`, under the sharding that `rules` give `p`.

    Devices that hold parts of the same matrices, or copies of them, share the work: matrix by matrix in turns of one each.
    """

    def size(axes: Sequence[str]) -> int:
        return math.prod(mesh.shape[axis] for axis in axes)

    assert p.matrix
    spec = p.spec(mesh, rules)
    first = len(p.shape) - sum(p.matrix)
    over = [(axis,) if isinstance(axis, str) else axis or () for axis in spec]  # mesh axes of every dim
    parted = {d: axes for d, axes in enumerate(over) if d >= first and size(axes) > 1}
    num = math.prod(p.shape[:first]) // math.prod(
        map(size, over[:first])
    )  # matrices that a device has, or has parts of
    parts = math.prod(map(size, parted.values()))
    copied: tuple[str, ...] = ()
    for axis in mesh.axis_names:  # copies that would find no matrix left do the same work twice, which costs no traffic
        if axis not in itertools.chain(*over) and parts * size((*copied, axis)) <= num:
            copied = (*copied, axis)
    copies = size(copied)
    turns = -(-num // (parts * copies))

    def orthogonalize(x: Array) -> Array:
        """One matrix out of the parts [parts, ...] of so many."""
        for d, axes in parted.items():
            x = jax.lax.all_to_all(x, axes, 0, d - first + 1, tiled=True)
        return x

    def back(x: Array) -> Array:
        for d, axes in reversed(parted.items()):
            x = jax.lax.all_to_all(x, axes, d - first + 1, 0, tiled=True)
        return jax.lax.all_gather(x, copied) if copies > 1 else x[None]

    def local(x: Array) -> Array:
        rest = x.shape[first:]
        padding = [(0, turns * parts * copies - num)] + [(0, 0)] * len(rest)
        stack = jnp.pad(x.reshape(num, *rest), padding).reshape(turns, copies, parts, *rest)

        def turn(i: Array, stack: Array) -> Array:
            x = orthogonalize(stack[i, jax.lax.axis_index(copied) if copies > 1 else 0])
            return stack.at[i].set(back(newton_schulz(x.reshape(sizes(p))).reshape(x.shape)))

        return jax.lax.fori_loop(0, turns, turn, stack).reshape(-1, *rest)[:num].reshape(x.shape)

    return jax.shard_map(local, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(x)
