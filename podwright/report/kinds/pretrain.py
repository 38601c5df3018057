"""What a report says of a pretraining run: its figures, its speeds, its plots and what a reader needs to know to read them."""

from __future__ import annotations

import math
from typing import Any

from podwright.errors import UserError, counted
from podwright.recipe import dimensions
from podwright.report import device_utilization, timing
from podwright.report.figures import style
from podwright.report.figures.drawing import Draw, Plot, in_percent, losses, rate, raw_and_smooth
from podwright.report.figures.series import line, note
from podwright.report.kinds import KindFacts
from podwright.report.overfitting import suspicions
from podwright.report.records import Records, Result, difference, inner, known, newest, number
from podwright.report.wording import figure, how_far, percent, training_loss
from podwright.rundir import Record

FACTS = KindFacts.of("pretrain")


def figures(records: Records, tests: list[Record]) -> Result:
    steps = records.steps()
    environment = records.last("environment")
    before, after = (number(newest(tests, when).get("loss")) for when in ("before", "after"))
    tokens = timing.last(steps, "tokens")
    epochs = _epochs(environment, tokens)
    dead = known(steps, "dead_experts")
    return {
        **device_utilization.of_lines(records),
        "loss": timing.trend(steps, "loss"),
        "loss_before": before,
        "loss_after": after,
        "loss_drop": difference(before, after),
        "unigram_entropy": next(iter(known(tests, "unigram_entropy")), None),
        "perplexity_before": _perplexity(before),
        "perplexity_after": _perplexity(after),
        "num_tokens_tested": next((t["num"] for t in reversed(tests) if t["num"] is not None), None),
        "tokens": None if tokens is None else int(tokens),
        "epochs": epochs,
        "vocab_size": vocab_size(records.raw),
        "expert_load_max": timing.trend(steps, "expert_load_max"),
        "dead_experts": int(dead[-1]) if dead else None,
        "dead_experts_most": int(max(dead)) if dead else None,
        "num_active_params": environment.get("num_active_params"),
        "warnings": suspicions(steps, tests, _at_most(records.raw) if epochs is None else epochs),
        "units": FACTS.units,
    }


breakdown = timing.breakdown


def vocab_size(recipe: dict[str, Any]) -> int | None:
    """Of the recipe's model; None when the model is none of ours."""
    try:
        return dimensions.find(str(inner(recipe, "model.name"))).vocab_size
    except UserError:
        return None


def say(result: Result) -> str:
    """The results of the run, in a sentence or two."""
    far = how_far(result, FACTS.step)
    if not result["steps"]:
        return f"{far} No training step was completed."
    before, after = result["loss_before"], result["loss_after"]
    seen = "" if result["tokens"] is None else f" and {figure(result['tokens'])} tokens"
    if after is not None:
        text = f"After {result['steps']} steps{seen} the held-out loss is {figure(after)} nats per token"
        return f"{text}; it was not measured before." if before is None else f"{text}; before it was {figure(before)}."
    tests = [t for t in result["evaluations"] if t["when"] == "during" and t["loss"] is not None]
    held_out = f"; the held-out loss was {figure(tests[-1]['loss'])} at step {tests[-1]['step']}" if tests else ""
    return f"{far} {training_loss(result, 'nats per token', held_out) or 'Its loss is not known.'}"


def also(result: Result) -> str:
    share, dead = result["data_wait_share"], result["dead_experts"]
    waited = (
        f"The devices waited for data for {percent(share)} of the time."
        if share is not None and share > device_utilization.MUCH_WAITING
        else ""
    )
    unused = f"In the last step {counted(dead, 'expert')} received no token." if dead else ""
    return f"{waited} {unused}".strip()


def _perplexity(loss: float | None) -> float | None:
    return None if loss is None or loss > 700 else math.exp(loss)


def _epochs(environment: Record, tokens: float | None) -> float | None:
    """Passes over the training documents, where the run says how many tokens they have."""
    size = number(inner(environment, "data.tokens"))
    return tokens / size if tokens is not None and size else None


def _at_most(recipe: dict[str, Any]) -> float | None:
    """Passes over the data that the recipe allows; None for any number, or more than one."""
    data = recipe.get("data") or {}
    return 1.0 if data.get("num_epochs", 1) == 1 else None


def loss(records: Records, result: Result) -> Plot | None:
    unigram = result["unigram_entropy"]
    tested = any(number(t["loss"]) is not None for t in result["evaluations"])
    seen = "; the points are the held-out loss" if tested else ""
    seen += "" if unigram is None else "; the dashed line is the unigram entropy, the lowest loss without context"
    caption = f"Cross-entropy of each step's batch (faint) and smoothed{seen}."
    return losses(records, result, "nats per token", caption, unigram)


def experts(records: Records, result: Result) -> Plot | None:
    steps = records.steps()
    load, dead = line(steps, "expert_load_max"), line(steps, "dead_experts")
    if not load:
        return None
    most = max(known(steps, "dead_experts"), default=0.0)
    fig, (ax, *below) = style.figure("largest expert load / mean", *(["dead experts"] if most else []), x="step")
    raw_and_smooth(ax, load, "orange")
    ax.set_ylim(bottom=0)
    for low in below:
        low.plot(dead.steps, dead.values, color=style.color("red"), linewidth=1.4)
        low.set_ylim(0, max(1.0, 1.15 * most))
    caption = "1 is an even load. A dead expert received no token in that step; all layers are counted." + note(load)
    return Plot("experts", "Expert load", caption, style.to_svg(fig, "Expert load over steps"))


def waiting(records: Records, result: Result) -> Plot | None:
    steps = []
    for step in timing.warm_steps(records):
        waited, took = number(step.get("data_wait_s")), number(step.get("step_s"))
        if waited is not None and took:
            steps.append(step | {"share": waited / took})
    raw = line(steps, "share")
    if not raw:
        return None
    fig, (ax,) = style.figure("data wait / step time", x="step")
    raw_and_smooth(ax, raw, "red")
    in_percent(ax, max(0.02, 1.1 * max(known(steps, "share"))))
    return Plot(
        "data-wait",
        "Data wait",
        "Fraction of the step time spent waiting for data; near zero, the input pipeline keeps up." + note(raw),
        style.to_svg(fig, "Data wait over steps"),
    )


PLOTS: tuple[Draw, ...] = (loss, rate, experts, FACTS.courses["tokens-per-s"], waiting, device_utilization.plot)
