"""What the plots of every kind of run are made of: a figure's course with its smoothed one, axes in percent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from podwright.report import timing
from podwright.report.figures import style
from podwright.report.figures.series import Line, line, note, smooth
from podwright.report.records import Records, Result, number
from podwright.report.words import Sentence


@dataclasses.dataclass(frozen=True)
class Plot:
    name: str
    title: str
    caption: str
    svg: str


Draw = Callable[[Records, Result], Plot | None]
"""A plot of a run and its result; None where the run has no figures for it."""


@dataclasses.dataclass(frozen=True)
class Course:
    """A plot of one figure over the steps."""

    name: str
    figure: str
    title: str
    unit: str
    color: str
    caption: str
    floor: float | None = None
    """where the y axis begins; None: by the values"""
    x: str = "step"
    stage: str = ""
    """"": the main one"""
    warm: bool = False
    """without the steps that compile, where there are others"""

    def __call__(self, records: Records, result: Result) -> Plot | None:
        steps = records.steps(self.stage)
        if self.warm:
            steps = timing.warm_steps(records) or steps
        raw = line(steps, self.figure)
        if not raw:
            return None
        fig, (ax,) = style.figure(self.unit, x=self.x)
        raw_and_smooth(ax, raw, self.color)
        if self.floor is not None:
            ax.set_ylim(bottom=self.floor)
        svg = style.to_svg(fig, f"{self.title} over steps")
        return Plot(self.name, self.title, self.caption + note(raw), svg)


def losses(records: Records, result: Result, unit: str, caption: str, unigram: float | None = None) -> Plot | None:
    """In training and on what is held out; `unigram`: what is reached without any context."""
    raw = line(records.steps(), "loss")
    tests = [(t["step"] or 0, t["loss"]) for t in result["evaluations"] if number(t["loss"]) is not None]
    if not raw and not tests:
        return None
    fig, (ax,) = style.figure(unit, x="step")
    if raw:
        raw_and_smooth(ax, raw, "blue", "training")
    if tests:
        points(ax, tests, "orange", "held-out", 4.5)
    if unigram is not None:
        ax.axhline(unigram, color=style.color("grey"), linestyle="--", linewidth=1.0, label="unigram entropy")
    ax.set_ylim(bottom=0)
    style.legend(fig, ax)
    text = Sentence("{caption}{note}", caption=Sentence(caption), note=note(raw))
    return Plot("loss", "Loss", text, style.to_svg(fig, "Loss over steps"))


def rate(records: Records, result: Result) -> Plot | None:
    steps = records.steps()
    norm, learning_rate = line(steps, "grad_norm"), line(steps, "learning_rate")
    if not norm or not learning_rate:
        return None
    fig, (ax, below) = style.figure("learning rate", "gradient norm before clipping", x="step")
    ax.plot(learning_rate.steps, learning_rate.values, color=style.color("purple"))
    ax.set_ylim(bottom=0)
    raw_and_smooth(below, norm, "teal")
    below.set_ylim(bottom=0)
    caption = "Learning rate (of the first parameter group) and global gradient norm before clipping."
    return Plot(
        "learning-rate",
        "Learning rate and gradient",
        caption + note(norm),
        style.to_svg(fig, "Learning rate and gradient norm over steps"),
    )


def raw_and_smooth(ax: style.Axes, raw: Line, color: str, label: str | None = None) -> None:
    ax.plot(raw.steps, raw.values, color=style.color(color), linewidth=0.9, alpha=0.35)
    ax.plot(raw.steps, smooth(raw).values, color=style.color(color), label=label)


def points(
    ax: style.Axes,
    places: Sequence[tuple[float, float]],
    color: str,
    label: str,
    size: float = 3.0,
    width: float = 1.2,
    line: str = "-",
) -> None:
    """Figures of tests, joined by a line."""
    ax.plot(
        *zip(*places, strict=True),
        color=style.color(color),
        linestyle=line,
        marker="o",
        markersize=size,
        linewidth=width,
        label=label,
    )


def in_percent(ax: style.Axes, most: float) -> None:
    """Shares from 0 to `most`."""
    ax.set_ylim(0, most)
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")


@dataclasses.dataclass(frozen=True)
class BarChart:
    """Shares after training: at each row of a list in result.json a bar for each (key of the row, name, colour) of `series`."""

    name: str
    rows: str
    label: str
    """of a row, with its values in braces"""
    title: str
    y: str
    caption: str
    series: tuple[tuple[str, str, str], ...]

    def __call__(self, records: Records, result: Result) -> Plot | None:
        rows = [row for row in result[self.rows] if row[self.series[0][0]] is not None]
        if not rows:
            return None
        fig, (ax,) = style.figure(self.y, x="")
        width = 0.8 / len(self.series)
        for n, (key, name, color) in enumerate(self.series):
            places = [i + (n - (len(self.series) - 1) / 2) * width for i in range(len(rows))]
            ax.bar(places, [row[key] or 0.0 for row in rows], width, color=style.color(color), label=name)
        ax.set_xticks(range(len(rows)), [self.label.format(**row).replace("_", "\n") for row in rows])
        in_percent(ax, 1.03)
        style.legend(fig, ax)
        return Plot(
            self.name, self.title, self.caption, style.to_svg(fig, f"{self.y.capitalize()} {self.title.lower()}")
        )
