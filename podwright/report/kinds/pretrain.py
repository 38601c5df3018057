"""What a report says of a pretraining run: its figures, its speeds, its plots and what a reader needs to know to read them."""

from __future__ import annotations

import math
from typing import Any

from podwright.errors import UserError
from podwright.recipe import dimensions
from podwright.report import device_utilization, timing
from podwright.report.comparison.comparable import DATA_WAIT, MFU, PEAK_MEMORY, Curve, Figure
from podwright.report.figures import style
from podwright.report.figures.drawing import Draw, Plot, in_percent, losses, one_line, rate, raw_and_smooth
from podwright.report.figures.series import line, note
from podwright.report.overfitting import suspicions
from podwright.report.records import Records, Result, known, number
from podwright.report.wording import figure, how_far, percent, training_loss
from podwright.rundir import Record

STEP = "step"
STEADY: timing.Steady = {
    "step_s": ("step", "s"),
    "data_wait_s": ("data wait", "s"),
    "tokens_per_s_per_device": ("throughput per device", "tokens/s"),
    "tflops_per_device": ("model FLOP/s per device", "TFLOP/s"),
    "mfu": ("model FLOPs utilization (MFU)", "fraction of peak"),
    "peak_memory_gib": ("peak memory per device", "GiB"),
}
TESTED: tuple[str, ...] = ("loss", "unigram_entropy")
MUCH_WAITING = 0.05
UNITS = {
    "loss": "nats/token",
    "loss_before": "nats/token, held-out documents",
    "loss_after": "nats/token, held-out documents",
    "loss_drop": "nats/token, held-out documents",
    "perplexity": "exp(loss)",
    "unigram_entropy": "nats/token, held-out documents: the least loss without any context",
    "expert_load_max": "load of the fullest expert / mean load",
    "dead_experts": "experts that no token of a step went to, over all layers",
    "data_wait_share": "fraction of the steps' time",
    "tokens": "tokens",
    "peak_memory_gib": "GiB",
}


def figures(records: Records, tests: list[Record]) -> Result:
    steps, environment = records.steps(), records.last("environment")
    before, after = _tested(tests, "before"), _tested(tests, "after")
    tokens = timing.last(steps, "tokens")
    epochs = _epochs(environment, tokens)
    dead = known(steps, "dead_experts")
    return {
        "loss": timing.trend(steps, "loss"),
        "loss_before": before,
        "loss_after": after,
        "loss_drop": None if before is None or after is None else before - after,
        "unigram_entropy": _unigram_entropy(tests),
        "perplexity_before": _perplexity(before),
        "perplexity_after": _perplexity(after),
        "num_tokens_tested": next((t["num"] for t in reversed(tests) if t["num"] is not None), None),
        "tokens": None if tokens is None else int(tokens),
        "epochs": epochs,
        "vocab_size": vocab_size(records.raw),
        "expert_load_max": timing.trend(steps, "expert_load_max"),
        "dead_experts": int(dead[-1]) if dead else None,
        "dead_experts_most": int(max(dead)) if dead else None,
        "grad_norm": timing.trend(steps, "grad_norm"),
        "data_wait_share": timing.share_waited(timing.warm_steps(records)),
        "peak_memory_gib": max(known(steps, "peak_memory_gib"), default=None),
        "num_active_params": environment.get("num_active_params"),
        "data": environment.get("data"),
        "warnings": suspicions(steps, tests, _at_most(records.raw) if epochs is None else epochs),
        "device_use": device_utilization.figures(records),
        "units": UNITS | device_utilization.UNITS,
    }


breakdown = timing.breakdown


def vocab_size(recipe: dict[str, Any]) -> int | None:
    """Of the recipe's model; None when the model is none of ours."""
    model = recipe.get("model")
    try:
        return dimensions.find(str(model.get("name")) if isinstance(model, dict) else "").vocab_size
    except UserError:
        return None


def say(result: Result) -> str:
    """The results of the run, in a sentence or two."""
    far = how_far(result, STEP)
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
        if share is not None and share > MUCH_WAITING
        else ""
    )
    unused = f"In the last step {dead} expert{'' if dead == 1 else 's'} received no token." if dead else ""
    return f"{waited} {unused}".strip()


def _tested(tests: list[Record], when: str) -> float | None:
    return next((number(t.get("loss")) for t in reversed(tests) if t["when"] == when), None)


def _unigram_entropy(tests: list[Record]) -> float | None:
    return next((entropy for t in tests if (entropy := number(t.get("unigram_entropy"))) is not None), None)


def _perplexity(loss: float | None) -> float | None:
    return None if loss is None or loss > 700 else math.exp(loss)


def _epochs(environment: Record, tokens: float | None) -> float | None:
    """Passes over the training documents, where the run says how many tokens they have."""
    data = environment.get("data")
    size = number(data.get("tokens")) if isinstance(data, dict) else None
    return tokens / size if tokens is not None and size else None


def _at_most(recipe: dict[str, Any]) -> float | None:
    """Passes over the data that the recipe allows; None for any number, or more than one."""
    data = recipe.get("data")
    return 1.0 if isinstance(data, dict) and data.get("num_epochs", 1) == 1 else None


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
    fig, (ax, *below) = style.figure("largest expert load / mean", *(["dead experts"] if dead else []), x="step")
    raw_and_smooth(ax, load, "orange")
    ax.set_ylim(bottom=0)
    for low in below:
        low.plot(dead.steps, dead.values, color=style.color("red"), linewidth=1.4)
        low.set_ylim(0, max(1.0, 1.15 * max(known(steps, "dead_experts"))))
    caption = "1 is an even load. A dead expert received no token in that step; all layers are counted." + note(load)
    return Plot("experts", "Expert load", caption, style.to_svg(fig, "Expert load over steps"))


def throughput(records: Records, result: Result) -> Plot | None:
    steps = timing.warm_steps(records) or records.steps()
    caption = "Training tokens per second, without the first steps of each process, which compile."
    title = "Tokens per second per device"
    return one_line(
        steps, "tokens_per_s_per_device", title, "tokens/s", "teal", caption, 0.0, name="tokens-per-s", x="step"
    )


def waiting(records: Records, result: Result) -> Plot | None:
    steps = [
        s | {"share": w / t}
        for s in timing.warm_steps(records)
        if (w := number(s.get("data_wait_s"))) is not None and (t := number(s.get("step_s")))
    ]
    raw = line(steps, "share")
    if not raw:
        return None
    fig, (ax,) = style.figure("data wait / step time", x="step")
    raw_and_smooth(ax, raw, "red")
    ax.set_ylim(0, max(0.02, 1.1 * max(known(steps, "share"))))
    in_percent(ax)
    return Plot(
        "data-wait",
        "Data wait",
        "Fraction of the step time spent waiting for data; near zero, the input pipeline keeps up." + note(raw),
        style.to_svg(fig, "Data wait over steps"),
    )


PLOTS: tuple[Draw, ...] = (loss, rate, experts, throughput, waiting, device_utilization.plot)

_TEXT = ("vocabulary", "data", "length")
_PACE = ("model", "length", "hardware")
COMPARED: tuple[Figure, ...] = (
    Figure("loss_before", "held-out loss before", "nats/token", _TEXT, "difference"),
    Figure("loss_after", "held-out loss after", "nats/token", (*_TEXT, "training"), "difference"),
    Figure("loss_drop", "decrease of the held-out loss", "nats/token", (*_TEXT, "training"), "difference"),
    Figure("loss.last", "final training loss", "nats/token", (*_TEXT, "training"), "difference"),
    Figure("tokens", "tokens seen", "tokens", ("vocabulary",)),
    Figure("steady_state.step_s", "step time", "s", (*_PACE, "work", "devices")),
    Figure("steady_state.tokens_per_s_per_device", "throughput per device", "tokens/s", _PACE),
    Figure("steady_state.tflops_per_device", "model FLOP/s per device", "TFLOP/s", ("hardware",)),
    MFU,
    DATA_WAIT,
    PEAK_MEMORY,
    Figure("expert_load_max.last", "largest expert load", "x mean", ("model", "data"), "difference"),
    Figure("dead_experts", "dead experts in the last step", "experts", ("model", "work"), "difference"),
    Figure("wall_time.total_s", "run time", "s", (*_PACE, "work", "devices", "training")),
)
CURVES: tuple[Curve, ...] = (
    Curve("loss", "Loss", "nats per token", _TEXT, tested="loss"),
    Curve("tokens_per_s_per_device", "Tokens per second per device", "tokens/s", _PACE, warm=True),
    Curve("expert_load_max", "Largest expert load", "x mean", ("model", "data")),
    Curve("grad_norm", "Gradient norm", "before clipping", ("model", "data", "vocabulary")),
)
