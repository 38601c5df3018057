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

_PACE = ("model", "length", "hardware")
_TEXT = ("model", "data", "length")
COMPARED: tuple[Figure, ...] = (
    Figure("steady_state.step_s", "step time", "s", (*_PACE, "work", "devices")),
    Figure("steady_state.tokens_per_s_per_device", "throughput per device", "tokens/s", _PACE),
    Figure("steady_state.tokens_per_s_per_chip", "throughput per chip", "tokens/s", _PACE),
    Figure("steady_state.tflops_per_device", "model FLOP/s per device", "TFLOP/s", ("hardware", "formula")),
    Figure("steady_state.tflops_per_chip", "model FLOP/s per chip", "TFLOP/s", ("hardware", "formula")),
    Figure("steady_state.mfu", "model FLOPs utilization (MFU)", "fraction of peak", ("formula",), "difference"),
    Figure("memory.used_gib", "memory per device", "GiB", ("model", "hardware")),
    Figure("memory.share", "memory per device", "fraction of its limit", (), "difference"),
    Figure("loss.last", "final training loss", "nats/token", (*_TEXT, "training"), "difference"),
    Figure("wall_time.goodput", "goodput", "fraction of run time", (), "difference"),
    Figure("wall_time.total_s", "run time", "s", (*_PACE, "work", "devices", "training")),
)
CURVES: tuple[Curve, ...] = (
    Curve("loss", "Loss", "nats per token", _TEXT),
    Curve("tokens_per_s_per_device", "Tokens per second per device", "tokens/s", _PACE, warm=True),
)


def figures(records: Records, tests: list[Record]) -> Result:
    return {"loss": timing.trend(records.steps(), "loss"), "units": {"loss": "nats per token"}}


breakdown = timing.breakdown


def say(result: Result) -> str:
    return f"{how_far(result, STEP)} {training_loss(result, 'nats per token')}".strip()


def also(result: Result) -> str:
    return ""
