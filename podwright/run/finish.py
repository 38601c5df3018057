"""What is done with a run's results: mirror them to trackers, write the report. A fault here never changes how a run ended."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from podwright.rundir import RunDir

MIRROR_EVERY_S = 5.0


class Mirror:
    """Copies new figures to the trackers that the recipe names; says so once when that fails."""

    def __init__(self, run: RunDir, warn: Callable[[str], None]):
        self._run = run
        self._warn = warn
        self._recipe = json.loads(run.recipe.read_text())
        self._next = 0.0
        self._warned = False

    def __call__(self, last: bool = False) -> None:
        if not self._recipe.get("trackers") or (not last and time.monotonic() < self._next):
            return
        try:
            from podwright import track

            track.mirror(self._run, self._recipe)
        except Exception as e:  # a tracker is somebody else's code and server
            if not self._warned:
                self._warn(f"trackers are behind: {type(e).__name__}: {e}")
            self._warned = True
        self._next = time.monotonic() + MIRROR_EVERY_S


def write_report(run: RunDir) -> str | None:
    """Write the report; what went wrong, or None."""
    try:
        from podwright.report import page

        page.write(run, None)
    except Exception as e:  # the run is over and its ending is written down
        return f"{type(e).__name__}: {e}"
    return None
