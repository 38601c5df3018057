"""`podwright` with the stand-in for a trainer, as a process of its own.

LAUNCH_DIES=before:EVENT or after:EVENT kills it with SIGKILL around writing that event to the journal.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from podwright.cli.app import main
from podwright.run import decide, drive, journal
from podwright.rundir import RunDir
from podwright.targets import local, slurm

local.TRAINER = (sys.executable, str(Path(__file__).with_name("standin.py")))

drive.POLL_S = 0.05
slurm.ASK_EVERY_S = 0.2
decide.START_GRACE_S = 1.0

append = journal.append
when, _, fatal = os.environ.get("LAUNCH_DIES", "").partition(":")


def append_or_die(run: RunDir, event: str, **fields: Any) -> None:
    if (when, fatal) == ("before", event):
        os.kill(os.getpid(), signal.SIGKILL)
    append(run, event, **fields)
    if (when, fatal) == ("after", event):
        os.kill(os.getpid(), signal.SIGKILL)


journal.append = append_or_die

sys.exit(main())
