"""Predicted beside measured: what the plan of a run said of memory, time and cost, and what came out.

The rows are the same for every kind of recipe; which of them a run has depends on its plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from podwright.errors import UserError
from podwright.plan.document import Plan, StepEntry
from podwright.report.comparison.comparable import inner
from podwright.report.records import Records, Result, known, number
from podwright.rundir import Ending, RunDir

NOTHING = "Nothing was predicted: a plan predicts memory and time for a slice whose devices are known."
NOTE = (
    "Error: measured / predicted − 1. Devices count one peak of memory for all programs. Predicted hours are those of steps, tests and "
    "warm start; measured ones include loading, compiling and checkpoints. Sampled completions are predicted at their maximum length."
)
NOT_MEASURED = "not measured"

# what, unit, the field of the plan's step, where result.json has it
_RATES = (
    ("time of a step", "s", "step_s", "steady_state.step_s"),
    ("completions", "completions/s", "completions_per_s", "steady_state.sequences_per_s"),
    ("tokens per device", "tokens/s", "tokens_per_s_per_device", "steady_state.tokens_per_s_per_device"),
    ("model FLOPs per device", "TFLOP/s", "tflops_per_device", "steady_state.tflops_per_device"),
    ("model FLOPs utilisation", "fraction of peak", "mfu", "steady_state.mfu"),
)
_TOTALS = (
    ("time of the run", "h", "hours"),
    ("chip-hours", "h", "chip_hours"),
    ("cost", "at the plan's price", "cost"),
)


def read(run: RunDir) -> Plan | None:
    """plan.json; None without one, with a damaged one or with that of another version."""
    try:
        return Plan.read(run.plan)
    except UserError:
        return None


def rows(plan: Plan | None, records: Records, figures: Result) -> list[dict[str, Any]]:
    """A row for each thing predicted: {what, unit, predicted, measured, error, source}; `measured` is None where nothing measured it."""
    if plan is None:
        return []
    listed = [*_memory(plan, records)]
    if plan.step:
        listed += [*_times(plan.step, figures), *_totals(plan.step, figures)]
    return [row for row in listed if row["predicted"] is not None]


def _memory(plan: Plan, records: Records) -> Iterator[dict[str, Any]]:
    compiled = {p.name: p.hbm_gib for p in plan.programs if p.hbm_gib is not None}
    need = compiled or {e.name: e.estimated_gib for e in plan.memory}
    if not need:
        return
    source = _source(estimated=not compiled)
    yield _row("peak memory per device", "GiB", max(need.values()), _peak_gib(records), source)
    for name, gib in need.items() if len(need) > 1 else ():
        yield _row(f"memory of {name}", "GiB", gib, None, source)


def _source(*, estimated: bool) -> str:
    return "estimated" if estimated else "compiled"


def _peak_gib(records: Records) -> float | None:
    """Of the devices; None on a CPU, where the figure is that of the process with its compiler."""
    if str(records.last("environment").get("device_kind")).lower() == "cpu":
        return None
    return max(known(records.steps(), "peak_memory_gib"), default=None)


def _times(step: StepEntry, figures: Result) -> Iterator[dict[str, Any]]:
    source = _source(estimated=step.estimated)
    for what, unit, field, measured in _RATES:
        yield _row(what, unit, getattr(step, field), number(inner(figures, measured)), source)
        for part in step.programs if field == "step_s" and len(step.programs) > 1 else ():
            spent = number(inner(figures, f"steady_state.{part.name}_s"))
            yield _row(f"{what}: {part.name}", unit, part.seconds, spent, source)


def _totals(step: StepEntry, figures: Result) -> Iterator[dict[str, Any]]:
    """Of the run as a whole, measured when it has finished."""
    seconds = number(inner(figures, "wall_time.total_s"))
    hours = seconds / 3600 if seconds is not None and figures["ending"] == Ending.FINISHED else None
    for what, unit, field in _TOTALS:
        predicted = getattr(step.run, field)
        each = _ratio(predicted, step.run.hours)  # chips, or money, an hour
        measured = None if hours is None or each is None else hours * each
        yield _row(what, unit, predicted, measured, _source(estimated=step.estimated))


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
