"""How fast the machines of a target exchange arrays, all together and each with its neighbour: by NCCL between GPUs, else by gloo.

A process of its own measures it: neither keeps to a time limit where packets are lost.
"""

from __future__ import annotations

import datetime
import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from typing import Any

from podwright.errors import message_of
from podwright.train import interface

SIZE_BYTES = 64 << 20
_TIMES = 4
_LOAD_S = 180.0  # for PyTorch, on a slow disk
_TO_SAY_S = 3.0  # what PyTorch itself says of a time-out
_MEASURE_S = 180.0  # for the rates between many machines, once arrays go to and fro


def measure(rank: int, world: int, host: str, port: int, patience_s: float) -> dict[str, Any]:
    """`all_reduce_bytes_per_s` of all machines, and of `neighbours` {rank: bytes_per_s}; or the `fault`, also where nothing comes within
    `patience_s`.

    Bytes a second are those that each machine sends: an all-reduce over n sends 2 (n - 1) / n of the array. Besides, over which `interface`
    arrays go, whether the machines have `met` at the first one, and after how many seconds they have exchanged something (`met_s`).
    """
    context = multiprocessing.get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    trial = context.Process(target=_trial, args=(writer, rank, world, host, port, patience_s), daemon=True)
    trial.start()
    writer.close()
    record: dict[str, Any] = {"met": False}
    end = time.monotonic() + _LOAD_S
    while not {"backend", "fault"} & record.keys():
        if not reader.poll(max(0.0, end - time.monotonic())):
            loaded = f"nothing is heard of the others within {patience_s:.0f} s"
            record["fault"] = loaded if "interface" in record else f"PyTorch is not loaded after {_LOAD_S:.0f} s"
            break
        try:
            update = reader.recv()
        except EOFError:
            update = {"fault": "the trial was killed"}
        record |= update
        if "interface" in update:  # PyTorch is loaded
            end = time.monotonic() + patience_s + _TO_SAY_S
        if "met_s" in update:
            end = time.monotonic() + _MEASURE_S
    trial.kill()
    trial.join()
    return record


def _trial(writer: Connection, rank: int, world: int, host: str, port: int, patience_s: float) -> None:
    """Sends what is known as soon as it is."""
    import torch
    import torch.distributed as dist

    os.environ.update({"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": "1"})
    writer.send({"interface": interface.choose(os.environ, host)})
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(0)
    begin = time.monotonic()
    patience = datetime.timedelta(seconds=patience_s)
    try:
        store = dist.TCPStore(host, port, world, rank == 0, timeout=patience)
        writer.send({"met": True})
        dist.init_process_group("nccl" if gpu else "gloo", store=store, rank=rank, world_size=world, timeout=patience)
        array = torch.ones(SIZE_BYTES // 4, device="cuda" if gpu else "cpu")
        dist.all_reduce(array[:1])
        writer.send({"met_s": time.monotonic() - begin})
        figures = {"backend": dist.get_backend(), "all_reduce_bytes_per_s": _rate(array, None, world)}
        writer.send(figures | {"neighbours": _neighbours(array, rank, world)})
    except (RuntimeError, ValueError) as e:  # what torch makes of a connection that fails
        writer.send({"fault": message_of(e, 300)})


def _neighbours(array: Any, rank: int, world: int) -> dict[int, float]:
    """With the machine before and the one after, in a ring; every pair is alone on the network."""
    import torch.distributed as dist

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


def _rate(array: Any, group: Any, size: int) -> float:
    import torch
    import torch.distributed as dist

    def wait() -> None:
        if array.is_cuda:
            torch.cuda.synchronize()

    dist.all_reduce(array, group=group)
    wait()
    begin = time.monotonic()
    for _ in range(_TIMES):
        array.fill_(1.0)
        dist.all_reduce(array, group=group)
    wait()
    return 2 * (size - 1) / size * array.nbytes * _TIMES / (time.monotonic() - begin)
