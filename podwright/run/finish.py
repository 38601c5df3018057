"""What is done with a run's figures: mirror them to trackers, write the report. A fault here never changes how a run ended."""

from __future__ import annotations

import time
from collections.abc import Callable

from podwright.recipe import kinds
from podwright.run.mirror import DrivenElsewhere, KeptRun, observes
from podwright.rundir import RunDir
from podwright.watch.metrics import recipe_if_readable

MIRROR_EVERY_S = 5.0
AFTER_A_FAILURE_S = 30.0


class Mirror:
    """Brings new records from the run's storage and copies new figures to the trackers that the recipe names; says each thing
    that goes wrong once."""

    def __init__(self, run: RunDir, warn: Callable[[str], None]):
        self._run = run
        self._warn = warn
        self._kept = KeptRun(run)
        recipe = recipe_if_readable(run)
        self._trackers = recipe.get("trackers", [])
        self._kind = str(recipe["kind"])
        self._next = 0.0
        self._warned: set[str] = set()

    def __call__(self, last: bool = False) -> None:
        """DrivenElsewhere when another machine has gone on with the run."""
        if not last and time.monotonic() < self._next:
            return
        failure = self._kept.bring()
        self.warn_once(failure)
        self.warn_once(bring_steps(self._run, self._kind))
        if self._trackers and not observes(self._run):  # a tracker gets a run from the machine that drives it
            for warning in _mirror(self._run, self._trackers):
                self.warn_once(warning)
        self._next = time.monotonic() + (AFTER_A_FAILURE_S if failure else MIRROR_EVERY_S)

    def bring_ended(self, attempt: int) -> None:
        """Bring what an attempt that has ended left in the storage, before its ending is judged."""
        try:
            self.warn_once(self._kept.bring(attempt))
        except DrivenElsewhere as e:  # the ending is written down all the same; the next act on machines is refused
            self.warn_once(f"{e.what}; {e.fix}")
        self.warn_once(bring_steps(self._run, self._kind))

    def publish(self) -> None:
        """Put the journal into the storage before anything is done about machines or attempts because of it. DrivenElsewhere when
        another machine has gone on with the run: both are that one's now. A storage that cannot be reached is only a warning, since
        attempts must be stopped and machines deleted all the same."""
        self.warn_once(self._kept.publish(always=True))

    def warn_once(self, warning: str) -> None:
        if warning and warning not in self._warned:
            self._warned.add(warning)
            self._warn(warning)


def bring_steps(run: RunDir, kind: str) -> str:
    """Bring new steps of a trainer that is not ours from its logs to metrics.jsonl; what went wrong, or ""."""
    row = kinds.KINDS.get(kind)
    if row and row.follow:
        try:
            kinds.resolve(row.follow)(run)
        except OSError as e:
            return f"steps of {run.name} cannot be brought to {run.metrics}: {e.strerror}"
    return ""


def _mirror(run: RunDir, trackers: list[str]) -> list[str]:
    try:
        from podwright import track

        return track.mirror(run, trackers)
    except Exception as e:  # a tracker is somebody else's code and server
        return [f"trackers are behind: {type(e).__name__}: {e}"]


def write_report(run: RunDir) -> str | None:
    """Write the report; what went wrong, or None."""
    try:
        from podwright.report import page

        page.write(run, None)
    except Exception as e:  # the run is over and its ending is written down
        return f"{type(e).__name__}: {e}"
    return None
