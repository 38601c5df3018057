"""Lines thinned and smoothed for drawing: a plot of 20,000 steps is no larger than one of 200."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence

from podwright.report.records import column
from podwright.report.words import Sentence
from podwright.rundir import Record

MOST_POINTS = 240


@dataclasses.dataclass(frozen=True)
class Line:
    steps: list[float]
    values: list[float]
    """NaN where the figure is not known, which leaves a gap"""
    per_point: int
    """steps that one point is the mean of"""

    def __bool__(self) -> bool:
        return any(math.isfinite(v) for v in self.values)


def line(records: list[Record], figure: str) -> Line:
    """`figure` over the steps; above MOST_POINTS steps, each point is the mean of an equal number of them."""
    values = column(records, figure)
    size = max(1, math.ceil(len(values) / MOST_POINTS))
    groups = range(0, len(values), size)
    return Line(
        [statistics.fmean(r["step"] for r in records[i : i + size]) for i in groups],
        [_mean(values[i : i + size]) for i in groups],
        size,
    )


def smooth(raw: Line) -> Line:
    """The centred mean over a tenth of the points, shorter at both ends."""
    half = max(1, len(raw.values) // 20)
    values = [
        _mean([v for v in raw.values[max(0, i - half) : i + half + 1] if math.isfinite(v)])
        for i in range(len(raw.values))
    ]
    return Line(raw.steps, values, raw.per_point)


def note(raw: Line) -> str:
    return Sentence(" Each point is the mean of {n} steps.", n=raw.per_point) if raw.per_point > 1 else ""


def _mean(values: Sequence[float | None]) -> float:
    known = [v for v in values if v is not None]
    return statistics.fmean(known) if known else math.nan
