"""What a report says of a multimodal run: how many fields it gets right, and what is lost without picture or sound."""

from __future__ import annotations

from typing import Any

from podwright.report import device_utilization, timing
from podwright.report.comparison.comparable import DATA_WAIT, MFU, PEAK_MEMORY, Curve, Figure
from podwright.report.figures import style
from podwright.report.figures.drawing import Draw, Plot, bars, in_percent, losses, points, rate
from podwright.report.records import Records, Result, newest, number
from podwright.report.wording import how_far, percent, training_loss
from podwright.rundir import Record

STEP = "step"
STEADY: timing.Steady = {
    "step_s": ("step", "s"),
    "data_wait_s": ("data wait", "s"),
    "samples_per_s": ("throughput", "samples/s"),
    "tokens_per_s_per_device": ("throughput per device", "text tokens/s"),
    "padding_share": ("padding", "share of the tokens"),
    "tflops_per_device": ("model FLOP/s per device", "TFLOP/s"),
    "mfu": ("model FLOPs utilization (MFU)", "fraction of peak"),
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


breakdown = timing.breakdown


def say(result: Result) -> str:
    """The results of the run, in a sentence or two."""
    after, majority = result["accuracy_after"], result["majority"]
    if after is None:
        return f"{how_far(result, STEP)} {training_loss(result, 'nats per token')}".strip()
    text = (
        f"After {result['steps']} steps field accuracy on {result['num_tested']} held-out answers is {percent(after)}"
    )
    return text + ("." if majority is None else f"; the majority-class baseline is {percent(majority)}.")


def also(result: Result) -> str:
    image, audio = result["accuracy_without_image"], result["accuracy_without_audio"]
    both = image is not None and audio is not None
    return f"Ablations: {percent(image)} without images, {percent(audio)} without audio." if both else ""


def _fields(test: Record) -> list[Record]:
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
    fig, (ax,) = style.figure("field accuracy", x="step")
    points(ax, [(t["step"] or 0, t["accuracy"]) for t in tests], "blue", "image and audio", 4.5, 1.9)
    for name, label, color in (
        ("without_image", "without images", "orange"),
        ("without_audio", "without audio", "teal"),
    ):
        places = [(t["step"] or 0, v) for t in tests if (v := number((t[name] or {}).get("accuracy"))) is not None]
        if places:
            points(ax, places, color, label)
    if (majority := result["majority"]) is not None:
        ax.axhline(majority, color=style.color("grey"), linestyle="--", linewidth=1.0, label="majority-class baseline")
    ax.set_ylim(0, 1.03)
    in_percent(ax)
    style.legend(fig, ax)
    caption = "Field accuracy on held-out answers, and the ablations: the same lines without images or without audio."
    return Plot("accuracy", "Field accuracy", caption, style.to_svg(fig, "Accuracy over steps"))


def by_field(records: Records, result: Result) -> Plot | None:
    rows = [r for r in result["fields"] if r["accuracy"] is not None]
    if not rows:
        return None
    series = (
        ("accuracy", "image and audio", "blue"),
        ("without_image", "without images", "orange"),
        ("without_audio", "without audio", "teal"),
        ("majority", "majority-class baseline", "grey"),
    )
    caption = "Accuracy of each field, with both modalities and in the ablations."
    svg = bars("accuracy", [r["field"].replace("_", "\n") for r in rows], rows, series, "Accuracy of each field")
    return Plot("fields", "By field", caption, svg)


def loss(records: Records, result: Result) -> Plot | None:
    caption = "Cross-entropy of the response tokens of each step (faint) and smoothed."
    return losses(records, result, "nats per response token", caption)


PLOTS: tuple[Draw, ...] = (accuracy, by_field, loss, rate, device_utilization.throughput, device_utilization.plot)

_PACE = ("model", "hardware")
COMPARED: tuple[Figure, ...] = (
    Figure("accuracy_before", "field accuracy before", "fraction", ("data",), "difference"),
    Figure("accuracy_after", "field accuracy after", "fraction", ("data", "training"), "difference"),
    Figure("accuracy_without_image", "accuracy without images", "fraction", ("data", "training"), "difference"),
    Figure("accuracy_without_audio", "accuracy without audio", "fraction", ("data", "training"), "difference"),
    Figure("json_valid", "valid JSON answers", "fraction", ("data",), "difference"),
    Figure("loss_after", "held-out loss after", "nats/token", ("data", "vocabulary", "training"), "difference"),
    Figure("steady_state.step_s", "step time", "s", (*_PACE, "work", "devices")),
    Figure("steady_state.samples_per_s", "throughput", "samples/s", (*_PACE, "devices")),
    MFU,
    DATA_WAIT,
    PEAK_MEMORY,
    Figure("wall_time.total_s", "run time", "s", (*_PACE, "work", "devices", "training")),
)
CURVES: tuple[Curve, ...] = (
    Curve("loss", "Loss", "nats per response token", ("data", "vocabulary"), tested="loss"),
    Curve("", "Field accuracy", "of held-out answers", ("data",), tested="accuracy"),
    Curve("samples_per_s", "Samples per second", "samples/s", (*_PACE, "devices"), warm=True),
)
