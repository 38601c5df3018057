"""What is done with a run's figures: mirror them to trackers, write the report. A fault here never changes how a run ended."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from podwright.run.mirror import bring
from podwright.rundir import RunDir

MIRROR_EVERY_S = 5.0


class Mirror:
    """Brings new records from the run's storage and copies new figures to the trackers that the recipe names; says each thing
    that goes wrong once."""

    def __init__(self, run: RunDir, warn: Callable[[str], None]):
        self._run = run
        self._warn = warn
        self._trackers = json.loads(run.recipe.read_text()).get("trackers", [])
        self._next = 0.0
        self._said: set[str] = set()

    def __call__(self, last: bool = False) -> None:
        if not last and time.monotonic() < self._next:
            return
        trouble = bring(self._run)
        for warning in [
            *([trouble] if trouble else []),
            *(_mirror(self._run, self._trackers) if self._trackers else []),
        ]:
            if warning not in self._said:
                self._said.add(warning)
                self._warn(warning)
        self._next = time.monotonic() + MIRROR_EVERY_S


def _mirror(run: RunDir, trackers: list[str]) -> list[str]:
    try:
        from podwright import track

        return track.mirror(run, trackers)
    except Exception as e:  # a tracker is somebody else's code and server
        return [f"trackers are behind: {type(e).__name__}: {e}"]


def write_report(run: RunDir) -> str | None:
    """Write the report on all that is in the run's storage; what went wrong, or None."""
    bring(run)  # what stands in the way is said by the mirror
    try:
        from podwright.report import page

        page.write(run, None)
    except Exception as e:  # the run is over and its ending is written down
        return f"{type(e).__name__}: {e}"
    return None
