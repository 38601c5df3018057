"""A limit of the processor time in which a script is read, whatever is in it."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator

from podwright.errors import UserError

LIMIT_S = 5.0
"""of processor time; the slowest public script takes 0.1 s"""


class _Expired(BaseException):
    """No Exception, so that nobody who reads takes it for a fault of the script."""


@contextlib.contextmanager
def limited(name: str, limit_s: float = LIMIT_S) -> Iterator[None]:
    """UserError where what is done within takes more than `limit_s` of processor time, or is nested too deeply for Python.

    The time is limited in the main thread alone, which gets signals. SIGPROF is left to profilers. `name`: of the script.
    """
    fix = "write its values out in a copy of the script"
    try:
        with _timer(limit_s):
            yield
    except _Expired:
        raise UserError(f"{name} takes more than {limit_s:g} s of processor time to read", fix) from None
    except RecursionError:
        raise UserError(f"{name} is nested too deeply to be read", fix) from None


@contextlib.contextmanager
def _timer(limit_s: float) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    begun = time.thread_time()
    reading = True

    def expire(*_: object) -> None:
        # The signal counts the time of all threads, and Python may hand it on when the reading is over.
        left_s = limit_s - (time.thread_time() - begun)
        if reading and left_s > 0:
            signal.setitimer(signal.ITIMER_VIRTUAL, left_s)
        elif reading:
            raise _Expired

    before = signal.signal(signal.SIGVTALRM, expire)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    try:
        try:
            yield
        finally:
            reading = False
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
