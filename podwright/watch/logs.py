"""The log of an attempt, once or as it grows."""

from __future__ import annotations

import time
from collections.abc import Iterator

from podwright.targets.base import Handle, Process, Target
from podwright.targets.handles import log_since
from podwright.targets.polling import Poller

_POLL_S = 0.3


def read(target: Target, handle: Handle, follow: bool = False, process: int = 0) -> Iterator[str]:
    """Pieces of text; with `follow`, until the attempt has ended."""
    since = 0
    poller = Poller(target)
    while True:
        # First, so that the text has what a process wrote before its end, and what hosts have that share no folder with this machine.
        asks = follow or target.traits.ships_files
        alive = asks and poller.poll(handle).process is Process.RUNNING
        text, since = log_since(handle, since, process)
        if text:
            yield text
        if not (follow and alive):
            return
        time.sleep(_POLL_S)
