"""What a report says of a MaxText run: how fast its steps were, and what of its log holds."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from podwright.report import timing
from podwright.report.figures import style
from podwright.report.figures.drawing import Draw, Plot, losses, raw_and_smooth
from podwright.report.figures.series import line, note
from podwright.report.kinds import KindFacts, PageText
from podwright.report.maxtext import figures as logged_figures
from podwright.report.records import Records, Result, number
from podwright.report.wording import so_far
from podwright.report.words import Sentence, Words
from podwright.rundir import Record

FACTS = KindFacts.of("maxtext")


def figures(records: Records, tests: list[Record]) -> Result:
    return logged_figures.of(records) or {
        "loss": timing.trend(records.steps(), "loss"),
        "units": {"loss": "nats per token"},
    }


breakdown = timing.breakdown


def say(result: Result) -> str:
    return so_far(result, FACTS.step, "nats per token")


def also(result: Result) -> str:
    return ""


def step_time(records: Records, result: Result) -> Plot | None:
    """The steps that count as a line, the others as points, which are cut off at 2.5 times the median."""
    steps = records.steps()
    median = result["steady_state"]["step_s"]
    left_out = {e["step"] for e in result.get("excluded", [])}
    raw = line([s for s in steps if s["step"] not in left_out], "step_s")
    if not raw or not median:
        return None
    fig, (ax,) = style.figure("s", x="step")
    raw_and_smooth(ax, raw, "teal")
    for step in steps:
        seconds = number(step.get("step_s"))
        if seconds and step["step"] in left_out:
            shown = min(seconds, 2.5 * median)
            ax.plot([step["step"]], [shown], marker="o", markersize=4, color=style.color("grey"))
    ax.set_ylim(bottom=0)
    text = (
        "Seconds of each step. Grey points are left out of the medians and are cut off at 2.5 times the median.{note}"
    )
    caption = Sentence(text, note=note(raw))
    return Plot("step-time", "Step time", caption, style.to_svg(fig, "Step time over steps"))


PLOTS: tuple[Draw, ...] = (
    step_time,
    functools.partial(losses, unit="nats/token", caption="Training loss of each step; points are evaluations."),
)


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
