"""What a report says of a multimodal run: how many fields it gets right, and what is lost without picture or sound."""

from __future__ import annotations

from typing import Any

from podwright.report import device_utilization, timing
from podwright.report.comparison.comparable import Curve, Figure
from podwright.report.figures import style
from podwright.report.figures.drawing import Draw, Plot, bars, in_percent, losses, rate
from podwright.report.records import Records, Result, newest, number
from podwright.report.wording import how_far, percent, training_loss
from podwright.rundir import Record

STEP = "step"
STEADY: timing.Steady = {
    "step_s": ("whole step", "s"),
    "data_wait_s": ("waiting for data", "s"),
    "samples_per_s": ("lines", "samples/s"),
    "tokens_per_s_per_device": ("text tokens per device", "tokens/s"),
    "padding_share": ("padding", "share of the tokens"),
    "tflops_per_device": ("model FLOPs per device", "TFLOP/s"),
    "mfu": ("model FLOPs utilisation", "fraction of peak"),
    "peak_memory_gib": ("peak memory per device", "GiB"),
}
TESTED: tuple[str, ...] = (
    "loss",
    "json_valid",
    "accuracy",
    "majority",
    "fields",
    "majority_fields",
    "without_image",
    "without_audio",
)
UNITS = {
    "loss": "nats per response token",
    "accuracy_before": "fraction of the fields of held-out answers",
    "accuracy_after": "fraction of the fields of held-out answers",
    "majority": "the same, of always answering what training lines answer most often",
    "accuracy_without_image": "accuracy_after on the lines that have both, without their picture",
    "accuracy_without_audio": "accuracy_after on the lines that have both, without their sound",
    "json_valid": "fraction of the held-out answers that parse and keep to the schema",
    "data_wait_share": "fraction of the steps' time",
}


def figures(records: Records, tests: list[Record]) -> Result:
    steps, last = records.steps(), newest(tests, "after")
    before, after = number(newest(tests, "before").get("accuracy")), number(last.get("accuracy"))
    return {
        "loss": timing.trend(steps, "loss"),
        "loss_before": number(newest(tests, "before").get("loss")),
        "loss_after": number(last.get("loss")),
        "accuracy_before": before,
        "accuracy_after": after,
        "accuracy_gain": None if before is None or after is None else after - before,
        "majority": number((last or newest(tests, "before")).get("majority")),
        "json_valid": number(last.get("json_valid")),
        "accuracy_without_image": number((last.get("without_image") or {}).get("accuracy")),
        "accuracy_without_audio": number((last.get("without_audio") or {}).get("accuracy")),
        "fields": _fields(last),
        "num_tested": last.get("num"),
        **device_utilization.of_lines(records),
        "units": UNITS | device_utilization.UNITS,
    }


def speed(records: Records) -> Result:
    """Medians of the steps in steady state."""
    return timing.steady_state(records, STEADY)


breakdown = timing.breakdown


def say(result: Result) -> str:
    """The results of the run, in a sentence or two."""
    after, majority = result["accuracy_after"], result["majority"]
    if after is None:
        return f"{how_far(result, STEP)} {training_loss(result, 'nats a token')}".strip()
    text = f"After {result['steps']} steps {percent(after)} of the fields of {result['num_tested']} held-out answers are right"
    return text + ("." if majority is None else f"; the majority-class baseline is {percent(majority)}.")


def also(result: Result) -> str:
    image, audio = result["accuracy_without_image"], result["accuracy_without_audio"]
    both = image is not None and audio is not None
    return f"Without the picture it is {percent(image)}, without the sound {percent(audio)}." if both else ""


def _fields(test: Record) -> list[dict[str, Any]]:
    """A row for each field: right, right without picture or sound, by the majority-class baseline."""

    def of(value: Any, name: str) -> float | None:
        return number(value.get(name)) if isinstance(value, dict) else None

    parts = {
        "accuracy": test.get("fields"),
        "without_image": (test.get("without_image") or {}).get("fields"),
        "without_audio": (test.get("without_audio") or {}).get("fields"),
        "majority": test.get("majority_fields"),
    }
    return [
        {"field": name, **{part: of(values, name) for part, values in parts.items()}}
        for name in test.get("fields") or {}
    ]


def accuracy(records: Records, result: Result) -> Plot | None:
    tests = [t for t in result["evaluations"] if number(t["accuracy"]) is not None]
    if not tests:
        return None
    fig, (ax,) = style.figure("fields that are right", x="step")
    steps = [t["step"] or 0 for t in tests]
    ax.plot(
        steps,
        [t["accuracy"] for t in tests],
        color=style.color("blue"),
        marker="o",
        markersize=4.5,
        label="picture and sound",
    )
    for name, label, color in (
        ("without_image", "without picture", "orange"),
        ("without_audio", "without sound", "teal"),
    ):
        points = [(t["step"] or 0, v) for t in tests if (v := number((t[name] or {}).get("accuracy"))) is not None]
        if points:
            ax.plot(
                *zip(*points, strict=True),
                color=style.color(color),
                marker="o",
                markersize=3,
                linewidth=1.2,
                label=label,
            )
    if (majority := result["majority"]) is not None:
        ax.axhline(majority, color=style.color("grey"), linestyle="--", linewidth=1.0, label="majority-class baseline")
    ax.set_ylim(0, 1.03)
    in_percent(ax)
    style.legend(fig, ax)
    caption = "Of the fields of held-out answers; below, the same lines with one of the two taken away."
    return Plot("accuracy", "Fields that are right", caption, style.to_svg(fig, "Accuracy over steps"))


def by_field(records: Records, result: Result) -> Plot | None:
    rows = [r for r in result["fields"] if r["accuracy"] is not None]
    if not rows:
        return None
    series = (
        ("accuracy", "picture and sound", "blue"),
        ("without_image", "without picture", "orange"),
        ("without_audio", "without sound", "teal"),
        ("majority", "majority-class baseline", "grey"),
    )
    caption = "What each field needs: a field of the picture falls without it, one of the sound without that, the rest with either."
    svg = bars("right", [r["field"].replace("_", "\n") for r in rows], rows, series, "Accuracy of each field")
    return Plot("fields", "By field", caption, svg)


def loss(records: Records, result: Result) -> Plot | None:
    caption = "Cross-entropy of the responses of each step's lines (faint), and its smoothed course."
    return losses(records, result, "nats per response token", caption)


PLOTS: tuple[Draw, ...] = (accuracy, by_field, loss, rate, device_utilization.throughput, device_utilization.plot)

_PACE = ("model", "hardware")
COMPARED: tuple[Figure, ...] = (
    Figure("accuracy_before", "fields right before", "fraction", ("data",), "difference"),
    Figure("accuracy_after", "fields right after", "fraction", ("data", "training"), "difference"),
    Figure("accuracy_without_image", "without the picture", "fraction", ("data", "training"), "difference"),
    Figure("accuracy_without_audio", "without the sound", "fraction", ("data", "training"), "difference"),
    Figure("json_valid", "answers that parse", "fraction", ("data",), "difference"),
    Figure("loss_after", "held-out loss after", "nats/token", ("data", "vocabulary", "training"), "difference"),
    Figure("steady_state.step_s", "time of a step", "s", (*_PACE, "work", "devices")),
    Figure("steady_state.samples_per_s", "lines", "samples/s", (*_PACE, "devices")),
    Figure("steady_state.mfu", "model FLOPs utilisation", "fraction of peak", (), "difference"),
    Figure("data_wait_share", "waiting for data", "fraction of the time", (), "difference"),
    Figure("steady_state.peak_memory_gib", "peak memory per device", "GiB", ("model", "hardware")),
    Figure("wall_time.total_s", "time of the run", "s", (*_PACE, "work", "devices", "training")),
)
CURVES: tuple[Curve, ...] = (
    Curve("loss", "Loss", "nats per response token", ("data", "vocabulary"), tested="loss"),
    Curve("", "Fields that are right", "of held-out answers", ("data",), tested="accuracy"),
    Curve("samples_per_s", "Lines per second", "samples/s", (*_PACE, "devices"), warm=True),
)
