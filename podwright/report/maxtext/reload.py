"""The write-up of a log read back from its directory, so that it is compared as a run is."""

from __future__ import annotations

import json
from pathlib import Path

from podwright.errors import UserError
from podwright.report.maxtext.figures import STAGE
from podwright.report.maxtext.pages import RESULT, STEPS
from podwright.report.records import Records, Result
from podwright.rundir import read_jsonl


def is_report(folder: Path) -> bool:
    """Whether `podwright report --log` wrote this directory."""
    try:
        r = json.loads((folder / RESULT).read_text())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(r, dict) and r.get("kind") == STAGE and "log" in r


def load(folder: Path) -> tuple[Records, Result]:
    """UserError where the files of the directory are damaged."""
    r = json.loads((folder / RESULT).read_text())
    steps = [s for s in read_jsonl(folder / STEPS) if isinstance(s.get("step"), int)]
    settings = r.get("settings")
    if not isinstance(settings, dict) or not isinstance(r.get("environment"), dict):
        fix = "write it again with podwright report --log"
        raise UserError(f"{folder / RESULT} is damaged or of another version", fix)
    raw = settings | {"name": r.get("name")}
    return Records(str(r.get("name")), raw, None, {STAGE: steps}, [], [], [], [], []), r
