"""What a report says of a run by the kind of its recipe: one module for each kind, named in recipe/kinds.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from podwright.recipe import kinds
from podwright.report import wording
from podwright.report.comparison.comparable import Curve, Figure
from podwright.report.figures.drawing import Draw
from podwright.report.records import Records, Result
from podwright.report.timing import Steady
from podwright.report.words import Words
from podwright.rundir import Record


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
