"""What a report says of a run by the kind of its recipe: one module for each kind."""

from __future__ import annotations

from typing import Protocol

from podwright.report.comparison.comparable import Curve, Figure
from podwright.report.figures.drawing import Draw
from podwright.report.kinds import contrastive, grpo, multimodal, pretrain
from podwright.report.records import Records, Result
from podwright.report.timing import Steady
from podwright.rundir import Record


class Kind(Protocol):
    """A module of a kind."""

    STEP: str
    """what one of its steps is called"""
    STEADY: Steady
    TESTED: tuple[str, ...]
    """what an evaluation found, besides when and of how much"""
    PLOTS: tuple[Draw, ...]
    COMPARED: tuple[Figure, ...]
    CURVES: tuple[Curve, ...]

    def figures(self, records: Records, tests: list[Record], /) -> Result:
        """Its own figures of result.json."""

    def speed(self, records: Records, /) -> Result: ...

    def inside(self, records: Records, /) -> dict[str, float]:
        """Where the seconds of the steps went."""

    def say(self, result: Result, /) -> str:
        """What the run came to, in a sentence or two."""

    def also(self, result: Result, /) -> str:
        """What a reader should know besides; often ""."""


KINDS: dict[str, Kind] = {"grpo": grpo, "pretrain": pretrain, "multimodal": multimodal, "contrastive": contrastive}


def name(result: Result) -> str:
    """By result.json or by recipe.json; a kind of another version is read as GRPO."""
    kind = str(result.get("kind"))
    return kind if kind in KINDS else "grpo"


def of(result: Result) -> Kind:
    return KINDS[name(result)]
