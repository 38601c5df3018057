"""A lock that a process inherits from its launcher: the kernel drops it with its last holder, so it tells whether one of them lives."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def held(path: Path) -> Iterator[int]:
    """The descriptor of the locked file, to be kept open by what is started in the body."""
    with path.open("w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield f.fileno()


def forget(path: Path) -> None:
    """Removes a lock that nobody holds."""
    if not is_held(path):
        path.unlink(missing_ok=True)


def is_held(path: Path) -> bool:
    if not path.exists():
        return False
    with path.open("r") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextlib.contextmanager
def acquired(path: Path, seconds: float = 0.0) -> Iterator[bool]:
    """Holds the lock of a file in the body; False where another process has it for longer than `seconds`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + seconds
    with path.open("w") as f:
        while True:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    yield False
                    return
                time.sleep(0.1)
        yield True
