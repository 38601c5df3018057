"""Whether a launcher follows a run: each holds a lock of the run's directory for as long as it does, and the kernel drops it with the process."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from typing import TextIO

import psutil

from podwright.rundir import RunDir, parse_record


@contextlib.contextmanager
def attending(run: RunDir) -> Iterator[None]:
    """Of any number of launchers. Where the file cannot be opened the journal cannot be written either, which says what is wrong."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            fcntl.flock(stack.enter_context(run.attended_lock.open("a")), fcntl.LOCK_SH)
        yield


def is_attended(run: RunDir) -> bool:
    """Creates nothing. False where the lock cannot be opened: no launcher could write the journal either."""
    if not run.attended_lock.exists():
        return False
    try:
        with unattended(run) as free:
            return not free
    except OSError:
        return False


@contextlib.contextmanager
def unattended(run: RunDir) -> Iterator[bool]:
    """Whether no launcher follows the run; while the body runs, none begins to."""
    with contextlib.ExitStack() as stack:
        try:
            fcntl.flock(stack.enter_context(run.attended_lock.open("a")), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def holder(lock: TextIO) -> tuple[str, int]:
    """Host and number of the process that wrote itself into the launcher lock; "" and 0 where none did."""
    lock.seek(0)
    written = parse_record(lock.read().encode()) or {}
    return written.get("host", ""), written.get("pid", 0)


def is_at_work(pid: int) -> bool:
    """Whether a process of this machine lives and does not wait for SIGCONT, as after Ctrl-Z."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_STOPPED)
    except psutil.Error:
        return False
