"""Memory that is full: of a device, of a machine, of a job."""

from __future__ import annotations

from podwright.rundir import Ending
from podwright.watch.rules.rule import rule

RULES = (
    rule(
        "cuda-out-of-memory",
        r"CUDA out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED",
        Ending.OUT_OF_MEMORY,
        "a GPU's memory is full",
        "{device_memory}",
        passing=True,
    ),
    rule(
        "slurm-memory",
        r"Detected \d+ oom_kill event|: Out Of Memory$|JobState=OUT_OF_MEMORY",
        Ending.OUT_OF_MEMORY,
        "the job used more of a node's memory than it asked SLURM for",
        "ask for more (mem in the target's file), or {host_memory}",
    ),
    rule(
        "cgroup-out-of-memory",
        r"the kernel killed it for memory|Memory cgroup out of memory",
        Ending.OUT_OF_MEMORY,
        "the kernel killed a process of the run, since its cgroup (container, service or job) or the machine had no memory left",
        "raise that limit, ask for more (mem in the target's file), or use a machine with more memory",
    ),
    rule(
        "shared-memory",
        r"unable to allocate shared memory|insufficient shared memory|out of shared memory",
        Ending.CRASHED,
        "/dev/shm is full, through which the workers hand rows over",
        "make it larger (in a container: --shm-size=8g)",
    ),
    rule(
        "host-out-of-memory",
        r"can't allocate memory|std::bad_alloc|MemoryError|Cannot allocate memory|\boom-kill\b|[Oo]ut of memory",
        Ending.OUT_OF_MEMORY,
        "the machine's own memory is full",
        "{host_memory}, or use a machine with more memory",
        passing=True,
    ),
)
