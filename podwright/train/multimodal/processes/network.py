"""How fast the machines of a target exchange arrays, all together and each with its neighbour: by NCCL between GPUs, else by gloo."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from podwright.errors import message_of
from podwright.train import interface

SIZE_BYTES = 64 << 20
_TIMES = 4


def measure(
    rank: int, world: int, host: str, port: int, patience_s: float, say: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """`all_reduce_bytes_per_s` of all machines, and {rank of a neighbour: bytes_per_s}; or the `fault`.

    Bytes a second are those that each machine sends: an all-reduce over n sends 2 (n - 1) / n of the array. `say` hears meanwhile over which
    `interface` arrays go, that the machines have `met` at the first one, and after how many seconds they have exchanged something (`met_s`).
    """
    os.environ.update({"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": "1"})
    say({"interface": interface.choose(os.environ, host)})
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(0)
    begin = time.monotonic()
    patience = timedelta(seconds=patience_s)
    try:
        store = dist.TCPStore(host, port, world, rank == 0, timeout=patience)
        say({"met": True})
        dist.init_process_group("nccl" if gpu else "gloo", store=store, rank=rank, world_size=world, timeout=patience)
        array = torch.ones(SIZE_BYTES // 4, device="cuda" if gpu else "cpu")
        dist.all_reduce(array[:1])
        say({"met_s": time.monotonic() - begin})
        figures = {"backend": dist.get_backend(), "all_reduce_bytes_per_s": _rate(array, None, world)}
        return figures | {"neighbours": _neighbours(array, rank, world)}
    except (RuntimeError, ValueError) as e:  # what torch makes of a connection that fails
        return {"fault": message_of(e, 300)}


def _neighbours(array: torch.Tensor, rank: int, world: int) -> dict[int, float]:
    """With the machine before and the one after, in a ring; every pair is alone on the network."""
    if world < 3:
        return {}
    rates = {}
    for first in range(world):
        pair = (first, (first + 1) % world)
        group = dist.new_group(list(pair))
        if rank in pair:
            rates[pair[0] if rank == pair[1] else pair[1]] = _rate(array, group, 2)
        dist.barrier()
    return rates


def _rate(array: torch.Tensor, group: Any, size: int) -> float:
    dist.all_reduce(array, group=group)
    _wait(array)
    begin = time.monotonic()
    for _ in range(_TIMES):
        array.fill_(1.0)
        dist.all_reduce(array, group=group)
    _wait(array)
    return 2 * (size - 1) / size * array.nbytes * _TIMES / (time.monotonic() - begin)


def _wait(array: torch.Tensor) -> None:
    if array.is_cuda:
        torch.cuda.synchronize()
