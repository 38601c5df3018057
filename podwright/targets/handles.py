"""What every target's handles have in common: the run and the number of the attempt, and the logs of its processes."""

from __future__ import annotations

from pathlib import Path

from podwright.errors import UserError
from podwright.rundir import RunDir
from podwright.targets.base import Handle, Rendered


def attempt_of(handle: Handle) -> tuple[RunDir, int]:
    return RunDir(Path(handle["run_dir"])), handle["attempt"]


def folder_of(rendered: Rendered) -> Path:
    """Of a new attempt, created with its files."""
    run, number = attempt_of(rendered.handle)
    folder = run.attempt(number)
    folder.mkdir(parents=True)
    for path, text in rendered.files.items():
        path.write_text(text)
    return folder


def log_since(handle: Handle, since: int, process: int = 0) -> tuple[str, int]:
    """The log of a process from byte `since` on, as the last poll brought it, and where to go on from. UserError for a number that no process of
    the attempt has."""
    run, number = attempt_of(handle)
    count = handle.get("processes", 0)
    if process and (process >= count if count else not run.log(number, process).exists()):
        what = f"--process {process}: attempt {number} of {run.name} has no such process"
        fix = f"type a number from 0 to {count - 1}" if count > 1 else "leave --process out"
        raise UserError(what, fix, "no-such-process")
    return run.log_since(number, since, process)
