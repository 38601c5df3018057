"""A lock that a process inherits from its launcher: the kernel drops it with its last holder, so it tells whether one of them lives."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def held(path: Path) -> Iterator[int]:
    """The descriptor of the locked file, to be kept open by what is started in the body."""
    with path.open("w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield f.fileno()


def is_held(path: Path) -> bool:
    if not path.exists():
        return False
    with path.open("r") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
