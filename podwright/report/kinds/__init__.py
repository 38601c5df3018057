"""What a report says of a run by the kind of its recipe: one module for each kind, named in recipe/kinds.py."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, Self

import pydantic
import yaml

from podwright.recipe import kinds
from podwright.report import wording
from podwright.report.comparison.comparable import Curve, Figure
from podwright.report.figures import style
from podwright.report.figures.drawing import BarChart, Course, Draw, Plot
from podwright.report.records import Records, Result
from podwright.report.timing import Steady
from podwright.report.words import Words
from podwright.rundir import Record


class KindFacts(pydantic.BaseModel):
    """The figures of a kind as data: KIND.yaml beside its module."""

    step: str
    """what one of its steps is called"""
    steady: Steady
    """of which the medians are taken"""
    tested: tuple[str, ...] = ()
    """what an evaluation measures, besides when and of how much"""
    units: dict[str, str] = {}
    compared: tuple[Figure, ...] = ()
    curves: tuple[Curve, ...] = ()
    """that are drawn of several runs"""
    courses: dict[str, Course] = {}
    """plots of one figure over the steps, by their names"""
    charts: dict[str, BarChart] = {}

    @classmethod
    @functools.cache
    def of(cls, kind: str) -> Self:
        return cls.model_validate(yaml.safe_load(Path(__file__).with_name(f"{kind}.yaml").read_text()))


@dataclasses.dataclass(frozen=True)
class PageText:
    """The sentences of a page, and of its summary for a terminal."""

    headline: str
    details: str
    warnings: Sequence[str]
    ended: str
    fix: str
    expected: str
    """"" leaves it out"""
    notes: Sequence[str]
    """for a terminal alone; a page has them in its tables"""


class ReportPart(Protocol):
    """A module of a kind; its templates, if it has some, are those of its name. It may have a function `page_text` as below too."""

    FACTS: KindFacts
    PLOTS: tuple[Draw, ...]

    def figures(self, records: Records, tests: list[Record], /) -> Result:
        """Its own figures of result.json; they replace those of all kinds."""

    def breakdown(self, records: Records, /) -> dict[str, float]:
        """Where the seconds of the steps went."""

    def say(self, result: Result, /) -> str:
        """The results of the run, in a sentence or two."""

    def also(self, result: Result, /) -> str:
        """What a reader should know besides; often ""."""


def of(result: Result) -> ReportPart:
    """By result.json or by recipe.json; UserError for a kind that this version does not know."""
    part: ReportPart = kinds.resolve(kinds.find(result.get("kind")).report)
    return part


def plots(records: Records, result: Result) -> list[Plot]:
    """Every plot that the run has figures for."""
    with style.settings():
        drawn = [draw(records, result) for draw in of(result).PLOTS]
    return [plot for plot in drawn if plot is not None]


def page_text(result: Result, t: Words) -> PageText:
    """By the kind's own function, if it has one and that does not leave it to this one (None)."""
    part = of(result)
    write = getattr(part, "page_text", None)
    text: PageText | None = write(result, t) if write else None
    return text or PageText(
        headline=part.say(result),
        details=part.also(result),
        warnings=result.get("warnings", []),
        ended=wording.how_it_ended(result),
        fix=result["ending_fix"],
        expected=wording.verdict(result),
        notes=[wording.speed(result)],
    )
