"""How an attempt ended: by what the trainer wrote last, else by how its process died and what the log says."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import dataclass
from typing import Any

from podwright.rundir import Ending, RunDir

_TAIL_BYTES = 16_384
_DISK_FULL = re.compile(r"No space left on device|disk quota exceeded", re.IGNORECASE)  # tensorstore calls this RESOURCE_EXHAUSTED too
_OUT_OF_MEMORY = re.compile(r"RESOURCE_EXHAUSTED|out of memory|MemoryError|std::bad_alloc", re.IGNORECASE)
# What jax says before it ends a process because another one of the run no longer answers.
_PEER_GONE = re.compile(r"JAX distributed service detected fatal errors|stopped sending heartbeats")


@dataclass(frozen=True)
class Outcome:
    ending: Ending
    detail: str
    fix: str = ""
    step: int | None = None


def outcome(run: RunDir, attempt: int, returncode: int | None, stop_wanted: bool) -> Outcome:
    return _written(run, attempt) or _dead(_log_tail(run, attempt), returncode, stop_wanted)


def _written(run: RunDir, attempt: int) -> Outcome | None:
    try:
        path = run.exit(attempt)
        record: dict[str, Any] = (json.loads(path.read_text()) if path.exists() else run.fault_elsewhere(attempt)) or {}
        return Outcome(Ending(record["ending"]), record["detail"], record.get("fix", ""), record.get("step"))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _dead(log: str, returncode: int | None, stop_wanted: bool) -> Outcome:
    """An attempt whose trainer wrote no exit.json."""
    last = next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "")
    how = _how(returncode)
    disk_full = [line.strip() for line in log.splitlines() if _DISK_FULL.search(line)]
    out_of_memory = [line.strip() for line in log.splitlines() if _OUT_OF_MEMORY.search(line) and not _DISK_FULL.search(line)]
    if stop_wanted and returncode in (None, -signal.SIGTERM, -signal.SIGKILL):
        return Outcome(Ending.STOPPED, f"stopped before the trainer could save ({how})")
    if disk_full:
        return Outcome(Ending.CRASHED, f"a disk is full: {disk_full[-1][-200:]}", "free some space, then resume the run")
    if out_of_memory:
        return Outcome(Ending.OUT_OF_MEMORY, out_of_memory[-1])
    if _PEER_GONE.search(log):
        return Outcome(Ending.CRASHED, f"another process of the run is gone or no longer answers ({how})")
    if returncode == -signal.SIGKILL:
        return Outcome(
            Ending.UNKNOWN,
            f"{how}: by a person, or by the kernel when memory ran out",
            "if `dmesg` says oom-kill, use a smaller batch_size",
        )
    if returncode is None and "Traceback" not in log:
        return Outcome(
            Ending.UNKNOWN, f"the trainer ended without a word; its log ends with: {last}" if last else "the trainer left no sign"
        )
    return Outcome(Ending.CRASHED, f"{last or 'no output'} ({how})")


def _how(returncode: int | None) -> str:
    if returncode is None:
        return "exit code not known"
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"


def _log_tail(run: RunDir, attempt: int) -> str:
    path = run.log(attempt)
    if not path.exists():
        return ""
    with path.open("rb") as f:
        f.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return f.read().decode(errors="replace")
