"""What a report says of a multimodal run: how many fields it gets right, and what is lost without picture or sound."""

from __future__ import annotations

import functools
from typing import Any

from podwright.report import device_utilization, timing
from podwright.report.figures import style
from podwright.report.figures.drawing import Draw, Plot, in_percent, losses, points, rate
from podwright.report.kinds import KindFacts
from podwright.report.records import Records, Result, difference, newest, number
from podwright.report.wording import percent, so_far
from podwright.rundir import Record

FACTS = KindFacts.of("multimodal")


def figures(records: Records, tests: list[Record]) -> Result:
    steps = records.steps()
    last = newest(tests, "after")
    before, after = number(newest(tests, "before").get("accuracy")), number(last.get("accuracy"))
    return {
        "loss": timing.trend(steps, "loss"),
        "loss_before": number(newest(tests, "before").get("loss")),
        "loss_after": number(last.get("loss")),
        "accuracy_before": before,
        "accuracy_after": after,
        "accuracy_gain": difference(after, before),
        "majority": number((last or newest(tests, "before")).get("majority")),
        "json_valid": number(last.get("json_valid")),
        "accuracy_without_image": number((last.get("without_image") or {}).get("accuracy")),
        "accuracy_without_audio": number((last.get("without_audio") or {}).get("accuracy")),
        "fields": _fields(last),
        "num_tested": last.get("num"),
        **device_utilization.of_lines(records),
        "units": FACTS.units,
    }


breakdown = timing.breakdown


def say(result: Result) -> str:
    """The results of the run, in a sentence or two."""
    after, majority = result["accuracy_after"], result["majority"]
    if after is None:
        return so_far(result, FACTS.step, "nats per token")
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
        places = []
        for test in tests:
            accuracy = number((test[name] or {}).get("accuracy"))
            if accuracy is not None:
                places.append((test["step"] or 0, accuracy))
        if places:
            points(ax, places, color, label)
    if (majority := result["majority"]) is not None:
        ax.axhline(majority, color=style.color("grey"), linestyle="--", linewidth=1.0, label="majority-class baseline")
    in_percent(ax, 1.03)
    style.legend(fig, ax)
    caption = "Field accuracy on held-out answers, and the ablations: the same lines without images or without audio."
    return Plot("accuracy", "Field accuracy", caption, style.to_svg(fig, "Accuracy over steps"))


PLOTS: tuple[Draw, ...] = (
    accuracy,
    FACTS.charts["fields"],
    functools.partial(
        losses,
        unit="nats per response token",
        caption="Cross-entropy of the response tokens of each step (faint) and smoothed.",
    ),
    rate,
    FACTS.courses["samples-per-s"],
    device_utilization.plot,
)
