"""How logical mesh axes are laid over the links between chips: what jax's mesh_utils.create_device_mesh decides, without jax.

An axis takes whole physical axes, the last axis first, as many of them as it can; a few small shapes of chips are put on a ring
instead, and then take any mesh. tests/unit/plan/test_topology.py holds this against jax itself on libtpu's topologies.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from podwright.slices import Slice


class Refusal(NamedTuple):
    axis: int
    size: int
    left: list[int]
    """what is left of each physical axis for it"""

    def __str__(self) -> str:
        """The first sentence of jax's message."""
        return f"Failed to find assignment for logical_axis_index {self.axis} of size {self.size} with remaining assignable mesh {self.left}"

    @property
    def brief(self) -> str:
        """Its beginning."""
        return str(self).partition(" with ")[0]


def refusal(where: Slice, shape: Sequence[int], *, split: bool | None = None) -> Refusal | None:
    """Why jax refuses a mesh of `shape` on the devices of one slice; None where it does not.

    `split` is create_device_mesh's allow_split_physical_axes, by default what jax.make_mesh gives for these devices.
    """
    pod = where.accelerator.pod
    if pod is None or (pod.mesh_may_split if split is None else split) or _on_a_ring(where):
        return None
    assigned = assign(where.physical_mesh, shape)
    return assigned if isinstance(assigned, Refusal) else None


def assign(physical: Sequence[int], shape: Sequence[int]) -> list[tuple[int, ...]] | Refusal:
    """The physical axes that each logical axis takes, or the first axis that finds none."""
    left = list(physical)
    taken: list[tuple[int, ...]] = [()] * len(shape)
    for axis in reversed(range(len(shape))):
        taken[axis] = _whole_axes(left, shape[axis])
        if not taken[axis] and shape[axis] > 1:
            return Refusal(axis, shape[axis], left)
        left = [0 if i in taken[axis] else n for i, n in enumerate(left)]
    return taken


def _whole_axes(left: list[int], size: int) -> tuple[int, ...]:
    """The most axes of `left` whose product is `size`; the first such set. Axes of length 1 are axes too."""
    for num in range(len(left), 0, -1):
        for axes in itertools.combinations(range(len(left)), num):
            if math.prod(left[i] for i in axes) == size:
                return axes
    return ()


def _on_a_ring(where: Slice) -> bool:
    """Whether jax puts these chips on a ring for any mesh. It has one for a v5p of 2x2x2 too, but not under libtpu's name of v5p."""
    name, (x, y, _) = where.accelerator.name, where.chips
    if name in ("v5e", "v6e"):
        return (x, y) in ((2, 2), (2, 4))
    return name == "tpu7x" and x <= 2 and y <= 2 and math.prod(where.physical_mesh) in (8, 16, 24, 32)


def factorisations(product: int, num: int) -> Iterator[tuple[int, ...]]:
    """Every ordered way to write `product` as `num` factors."""
    if num == 1:
        yield (product,)
        return
    for first in range(1, product + 1):
        if product % first == 0:
            yield from ((first, *rest) for rest in factorisations(product // first, num - 1))
