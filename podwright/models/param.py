"""Each weight is declared once; abstract shapes, shardings and initial values follow from the declaration.

Axes here are logical ('embed', 'heads'); RULES maps them to mesh axes. A tensor dimension is a *dim*.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Tree = Any

# logical axis -> mesh axis; an axis that is not listed is replicated.
RULES: dict[str, str] = {"embed": "fsdp", "vocab": "tensor", "heads": "tensor", "kv_heads": "tensor", "ffn": "tensor"}
# While decoding, weights are gathered over fsdp once per rollout instead of once per token.
DECODE_RULES: dict[str, str] = {k: v for k, v in RULES.items() if v != "fsdp"}
BATCH_AXES = ("data", "fsdp")


def _log_rate(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jnp.log(jax.random.uniform(key, shape, jnp.float32, 1.0, 16.0))


def _time_step(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    step = jnp.exp(jax.random.uniform(key, shape, jnp.float32, math.log(1e-3), math.log(1e-1)))
    return step + jnp.log(-jnp.expm1(-step))


INITS: dict[str, Callable[[jax.Array, tuple[int, ...]], jax.Array]] = {
    "ones": lambda key, shape: jnp.ones(shape, jnp.float32),
    "zeros": lambda key, shape: jnp.zeros(shape, jnp.float32),
    "log_rate": _log_rate,  # logarithms of rates between 1 and 16, as of Mamba2 (arXiv 2405.21060)
    "time_step": _time_step,  # softplus makes it a step between 0.001 and 0.1, evenly drawn in the logarithm; likewise
}


@dataclasses.dataclass(frozen=True)
class Param:
    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    """one logical axis per dim"""
    init: str = "normal"
    """'normal' (standard deviation `scale`), or a name in INITS"""
    scale: float = 0.02
    matrix: tuple[int, int] | None = None
    """of a hidden matrix product: how many of the last dims are inputs, and how many outputs. Those before them count matrices."""

    def __post_init__(self) -> None:
        assert len(self.shape) == len(self.axes), (self.shape, self.axes)

    @property
    def decays(self) -> bool:
        """Weight decay is for matrices, not for the scales of norms nor for rates of decay."""
        return self.init in ("normal", "zeros")

    def spec(self, rules: dict[str, str] = RULES) -> PartitionSpec:
        return PartitionSpec(*(rules.get(axis or "") for axis in self.axes))


def is_param(x: Any) -> bool:
    return isinstance(x, Param)


def tree_map(f: Callable[..., Any], params: Tree, *rest: Tree) -> Tree:
    return jax.tree.map(f, params, *rest, is_leaf=is_param)


def shardings(params: Tree, mesh: Mesh, rules: dict[str, str] = RULES) -> Tree:
    return tree_map(lambda p: NamedSharding(mesh, p.spec(rules)), params)


def abstract(params: Tree, mesh: Mesh, dtype: Any = jnp.float32) -> Tree:
    return tree_map(lambda p: jax.ShapeDtypeStruct(p.shape, dtype, sharding=NamedSharding(mesh, p.spec())), params)


def initialize(params: Tree, mesh: Mesh, seed: int) -> Tree:
    """Initial float32 values, the same on every mesh: each leaf's key comes from its path alone."""

    def one(path: Any, p: Param) -> jax.Array:
        key = jax.random.fold_in(jax.random.key(seed), zlib.crc32(jax.tree_util.keystr(path).encode()))
        if p.init in INITS:
            return INITS[p.init](key, p.shape)
        return p.scale * jax.random.normal(key, p.shape, jnp.float32)

    def make() -> Tree:
        return jax.tree_util.tree_map_with_path(one, params, is_leaf=is_param)

    return jax.jit(make, out_shardings=shardings(params, mesh))()


def constrain(params: Tree, values: Tree, mesh: Mesh, rules: dict[str, str]) -> Tree:
    """`values` under the shardings that `rules` give the declarations in `params`."""
    return tree_map(lambda p, v: jax.lax.with_sharding_constraint(v, NamedSharding(mesh, p.spec(rules))), params, values)
