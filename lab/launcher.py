"""What a test has a `podwright` of the lab do that the product does not: die at a line of its journal, see another clock, wait less.

LAUNCH_DIES=before:EVENT,after:EVENT,... kills it with SIGKILL around writing such an event to the journal, and its last line names the moment.
LAUNCH_CLOCK names a file with the seconds by which the clock of this machine is off for it. LAUNCH_LIMITS is JSON: {"podwright.run.drive.BARRED_S": 4}.
"""

import importlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from podwright.run import journal
from podwright.rundir import RunDir
from podwright.targets import clock

append, clock_time = journal.append, time.time


def prepare() -> None:
    """As the environment says."""
    for name, value in json.loads(os.environ.get("LAUNCH_LIMITS", "{}")).items():
        module, _, limit = name.rpartition(".")
        assert hasattr(importlib.import_module(module), limit), f"there is no {name}"
        setattr(importlib.import_module(module), limit, value)
    if path := os.environ.get("LAUNCH_CLOCK"):
        time.time = lambda: clock_time() + offset(Path(path))
        clock._BEGAN = time.time() - time.monotonic()
    journal.append = dying


def offset(path: Path) -> float:
    """By which somebody has set the clock forward, in seconds."""
    try:
        return float(path.read_text() or 0)
    except FileNotFoundError:
        return 0.0


def dying(run: RunDir, event: str, **fields: Any) -> None:
    die_at(f"before:{event}")
    append(run, event, **fields)
    die_at(f"after:{event}")


def die_at(moment: str) -> None:
    if moment in os.environ.get("LAUNCH_DIES", "").split(","):
        os.write(1, f"dies {moment}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)
