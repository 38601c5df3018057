"""What a run has measured so far, read on from where the last look ended: stage, step, time left, latest figures."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from podwright.counted_steps import CountedSteps
from podwright.errors import UserError
from podwright.recipe.kinds import KINDS
from podwright.rundir import Record, RunDir, is_event, is_metric, main_stage, parse_record, planned_steps, recipe_of

_RECENT = 20  # steps that the time left is estimated from


class Tail:
    """The whole records of a JSONL file that are new since the last call, and how many of its lines are none by `is_record`."""

    def __init__(self, path: Path, is_record: Callable[[Record], bool] = lambda record: True):
        self.path = path
        self._is_record = is_record
        self._offset = 0
        self._lines = self._damaged = 0
        self._unterminated = False

    def new(self) -> list[Record]:
        if not self.path.exists():
            return []
        with self.path.open("rb") as f:
            f.seek(self._offset)
            data = f.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete)
        self._unterminated = len(complete) < len(data)
        lines = [line for line in complete.splitlines() if line.strip()]
        records = []
        for line in lines:
            record = parse_record(line)
            if record is not None and self._is_record(record):
                records.append(record)
        self._lines += len(lines)
        self._damaged += len(lines) - len(records)
        return records

    def damage(self, ended: bool) -> str:
        """How many lines are no records; "" for none. `ended`: a last line without its end is not being written, but cut off."""
        cut = int(ended and self._unterminated)
        number, lines = self._damaged + cut, self._lines + cut
        return f"lines that cannot be read: {number} of {lines}" if number else ""


def samples_of(run: RunDir) -> Tail:
    return Tail(run.samples, lambda record: {"when", "question"} <= record.keys())


def recipe_if_readable(run: RunDir) -> Record:
    """recipe.json; where it is damaged, a recipe that says nothing, for what must be done all the same."""
    try:
        return recipe_of(run)
    except UserError:
        return {"kind": "unknown", "training": {"max_steps": 0}}


class Progress:
    """Figures of one run. `update()` reads what is new and returns it."""

    def __init__(self, run: RunDir, recipe: dict[str, Any]):
        self.metrics = Tail(run.metrics, is_metric)
        self.events = Tail(run.events, is_event)
        warm_start = recipe.get("warm_start") or {}
        self.main = main_stage(recipe)
        """the stage whose steps are the steps of the run"""
        self._max_steps = {"warm_start": warm_start.get("max_steps", 0), self.main: planned_steps(recipe)}
        self.steps = CountedSteps(self.main)
        kind = KINDS.get(self.main)
        self._first_step = kind.first_step if kind else 1
        self.stage = ""
        """stage of the newest step"""
        self.phase = ""
        """what the trainer says it is doing"""
        self.notices: list[str] = []
        self.evaluations: list[Record] = []

    def update(self) -> tuple[list[Record], list[Record]]:
        """New metrics and new events."""
        metrics, events = self.metrics.new(), self.events.new()
        for event in events:
            self._take(event)
        for step in metrics:
            if self.steps.add(step):
                self.stage = step["stage"]
        return metrics, events

    def _take(self, event: Record) -> None:
        kind = event.get("event")
        if kind == "phase":
            self.phase = event["phase"]
        elif kind == "environment" and event.get("max_steps"):
            # where a recipe counts in epochs, the trainer knows the steps
            self._max_steps[self.main] = event["max_steps"]
        elif kind == "notice":
            self.notices.append(event["message"])
        elif kind == "evaluation":
            self.evaluations.append(event)
        elif kind == "resumed":
            self.steps.resume(event)

    @property
    def latest(self) -> Record:
        """The newest step of the stage, or an empty record."""
        steps = self.steps.of(self.stage)
        return steps[-1] if steps else {}

    def count(self, step: Record) -> int:
        """How many steps of its stage are done with that one."""
        return int(step["step"]) + 1 - (self._first_step if step["stage"] == self.main else 1)

    def step_of(self, stage: str) -> int:
        """How many steps of `stage` are done."""
        steps = self.steps.of(stage)
        return self.count(steps[-1]) if steps else 0

    @property
    def step(self) -> int:
        return self.step_of(self.stage)

    @property
    def max_steps(self) -> int:
        return self.total(self.stage)

    def total(self, stage: str) -> int:
        """Steps that `stage` takes in all."""
        return self._max_steps.get(stage, 0)

    @property
    def eta_s(self) -> float | None:
        """Seconds until the stage is through, by the median of its recent steps that compiled nothing; None when that is not known."""
        recent = self.steps.of(self.stage)[-_RECENT:]
        times = []
        for before, step in itertools.pairwise(recent):
            is_timed = before["time"] is not None and step["time"] is not None
            if is_timed and not step.get("compiled") and before.get("attempt") == step.get("attempt"):
                times.append(step["time"] - before["time"])
        left = self.max_steps - self.step
        return left * statistics.median(times) if times and left > 0 else None
