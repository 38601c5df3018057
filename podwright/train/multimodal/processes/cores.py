"""How many cores a process has: those it may run on, shared with the processes beside it, and at most what its container allows."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path

from podwright.train.multimodal.processes.world import World

_CGROUP = Path("/sys/fs/cgroup")


def of_process(world: World, cgroup: Path = _CGROUP) -> int:
    """At least 1. Every process has to ask for it."""
    affinity = getattr(os, "sched_getaffinity", None)
    usable = sorted(affinity(0)) if affinity else range(os.cpu_count() or 1)
    host = socket.gethostname()
    everyone = world.gathered((host, list(usable)))
    return shared(usable, [cores for name, cores in everyone if name == host], quota(cgroup))


def shared(usable: Sequence[int], on_host: Sequence[Sequence[int]], limit: float) -> int:
    """Of the cores `usable`; `on_host`: those of every process of this host, this one included; `limit`: that all may use at once."""
    share = sum(1 / sum(core in other for other in on_host) for core in usable)
    return max(1, int(min(share, limit / len(on_host)) + 1e-6))  # 1/3 three times is a whole core


def quota(cgroup: Path = _CGROUP) -> float:
    """Cores whose time a container may take; infinity without a limit."""
    try:  # version 2: "QUOTA PERIOD" in microseconds, or "max PERIOD"
        allowed, period = map(float, (cgroup / "cpu.max").read_text().replace("max", "inf").split())
    except (OSError, ValueError):
        try:  # version 1: -1 without a limit
            allowed, period = (float((cgroup / "cpu" / f"cpu.cfs_{x}_us").read_text()) for x in ("quota", "period"))
        except (OSError, ValueError):
            return float("inf")
    return allowed / period if allowed > 0 else float("inf")
