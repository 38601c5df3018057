"""How a person sees that a compiler is at work: a line that is written over, or one a minute where stderr is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

EVERY_S = 60.0


class CompileProgress:
    """Called with program, phase and the seconds that the phase's process has taken, many times a second."""

    def __init__(self, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic):
        self._out = out or sys.stderr
        self._clock = clock
        self._next = clock() + EVERY_S

    def __call__(self, program: str, phase: str, seconds: float) -> None:
        line = f"{program}: {phase}, {seconds:.0f} s"
        if self._out.isatty():
            self._out.write(f"\r\033[K{line}")
        elif self._clock() >= self._next:
            self._next = self._clock() + EVERY_S
            self._out.write(f"{line}\n")
        else:
            return
        self._out.flush()

    def announce(self, line: str) -> None:
        """What is about to take long, on a line of its own."""
        self._out.write(f"\r\033[K{line}\n" if self._out.isatty() else f"{line}\n")
        self._out.flush()
