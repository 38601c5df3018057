"""The trial of the network between machines in a process of its own: neither Gloo nor NCCL keeps to a time limit where packets are lost."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import Any

_LOAD_S = 180.0  # for PyTorch, on a slow disk
_TO_SAY_S = 3.0  # what PyTorch itself says of a time-out
_MEASURE_S = 180.0  # for the rates between many machines, once arrays go to and fro


def measure(rank: int, world: int, host: str, port: int, patience_s: float) -> dict[str, Any]:
    """What `network.measure` finds; or the `fault`, also where it finds nothing within `patience_s`."""
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
    from podwright.train.multimodal.processes import network

    writer.send(network.measure(rank, world, host, port, patience_s, writer.send))
