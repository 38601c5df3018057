"""Which steps of a log stand for its speed: those left out by rule or by evidence, each with its reason, and the medians of the others.

MaxText times a step from one dispatch to the next. The devices work on behind it: after the first steps one can be logged as 0.05 s,
and a step beside it has its time.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable
from typing import NamedTuple

from podwright.report.maxtext.facts import ProfiledSteps, RunFacts
from podwright.report.maxtext.logged import LoggedRun, StepColumns

FAST, VERY_FAST = 0.5, 0.1
"""of the median: a step below the first is an artefact where a neighbour has its time, below the second by itself"""
SLOW = 1.5
"""times the median: a step above it is left out where the profiler or the end of the data explains it"""
MOST_LISTED = 50
MOST_FAST = 0.25
"""of the steps: where more are far shorter than others, these have the time of several steps, and no median is that of one"""


MOST_BETWEEN = 32
"""rows that two lines without seconds may be apart, for the profiler to have traced those between them"""
LONGEST_S = 1e9
"""30 years: a step that is said to take longer has no time"""


class Exclusion(NamedTuple):
    row: int
    reason: str
    """a key of words.yaml"""
    by_rule: bool
    other: int | None = None
    """the step whose time it has, or that has its time"""


class Steady(NamedTuple):
    rows: list[int]
    """that count"""
    seconds: list[float]
    """of these, the least first"""
    excluded: dict[int, Exclusion]
    """by row, in the order of the log"""
    median_s: float | None
    slow: list[int]
    """rows that count although they took over twice the median: nothing in the log explains them"""


def steady(log: LoggedRun, facts: RunFacts, *, out_of_data: bool) -> Steady:
    """Of the steps that no later attempt computed again."""
    table = log.steps
    out = dict[int, Exclusion]()
    for rows in table.groups:
        _by_rule(table, rows, facts.profiled, out)
    _by_hidden_rows(table, out)
    left = _with_times(table, out)
    if _come_in_bursts([table.seconds[row] for row in left]):
        _exclude(left, "bursts", out)
    elif left:
        _by_evidence(log, facts, left, out, out_of_data)
    left = [row for row in left if row not in out]
    times = sorted(table.seconds[row] for row in left)
    if not times:
        return Steady(left, times, dict(sorted(out.items())), None, [])
    median = statistics.median(times)
    slow = [row for row in left if table.seconds[row] > 2 * median]
    return Steady(left, times, dict(sorted(out.items())), median, slow)


def _exclude(rows: Iterable[int], reason: str, out: dict[int, Exclusion]) -> None:
    out.update({row: Exclusion(row, reason, False) for row in rows})


def _by_rule(table: StepColumns, rows: range, profiled: ProfiledSteps | None, out: dict[int, Exclusion]) -> None:
    first, last = table.step[rows.start], table.step[rows[-1]]
    traced = set(profiled.steps(first, last)) if profiled else set[int]()
    for row in rows:
        step = table.step[row]
        if step - first <= 1:
            reason = "warm_up" if step > first else "compiles"
        elif row in table.ramp_up:
            reason = "ramp_up"
        elif row in table.hidden:
            reason = "no_seconds"
        elif step in traced:
            reason = "profiled"
        else:
            continue
        out[row] = Exclusion(row, reason, True)


def is_time(seconds: float) -> bool:
    """Whether a step can have taken so long; False of NaN."""
    return 0 < seconds < LONGEST_S


def _with_times(table: StepColumns, out: dict[int, Exclusion]) -> list[int]:
    """The rows that are left whose time is possible: none where those of half are not. A 0 among possible times is left to the evidence:
    it is rounded, and a step beside it has its time."""
    left = [row for row in range(len(table)) if row not in out]
    wrong = [row for row in left if not is_time(table.seconds[row])]
    if 2 * len(wrong) >= len(left):
        _exclude(left, "few_times", out)
        _exclude(wrong, "no_time", out)
    else:
        _exclude((row for row in wrong if table.seconds[row] != 0), "no_time", out)
    return [row for row in left if row not in out]


def _come_in_bursts(times: list[float]) -> bool:
    """Whether most times are those of dispatches, and the rest has the time of all."""
    if len(times) < 4:
        return False
    long_s = statistics.quantiles(times, n=4, method="inclusive")[2]
    fast = sum(0 < time < VERY_FAST * long_s for time in times)  # one of 0 s is rounded, or wrong
    return fast > MOST_FAST * len(times)


def _by_hidden_rows(table: StepColumns, out: dict[int, Exclusion]) -> None:
    """Steps between two lines that MaxText wrote without seconds, because the profiler was switched there."""
    for before, after in itertools.pairwise(sorted(table.hidden)):
        if after - before <= MOST_BETWEEN and after in table.group_of(before):
            for row in range(before + 1, after):
                out.setdefault(row, Exclusion(row, "profiled", False))


def _by_evidence(
    log: LoggedRun, facts: RunFacts, left: list[int], out: dict[int, Exclusion], out_of_data: bool
) -> None:
    seconds = log.steps.seconds
    median = statistics.median(seconds[row] for row in left)
    for row in [row for row in left if not FAST * median <= seconds[row] <= SLOW * median]:
        rows = log.steps.group_of(row)
        if row in out:
            continue
        if seconds[row] < FAST * median:
            _fast(log, rows, row, median, out)
        elif _near(row, log.profiler_rows) or _near_profiled(row, rows, out):
            _exclude([row], "beside_profiler", out)
        elif out_of_data and row == len(log.steps) - 1:
            _exclude([row], "no_more_data", out)
    for row in [row for row, e in out.items() if e.by_rule and seconds[row] < FAST * median]:
        rows = log.steps.group_of(row)
        if (other := _payer(log, rows, row, (row + 1,), median)) is not None:
            out.setdefault(other, Exclusion(other, "pays_back", False, log.steps.step[row]))
    _impossible(log, facts, left, out)


def _payer(log: LoggedRun, rows: range, row: int, others: tuple[int, ...], median: float) -> int | None:
    """The first of `others` that is longer than the median by at least half of what a fast row lacks."""
    seconds = log.steps.seconds
    missing = median - seconds[row]
    beyond = (other for other in others if other in rows and seconds[other] - median >= FAST * missing)
    return next(beyond, None)


def _fast(log: LoggedRun, rows: range, row: int, median: float, out: dict[int, Exclusion]) -> None:
    """A step whose time is in the one before or after it; that one is left out too."""
    table = log.steps
    other = _payer(log, rows, row, (row - 1, row + 1), median)
    if other is not None:
        out[row] = Exclusion(row, "dispatch", False, table.step[other])
        out.setdefault(other, Exclusion(other, "pays_back", False, table.step[row]))
    elif table.seconds[row] < VERY_FAST * median:
        out[row] = Exclusion(row, "dispatch", False)


def _near(row: int, places: list[int]) -> bool:
    """Whether the profiler reported beside the line of a step. The line comes up to two steps after the step began."""
    return any(place - 1 <= row <= place + 2 for place in places)


def _near_profiled(row: int, rows: range, out: dict[int, Exclusion]) -> bool:
    neighbours = (out.get(other) for other in (row - 1, row + 1) if other in rows)
    return any(e is not None and e.reason in ("profiled", "no_seconds") for e in neighbours)


def _impossible(log: LoggedRun, facts: RunFacts, left: list[int], out: dict[int, Exclusion]) -> None:
    """Single steps over the peak of the hardware; where most are, the formula is wrong and not their time."""
    peak = facts.peak_flops
    if peak is None:
        return
    over = [row for row in left if row not in out and log.steps.tflops[row] * 1e12 > peak]
    if 2 * len(over) < len(left):
        _exclude(over, "impossible", out)


def quartiles(values: list[float]) -> tuple[float, float] | None:
    """The interquartile range; None of fewer than 2 values."""
    if len(values) < 2:
        return None
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def known(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]
