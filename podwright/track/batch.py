"""What a tracker has not been sent yet: rows by stage, the ending, the report; and the cursor that remembers it."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

from podwright.counted_steps import WARM_START, read_steps
from podwright.errors import UserError
from podwright.run.journal import fold
from podwright.rundir import Record, RunDir, flat, main_stage, read_events, read_jsonl, write_json

NOT_FIGURES = ("stage", "step", "time", "attempt", "event")


@dataclasses.dataclass(frozen=True)
class Row:
    stage: str
    """prefix of the figures' names: warm_start, grpo or evaluation"""
    step: int
    time: float
    figures: dict[str, float]


@dataclasses.dataclass(frozen=True)
class MetricBatch:
    rows: list[Row]
    recipe: dict[str, Any]
    ending: str | None
    """how the run ended; None while it runs"""
    ending_is_new: bool
    report: Path | None
    """the report's directory if it was written since the last time"""
    state: dict[str, Any]
    """what the tracker itself remembers of this run; it may change it"""
    cursor: dict[str, Any]
    """what is sent once this batch is"""
    name: str
    """of the cursor's file"""
    failure: str
    """what went wrong the last time; "" for nothing"""
    failed_at: float
    """when, in seconds since 1970"""

    @property
    def empty(self) -> bool:
        return not (self.rows or self.ending_is_new or self.report)


def pending(run: RunDir, name: str) -> MetricBatch:
    """`name`: of the tracker, and of the server if it has several."""
    before = _cursor(run, name)
    sent = before.get("sent", {})
    recipe = json.loads(run.recipe.read_text())
    rows = [row for row in _rows(run, main_stage(recipe)) if row.step > sent.get(row.stage, -1)]
    ending, result = fold(read_jsonl(run.journal)).ending, run.report / "result.json"
    written = result.stat().st_mtime_ns if result.is_file() else None
    return MetricBatch(
        rows=rows,
        recipe=recipe,
        ending=ending,
        ending_is_new=ending != before.get("ending"),
        report=run.report if written != before.get("report") else None,
        state=before.get("state", {}),
        cursor={"sent": sent | {row.stage: row.step for row in rows}, "ending": ending, "report": written},
        name=name,
        failure=before.get("failure", ""),
        failed_at=before.get("failed_at", 0.0),
    )


def done(run: RunDir, batch: MetricBatch) -> None:
    write_json(run.trackers / f"{batch.name}.json", batch.cursor | {"state": batch.state})


def remember(run: RunDir, batch: MetricBatch) -> None:
    """Keep the tracker's own state before anything is sent, so that a kill in between does not start a second run there."""
    write_json(run.trackers / f"{batch.name}.json", _cursor(run, batch.name) | {"state": batch.state})


def failed(run: RunDir, name: str, failure: str) -> None:
    """Keep what went wrong until something is sent."""
    write_json(run.trackers / f"{name}.json", _cursor(run, name) | {"failure": failure, "failed_at": time.time()})


def mlflow_database(runs: Path) -> Path:
    return runs / "mlflow.db"


def _cursor(run: RunDir, tracker: str) -> dict[str, Any]:
    """What `done` wrote. UserError where it is damaged: what the tracker has is not known."""
    path = run.trackers / f"{tracker}.json"
    if not path.is_file():
        return {}
    try:
        cursor = json.loads(path.read_text())
        if all(isinstance(cursor.get(key, {}), dict) for key in ("sent", "state")):
            return dict(cursor)
    except (ValueError, AttributeError, RecursionError):
        pass
    raise UserError(
        f"{path} is damaged",
        "restore it from a copy, or delete it: all figures are then sent to a new run there",
        "damaged-file",
    )


def _rows(run: RunDir, main: str) -> list[Row]:
    """All steps and tests, each stage in the order of its steps."""
    rows = [_row(stage, record) for stage in (WARM_START, main) for record in read_steps(run, stage)]
    tests = {e["step"]: e for e in read_events(run.events, "evaluation")}
    return rows + [_row("evaluation", flat(tests[step])) for step in sorted(tests)]


def _row(stage: str, record: Record) -> Row:
    figures = {
        name.replace(".", "/"): float(value)
        for name, value in record.items()
        if name not in NOT_FIGURES and isinstance(value, int | float) and not isinstance(value, bool)
    }
    return Row(stage, record["step"], record["time"] or 0.0, figures)
