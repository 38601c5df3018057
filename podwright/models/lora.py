"""LoRA (Hu et al. 2021): small trained adapters beside frozen weights; how they are declared, applied and merged.

Every matrix product of every layer has one: x W becomes x W + scale (x A) B. Embeddings and norms have none.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from podwright.models import qwen3
from podwright.models.layers import Adapted
from podwright.models.param import Param

Tree = Any


class Policy(NamedTuple):
    """What a program takes in place of a weight tree when only adapters are trained."""

    adapters: Tree
    base: Tree


def policy(params: Tree, base: Tree | None) -> Tree:
    """The weights that are trained together with the frozen ones, if there are any."""
    return params if base is None else Policy(params, base)


def reference(adapters: Tree, base: Tree) -> Policy:
    """The policy at step 0: the base with adapters that add nothing. It needs no second copy of the base."""
    return Policy(jax.tree.map(jnp.zeros_like, adapters), base)


def declare(weights: Tree, rank: int) -> Tree:
    """Adapters for the declared `weights`: A [layers, inputs, rank] and B [layers, rank, outputs], sharded as the weight is.

    A is Gaussian and B zero, as in section 4.1 of the paper; A's standard deviation is that of the uniform distribution
    which the authors' code and PEFT draw it from, so that learning rates mean the same here.
    """
    adapters = {}
    for name, p in weights["layers"].items():
        if p.matrix is None:
            continue
        inputs, outputs = slice(1, 1 + p.matrix[0]), slice(1 + p.matrix[0], None)
        scale = (3 * math.prod(p.shape[inputs])) ** -0.5
        adapters[name] = {
            "a": Param((p.shape[0], *p.shape[inputs], rank), (p.axes[0], *p.axes[inputs], None), scale=scale),
            "b": Param((p.shape[0], rank, *p.shape[outputs]), (p.axes[0], None, *p.axes[outputs]), "zeros"),
        }
    return {"layers": adapters}


def adapt(weights: Tree, scale: float) -> Tree:
    """`weights` as a model takes them: each adapted one becomes an `Adapted`. A plain weight tree stays as it is."""
    if not isinstance(weights, Policy):
        return weights
    base = weights.base["layers"]
    adapted = {name: Adapted(base[name], w["a"], scale * w["b"]) for name, w in weights.adapters["layers"].items()}
    return weights.base | {"layers": base | adapted}


def merge(weights: Tree, scale: float, dtype: Any) -> Tree:
    """W + scale A B, added in float32 and then cast to `dtype`, layer by layer so that no stack exists in float32.

    A plain weight tree stays as it is.
    """
    if not isinstance(weights, Policy):
        return weights

    def merged(w: Any) -> Array:
        if not isinstance(w, Adapted):
            return w
        added = jnp.tensordot(w.a, w.b, 1, precision=jax.lax.Precision.HIGHEST)
        return w.weight.astype(jnp.float32) + added

    def layer(tree: Tree) -> Tree:
        return qwen3.cast({name: merged(w) for name, w in tree.items()}, dtype)

    params = adapt(weights, scale)
    return qwen3.cast(params | {"layers": jax.lax.map(layer, params["layers"])}, dtype)
