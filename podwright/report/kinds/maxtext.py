"""What a report says of a MaxText run: how fast its steps were."""

from __future__ import annotations

from podwright.report import timing
from podwright.report.comparison.comparable import Curve, Figure
from podwright.report.figures.drawing import Draw, rate
from podwright.report.records import Records, Result
from podwright.report.wording import how_far, training_loss
from podwright.rundir import Record

STEP = "step"
STEADY: timing.Steady = {"step_s": ("step", "s")}
TESTED: tuple[str, ...] = ()
PLOTS: tuple[Draw, ...] = (rate,)
COMPARED: tuple[Figure, ...] = (Figure("steady_state.step_s", "step time", "s", ("hardware", "work", "devices")),)
CURVES: tuple[Curve, ...] = (Curve("loss", "Loss", "nats per token", ("data", "work")),)


def figures(records: Records, tests: list[Record]) -> Result:
    return {"loss": timing.trend(records.steps(), "loss"), "units": {"loss": "nats per token"}}


def speed(records: Records) -> Result:
    return timing.steady_state(records, STEADY)


breakdown = timing.breakdown


def say(result: Result) -> str:
    return f"{how_far(result, STEP)} {training_loss(result, 'nats per token')}".strip()


def also(result: Result) -> str:
    return ""
