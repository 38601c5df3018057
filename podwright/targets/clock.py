"""Time that passes whether or not somebody sets the clock of this machine."""

from __future__ import annotations

import time
from pathlib import Path

_BEGAN = time.time() - time.monotonic()


def now() -> float:
    """Unix seconds by the clock as it was when this process began: what a cluster dates is compared with it."""
    return _BEGAN + time.monotonic()


def uptime() -> tuple[str, float]:
    """The boot of this machine ("": not known) and the seconds since, suspended ones too: comparable between processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return boot, time.clock_gettime(time.CLOCK_BOOTTIME)
    except OSError:
        return "", 0.0


def mark(path: Path) -> None:
    """Write down that it is now."""
    path.write_text(" ".join(map(str, uptime())))


def marked(path: Path) -> float:
    """By `now`, when a mark was written; of another boot or machine, by the clock as it was set then."""
    boot, seconds = uptime()
    then, _, value = path.read_text().partition(" ")
    return now() - (seconds - float(value)) if boot and then == boot else path.stat().st_mtime
