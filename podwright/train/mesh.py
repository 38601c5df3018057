"""The recipe's mesh over the devices that are there; how several processes start, agree and fail as one.

What a process finds on a disk or in its own completions is its own affair until it went through `from_first`, `together`,
`anywhere` or `combined`: decisions that steer the run are taken on what these give, which is the same in every process.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from jax import Array
from jax._src import distributed, xla_bridge  # the store of words and the clients of devices have no public name
from jax.experimental import multihost_utils
from jax.experimental.mesh_utils import create_hybrid_device_mesh
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxlib import _jax

from podwright import extras
from podwright.accelerators import GPU_MEMORY_FRACTION, by_device_kind
from podwright.errors import UserError, expanded
from podwright.models.param import batch_axes, tokens
from podwright.recipe import pretrain, schema
from podwright.recipe.location import storage_failure
from podwright.slices import outer_shape
from podwright.storage.base import Cause, StorageFailure
from podwright.train import devices, interface

HEARTBEAT_TIMEOUT_S = 600
"""after which jax ends the others of a process that is silent (its own choice is 100): later than the watchdog, which says what they were at"""
JOIN_TIMEOUT_S = 1800
"""for which processes wait for each other at the start (jax's own choice is 300): pods install their packages first, some minutes sooner or
later than others. Where one has failed, its launcher ends the others at once"""
DEFAULT_CACHE = "~/.cache/podwright"  # as cli/options.py has it for verdicts
MEMORY_FRACTION, MEMORY_FRACTION_NEW = "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION"
_ANSWER_S = 2.0  # that the store of words may take, which the first process has
_BLOCK = 256  # bytes

_PATIENCE_S = 5.0  # in which a network file system shows a new file to the other hosts

T = TypeVar("T")


def start_processes() -> None:
    """Join the other processes of the run when the launcher set the address of the first one. Before jax looks for its devices."""
    if MEMORY_FRACTION_NEW not in os.environ:
        os.environ.setdefault(MEMORY_FRACTION, str(GPU_MEMORY_FRACTION))
    _require_fraction(MEMORY_FRACTION_NEW if MEMORY_FRACTION_NEW in os.environ else MEMORY_FRACTION)
    if coordinator := os.environ.get("JAX_COORDINATOR_ADDRESS"):
        _use_interface(interface.choose(os.environ, coordinator.rpartition(":")[0].strip("[]")))
        jax.distributed.initialize(
            coordinator,
            int(os.environ["JAX_NUM_PROCESSES"]),
            int(os.environ["JAX_PROCESS_ID"]),
            initialization_timeout=JOIN_TIMEOUT_S,
            heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT_S,
        )


def _use_interface(name: str) -> None:
    """Have Gloo of jax's CPU devices use the interface `name`: jax reads no variable for it."""

    def client() -> Any:
        of_run = distributed.global_state.client
        return xla_bridge.make_cpu_client(_jax.make_gloo_tcp_collectives(distributed_client=of_run, interface=name))

    if name and jax.config.jax_cpu_collectives_implementation == "gloo":  # type: ignore[attr-defined]
        xla_bridge.register_backend_factory("cpu", client, priority=0, fail_quietly=False)


def _require_fraction(name: str) -> None:
    """UserError where the user's variable is no share of a GPU's memory, which with unified memory may be above 1."""
    text = os.environ[name]
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share < math.inf:
        raise UserError(
            f"{name}={text} is no share of a GPU's memory", f"type {name}={GPU_MEMORY_FRACTION}", "bad-value"
        )


def memory_fraction() -> float | None:
    """Of each GPU's memory, that jax takes for this process; None on other devices."""
    if jax.devices()[0].platform != "gpu":
        return None
    text = os.environ.get(MEMORY_FRACTION_NEW) or os.environ.get(MEMORY_FRACTION)
    return float(text) if text else None


def cache_folder() -> Path:
    """What runs of this machine share about its devices, and may lose. UserError for a home that is not there."""
    return expanded(os.environ.get("PODWRIGHT_CACHE") or DEFAULT_CACHE).absolute()


def process_numbers() -> tuple[int, int]:
    """Of this process: by jax, which on TPUs has it from the machines, and by the launcher, which names logs and exit files by it."""
    number = jax.process_index()
    return number, int(os.environ.get("JAX_PROCESS_ID", number))


def require_own_number() -> None:
    """UserError where jax counts the processes in another order than the launcher: records would be another process's."""
    number, expected = process_numbers()
    if number != expected:
        what = f"host {socket.gethostname()} is process {number} for jax, and {expected} for the launcher"
        raise UserError(
            what,
            "resume the run; if it stays so, the hosts of the target are not in the order of the machines",
            "process-order",
        )


def require_gpus() -> None:
    """UserError where the target or this machine has GPUs and jax sees none: it falls back to CPUs without a word."""
    seen = sum(device.platform != "cpu" for device in jax.local_devices())
    devices.require_gpus(
        f"jax {jax.__version__}", seen, os.environ, devices.num_nvidia_gpus(), extras.gpu_fix(" there")
    )


def make_mesh(want: schema.GrpoMesh | pretrain.PretrainMesh, devices: list[jax.Device] | None = None) -> Mesh:
    """The recipe's mesh over all `devices` (default: every device of every process), with its axes in the recipe's order.

    NotImplementedError, in jax's words, when the links between the chips have no such shape; `podwright plan` says so beforehand.
    """
    devices = devices or jax.devices()
    requested = {axis: int(getattr(want, axis)) for axis in type(want).model_fields}
    others = math.prod(n for axis, n in requested.items() if axis != "fsdp")
    sizes = requested | ({"fsdp": len(devices) // others} if want.fsdp == -1 else {})
    if sizes["fsdp"] < 1 or math.prod(sizes.values()) != len(devices):
        raise UserError(
            f"mesh {' x '.join(f'{axis}={n}' for axis, n in requested.items())} does not cover {len(devices)} device(s)",
            "make the product equal to the devices, or type mesh.fsdp=-1",
            "mesh-not-devices",
        )
    names = tuple(sizes)
    shape = tuple(sizes.values())
    types = (AxisType.Auto,) * len(shape)
    # what jax.make_mesh counts too, and refuses: TPU slices, or machines with GPUs
    num_slices = len({getattr(d, "slice_index", 0) for d in devices})
    if num_slices == 1:
        return jax.make_mesh(shape, names, axis_types=types, devices=devices)
    outer = outer_shape(shape, num_slices)
    if outer is None:
        raise UserError(
            f"mesh data={want.data} x fsdp={sizes['fsdp']} cannot be shared out to {num_slices} slices",
            f"type mesh.data={num_slices} mesh.fsdp=-1 mesh.tensor=1",
            "mesh-does-not-divide",
        )
    row = by_device_kind(devices[0].device_kind)
    inner = tuple(n // o for n, o in zip(shape, outer, strict=True))
    split = bool(row and row.pod and row.pod.mesh_may_split)
    return Mesh(
        create_hybrid_device_mesh(inner, outer, devices, allow_split_physical_axes=split), names, axis_types=types
    )


def agreed(stopping: Callable[[], bool]) -> Callable[[], bool]:
    """`stopping` as one answer for all processes, so that none goes on with a step that another has left."""
    return lambda: anywhere(stopping())


def anywhere(flag: bool) -> bool:
    """Whether `flag` is true in any process. Every process must call it."""
    if jax.process_count() == 1:
        return flag
    return bool(multihost_utils.process_allgather(np.array(flag)).any())


def share_a_disk(folder: Path) -> bool:
    """Whether every process sees a file that the first one has just written into its `folder`. Every process must call it."""
    if jax.process_count() == 1:
        return True
    mark = folder / from_first(lambda: _mark(folder))
    end = time.monotonic() + _PATIENCE_S
    while not (seen := _sees(mark)) and time.monotonic() < end:
        time.sleep(0.2)
    missed = anywhere(not seen)
    if jax.process_index() == 0:
        mark.unlink(missing_ok=True)
    return not missed


def _mark(folder: Path) -> str:
    """Leaves a file that the other processes look for; its name, which none of them sees where it cannot be written."""
    name = f".seen-{secrets.token_hex(8)}"
    with contextlib.suppress(OSError):
        (folder / name).touch()
    return name


def _sees(mark: Path) -> bool:
    with contextlib.suppress(OSError):
        os.listdir(mark.parent)  # has a network file system look once more
    return os.path.exists(mark)


def from_first(find: Callable[[], T]) -> T:
    """What `find` gives in the first process (a JSON value) or its UserError, in every process. Every process must call it.

    Only the first one looks, so that a slow shared disk cannot lead two processes to different decisions.
    """
    if jax.process_count() == 1:
        return find()
    with together():
        answer = find() if jax.process_index() == 0 else None
    return gathered(answer)[0]  # type: ignore[return-value]


@contextlib.contextmanager
def together() -> Iterator[None]:
    """A UserError in the body of any process becomes that of all, so that none waits for one that has left. A failure of a storage
    stays one, since a run ends otherwise by it than by bad input.

    Every process must come here, and nothing in the body may wait for another process.
    """
    fault: UserError | None = None
    try:
        yield
    except UserError as e:
        fault = storage_failure(e) or e
    if not anywhere(fault is not None):
        return
    texts = _exchange(_encoded(fault)) if jax.process_count() > 1 else []
    if fault is not None:
        raise fault
    number = next(i for i, text in enumerate(texts) if text)
    raise _decoded(texts[number], number)


def _encoded(fault: UserError | None) -> str:
    """For the other processes; "" for none."""
    if fault is None:
        return ""
    cause = str(fault.cause) if isinstance(fault, StorageFailure) else None
    return json.dumps([fault.what, fault.fix, fault.code, cause])


def _decoded(text: str, number: int) -> UserError:
    """The fault of process `number`."""
    what, fix, code, cause = json.loads(text)
    what = f"{what} (in process {number})"
    return StorageFailure(what, fix, Cause(cause)) if cause else UserError(what, fix, code)


def _exchange(text: str) -> list[str]:
    """The `text` of every process, by process. Every process must call it."""
    own = np.frombuffer(text.encode(), np.uint8)
    sizes = multihost_utils.process_allgather(np.array(own.size, np.int32))
    padded = np.zeros(-(-int(sizes.max()) // _BLOCK) * _BLOCK, np.uint8)  # in few sizes: each is compiled once
    padded[: own.size] = own
    rows = multihost_utils.process_allgather(padded)
    return [row[:size].tobytes().decode() for row, size in zip(rows, sizes, strict=True)]


def gathered(value: T) -> list[T]:
    """The `value` (of JSON) of every process, by process. Every process must call it."""
    if jax.process_count() == 1:
        return [value]
    return [json.loads(text) for text in _exchange(json.dumps(value))]


def tell(key: str, word: str) -> None:
    """Leaves a word for the other processes, which may hang or be gone."""
    _answer(lambda client: client.key_value_set(f"podwright/{key}", word, allow_overwrite=True))


def look_up(key: str) -> str | None:
    """What another process told under `key`; None if it has not, or the first process does not answer."""
    return _answer(lambda client: client.key_value_try_get(f"podwright/{key}"))


def _answer(ask: Callable[[Any], T]) -> T | None:
    """In a thread of its own, since the client waits without end for a first process that was stopped."""
    client = distributed.global_state.client
    answers = list[T]()
    if client is None:
        return None

    def call() -> None:
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            answers.append(ask(client))

    thread = threading.Thread(target=call, name="words", daemon=True)
    thread.start()
    thread.join(_ANSWER_S)
    return answers[0] if answers else None


def combined(own: np.ndarray) -> np.ndarray:
    """The sum over processes of arrays that are zero where they are another's. Every process must call it."""
    return own if jax.process_count() == 1 else multihost_utils.process_allgather(own).sum(0, dtype=own.dtype)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """The leading dim over data and fsdp, everything else replicated."""
    return NamedSharding(mesh, PartitionSpec(batch_axes(mesh)))


def token_sharding(mesh: Mesh) -> NamedSharding:
    """Of [B, N, ...]: rows as `batch_sharding` has them, and the tokens of a row over context."""
    return NamedSharding(mesh, tokens(mesh))


def num_batch_shards(mesh: Mesh) -> int:
    return int(np.prod([mesh.shape[axis] for axis in batch_axes(mesh)]))


def require_divides(mesh: Mesh, sizes: Mapping[str, int]) -> None:
    """UserError for a number of rows, by the key that sets it, that cannot be shared out to the devices of a batch."""
    shards = num_batch_shards(mesh)
    for key, size in sizes.items():
        if size % shards:
            what = f"{key}={size} rows at a time are not divisible by data x fsdp = {shards} devices"
            raise UserError(what, f"make it a multiple of {shards}", "mesh-does-not-divide")


def to_device(value: np.ndarray, mesh: Mesh) -> Array:
    """A global array sharded over its leading dim, from a value of which this process needs to be right only in its own rows."""
    return jax.make_array_from_callback(value.shape, batch_sharding(mesh), lambda index: value[index])


def own_rows(array: Array) -> dict[int, np.ndarray]:
    """Leading index -> row, for the rows that this process answers for: each row belongs to one process, whatever the mesh."""
    rows: dict[int, np.ndarray] = {}
    for shard in array.addressable_shards:
        if shard.replica_id == 0:
            start = shard.index[0].start or 0
            rows |= {start + i: row for i, row in enumerate(np.asarray(shard.data))}
    return rows


def gather(array: Array) -> np.ndarray:
    """The whole array on every process. Every process must call it."""
    return np.asarray(multihost_utils.process_allgather(array, tiled=True))
