"""What a report says of a GRPO run: its figures, its speeds, its plots and what a reader needs to know to read them."""

from __future__ import annotations

import statistics

from podwright.recipe import even_groups
from podwright.report import device_utilization, timing
from podwright.report.figures import style
from podwright.report.figures.drawing import Draw, Plot, in_percent, points, raw_and_smooth
from podwright.report.figures.series import line, note, smooth
from podwright.report.kinds import KindFacts
from podwright.report.records import Records, Result, difference, known, newest, number
from podwright.report.timing import cold_steps
from podwright.report.wording import headline, paired
from podwright.rundir import Record

FACTS = KindFacts.of("grpo")

say = headline
also = paired


def figures(records: Records, tests: list[Record]) -> Result:
    steps = records.steps()
    return {
        "warm_start_steps": len(records.steps("warm_start")),
        **_accuracy(tests),
        "paired_test": _paired(records),
        "even_groups": even._asdict() if (even := even_groups.count(steps)) else None,
        "reward": timing.trend(steps, "reward") | {"unit": "weighted sum, mean over completions"},
        "kl_last": timing.last(steps, "kl"),
        "loss_last": timing.last(steps, "loss"),
        "warm_start_loss": timing.trend(records.steps("warm_start"), "loss"),
        "device_use": device_utilization.figures(records),
        "units": FACTS.units,
    }


def breakdown(records: Records) -> dict[str, float]:
    """Seconds of each part of all steps."""
    return {part: sum(known(records.steps(), f"{part}_s")) for part in ("rollout", "score", "update")}


def _accuracy(measured: list[Record]) -> Record:
    """Strict and flexible accuracy before and after, and the gain in strict accuracy."""
    figures: Record = {}
    for when in ("before", "after"):
        test = newest(measured, when)
        strict, flexible = _bounds(test, "strict"), _bounds(test, "flexible")
        figures[f"accuracy_{when}"] = strict["accuracy"]
        figures[f"accuracy_{when}_interval"] = [strict["low"], strict["high"]]
        figures[f"accuracy_{when}_flexible"] = flexible["accuracy"]
        figures[f"accuracy_{when}_flexible_interval"] = [flexible["low"], flexible["high"]]
        figures[f"truncated_{when}"] = number(test.get("truncated"))
        figures[f"num_test_{when}"] = test.get("num")
    figures["accuracy_gain"] = difference(figures["accuracy_after"], figures["accuracy_before"])
    figures["accuracy_unit"] = "fraction of the test questions, greedy pass@1, strict; intervals are 95 % Wilson"
    return figures


def _bounds(test: Record, grading: str) -> dict[str, float | None]:
    value = test.get(grading)
    bounds = value if isinstance(value, dict) else {}
    return {key: number(bounds.get(key)) for key in ("accuracy", "low", "high")}


def _paired(records: Records) -> Record | None:
    test = records.last("comparison")
    if not test:
        return None
    return {
        "gained": test.get("gained"),
        "lost": test.get("lost"),
        "p_value": number(test.get("p_value")),
        "test": "exact McNemar",
    }


def accuracy(records: Records, result: Result) -> Plot | None:
    tests = [t for t in result["evaluations"] if _graded(t, "strict") is not None]
    if not tests:
        return None
    fig, (ax,) = style.figure("correct answers in the test")
    steps = [t["step"] or 0 for t in tests]
    loose = []
    for step, test in zip(steps, tests, strict=True):
        flexible = _graded(test, "flexible")
        if flexible is not None:
            loose.append((step, flexible))
    if loose:
        points(ax, loose, "grey", "flexible")
    values = [_graded(t, "strict") or 0.0 for t in tests]
    low = [v - _bound(t, "low", v) for v, t in zip(values, tests, strict=True)]
    high = [_bound(t, "high", v) - v for v, t in zip(values, tests, strict=True)]
    ax.errorbar(
        steps, values, [low, high], color=style.color("blue"), marker="o", markersize=4.5, capsize=3, label="strict"
    )
    highest = max(value + above for value, above in zip(values, high, strict=True))
    last = max(*steps, result["steps"], 1)
    ax.set_xlim(-0.02 * last, 1.02 * last)
    in_percent(ax, min(1.03, max(0.1, 1.12 * highest)))
    style.legend(fig, ax)
    count = {t["num"] for t in tests if t["num"]}
    questions = f" of {max(count)} questions" if count else ""
    caption = f"Greedy answers to the test set{questions}, before, during and after GRPO; bars are 95 % intervals."
    return Plot("accuracy", "Accuracy", caption, style.to_svg(fig, "Accuracy over GRPO steps"))


def reward(records: Records, result: Result) -> Plot | None:
    steps = records.steps()
    total = line(steps, "reward")
    if not total:
        return None
    names = sorted({k for s in steps for k in s if k.startswith("reward/")})
    parts = {n: line(steps, n) for n in names} if len(names) > 1 else {}
    fig, (ax,) = style.figure("reward per completion")
    raw_and_smooth(ax, total, "blue", "total" if parts else "smoothed")
    for n, (name, part) in enumerate(parts.items()):
        color = style.color(style.SERIES[1 + n % 5])
        ax.plot(part.steps, smooth(part).values, color=color, linewidth=1.4, label=name.removeprefix("reward/"))
    style.legend(fig, ax)
    caption = "Mean over the completions of each step (faint) and smoothed." + note(total)
    return Plot("reward", "Reward", caption, style.to_svg(fig, "Reward over GRPO steps"))


def completion_length(records: Records, result: Result) -> Plot | None:
    steps = records.steps()
    mean, longest, clipped = (line(steps, f"completion_{s}") for s in ("length", "length_max", "clipped"))
    if not mean:
        return None
    cut_off = max(known(steps, "completion_clipped"), default=0.0)
    fig, (ax, *below) = style.figure("tokens per completion", *(["cut off at the limit"] if cut_off else []))
    if longest:
        ax.plot(longest.steps, longest.values, color=style.color("grey"), linewidth=1.0, label="longest")
    ax.plot(mean.steps, mean.values, color=style.color("blue"), label="mean")
    ax.set_ylim(bottom=0)
    for low in below:
        low.plot(clipped.steps, clipped.values, color=style.color("red"), linewidth=1.4)
        in_percent(low, max(0.05, 1.15 * cut_off))
    style.legend(fig, ax)
    caption = "Length of the sampled completions, and the fraction cut off at the token limit, if any was." + note(mean)
    return Plot(
        "completion-length", "Completion length", caption, style.to_svg(fig, "Completion length over GRPO steps")
    )


def step_time(records: Records, result: Result) -> Plot | None:
    parts = ("rollout", "score", "update")
    steps = []
    for step in records.steps():
        if all(number(step.get(f"{part}_s")) is not None for part in parts):
            steps.append(step)
    if len(steps) < 2:  # an area needs two
        return None
    cold = cold_steps(records)
    warm = [s for s in steps if s["step"] not in cold]
    shown = warm if len(warm) > 1 else steps
    lines = [line(shown, f"{p}_s") for p in parts]
    fig, (ax,) = style.figure("seconds per step")
    ax.stackplot(
        lines[0].steps, *(line.values for line in lines), labels=parts, colors=[style.color(c) for c in ("blue", "grey", "orange")],
        alpha=0.85, linewidth=0,
    )  # fmt: skip
    totals = [sum(s[f"{p}_s"] for p in parts) for s in shown]
    highest = max(totals)
    if len(totals) > 4:  # a step that took ten times as long as the others does not press them flat
        highest = statistics.quantiles([*totals, highest], n=50)[-1]
    ax.set_ylim(0, 1.25 * highest)
    style.legend(fig, ax)
    caption = _time_caption(steps, cold, shown is warm) + note(lines[0])
    return Plot("step-time", "Time per step", caption, style.to_svg(fig, "Seconds per step"))


def _time_caption(steps: list[dict[str, float]], cold: set[int], left_out: bool) -> str:
    slow = [s["rollout_s"] + s["score_s"] + s["update_s"] for s in steps if s["step"] in cold]
    if not slow or not left_out:
        return "Time of each step by part."
    return f"Time of each step by part. Not drawn: steps that compile ({len(slow)}, up to {max(slow):.1f} s)."


def _graded(test: Record, grading: str) -> float | None:
    return number((test.get(grading) or {}).get("accuracy"))


def _bound(test: Record, side: str, otherwise: float) -> float:
    bound = number(test["strict"].get(side))
    return otherwise if bound is None else bound


PLOTS: tuple[Draw, ...] = (
    accuracy,
    reward,
    FACTS.courses["kl"],
    completion_length,
    step_time,
    FACTS.courses["loss"],
    FACTS.courses["warm-start-loss"],
    FACTS.courses["entropy"],
    device_utilization.plot,
)
