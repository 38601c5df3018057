"""As many processes of this machine as it has GPUs, or as a target asks for on CPUs, by torchrun, within this process."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

import torch

_TO_SAVE_S = 120  # that a step and its checkpoint may take once a stop is asked for; who has not left then is killed


def wanted(environment: Mapping[str, str]) -> int:
    """Processes to start; 1 where somebody has started several already."""
    if "RANK" in environment:
        return 1
    return int(environment.get("NPROC_PER_NODE", "0")) or torch.cuda.device_count() or 1


def several(number: int, arguments: list[str], environment: MutableMapping[str, str]) -> tuple[int, int] | None:
    """`python -m podwright.train ARGUMENTS`, `number` times; returns when all have ended, however they did.

    The process whose end was that of the others and its exit code (negative for a signal); None where none failed.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    environment.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(_TO_SAVE_S))
    try:
        torchrun(["--standalone", f"--nproc-per-node={number}", "-m", "podwright.train", *arguments])
    except ChildFailedError as e:
        first = min(e.failures.values(), key=lambda failure: (failure.exitcode >= 0, failure.timestamp))
        print(f"process {first.local_rank} of {number} failed first (exit code {first.exitcode})", flush=True)
        return first.local_rank, first.exitcode
    except SignalException as e:
        print(type(e).__name__, flush=True)
    return None
