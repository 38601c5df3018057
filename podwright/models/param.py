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
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Tree = Any

Rules = dict[str, tuple[str, ...]]
# logical axis -> mesh axes; an axis that is not listed is replicated.
RULES: Rules = {
    "embed": ("fsdp", "expert", "context"),
    "latent": ("fsdp", "expert", "context"),
    "experts": ("expert", "fsdp", "context"),
    "vocab": ("tensor",),
    "heads": ("tensor",),
    "kv_heads": ("tensor",),
    "ffn": ("tensor",),
}
# Weights as they are computed with: no two devices that differ in fsdp or context alone have different ones. Between the groups of
# the expert axis only experts differ.
COMPUTE_RULES: Rules = {**{k: v for k, v in RULES.items() if v == ("tensor",)}, "experts": ("expert",)}
BATCH_AXES = ("data", "fsdp", "expert")


def _log_rate(key: Array, shape: tuple[int, ...]) -> Array:
    return jnp.log(jax.random.uniform(key, shape, jnp.float32, 1.0, 16.0))


def _time_step(key: Array, shape: tuple[int, ...]) -> Array:
    step = jnp.exp(jax.random.uniform(key, shape, jnp.float32, math.log(1e-3), math.log(1e-1)))
    return step + jnp.log(-jnp.expm1(-step))


INITS: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
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

    def spec(self, mesh: Mesh, rules: Rules = RULES) -> PartitionSpec:
        """A mesh axis goes to the first dim that asks for it. A dim gets the first axis that it asks for (jax refuses
        where that does not divide it), and of the others those that divide it further.
        """
        taken: list[str] = []
        entries = []
        for size, axis in zip(self.shape, self.axes, strict=True):
            got: tuple[str, ...] = ()
            for i, name in enumerate(rules.get(axis or "", ())):
                divides = size % math.prod(mesh.shape[n] for n in (*got, name) if n in mesh.shape) == 0
                if name in mesh.shape and name not in taken and (i == 0 or divides):
                    got = (*got, name)
            taken += got
            entries.append(got[0] if len(got) == 1 else got or None)
        return PartitionSpec(*entries)


def batch_axes(mesh: Mesh) -> tuple[str, ...]:
    """The axes of `mesh` that the rows of a batch are shared out over."""
    return tuple(axis for axis in BATCH_AXES if axis in mesh.shape)


def tokens(mesh: Mesh, *more: str | None) -> PartitionSpec:
    """Of arrays [B, N, ...]: rows over the batch axes, the tokens of a row over context; `more` for the dims after them."""
    return PartitionSpec(batch_axes(mesh), "context" if "context" in mesh.shape else None, *more)


def parts_of_rows(mesh: Mesh | None) -> int:
    """How many devices have a part each of the same tokens."""
    return 1 if mesh is None else mesh.shape.get("context", 1)


def token_axes(mesh: Mesh) -> tuple[str, ...]:
    """The axes that `tokens` shares out over."""
    return (*batch_axes(mesh), *(axis for axis in ("context",) if axis in mesh.shape))


def platform(mesh: Mesh) -> str:
    return str(mesh.devices.flat[0].platform)


def is_param(x: Any) -> bool:
    return isinstance(x, Param)


def tree_map(f: Callable[..., Any], params: Tree, *rest: Tree) -> Tree:
    return jax.tree.map(f, params, *rest, is_leaf=is_param)


def stacked(params: Tree, nums: tuple[int, ...]) -> Tree:
    """The declarations of so many layers alike, which are then the first dims of each."""
    return tree_map(
        lambda p: dataclasses.replace(p, shape=(*nums, *p.shape), axes=("layers",) * len(nums) + p.axes), params
    )


def shardings(params: Tree, mesh: Mesh, rules: Rules = RULES) -> Tree:
    return tree_map(lambda p: NamedSharding(mesh, p.spec(mesh, rules)), params)


def abstract(params: Tree, mesh: Mesh, dtype: Any = jnp.float32) -> Tree:
    return tree_map(lambda p: jax.ShapeDtypeStruct(p.shape, dtype, sharding=NamedSharding(mesh, p.spec(mesh))), params)


def initialize(params: Tree, mesh: Mesh, seed: int) -> Tree:
    """Initial float32 values, the same on every mesh: each leaf's key comes from its path alone."""

    def initial(path: Any, p: Param) -> Array:
        key = jax.random.fold_in(jax.random.key(seed), zlib.crc32(jax.tree_util.keystr(path).encode()))
        if p.init in INITS:
            return INITS[p.init](key, p.shape)
        return p.scale * jax.random.normal(key, p.shape, jnp.float32)

    def make() -> Tree:
        return jax.tree_util.tree_map_with_path(initial, params, is_leaf=is_param)

    return jax.jit(make, out_shardings=shardings(params, mesh))()


def constrain(params: Tree, values: Tree, mesh: Mesh, rules: Rules) -> Tree:
    """`values` under the shardings that `rules` give the declarations in `params`."""
    return tree_map(
        lambda p, v: jax.lax.with_sharding_constraint(v, NamedSharding(mesh, p.spec(mesh, rules))), params, values
    )


def gathered(params: Tree, values: Tree, dtype: Any, mesh: Mesh) -> Tree:
    """`values` as they are computed with: cast first, so that no more than need be travels, and whole but for tensors and experts."""
    return constrain(params, jax.tree.map(lambda w: w.astype(dtype), values), mesh, COMPUTE_RULES)
