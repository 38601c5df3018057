"""How many cores a process may use for threads: those that it is bound to, shared with the processes of its host that are bound to them too."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from podwright.train.multimodal.processes.world import World


def of_process(world: World) -> int:
    """At least 1. Every process has to ask for it."""
    usable = list(range(os.cpu_count() or 1))
    if hasattr(os, "sched_getaffinity"):
        usable = sorted(os.sched_getaffinity(0))
    host = socket.gethostname()
    return shared(usable, [cores for name, cores in world.gathered((host, usable)) if name == host])


def shared(usable: Sequence[int], on_host: Sequence[Sequence[int]]) -> int:
    """Of the cores `usable`; `on_host`: those of every process of this host, this one included."""
    share = sum(1 / sum(core in other for other in on_host) for core in usable)
    return max(1, int(share + 1e-6))  # 1/3 three times is a whole core
