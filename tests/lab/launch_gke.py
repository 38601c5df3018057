"""`podwright` that asks a simulated cluster more often than it may ask a real one, and waits less. LAUNCH_DIES=before:EVENT or after:EVENT kills
it with SIGKILL around writing that event to the journal."""

import os
import signal
import sys
from typing import Any

from podwright.cli.app import main
from podwright.run import drive, journal
from podwright.rundir import RunDir
from podwright.targets.gke import intervention, waiting
from podwright.targets.settings import gke

if filling_s := os.environ.get("FILLING_S"):
    gke.GkeSettings.filling_s = property(lambda _: float(filling_s))  # type: ignore[assignment]
gke.LAG_S = float(os.environ.get("LAG_S", "1"))
gke.POLL_S, gke.START_GRACE_S, gke.GRACE_S = float(os.environ.get("POLL_S", "0.3")), 3.0, 6.0
waiting.QUEUE_S, waiting.PULL_S, intervention.CLOCKS_S = 1.0, 2.0, 1.0
drive.TICK_S = 0.05
append = journal.append


def dying(run: RunDir, event: str, **fields: Any) -> None:
    when, _, name = os.environ.get("LAUNCH_DIES", "").partition(":")
    if (when, name) == ("before", event):
        os.kill(os.getpid(), signal.SIGKILL)
    append(run, event, **fields)
    if (when, name) == ("after", event):
        os.kill(os.getpid(), signal.SIGKILL)


journal.append = dying

if __name__ == "__main__":
    sys.exit(main())
