"""Whether the kernel has killed processes for memory: the counter of their cgroup, memory.events of v2 or memory.oom_control of v1.

It counts every kill in the cgroup, whether its own limit or the machine's memory was the reason, and outlives the processes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from podwright.accelerators import GIB

FIX = "raise that limit (of the container, the service or the job), or use a machine with more memory; then resume the run"
_ROOT = Path("/sys/fs/cgroup")
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
        limit = _limit(folder)
        full = (
            f"at its limit of {limit / GIB:.2f} GiB"
            if limit
            else "without a limit of its own: the machine's memory was full"
        )
        return f"the kernel killed it for memory: cgroup {folder} was {full}"


def of_this_process(cgroups: Path = Path("/proc/self/cgroup"), root: Path = _ROOT) -> OomCounter:
    """The counter of the cgroup that this process, and whatever it starts, is in."""
    try:
        lines = [line.split(":", 2) for line in cgroups.read_text().splitlines()]
    except OSError:
        return OomCounter()
    for number, controllers, path in (line for line in lines if len(line) == 3):
        if "memory" in controllers.split(","):
            mounted, name = root / "memory", "memory.oom_control"
        elif number == "0" and not controllers:
            mounted, name = root, "memory.events"
        else:
            continue
        # in a container the path may be the host's, and the container's own cgroup is what is mounted
        for folder in (mounted / path.lstrip("/"), mounted):
            if _kills(file := folder / name) >= 0:
                return OomCounter(str(file), _kills(file))
    return OomCounter()


def _kills(file: Path) -> int:
    """-1 where there is no such counter."""
    try:
        match = _COUNT.search(file.read_text())
    except OSError:
        return -1
    return int(match[1]) if match else -1


def _limit(folder: Path) -> int:
    """Bytes; 0 where there is none."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            continue
        if text.isdigit() and int(text) < 1 << 60:
            return int(text)
    return 0
