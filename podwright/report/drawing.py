"""What the plots of every kind of run are made of: a figure's course with its smoothed one, axes in percent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from podwright.report import style
from podwright.report.records import Records, Result
from podwright.report.series import Line, line, note, smooth
from podwright.rundir import Record


@dataclasses.dataclass(frozen=True)
class Plot:
    name: str
    title: str
    caption: str
    svg: str


Draw = Callable[[Records, Result], Plot | None]
"""A plot of a run and its result; None where the run has no figures for it."""


def one_line(
    steps: list[Record], figure: str, title: str, unit: str, color: str, caption: str, floor: float | None = None, *, name: str, x: str
) -> Plot | None:
    raw = line(steps, figure)
    if not raw:
        return None
    fig, (ax,) = style.figure(unit, x=x)
    raw_and_smooth(ax, raw, color)
    if floor is not None:
        ax.set_ylim(bottom=floor)
    return Plot(name, title, caption + note(raw), style.to_svg(fig, f"{title} over steps"))


def raw_and_smooth(ax: style.Axes, raw: Line, color: str, label: str | None = None) -> None:
    ax.plot(raw.steps, raw.values, color=style.color(color), linewidth=0.9, alpha=0.35, marker="o" if len(raw.steps) < 3 else None)
    ax.plot(raw.steps, smooth(raw).values, color=style.color(color), label=label)


def in_percent(ax: style.Axes) -> None:
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
