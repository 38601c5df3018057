"""What Ctrl-C means: to one who runs, first stop and then leave; to one who watches, leave."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

STOPPING = "stopping, after a checkpoint if it trains; Ctrl-C again leaves the run to that"


class Interrupts:
    """Counts Ctrl-C between `with` and its end, instead of an exception in the middle of a decision."""

    def __init__(self, stops: bool, say: Callable[[str], None]):
        self._stops = stops
        self._say = say
        self.first_says = STOPPING
        """to one who runs"""
        self._count = 0

    @property
    def stop(self) -> bool:
        return self._stops and self._count > 0

    @property
    def leave(self) -> bool:
        return self._count > (1 if self._stops else 0)

    @property
    def any(self) -> bool:
        return self._count > 0

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGINT, self._interrupted)
        return self

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count > 2:
            raise KeyboardInterrupt
        if self._stops and self._count == 1:
            self._say(self.first_says)
