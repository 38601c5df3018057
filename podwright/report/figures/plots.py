"""The plots of a run, by its kind. How they look is decided in `style.py`."""

from __future__ import annotations

from collections.abc import Iterator

from podwright.report import kinds
from podwright.report.figures import style
from podwright.report.figures.drawing import Plot
from podwright.report.records import Records, Result


def plots(records: Records, result: Result) -> list[Plot]:
    """Every plot that the run has figures for."""
    with style.settings():
        return [plot for draw in kinds.of(result).PLOTS if (plot := draw(records, result)) is not None]


def files(drawn: list[Plot]) -> Iterator[tuple[str, str]]:
    """Name and text of each plot as a file."""
    for plot in drawn:
        yield f"{plot.name}.svg", style.standalone(plot.svg)
