"""Trees of arrays between the first process and all others, for hosts that share no disk: the first one saves and restores for all.

Arrays go a piece at a time, so that no device holds more than a piece beside its share, and no host but the first a whole array.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.experimental import multihost_utils

Tree = Any
PIECE_BYTES = 64 << 20


def collect(tree: Tree) -> Tree | None:
    """The whole arrays of a tree of global ones, in the first process; None in the others. Every process must call it."""
    first = jax.process_index() == 0
    leaves, structure = jax.tree_util.tree_flatten(tree)
    gathered = [_collect(leaf, first) for leaf in leaves]
    return jax.tree_util.tree_unflatten(structure, gathered) if first else None


def distribute(tree: Tree | None, abstract: Tree) -> Tree:
    """Global arrays under the shardings of `abstract`, from whole ones in the first process. Every process must call it."""
    wanted, structure = jax.tree_util.tree_flatten(abstract)
    leaves = jax.tree_util.tree_leaves(tree) if tree is not None else [None] * len(wanted)
    return jax.tree_util.tree_unflatten(structure, [_send(x, want) for x, want in zip(leaves, wanted, strict=True)])


def _collect(leaf: Array, first: bool) -> np.ndarray | None:
    """Each process fills in the shards that it answers for, and all pieces are added up."""
    shape = leaf.shape or (1,)
    own = [(s.index or (slice(None),), np.asarray(s.data)) for s in leaf.addressable_shards if s.replica_id == 0]
    array = np.empty(shape, leaf.dtype) if first else None
    for start, stop in _pieces(shape[0], leaf.nbytes):
        piece = np.zeros((stop - start, *shape[1:]), leaf.dtype)
        for index, data in own:
            begin, end, _ = index[0].indices(shape[0])
            low, high = max(begin, start), min(end, stop)
            if low < high:
                rows = data.reshape(end - begin, *data.shape[1:])
                piece[(slice(low - start, high - start), *index[1:])] = rows[low - begin : high - begin]
        total = _added(piece)
        if array is not None:
            array[start:stop] = total
    return array if array is None else array.reshape(leaf.shape)


def _send(leaf: np.ndarray | None, want: jax.ShapeDtypeStruct) -> Array:
    shape = want.shape or (1,)
    array = np.zeros(shape, want.dtype) if leaf is None else np.asarray(leaf, want.dtype).reshape(shape)
    out = np.empty(shape, want.dtype)
    for start, stop in _pieces(shape[0], math.prod(shape) * np.dtype(want.dtype).itemsize):
        out[start:stop] = _added(array[start:stop])
    out = out.reshape(want.shape)
    return jax.make_array_from_callback(want.shape, want.sharding, lambda index: out[index])


def _pieces(rows: int, num_bytes: int) -> list[tuple[int, int]]:
    """[start, stop) of rows that are about PIECE_BYTES together, at least one."""
    size = max(1, PIECE_BYTES * rows // max(1, num_bytes))
    return [(start, min(start + size, rows)) for start in range(0, rows, size)]


def _added(piece: np.ndarray) -> np.ndarray:
    """The sum over processes of pieces that are zero where they are another's; of integers, for -0.0 + 0.0 is not -0.0."""
    data = np.ascontiguousarray(piece).reshape(-1).view(np.uint8)
    padded = np.zeros(-(-data.size // 4), np.uint32)  # words: fewer things to add up than bytes
    padded.view(np.uint8)[: data.size] = data
    total = np.asarray(multihost_utils.broadcast_one_to_all(padded, is_source=True))
    return total.view(np.uint8)[: data.size].view(piece.dtype).reshape(piece.shape)
