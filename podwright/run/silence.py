"""For how long nothing has been heard of the hosts of an attempt, by launchers one after the other or through the run's storage. It is kept in
a file of the attempt, and not in the journal: it is no decision, and changes with each look."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from podwright.run import journal
from podwright.rundir import Record, RunDir, read_json, write_json

PAUSE_S = 600.0
"""between two looks, after which hosts may have answered meanwhile"""


def silent_s(run: RunDir, attempt: int, silent: bool | None) -> float:
    """`silent`: whether no host answers now, which is written down; None where none was asked."""
    if silent is None:
        return known_s(run, attempt)
    path = _path(run, attempt)
    if not silent:
        path.unlink(missing_ok=True)
        return 0.0
    now = journal.now()
    began = _began(run, attempt)
    if not began:
        boot, uptime = journal.uptime()
        began = {"time": now, "boot": boot, "uptime": uptime, "heard_bytes": _heard_bytes(run)}
        write_json(path, began)
    with contextlib.suppress(FileNotFoundError):  # another launcher has just had an answer
        os.utime(path, (now, now))
    return _since(began)


def known_s(run: RunDir, attempt: int) -> float:
    """The same as launchers have written it down; 0 where they have not, or have looked away."""
    began = _began(run, attempt)
    return _since(began) if began else 0.0


def _path(run: RunDir, attempt: int) -> Path:
    return run.attempt(attempt) / "silence.json"


def _began(run: RunDir, attempt: int) -> Record:
    """{} where nobody has looked for long, or records have come since."""
    began = read_json(_path(run, attempt))
    try:
        looked = _path(run, attempt).stat().st_mtime
    except FileNotFoundError:
        return {}
    lasts = journal.now() - looked <= PAUSE_S and began.get("heard_bytes") == _heard_bytes(run)
    return began if lasts else {}


def _heard_bytes(run: RunDir) -> int:
    """Of the records of the run: hosts that this machine does not reach may write to the storage."""
    return sum(path.stat().st_size for path in (run.metrics, run.events) if path.exists())


def _since(began: Record) -> float:
    return journal.elapsed((began["boot"], began["uptime"]), began["time"])
