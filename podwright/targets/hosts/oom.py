"""Whether the kernel has killed processes for memory: the counter of their cgroup, memory.events of v2 or memory.oom_control of v1.

It counts every kill in the cgroup, whether its own limit or the machine's memory was the reason, and outlives the processes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from podwright import cgroup
from podwright.accelerators import GIB

FIX = "raise that limit (of the container, the service or the job), or use a machine with more memory; then resume the run"
_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class OomCounter:
    file: str = ""
    """"" where the kernel keeps none"""
    kills: int = 0
    """when the processes of interest were about to start"""

    def killed(self) -> str:
        """In words, that the kernel has killed a process since, and the limit that was in force; "" if it has not."""
        if not self.file or _kills(Path(self.file)) <= self.kills:
            return ""
        folder = Path(self.file).parent
        limit = cgroup.limit_bytes([folder, *folder.parents])
        full = (
            f"at its limit of {limit / GIB:.2f} GiB"
            if limit
            else "without a limit of its own: the machine's memory was full"
        )
        return f"the kernel killed it for memory: cgroup {folder} was {full}"


def of_this_process(own: Path = cgroup.OWN, root: Path = cgroup.ROOT) -> OomCounter:
    """The counter of the cgroup that this process, and whatever it starts, is in."""
    for folder in cgroup.folders(own, root):
        for name in ("memory.events", "memory.oom_control"):
            kills = _kills(folder / name)
            if kills >= 0:
                return OomCounter(str(folder / name), kills)
    return OomCounter()


def _kills(file: Path) -> int:
    """-1 where there is no such counter."""
    try:
        match = _COUNT.search(file.read_text())
    except OSError:
        return -1
    return int(match[1]) if match else -1
