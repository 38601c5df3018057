"""Which steps of a run count after a resume: the one rule for live views, reports, trackers and trainers of all kinds.

An attempt goes back to a checkpoint, or to the first step where there is none. The steps behind that point were trained to weights that are
gone, so they do not count, whether or not the attempt has computed them again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from podwright.rundir import Record, RunDir, is_metric, read_events, read_jsonl

WARM_START = "warm_start"
"""the stage before the main one, where there is one: a resume in it is one before the first step of the main stage"""


class _Return(NamedTuple):
    """An attempt that went back to `step`."""

    attempt: int
    step: int
    time: float | None = None
    """of the event `resumed`, which also undoes earlier steps of its own attempt: a job that its cluster queued again; None where the first
    step of the attempt shows that it went back"""

    def undoes(self, record: Record) -> bool:
        attempt, time = attempt_of(record), record["time"]
        if record["step"] <= self.step or attempt > self.attempt:
            return False
        return attempt < self.attempt or (self.time is not None and time is not None and time <= self.time)


class CountedSteps:
    """The steps that count, record by record.

    Steps have the order of their file; the events may be added before, between or behind them.
    """

    def __init__(self, main: str):
        """`main`: the stage of events that name none."""
        self._main = main
        self._steps: dict[str, dict[int, Record]] = {}
        self._returns: dict[str, dict[tuple[int, float | None], _Return]] = {}
        """by stage, and there by attempt and time: the one that went back furthest"""
        self._last: dict[tuple[str, int], int] = {}
        """by stage and attempt: the step that it logged last"""

    def add(self, record: Record) -> bool:
        """Whether a step counts for now: one that a log brought late may be undone already."""
        stage, attempt, step = record["stage"], attempt_of(record), record["step"]
        last = self._last.get((stage, attempt))
        self._last[stage, attempt] = step
        if last is None or step <= last:
            self._go_back(stage, _Return(attempt, step - 1))
        if last is not None and step <= last:  # its process was started a second time
            kept = {n: r for n, r in self._steps[stage].items() if n < step or attempt_of(r) != attempt}
            self._steps[stage] = kept
        if any(back.undoes(record) for back in self._returns[stage].values()):
            return False
        self._steps[stage][step] = record
        return True

    def resume(self, event: Record) -> None:
        """Take an event `resumed`."""
        stage = event.get("stage") or self._main
        self._go_back(stage, _Return(attempt_of(event), event["step"], event["time"]))
        if stage == WARM_START != self._main:
            self._go_back(self._main, _Return(attempt_of(event), 0, event["time"]))

    def _go_back(self, stage: str, back: _Return) -> None:
        returns = self._returns.setdefault(stage, {})
        key = back.attempt, back.time
        if key not in returns or back.step < returns[key].step:
            returns[key] = back
        self._steps[stage] = {n: r for n, r in self._steps.get(stage, {}).items() if not back.undoes(r)}

    def of(self, stage: str) -> list[Record]:
        """The steps of a stage in order."""
        steps = self._steps.get(stage, {})
        return [steps[n] for n in sorted(steps)]

    def is_undone_test(self, evaluation: Record) -> bool:
        """Whether a later attempt resumed from a checkpoint before this evaluation."""
        step = evaluation.get("step")
        return isinstance(step, int) and any(
            back.time is not None and back.attempt > attempt_of(evaluation) and back.step < step
            for back in self._returns.get(self._main, {}).values()
        )


def counted(metrics: Iterable[Record], events: Iterable[Record], main: str) -> CountedSteps:
    """Of the records of metrics.jsonl and events.jsonl."""
    steps = CountedSteps(main)
    for event in events:
        if event["event"] == "resumed":
            steps.resume(event)
    for record in metrics:
        steps.add(record)
    return steps


def read_steps(run: RunDir, stage: str) -> list[Record]:
    """The steps of a stage that count, by the files of the run. An event that names no stage is of the main one."""
    main = "" if stage == WARM_START else stage
    return counted(filter(is_metric, read_jsonl(run.metrics)), read_events(run.events), main).of(stage)


def attempt_of(record: Record) -> int:
    """Of a record without an attempt: the first one."""
    number: Any = record.get("attempt")
    return number if isinstance(number, int) else 1
