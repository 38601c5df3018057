"""The plots of a run: which figures go together, and what a reader needs to know to read them.

How they look is decided in `style.py`.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterator

from podwright.report import style
from podwright.report.records import Records, known, number
from podwright.report.result import Result
from podwright.report.series import Line, line, note, smooth
from podwright.report.timing import cold_steps


@dataclasses.dataclass(frozen=True)
class Plot:
    name: str
    title: str
    caption: str
    svg: str


def plots(records: Records, result: Result) -> list[Plot]:
    """Every plot that the run has figures for."""
    drawers: list[Callable[[Records, Result], Plot | None]] = [
        accuracy, reward, kl, completion_length, step_time, loss, warm_start, entropy,
    ]  # fmt: skip
    with style.settings():
        return [plot for draw in drawers if (plot := draw(records, result)) is not None]


def accuracy(records: Records, result: Result) -> Plot | None:
    tests = [t for t in result["evaluations"] if _graded(t, "strict") is not None]
    if not tests:
        return None
    fig, (ax,) = style.figure("correct answers in the test")
    steps = [t["step"] or 0 for t in tests]
    loose = [(s, v) for s, t in zip(steps, tests, strict=True) if (v := _graded(t, "flexible")) is not None]
    if loose:
        ax.plot(*zip(*loose, strict=True), color=style.color("grey"), marker="o", markersize=3, linewidth=1.2, label="flexible")
    values = [_graded(t, "strict") or 0.0 for t in tests]
    low = [v - _bound(t, "low", v) for v, t in zip(values, tests, strict=True)]
    high = [_bound(t, "high", v) - v for v, t in zip(values, tests, strict=True)]
    ax.errorbar(steps, values, [low, high], color=style.color("blue"), marker="o", markersize=4.5, capsize=3, label="strict")
    ax.set_ylim(0, min(1.03, max(0.1, 1.12 * max(v + h for v, h in zip(values, high, strict=True)))))
    last = max(*steps, result["steps"], 1)
    ax.set_xlim(-0.02 * last, 1.02 * last)
    _percent(ax)
    style.legend(fig, ax)
    count = {t["num"] for t in tests if t["num"]}
    asked = f" of {max(count)} questions" if count else ""
    caption = f"Greedy answers to the test set{asked}, before, during and after GRPO; bars are 95 % intervals."
    return Plot("accuracy", "Accuracy", caption, style.to_svg(fig, "Accuracy over GRPO steps"))


def reward(records: Records, result: Result) -> Plot | None:
    steps = records.steps("grpo")
    total = line(steps, "reward")
    if not total:
        return None
    names = sorted({k for s in steps for k in s if k.startswith("reward/")})
    parts = {n: line(steps, n) for n in names} if len(names) > 1 else {}
    fig, (ax,) = style.figure("reward per completion")
    _raw_and_smooth(ax, total, "blue", "total" if parts else "smoothed")
    for n, (name, part) in enumerate(parts.items()):
        color = style.color(style.SERIES[1 + n % 5])
        ax.plot(part.steps, smooth(part).values, color=color, linewidth=1.4, label=name.removeprefix("reward/"))
    style.legend(fig, ax)
    caption = "Mean over the completions of each step (faint) and its smoothed course." + note(total)
    return Plot("reward", "Reward", caption, style.to_svg(fig, "Reward over GRPO steps"))


def kl(records: Records, result: Result) -> Plot | None:
    caption = "How far the policy has moved from the weights that GRPO started from."
    return _one_line(records, "kl", "KL to the reference", "nats per token", "purple", caption, floor=0.0)


def entropy(records: Records, result: Result) -> Plot | None:
    caption = "Of the policy's next-token distribution; near zero it no longer explores."
    return _one_line(records, "entropy", "Entropy", "nats per token", "teal", caption, floor=0.0)


def loss(records: Records, result: Result) -> Plot | None:
    caption = "The policy loss; it hovers around zero by construction and is no measure of success."
    return _one_line(records, "loss", "GRPO loss", "policy loss", "blue", caption)


def warm_start(records: Records, result: Result) -> Plot | None:
    caption = "Supervised steps on worked answers before GRPO."
    return _one_line(records, "loss", "Warm-start loss", "cross-entropy, nats per token", "orange", caption, 0.0, "warm_start")


def completion_length(records: Records, result: Result) -> Plot | None:
    steps = records.steps("grpo")
    mean, longest, clipped = (line(steps, f"completion_{s}") for s in ("length", "length_max", "clipped"))
    if not mean:
        return None
    fig, (ax, below) = style.figure("tokens per completion", "cut off at the limit")
    if longest:
        ax.plot(longest.steps, longest.values, color=style.color("grey"), linewidth=1.0, label="longest")
    ax.plot(mean.steps, mean.values, color=style.color("blue"), label="mean")
    ax.set_ylim(bottom=0)
    below.plot(clipped.steps, clipped.values, color=style.color("red"), linewidth=1.4)
    below.set_ylim(0, max(0.05, 1.15 * max(known(steps, "completion_clipped"), default=0.0)))
    _percent(below)
    style.legend(fig, ax)
    caption = "Length of the sampled completions, and the share that ran out of tokens before it ended." + note(mean)
    return Plot("completion-length", "Completion length", caption, style.to_svg(fig, "Completion length over GRPO steps"))


def step_time(records: Records, result: Result) -> Plot | None:
    parts = ("rollout", "score", "update")
    steps = [s for s in records.steps("grpo") if all(number(s.get(f"{p}_s")) is not None for p in parts)]
    if not steps:
        return None
    cold = cold_steps(records)
    warm = [s for s in steps if s["step"] not in cold]
    lines = [line(warm or steps, f"{p}_s") for p in parts]
    fig, (ax,) = style.figure("seconds per step")
    ax.stackplot(
        lines[0].steps, *(one.values for one in lines), labels=parts, colors=[style.color(c) for c in ("blue", "grey", "orange")],
        alpha=0.85, linewidth=0,
    )  # fmt: skip
    totals = [sum(s[f"{p}_s"] for p in parts) for s in warm or steps]
    ax.set_ylim(0, 1.25 * statistics.quantiles([*totals, max(totals)], n=50)[-1] if len(totals) > 4 else 1.25 * max(totals))
    style.legend(fig, ax)
    caption = _time_caption(steps, cold, bool(warm)) + note(lines[0])
    return Plot("step-time", "Time per step", caption, style.to_svg(fig, "Seconds per step"))


def _time_caption(steps: list[dict[str, float]], cold: set[int], left_out: bool) -> str:
    slow = [s["rollout_s"] + s["score_s"] + s["update_s"] for s in steps if s["step"] in cold]
    if not slow or not left_out:
        return "Where the time of each step goes."
    return f"Where the time of each step goes. Not drawn: {len(slow)} first steps of a process, which compile (up to {max(slow):.1f} s)."


def _one_line(
    records: Records, figure: str, title: str, unit: str, color: str, caption: str, floor: float | None = None, stage: str = "grpo"
) -> Plot | None:
    raw = line(records.steps(stage), figure)
    if not raw:
        return None
    fig, (ax,) = style.figure(unit, x="GRPO step" if stage == "grpo" else "warm-start step")
    _raw_and_smooth(ax, raw, color)
    if floor is not None:
        ax.set_ylim(bottom=floor)
    name = figure if stage == "grpo" else f"{stage}-{figure}".replace("_", "-")
    return Plot(name, title, caption + note(raw), style.to_svg(fig, f"{title} over steps"))


def _raw_and_smooth(ax: style.Axes, raw: Line, color: str, label: str | None = None) -> None:
    ax.plot(raw.steps, raw.values, color=style.color(color), linewidth=0.9, alpha=0.35, marker="o" if len(raw.steps) < 3 else None)
    ax.plot(raw.steps, smooth(raw).values, color=style.color(color), label=label)


def _percent(ax: style.Axes) -> None:
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")


def _graded(test: dict[str, dict[str, float]], grading: str) -> float | None:
    return number((test.get(grading) or {}).get("accuracy"))


def _bound(test: dict[str, dict[str, float]], side: str, otherwise: float) -> float:
    bound = number(test["strict"].get(side))
    return otherwise if bound is None else bound


def files(drawn: list[Plot]) -> Iterator[tuple[str, str]]:
    """Name and text of each plot as a file."""
    for plot in drawn:
        yield f"{plot.name}.svg", style.standalone(plot.svg)
