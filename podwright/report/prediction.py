"""Predicted beside measured: what the plan of a run said of memory, time and cost, and what came out.

`read` alone knows the layout of plan.json. The rows are the same for every kind of recipe; which of them a run has depends on its plan.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from podwright.report.comparison.comparable import inner
from podwright.report.records import Records, Result, known, number
from podwright.rundir import Ending, RunDir

NOTHING = "Nothing was predicted: memory needs a slice whose devices are known, time a plan that compiles."
NOTE = (
    "Error: measured / predicted − 1. Devices count one peak of memory for all programs. Predicted hours are those of steps, tests and "
    "warm start; measured ones include loading, compiling and checkpoints. Sampled completions are predicted at their maximum length."
)
NOT_MEASURED = "not measured"

# what, unit, where plan.json's `step` has it, where result.json has it
_RATES = (
    ("time of a step", "s", "step_s", "steady_state.step_s"),
    ("completions", "completions/s", "completions_per_s", "steady_state.sequences_per_s"),
    ("tokens per device", "tokens/s", "tokens_per_s_per_device", "steady_state.tokens_per_s_per_device"),
    ("model FLOPs per device", "TFLOP/s", "tflops_per_device", "steady_state.tflops_per_device"),
    ("model FLOPs utilisation", "fraction of peak", "mfu", "steady_state.mfu"),
)


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Of a plan, what a run can be compared with."""

    memory_gib: dict[str, float]
    """per device, by program"""
    source: str
    """of the memory: "compiled" or "estimated" """
    step: dict[str, Any]
    """times as `podwright plan --json` has them; {} where nothing was compiled"""


def read(run: RunDir) -> Prediction:
    """From plan.json; without one, or with a damaged one, nothing is predicted."""
    try:
        plan = json.loads(run.plan.read_text())
    except (OSError, ValueError):
        plan = None
    plan = plan if isinstance(plan, dict) else {}
    compiled = _by_name(plan.get("programs"), "hbm_gib")
    memory = compiled or _by_name(plan.get("memory"), "estimated_gib")
    step = plan.get("step")
    return Prediction(memory, "compiled" if compiled else "estimated", step if isinstance(step, dict) else {})


def rows(prediction: Prediction, records: Records, figures: Result) -> list[dict[str, Any]]:
    """A row for each thing predicted: {what, unit, predicted, measured, error, source}; `measured` is None where nothing measured it."""
    found = [*_memory(prediction, records), *_times(prediction.step, figures), *_totals(prediction.step, figures)]
    return [row for row in found if row["predicted"] is not None]


def _memory(prediction: Prediction, records: Records) -> Iterator[dict[str, Any]]:
    need = prediction.memory_gib
    if not need:
        return
    yield _row("peak memory per device", "GiB", max(need.values()), _peak_gib(records), prediction.source)
    for name, gib in need.items() if len(need) > 1 else ():
        yield _row(f"memory of {name}", "GiB", gib, None, prediction.source)


def _peak_gib(records: Records) -> float | None:
    """Of the devices; None on a CPU, where the figure is that of the process with its compiler."""
    if str(records.last("environment").get("device_kind")).lower() == "cpu":
        return None
    return max(known(records.steps(), "peak_memory_gib"), default=None)


def _times(step: dict[str, Any], figures: Result) -> Iterator[dict[str, Any]]:
    parts = _by_name(step.get("programs"), "seconds")
    for what, unit, key, measured in _RATES:
        yield _row(what, unit, number(step.get(key)), number(inner(figures, measured)), "compiled")
        for name, seconds in parts.items() if key == "step_s" and len(parts) > 1 else ():
            yield _row(f"{what}: {name}", unit, seconds, number(inner(figures, f"steady_state.{name}_s")), "compiled")


def _totals(step: dict[str, Any], figures: Result) -> Iterator[dict[str, Any]]:
    """Of the run as a whole, measured when it has finished."""
    predicted, seconds = {}, number(inner(figures, "wall_time.total_s"))
    for key in ("hours", "chip_hours", "cost"):
        predicted[key] = number(inner(step, f"run.{key}"))
    hours = seconds / 3600 if seconds is not None and figures["ending"] == Ending.FINISHED else None
    for key, what, unit in (
        ("hours", "time of the run", "h"),
        ("chip_hours", "chip-hours", "h"),
        ("cost", "cost", "at the plan's price"),
    ):
        each = _ratio(predicted[key], predicted["hours"])  # chips, or money, an hour
        measured = None if hours is None or each is None else hours * each
        yield _row(what, unit, predicted[key], measured, "compiled")


def _row(what: str, unit: str, predicted: float | None, measured: float | None, source: str) -> dict[str, Any]:
    ratio = _ratio(measured, predicted)
    return {
        "what": what,
        "unit": unit,
        "predicted": predicted,
        "measured": measured,
        "error": None if ratio is None else ratio - 1,
        "source": source,
    }


def _ratio(value: float | None, of: float | None) -> float | None:
    return None if value is None or not of else value / of


def _by_name(entries: Any, key: str) -> dict[str, float]:
    """{name: entry[key]} of a list of entries, those that are numbers."""
    entries = entries if isinstance(entries, list) else []
    return {
        str(e.get("name")): value for e in entries if isinstance(e, dict) and (value := number(e.get(key))) is not None
    }
