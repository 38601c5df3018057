"""What a report says of a MaxText run: how fast its steps were, and what of its log holds."""

from __future__ import annotations

from collections.abc import Iterator

from podwright.report import timing
from podwright.report.comparison.comparable import Curve, Figure
from podwright.report.figures import style
from podwright.report.figures.drawing import Draw, Plot, losses, raw_and_smooth
from podwright.report.figures.series import line, note
from podwright.report.kinds import PageText
from podwright.report.maxtext import figures as logged_figures
from podwright.report.records import Records, Result, number
from podwright.report.wording import how_far, training_loss
from podwright.report.words import Sentence, Words
from podwright.rundir import Record

STEP = "step"
STEADY: timing.Steady = {
    "step_s": ("step", "s"),
    "tokens_per_s_per_device": ("throughput per device", "tokens/s"),
    "tokens_per_s_per_chip": ("throughput per chip", "tokens/s"),
    "tflops_per_device": ("model FLOP/s per device", "TFLOP/s"),
    "tflops_per_chip": ("model FLOP/s per chip", "TFLOP/s"),
    "mfu": ("model FLOPs utilization (MFU)", "fraction of peak"),
}
TESTED: tuple[str, ...] = ()

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
    return logged_figures.of(records) or {
        "loss": timing.trend(records.steps(), "loss"),
        "units": {"loss": "nats per token"},
    }


breakdown = timing.breakdown


def say(result: Result) -> str:
    return f"{how_far(result, STEP)} {training_loss(result, 'nats per token')}".strip()


def also(result: Result) -> str:
    return ""


def step_time(records: Records, result: Result) -> Plot | None:
    """The steps that count as a line, the others as points, which are cut off at 2.5 times the median."""
    steps, median = records.steps(), result["steady_state"]["step_s"]
    left_out = {e["step"] for e in result.get("excluded", [])}
    raw = line([s for s in steps if s["step"] not in left_out], "step_s")
    if not raw or not median:
        return None
    fig, (ax,) = style.figure("s", x="step")
    raw_and_smooth(ax, raw, "teal")
    points = [(s["step"], seconds) for s in steps if s["step"] in left_out and (seconds := number(s.get("step_s")))]
    for step, seconds in points:
        ax.plot([step], [min(seconds, 2.5 * median)], marker="o", markersize=4, color=style.color("grey"))
    ax.set_ylim(bottom=0)
    text = (
        "Seconds of each step. Grey points are left out of the medians and are cut off at 2.5 times the median.{note}"
    )
    caption = Sentence(text, note=note(raw))
    return Plot("step-time", "Step time", caption, style.to_svg(fig, "Step time over steps"))


def loss(records: Records, result: Result) -> Plot | None:
    return losses(records, result, "nats/token", "Training loss of each step; points are evaluations.")


PLOTS: tuple[Draw, ...] = (step_time, loss)


def page_text(result: Result, t: Words) -> PageText | None:
    """None where no step was logged."""
    if "checks" not in result:
        return None
    sentences = [(check["verdict"], t(check["sentence"], **check)) for check in result["checks"]]
    detail, fix = result["ending_detail"], result["ending_fix"]
    if t.language == "zh":
        fix = result["ending_zh"].get("remedy", fix)
    if t.language == "zh" and result["ending_reason"] == "failure":
        detail = result["ending_zh"].get("cause", detail)
    steps = t(of_steps(result), **result)
    return PageText(
        headline=_steady(result, t),
        details=("" if t.language == "zh" else " ").join(t(key, **result) for key in _details(result)),
        warnings=[*(text for verdict, text in sentences if verdict == "warning"), *map(t, result["warnings"])],
        ended=t(result["ending_reason"], **result | {"of": steps, "ending_detail": detail.rstrip(".")}).strip(),
        fix=fix,
        expected="",
        notes=[text for verdict, text in sentences if verdict != "warning"],
    )


def of_steps(result: Result) -> str:
    """The key of how many steps of how many."""
    planned = result["steps_planned"]
    if not planned:
        return "done"
    return "beyond" if result["steps"] > planned else "of"


def _steady(result: Result, t: Words) -> str:
    s = result["steady_state"]
    if s["step_s"] is None:
        only_starts = set(result["excluded_counts"]) <= {"compiles", "warm_up"}
        return t("only_starts" if only_starts else "no_steady", **s)
    per_chip = s["tokens_per_s_per_chip"] is not None or s["tflops_per_chip"] is not None
    spread = t("iqr", **s) if s["step_s_iqr"] else ""
    return t("steady_chip" if per_chip else "steady_device", iqr=spread, **s)


def _details(result: Result) -> Iterator[str]:
    """The keys of further sentences."""
    if result["loss"]["first"] is not None:
        yield "loss_text"
    if len(result["attempts"]) > 1:
        yield "restarts"
    if result["wall_time"]["goodput"] is not None:
        yield "goodput_text"
    if result["memory"]["used_gib"]:
        yield "memory_text"
    if result["steady_state"]["tflops_source"] == "architecture":
        yield "by_architecture"
    if result["published"]:
        yield "published_text"
    if result["slow_steps"]:
        yield "slow"
