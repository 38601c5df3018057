"""What the records of a MaxText run say: the steps that count as columns, the starts of its process, and what is noted of its logs."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

from podwright.report.records import Records, column
from podwright.rundir import Record
from podwright.watch import maxtext_log
from podwright.watch.maxtext_lines import FIGURES, SetUp
from podwright.watch.maxtext_log import LogEnd, LogState

_NOT_FIGURES = {"stage", "step", "time", "attempt", "start", "ramp_up", "profiler_switched", *FIGURES.values()}


class StepColumns:
    """The steps that count, in order: a row each. What a step does not have is NaN."""

    def __init__(self, steps: list[Record]):
        self.step: list[int] = [s["step"] for s in steps]
        self.seconds = _column(steps, "step_s")
        self.tflops = _column(steps, "tflops_per_device")
        self.tokens = _column(steps, "tokens_per_s_per_device")
        self.weights = _column(steps, "total_weights")
        self.loss = _column(steps, "loss")
        self.ramp_up = {row for row, s in enumerate(steps) if s.get("ramp_up")}
        self.hidden = {row for row, s in enumerate(steps) if s.get("profiler_switched")}
        """logged without their seconds, because the profiler was switched there"""
        self._starts = [_start(s) for s in steps]
        firsts = [row for row, start in enumerate(self._starts) if row == 0 or start != self._starts[row - 1]]
        self.groups = [range(a, b) for a, b in itertools.pairwise([*firsts, len(steps)])]
        """the rows of each start of the process"""

    def __len__(self) -> int:
        return len(self.step)

    def group_of(self, row: int) -> range:
        """The rows of the start that a row is of."""
        return self.groups[bisect.bisect_right(self.groups, row, key=lambda rows: rows.start) - 1]

    def row_behind(self, event: Record) -> int | None:
        """The row behind the step that was logged before an event; None where that step does not count."""
        start = _start(event)
        if event["step"] < 0:
            return next((rows.start for rows in self.groups if self._starts[rows.start][0] == start[0]), None)
        row = bisect.bisect_left(self.step, event["step"])
        counts = self.step[row : row + 1] == [event["step"]] and self._starts[row] == start
        return row + 1 if counts else None


@dataclasses.dataclass(frozen=True)
class LoggedRun:
    steps: StepColumns
    records: list[Record]
    """the same as they stand in metrics.jsonl"""
    num_logged: int
    """with the steps that do not count"""
    first: Record
    """the step that was logged first"""
    starts: list[Record]
    """of the process: {number, attempt, first_step, last_step, started, ended}, with steps that do not count"""
    profiler_rows: list[int]
    """the rows behind which the profiler reported its start or its end"""
    evaluations: list[Record]
    known: SetUp
    more: dict[str, float]
    """the further figures of the last step: lm_loss, perplexity, moe_lb_loss ..."""
    states: list[LogState]
    """of the logs"""
    path: Path
    """of the last log"""
    end: LogEnd

    @property
    def last(self) -> LogState:
        return self.states[-1]

    @property
    def not_finite(self) -> int | None:
        """The first step whose loss was NaN or infinite."""
        return next((state.not_finite for state in self.states if state.not_finite is not None), None)

    @property
    def times(self) -> list[float]:
        """The first and the last of each log, where its lines have times."""
        both = [time for state in self.states for time in (state.first_time, state.last_time)]
        return [time for time in both if time is not None]


def of(records: Records) -> LoggedRun | None:
    """Of the logs that the run has; None without one."""
    run = records.run
    steps = records.steps()
    numbers = [a.number for a in records.attempts if run.log(a.number).exists()]
    if not numbers:
        return None
    logged = sorted((r for r in records.metrics if r["stage"] == records.main), key=_start)  # one may be brought late
    states = [maxtext_log.state_at_end(run, number) for number in numbers]
    columns = StepColumns(steps)
    return LoggedRun(
        steps=columns,
        records=steps,
        num_logged=len(logged),
        first=logged[0] if logged else {},
        starts=list(_starts(logged)),
        profiler_rows=[row for e in records.named(maxtext_log.PROFILER) if (row := columns.row_behind(e)) is not None],
        evaluations=_evaluations(records),
        known=reduce(_merged, (state.known for state in states)),
        more={name: value for name, value in logged[-1].items() if name not in _NOT_FIGURES} if logged else {},
        states=states,
        path=run.log(numbers[-1]),
        end=maxtext_log.end_of(run.log(numbers[-1]), states[-1].start_at),
    )


def _column(steps: list[Record], figure: str) -> list[float]:
    return [math.nan if value is None else value for value in column(steps, figure)]


def _start(record: Record) -> tuple[int, int]:
    """The attempt of a record, and which start of its process it is of."""
    return record["attempt"], max(1, record.get("start", 1))


def _starts(logged: list[Record]) -> Iterator[Record]:
    for count, (_, group) in enumerate(itertools.groupby(logged, _start), 1):
        steps = list(group)
        yield {
            "number": count,
            "attempt": steps[0]["attempt"],
            "first_step": steps[0]["step"],
            "last_step": steps[-1]["step"],
            "started": steps[0]["time"],
            "ended": steps[-1]["time"],
        }


def _evaluations(records: Records) -> list[Record]:
    """In the order of their steps; of two of the same step the later one."""
    newest = {event["step"]: event for event in records.named(maxtext_log.EVALUATION)}
    about = ("event", "time", "attempt")
    figures = []
    for step in sorted(newest):
        event = newest[step]
        figures.append({key: value for key, value in event.items() if key not in about})
    return figures


def _merged(earlier: SetUp, later: SetUp) -> SetUp:
    """What both say, the later one first; how the process ended is said by the later one alone."""
    values = {name: value for name, value in vars(earlier).items() if name not in ("exit_code", "stopped")}
    values |= {name: value for name, value in vars(later).items() if value not in (None, {}, [])}
    used = [known.memory_used_gib for known in (earlier, later) if known.memory_used_gib is not None]
    values |= {"memory_used_gib": max(used, default=None)}
    values |= {"settings": earlier.settings | later.settings, "versions": earlier.versions | later.versions}
    return SetUp(**values)


def not_a_log(log: LoggedRun | None, path: str) -> tuple[str, str]:
    """Why there is nothing to report of a log without steps, and what to do."""
    what = f"{'standard input' if path == '-' else path} has no completed step"
    fix = "give the log of a training process of MaxText: its lines say completed step: N, seconds: S, ..."
    if log is None:
        return what, fix
    if log.end.failures:
        return f"{what}: {log.end.failures[0]['cause']}", "type podwright diagnose with that log"
    damaged = log.last.damaged_example or log.last.cut
    return f"{what} that can be read: {damaged!r}" if damaged else what, fix
