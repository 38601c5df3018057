"""What every target's handles have in common: the run and the number of the attempt, and the logs of its processes."""

from __future__ import annotations

from pathlib import Path

from podwright.errors import UserError
from podwright.rundir import RunDir
from podwright.targets.base import Handle


def attempt_of(handle: Handle) -> tuple[RunDir, int]:
    return RunDir(Path(handle["run_dir"])), handle["attempt"]


def log_since(handle: Handle, since: int, process: int) -> tuple[str, int]:
    """As `Target.logs`; UserError for a number that no process of the attempt has."""
    run, number = attempt_of(handle)
    if process >= (count := handle["processes"]):
        what = f"--process {process}: attempt {number} of {run.name} has {count} process{'es' if count > 1 else ''}"
        raise UserError(what, f"type a number from 0 to {count - 1}" if count > 1 else "leave --process out")
    return run.log_since(number, since, process)
