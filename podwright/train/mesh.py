"""The recipe's mesh over the devices that are there, and the start of several processes as one."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from podwright.errors import UserError
from podwright.models.param import BATCH_AXES
from podwright.recipe import schema

AXES = ("data", "fsdp", "tensor")


def start_processes() -> None:
    """Join the other processes of the run when the launcher set the address of the first one."""
    if "JAX_COORDINATOR_ADDRESS" in os.environ:
        jax.distributed.initialize(
            os.environ["JAX_COORDINATOR_ADDRESS"], int(os.environ["JAX_NUM_PROCESSES"]), int(os.environ["JAX_PROCESS_ID"])
        )


def make_mesh(want: schema.Mesh, devices: list[jax.Device] | None = None) -> Mesh:
    """A (data, fsdp, tensor) mesh over all `devices` (default: every device of every process)."""
    devices = devices or jax.devices()
    others = want.data * want.tensor
    fsdp = len(devices) // others if want.fsdp == -1 else want.fsdp
    if fsdp < 1 or others * fsdp != len(devices):
        raise UserError(
            f"mesh data={want.data} x fsdp={want.fsdp} x tensor={want.tensor} does not cover {len(devices)} device(s)",
            "make the product equal to the devices, or type mesh.fsdp=-1",
        )
    shape = (want.data, fsdp, want.tensor)
    return jax.make_mesh(shape, AXES, axis_types=(AxisType.Auto,) * 3, devices=devices)


def agreed(stopping: Callable[[], bool]) -> Callable[[], bool]:
    """`stopping` as one answer for all processes, so that none goes on with a step that another has left."""
    return lambda: anywhere(stopping())


def anywhere(flag: bool) -> bool:
    """Whether `flag` is true in any process. Every process must call it."""
    return flag if jax.process_count() == 1 else bool(multihost_utils.process_allgather(np.array(flag)).any())


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """The leading dim over data and fsdp, everything else replicated."""
    return NamedSharding(mesh, PartitionSpec(BATCH_AXES))


def num_batch_shards(mesh: Mesh) -> int:
    return int(np.prod([mesh.shape[axis] for axis in BATCH_AXES]))


def to_device(value: np.ndarray, mesh: Mesh) -> jax.Array:
    """A global array sharded over its leading dim, from a value of which this process needs to be right only in its own rows."""
    return jax.make_array_from_callback(value.shape, batch_sharding(mesh), lambda index: value[index])


def own_rows(array: jax.Array) -> dict[int, np.ndarray]:
    """Leading index -> row, for the rows that live on this process's devices."""
    rows: dict[int, np.ndarray] = {}
    for shard in array.addressable_shards:
        start = shard.index[0].start or 0
        if start not in rows:
            rows |= {start + i: row for i, row in enumerate(np.asarray(shard.data))}
    return rows


def gather(array: jax.Array, mesh: Mesh) -> np.ndarray:
    """The whole array on every process. Every process must call it."""
    return np.asarray(_replicate(mesh)(array))


@functools.cache
def _replicate(mesh: Mesh) -> Callable[[jax.Array], jax.Array]:
    return jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, PartitionSpec()))
