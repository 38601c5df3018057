"""Predicted and measured: memory, time and cost by the plan of a run, and as the run had them.

The rows are the same for every kind of recipe; which of them a run has depends on its plan.
"""

from __future__ import annotations

from collections.abc import Iterator

from podwright.errors import UserError
from podwright.plan.document import Plan, StepEntry
from podwright.report.records import Records, Result, inner, known, number
from podwright.rundir import Ending, Record, RunDir

NOTHING = "No prediction: a plan predicts memory and time only for a slice whose devices are known."
NOTE = (
    "Error: measured / predicted − 1. Measured peak memory is the maximum over all programs. Predicted hours cover steps, evaluations and "
    "warm start; measured hours also include loading, compilation and checkpoints. If machines were created for the run, chip-hours cover "
    "the whole allocation. Completions are predicted at their maximum length."
)
NOT_MEASURED = "not measured"

# what, unit, the field of the plan's step, where result.json has it
_RATES = (
    ("step time", "s", "step_s", "steady_state.step_s"),
    ("throughput", "completions/s", "completions_per_s", "steady_state.sequences_per_s"),
    ("throughput per device", "tokens/s", "tokens_per_s_per_device", "steady_state.tokens_per_s_per_device"),
    ("model FLOP/s per device", "TFLOP/s", "tflops_per_device", "steady_state.tflops_per_device"),
    ("model FLOPs utilization (MFU)", "fraction of peak", "mfu", "steady_state.mfu"),
)
_TOTALS = (
    ("run time", "h", "hours"),
    ("chip-hours", "h", "chip_hours"),
    ("cost", "at the plan's price", "cost"),
)


def compared(run: RunDir, records: Records, figures: Result) -> tuple[list[Record], str | None]:
    """A row for each thing predicted: {what, unit, predicted, measured, error, source}, where `measured` is None if nothing measured it;
    and a sentence that says why there are no rows, None if there are some."""
    if not run.plan.exists():
        return [], NOTHING
    try:
        plan = Plan.read(run.plan)
    except UserError as e:
        return [], f"The prediction cannot be read: {e.what}."
    listed = [*_memory(plan, records)]
    if plan.step:
        listed += [*_times(plan.step, figures), *_totals(plan.step, figures)]
    rows = [row for row in listed if row["predicted"] is not None]
    return rows, None if rows else NOTHING


def _memory(plan: Plan, records: Records) -> Iterator[Record]:
    compiled = {p.name: p.hbm_gib for p in plan.programs if p.hbm_gib is not None}
    need = compiled or {e.name: e.estimated_gib for e in plan.memory}
    if not need:
        return
    source = "compiled" if compiled else "estimated"
    yield _row("peak memory per device", "GiB", max(need.values()), _peak_gib(records), source)
    for name, gib in need.items() if len(need) > 1 else ():
        yield _row(f"memory of {name}", "GiB", gib, None, source)


def _peak_gib(records: Records) -> float | None:
    """Of the devices; None on a CPU, where the figure is that of the process with its compiler."""
    if str(records.last("environment").get("device_kind")).lower() == "cpu":
        return None
    return max(known(records.steps(), "peak_memory_gib"), default=None)


def _times(step: StepEntry, figures: Result) -> Iterator[Record]:
    source = "estimated" if step.estimated else "compiled"
    for what, unit, field, measured in _RATES:
        yield _row(what, unit, getattr(step, field), number(inner(figures, measured)), source)
        for part in step.programs if field == "step_s" and len(step.programs) > 1 else ():
            spent = number(inner(figures, f"steady_state.{part.name}_s"))
            yield _row(f"{what}: {part.name}", unit, part.seconds, spent, source)


def _totals(step: StepEntry, figures: Result) -> Iterator[Record]:
    """Of the run as a whole, measured when it has finished: chip-hours by the usage of the machines that were created for it, else as
    the hours that it took on the chips of the plan."""
    seconds = number(inner(figures, "wall_time.total_s"))
    hours = seconds / 3600 if seconds is not None and figures["ending"] == Ending.FINISHED else None
    if step.run is None or step.run.steps <= 10:  # a smoke run, which mostly loads and compiles
        return
    source = "estimated" if step.estimated else "compiled"
    chips = _ratio(step.run.chip_hours, step.run.hours)
    chip_hours = None if hours is None or chips is None else hours * chips
    if hours is not None and figures["usage"]:
        chip_hours = figures["usage"]["chip_hours"]
    price = step.run.price
    cost = None if chip_hours is None or price is None else chip_hours * price
    if hours is not None and figures["usage"] and step.run.costs:
        cost = figures["usage"]["cost"]
    for (what, unit, field), measured in zip(_TOTALS, (hours, chip_hours, cost), strict=True):
        yield _row(what, unit, getattr(step.run, field), measured, source)


def _row(what: str, unit: str, predicted: float | None, measured: float | None, source: str) -> Record:
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
