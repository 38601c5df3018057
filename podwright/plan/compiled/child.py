"""Runs a child process of a plan to its end: a compiler, a measurement or an installation."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from podwright.shell import Shell

POLL_S = 0.1
_ANOTHER_LIBTPU = "TPU_LIBRARY_PATH"
"""set by the shell, or by jax where it has imported one; a compiler's own is in its packages"""


@dataclass(frozen=True)
class ChildRun:
    ended: int | None
    """exit code; None where it was ended from here"""
    seconds: float
    limit_s: float

    @property
    def cut_short(self) -> str:
        """Why it did not come to an end; "" if it did."""
        if self.ended in (-signal.SIGKILL, -signal.SIGTERM):
            return (
                f"the compiler was killed (signal {-self.ended}) after {self.seconds:.0f} s, as where memory runs out"
            )
        return f"the compiler was ended after {self.seconds:.0f} s" if self.seconds >= self.limit_s else ""


def run(
    runner: Shell,
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    log: Path,
    limit_s: float,
    tick: Callable[[float, int], None],
    is_done: Callable[[], bool] = lambda: False,
    without: str = "(?!)",
) -> ChildRun:
    """Run `argv` until it ends, until `is_done`, or for `limit_s`. `tick` takes the seconds since its start and its pid, ten times a second.

    It inherits no variable whose name matches `without`, nor the one that names a libtpu.
    """
    begin = time.monotonic()
    ended = None
    pid = runner.start(argv, cwd=cwd, env=env, log=log, without=f"{_ANOTHER_LIBTPU}|{without}")
    try:
        while (seconds := time.monotonic() - begin) < limit_s:
            ended = runner.returncode(pid)
            tick(seconds, pid)
            if ended is not None or is_done():
                break
            time.sleep(POLL_S)
    finally:
        runner.kill(pid)
    return ChildRun(ended, time.monotonic() - begin, limit_s)
