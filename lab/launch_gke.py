"""`podwright` that asks a simulated cluster more often than it may ask a real one, and waits less; lab/launcher.py says what else it does."""

import os
import sys

from lab import launcher
from podwright.cli.app import main
from podwright.run import act, allocations, decide, drive, mirror
from podwright.targets.gke import attempt_parts, intervention, pod_failures, target, waiting
from podwright.targets.settings import gke

if filling_s := os.environ.get("FILLING_S"):
    gke.place_patience_s = lambda *_: float(filling_s)
gke.LAG_S = float(os.environ.get("LAG_S", "1"))
gke.REPAIR_S = float(os.environ.get("REPAIR_S", gke.REPAIR_S))
gke.POLL_S, gke.START_GRACE_S, gke.GRACE_S = float(os.environ.get("POLL_S", "0.3")), 3.0, 6.0
pod_failures.STUCK_S = float(os.environ.get("STUCK_S", pod_failures.STUCK_S))
attempt_parts.RELEASE_LIMIT_S = float(os.environ.get("RELEASE_LIMIT_S", attempt_parts.RELEASE_LIMIT_S))
target.GATHER_LIMIT_S = float(os.environ.get("GATHER_LIMIT_S", target.GATHER_LIMIT_S))
waiting.QUEUE_S, waiting.PULL_S, intervention.CLOCKS_S = 1.0, 2.0, 1.0
decide.SILENT_STOP_S = float(os.environ.get("SILENT_STOP_S", decide.SILENT_STOP_S))
mirror.CHECK_EVERY_S = float(os.environ.get("CHECK_EVERY_S", mirror.CHECK_EVERY_S))
drive.TICK_S, drive.BARRED_S, act.MOST_BARRED = float(os.environ.get("TICK_S", "0.05")), 2.0, 1
due = allocations.due


def due_soon(count: int, last: float, now: float, first_s: float = 2.0, most_s: float = 300.0) -> bool:
    """A place that has refused is left alone for REST_S first."""
    return due(count, last, now, min(first_s, float(os.environ.get("REST_S", first_s))), most_s)


allocations.due = due_soon
launcher.prepare()

if __name__ == "__main__":
    sys.exit(main())
