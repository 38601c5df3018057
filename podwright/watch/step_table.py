"""The steps of a training log as columns: a million of them take 60 MB. Restarts are runs of rows, and the later row of a step counts."""

from __future__ import annotations

import bisect
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence

RAMP_UP, HIDDEN = 1, 2
"""marks of a row: logged while the batch size grew; logged without its seconds, where the profiler was switched"""


class StepTable:
    """Rows in the order of the log. What a line does not have is NaN."""

    def __init__(self) -> None:
        self.step = array("q")
        self.marks = array("B")
        self.seconds, self.tflops, self.tokens = array("d"), array("d"), array("d")
        self.weights, self.loss, self.time = array("d"), array("d"), array("d")
        self.starts: list[int] = []
        """the row with which each attempt begins"""

    def __len__(self) -> int:
        return len(self.step)

    def extend(self, step: Sequence[int], **columns: Iterable[float]) -> None:
        """Rows without marks, each column by its name."""
        self.step.extend(step)
        self.marks.extend(bytes(len(step)))
        for name, values in columns.items():
            getattr(self, name).extend(values)

    def add(self, rows: list[tuple[int, int, float, float, float, float, float, float]]) -> None:
        """Rows of (step, marks, seconds, tflops, tokens, weights, loss, time)."""
        columns = (self.step, self.marks, self.seconds, self.tflops, self.tokens, self.weights, self.loss, self.time)
        for column, values in zip(columns, zip(*rows, strict=True), strict=False):
            column.extend(values)  # type: ignore[attr-defined]

    def attempts(self) -> Iterator[range]:
        """The rows of each attempt."""
        ends = [*self.starts[1:], len(self.step)] if self.starts else []
        yield from (range(start, end) for start, end in zip(self.starts, ends, strict=True))

    def counted(self) -> list[range]:
        """Of each attempt the rows whose steps no later attempt computed again."""
        kept, undone_from = list[range](), math.inf
        for rows in reversed(list(self.attempts())):
            end = rows.stop
            if undone_from < math.inf:
                end = bisect.bisect_left(self.step, int(undone_from), rows.start, rows.stop)
            kept.append(range(rows.start, end))
            undone_from = min(undone_from, self.step[rows.start])
        return kept[::-1]
