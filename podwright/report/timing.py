"""How fast a run was and where its time went: steady-state medians, seconds by phase, first and last figures."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from podwright.report.records import Records, column, known, number
from podwright.rundir import Record

COLD_STEPS = 2  # a process compiles in its first steps: once for the first batch, once more when the shapes settle

Steady = dict[str, tuple[str, str]]
"""figure of a step -> (its name in words, unit of its median)"""


def cold_steps(records: Records) -> set[int]:
    """Steps of the main stage that compiled: by their records, and those that a process ran first, at the start and after every resume."""
    steps = [s["step"] for s in records.steps()]
    starts = {steps[0] - 1} if steps else set()
    resumes = [e for e in records.named("resumed") if e.get("stage", records.main) == records.main]
    starts |= {e["step"] for e in resumes if isinstance(e.get("step"), int)}
    by_attempt: dict[Any, int] = {}
    for s in records.steps():
        by_attempt.setdefault(s.get("attempt"), s["step"])
    starts |= {first - 1 for first in by_attempt.values()}
    compiled = {s["step"] for s in records.steps() if s.get("compiled")}
    return compiled | {start + k for start in starts for k in range(1, COLD_STEPS + 1)}


def warm_steps(records: Records) -> list[Record]:
    """Steps of the main stage that were neither cold nor traced by a profiler."""
    cold = cold_steps(records)
    return [s for s in records.steps() if s["step"] not in cold and not s.get("profiled")]


def steady_state(records: Records, names: Steady) -> Record:
    """Medians over the warm steps; None where no such step knows the figure."""
    steps = warm_steps(records)
    figures: Record = {}
    for name in names:
        values = known(steps, name)
        figures[name] = statistics.median(values) if values else None
    units = {name: unit for name, (_, unit) in names.items()}
    cold = cold_steps(records)
    left_out = sum(s["step"] in cold for s in records.steps())
    figures |= {"num_steps": len(steps), "num_left_out": left_out, "units": units}
    if "tokens_per_s" in names:
        devices = number(records.last("environment").get("devices"))
        rate = figures["tokens_per_s"]
        figures["tokens_per_s_per_device"] = rate / devices if rate is not None and devices else None
    return figures


def wall_time(records: Records) -> Record:
    """Seconds of each phase over all attempts; `total_s` is without the pauses between attempts."""
    phases: dict[str, float] = {}
    for attempt in records.attempts:
        for name, start, stop in spans(records, attempt.number, attempt.end):
            phases[name] = phases.get(name, 0.0) + stop - start
    lasted = [a.end - a.start for a in records.attempts if a.start is not None and a.end is not None]
    starts = [a.start for a in records.attempts if a.start is not None]
    ends = [a.end for a in records.attempts if a.end is not None]
    return {
        "phases_s": phases,
        "total_s": sum(lasted) if lasted else None,
        "pauses_s": max(ends) - min(starts) - sum(lasted) if lasted else None,
        "started": min(starts, default=None),
        "ended": max(ends, default=None),
    }


def trend(steps: list[Record], figure: str) -> Record:
    """Means of `figure` over the first and the last tenth of the steps that know it."""
    values = known(steps, figure)
    n = max(1, len(values) // 10)
    if not values:
        return {"first": None, "last": None, "n": 0}
    return {"first": statistics.fmean(values[:n]), "last": statistics.fmean(values[-n:]), "n": n}


def last(steps: list[Record], figure: str) -> float | None:
    return next((v for v in reversed(column(steps, figure)) if v is not None), None)


def share_waited(steps: list[Record]) -> float | None:
    """Of the time of these steps, what went by waiting for data."""
    waited = total = 0.0
    for step in steps:
        wait_s, step_s = number(step.get("data_wait_s")), number(step.get("step_s"))
        if wait_s is not None and step_s is not None:
            waited, total = waited + wait_s, total + step_s
    return waited / total if total else None


def breakdown(records: Records) -> dict[str, float]:
    """Seconds of all steps of a loop that waits for data and computes."""
    waited, total = (sum(known(records.steps(), name)) for name in ("data_wait_s", "step_s"))
    return {"waiting for data": waited, "computing": max(0.0, total - waited)} if total else {}


def spans(records: Records, attempt: int, end: float | None) -> Iterator[tuple[str, float, float]]:
    """(phase, from when, to when) of an attempt."""
    marks = [
        (time, str(e.get("phase")))
        for e in records.named("phase")
        if e.get("attempt") == attempt and (time := number(e.get("time"))) is not None
    ]
    ends = [time for time, _ in marks[1:]] + [end] * bool(marks)  # an attempt may end before its first phase
    for (start, name), stop in zip(marks, ends, strict=True):
        if stop is not None and stop >= start:
            yield name, start, stop
