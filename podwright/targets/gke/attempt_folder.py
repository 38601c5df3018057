"""What the directory of an attempt says of it on this machine, and what is kept there of what the cluster has shown."""

from __future__ import annotations

import time
from pathlib import Path

from podwright.errors import counted
from podwright.failures.match import last_line
from podwright.rundir import Record, read_json, write_json
from podwright.targets import clock
from podwright.targets.gke import pod_failures, submit
from podwright.targets.gke.cluster_view import seconds
from podwright.targets.gke.pod_failures import PodFailure

ENDED = "ended.json"
STOP = "stop"
"""by which submit.py knows that a stop is wanted"""
FAILURES = "failures.json"
NODES = "nodes.json"
"""by the uids of its pods, the nodes of the attempt"""
SUBMITTED = "submitted"
SEEN = "seen"
"""changed whenever the JobSet is seen that has not ended"""
MISSING = "missing"
"""created when pods are first seen to be missing after a process has begun; deleted when none is"""


def submitted_s(folder: Path) -> float:
    """Unix seconds when the attempt was handed to submit.py; of one that another machine has submitted, when this one first looked."""
    mark = folder / SUBMITTED
    if not mark.exists():
        clock.mark(mark)
    return clock.marked(mark)


def began_s(log: Path) -> float:
    """Unix seconds when the first process began, by its log; infinite before."""
    if not log.exists():
        return float("inf")
    with log.open("rb") as f:
        stamp = f.readline().partition(b" ")[0].decode(errors="replace")
    began = seconds(stamp)
    return began if began < float("inf") else time.time()


def missing_since(folder: Path, *, any_missing: bool) -> float:
    """Unix seconds since when pods have been missing, for whichever launchers looked; infinite where none is."""
    mark = folder / MISSING
    if not any_missing:
        mark.unlink(missing_ok=True)
        return float("inf")
    if not mark.exists():
        clock.mark(mark)
    return clock.marked(mark)


def ending(folder: Path, jobset: str, num_pods: int) -> str:
    """Of an attempt whose JobSet is gone and whose pods are being ended; "" after a stop."""
    if (folder / STOP).exists():
        return ""
    return f"Ending: JobSet {jobset} was deleted on the cluster; {counted(num_pods, 'pod')} of the attempt still there"


def remembered(folder: Path, seen: dict[str, PodFailure]) -> dict[str, PodFailure]:
    """With the failures of earlier polls: pods are deleted with their nodes."""
    before = pod_failures.from_records(read_json(folder / FAILURES))
    known = before | {
        uid: failure
        for uid, failure in seen.items()
        if uid not in before or (before[uid].ending is None and before[uid] != failure)
    }
    if known != before:
        write_json(folder / FAILURES, pod_failures.to_records(known))
    return known


def keep(path: Path, record: Record) -> None:
    """Add `record` to that of a file, which is written where that changes it."""
    before = read_json(path)
    if not before.items() >= record.items():
        write_json(path, before | record)


def submitting(folder: Path) -> str:
    """What the last call of submit.py came to."""
    answers = folder / "submit.txt"
    last = last_line(answers.read_text(errors="replace")) if answers.exists() else ""
    return f"Submitting: {last or 'kubectl has not answered yet'}"


def never_sent(folder: Path) -> bool:
    """Whether the cluster has certainly taken nothing."""
    return read_json(folder / submit.RESULT).get("sent") is False
