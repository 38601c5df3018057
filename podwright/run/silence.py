"""For how long no host of an attempt has answered its launchers, one after the other. It is kept in a file of the attempt, and not in the
journal: it is no decision, and changes with each look."""

from __future__ import annotations

import contextlib
import json
import os

from podwright.run import journal
from podwright.rundir import Record, RunDir, write_json

PAUSE_S = 600.0
"""between two looks, after which hosts may have answered meanwhile"""


def silent_s(run: RunDir, attempt: int, *, silent: bool) -> float:
    """`silent`: whether no host answers now, which is written down."""
    path = run.attempt(attempt) / "silence.json"
    if not silent:
        path.unlink(missing_ok=True)
        return 0.0
    now = journal.now()
    try:
        began: Record = json.loads(path.read_text())
        looked = path.stat().st_mtime
    except (FileNotFoundError, ValueError):
        began, looked = {}, 0.0
    if not began or now - looked > PAUSE_S:
        boot, uptime = journal.uptime()
        began = {"time": now, "boot": boot, "uptime": uptime}
        write_json(path, began)
    with contextlib.suppress(FileNotFoundError):  # another launcher has just had an answer
        os.utime(path, (now, now))
    return journal.elapsed((began["boot"], began["uptime"]), began["time"])
