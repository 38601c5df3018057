"""The control group that this process is in: its folders in the kernel's file system, and the memory that it may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

OWN, ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60
"""v1 writes a number that large where there is none"""


def folders(own: Path = OWN, root: Path = ROOT) -> Iterator[Path]:
    """Those of the memory controller, v2 or v1, of this process and what it starts: its own first, then those around it."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return
    for number, controllers, path in (line for line in lines if len(line) == 3):
        if "memory" in controllers.split(","):
            mounted = root / "memory"
        elif number == "0" and not controllers:
            mounted = root
        else:
            continue
        # in a container the path may be the host's, and the container's own cgroup is what is mounted
        place = mounted / path.lstrip("/")
        for folder in (place, *place.parents):
            if folder.is_relative_to(mounted) and folder.is_dir():
                yield folder


def limit_bytes(within: list[Path]) -> int:
    """The least limit of these folders; 0 where none has one."""
    limits = []
    for folder in within:
        for name in ("memory.max", "memory.limit_in_bytes"):
            try:
                text = (folder / name).read_text().strip()
            except OSError:
                continue
            if text.isdigit() and int(text) < _NO_LIMIT:
                limits.append(int(text))
    return min(limits, default=0)


def memory_bytes(own: Path = OWN, root: Path = ROOT) -> int:
    """Of this machine, or of the container, service or job that this process is in, where that has less."""
    import psutil

    total: int = psutil.virtual_memory().total
    return min(total, limit_bytes(list(folders(own, root))) or total)
