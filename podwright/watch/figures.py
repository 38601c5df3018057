"""How figures are shown to a person: which of a step's, rounded how, and durations."""

from __future__ import annotations

import math

from podwright.rundir import Record

_SHOWN = (
    ("reward", "reward", "{:.3f}"),
    ("loss", "loss", "{:.4f}"),
    ("kl", "KL", "{:.4f}"),
    ("completion_length", "length", "{:.0f}"),
    ("expert_load_max", "expert load", "{:.2f}"),
    ("tokens_per_s", "tokens/s", "{:,.0f}"),
    ("samples_per_s", "samples/s", "{:,.1f}"),
    ("tokens_per_s_per_device", "tokens/s/device", "{:,.0f}"),
    ("step_s", "s/step", "{:.2f}"),
)


def of_step(record: Record) -> list[str]:
    """The few figures of a step that are looked at while it runs; one that is not known is left out."""
    figures = []
    for key, label, form in _SHOWN:
        value = record.get(key)
        if isinstance(value, int | float):
            shown = _seconds(value) if key == "step_s" else form.format(value)
            figures.append(f"{label} {shown}")
    return figures


def _seconds(value: float) -> str:
    """With two decimals, of less than a second with three significant digits."""
    return f"{value:.{2 - math.floor(math.log10(value)) if 0 < value < 1 else 2}f}"


def of_test(event: Record) -> str:
    """What an evaluation found: answers where they are tested, else the loss."""
    graded = event.get("strict")
    loss = event.get("loss")
    if "json_valid" in event:
        return (
            f"field accuracy {event['when']}: {percent(event['accuracy'])}, {percent(event['json_valid'])} valid JSON"
        )
    if "directions" in event:
        recall, chance = (
            percent(event[name]) if event[name] is not None else "-" for name in ("recall_at_1", "chance_at_1")
        )
        return f"recall@1 {event['when']}: {recall}, chance {chance}"
    if graded:
        return f"accuracy {event['when']}: {percent(graded['accuracy'])} of {event['num']}"
    return f"held-out loss {event['when']}: " + ("not known" if loss is None else f"{loss:.4f}")


def duration(seconds: float) -> str:
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02}:{s:02}"


def percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"
