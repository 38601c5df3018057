"""What a report says of a run by the kind of its recipe: one module for each kind, named in recipe/kinds.py."""

from __future__ import annotations

from typing import Protocol

from podwright.recipe import kinds
from podwright.report.comparison.comparable import Curve, Figure
from podwright.report.figures.drawing import Draw
from podwright.report.records import Records, Result
from podwright.report.timing import Steady
from podwright.rundir import Record


class ReportPart(Protocol):
    """A module of a kind; its templates, if it has some, are the four of its name."""

    STEP: str
    """what one of its steps is called"""
    STEADY: Steady
    """of which the medians are taken"""
    TESTED: tuple[str, ...]
    """what an evaluation found, besides when and of how much"""
    PLOTS: tuple[Draw, ...]
    COMPARED: tuple[Figure, ...]
    CURVES: tuple[Curve, ...]

    def figures(self, records: Records, tests: list[Record], /) -> Result:
        """Its own figures of result.json."""

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
