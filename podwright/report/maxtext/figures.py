"""result.json of a log: what it shows of speed, loss and ending, with the checks that its figures were held against."""

from __future__ import annotations

import itertools
import math
import statistics

from podwright.accelerators import GIB
from podwright.report import records as reading
from podwright.report.maxtext import checks
from podwright.report.maxtext.facts import RunFacts
from podwright.report.maxtext.logged import LoggedRun
from podwright.report.maxtext.steady import MOST_LISTED, Steady, counts, is_time, known, quartiles, sample, steady
from podwright.report.overfitting import suspicions
from podwright.report.records import Result
from podwright.rundir import Ending, Record
from podwright.watch.maxtext_ending import LogEnding, ending

STAGE = "maxtext"
MOST_STEPS = 2000
"""of a log that are kept for plots and comparisons, evenly apart"""
UNITS = {
    "step_s": "s",
    "tokens_per_s_per_device": "tokens/s",
    "tokens_per_s_per_chip": "tokens/s",
    "tflops_per_device": "TFLOP/s",
    "tflops_per_chip": "TFLOP/s",
    "logged_tflops_per_device": "TFLOP/s, as the log has it",
    "mfu": "fraction of the peak of the run's precision",
}


def result(
    log: LoggedRun, facts: RunFacts, steps: list[Record], name: str, path: str, published: Record | None = None
) -> Result:
    """All figures of a log that has steps, as valid JSON. `steps`: as `thinned` has them; `published`: the row of the same recipe in
    the table of its authors."""
    last_step = log.steps.step[-1]
    ended = ending(log.last, log.end, last_step + 1, facts.steps_planned)
    chosen = steady(log, facts, out_of_data=ended.ending == Ending.OUT_OF_DATA)
    speed = _speed(log, facts, chosen)
    figures: Result = {
        "name": facts.name or name,
        "kind": STAGE,
        "log": path,
        "recipe": facts.recipe,
        "model": facts.model,
        "config": facts.config or None,
        "precision": facts.precision,
        **_ending(log, facts, ended, last_step),
        "steady_state": speed,
        "excluded": _excluded(log, chosen),
        "excluded_counts": counts(chosen.excluded.values()),
        "slow_steps": _rows(log, chosen.slow[:MOST_LISTED]),
        "wall_time": _wall_time(log, chosen),
        "loss": _loss(log),
        "last_step_figures": log.more,
        "evaluations": log.evaluations,
        "memory": _memory(log, facts),
        "environment": _environment(log, facts),
        "flops": checks.flops(facts, speed),
        "published": published,
        "predicted": [],
        "not_predicted": "A log has no plan: podwright plan RECIPE predicts these figures.",
        "damaged": [],
        "profile": None,
        "hosts": log.hosts + 1,
        "settings": _settings(facts, log),
        "units": UNITS,
    }
    figures["checks"] = checks.of(log, facts, chosen, figures)
    figures["warnings"] = suspicions(steps, figures["evaluations"], None)
    clean: Result = reading.finite(figures)
    return clean


def _speed(log: LoggedRun, facts: RunFacts, chosen: Steady) -> Result:
    """Medians of the steps that count; per chip where it is known how many devices a chip has."""
    table, seconds = log.steps, chosen.seconds
    tflops = known(table.tflops[row] for row in sample(chosen.rows))
    tokens = known(table.tokens[row] for row in sample(chosen.rows))
    tokens_s = statistics.median(tokens) if tokens else _tokens_by_batch(facts, chosen.median_s)
    logged = statistics.median(tflops) if tflops else None
    true = facts.flops_per_token * tokens_s / 1e12 if facts.flops_per_token and tokens_s else None
    each, peak = facts.devices_per_chip, facts.peak_flops
    tflops_s = logged if true is None else true
    return {
        "step_s": chosen.median_s,
        "step_s_iqr": quartiles(seconds),
        "step_s_range": [seconds[0], seconds[-1]] if seconds else None,
        "tokens_per_s_per_device": tokens_s,
        "tokens_per_s_per_chip": _times(tokens_s, each),
        "tokens_source": None if tokens_s is None else "log" if tokens else "batch",
        "tflops_per_device": tflops_s,
        "tflops_per_chip": _times(tflops_s, each),
        "tflops_source": None if tflops_s is None else "log" if true is None else "architecture",
        "logged_tflops_per_device": logged,
        "mfu": tflops_s * 1e12 / peak if tflops_s is not None and peak and facts.precision else None,
        "num_steps": len(chosen.rows),
        "num_left_out": len(chosen.excluded),
        "units": UNITS,
    }


def _tokens_by_batch(facts: RunFacts, step_s: float | None) -> float | None:
    """Tokens/s of a device by the batch of the recipe, where the log does not say."""
    if not (facts.tokens_per_step and facts.devices and step_s) or math.isnan(step_s):
        return None
    return facts.tokens_per_step / facts.devices / step_s


def _times(value: float | None, factor: int | None) -> float | None:
    return None if value is None or factor is None else value * factor


def _ending(log: LoggedRun, facts: RunFacts, ended: LogEnding, last_step: int) -> Result:
    return {
        "ending": ended.ending,
        "ending_reason": ended.reason,
        "ending_detail": ended.detail,
        "ending_fix": ended.fix,
        "ending_zh": dict(ended.zh),
        "exit_code": log.known.exit_code,
        "steps": last_step + 1,
        "steps_planned": facts.steps_planned,
        "steps_logged": log.num_logged,
        "steps_recomputed": log.num_logged - len(log.steps),
        "attempts": log.starts,
    }


def _excluded(log: LoggedRun, chosen: Steady) -> list[Result]:
    return [
        {
            "step": log.steps.step[e.row],
            "seconds": log.steps.seconds[e.row],
            "reason": e.reason,
            "by": "rule" if e.by_rule else "evidence",
            "other_step": e.other,
        }
        for e in itertools.islice(chosen.excluded.values(), MOST_LISTED)
    ]


def _rows(log: LoggedRun, rows: list[int]) -> list[Result]:
    return [{"step": log.steps.step[row], "seconds": log.steps.seconds[row]} for row in rows]


def _wall_time(log: LoggedRun, chosen: Steady) -> Result:
    """`productive_s`: of the steps that count, the first of an attempt with the median, because most of its time compiles."""
    total = None if log.first_time is None or log.last_time is None else log.last_time - log.first_time
    seconds, productive = log.steps.seconds, 0.0
    for rows in log.steps.groups:
        productive += math.fsum(s for s in seconds[rows.start + 1 : rows.stop] if is_time(s))
        productive += chosen.median_s or 0.0
    return {
        "total_s": total,
        "started": log.first_time,
        "ended": log.last_time,
        "productive_s": productive if chosen.median_s else None,
        "goodput": productive / total if total and chosen.median_s and productive <= total else None,
    }


def _loss(log: LoggedRun) -> Result:
    table = log.steps
    finite = [row for row in range(len(table)) if math.isfinite(table.loss[row])]
    first, last = next(iter(finite), None), next(reversed(finite), None)
    return {
        "first": None if first is None else table.loss[first],
        "last": None if last is None else table.loss[last],
        "first_step": None if first is None else table.step[first],
        "last_step": None if last is None else table.step[last],
        "not_finite_at": log.not_finite,
        "ends_not_finite": log.last.ends_not_finite,
    }


def _memory(log: LoggedRun, facts: RunFacts) -> Result:
    row = facts.accelerator
    limit = log.known.memory_limit_gib or (row.hbm_bytes / GIB if row and row.hbm_bytes else None)
    used = log.known.memory_used_gib or log.known.memory_gib
    return {
        "used_gib": used,
        "limit_gib": limit,
        "share": used / limit if used and limit else None,
        "source": "Memstats" if log.known.memory_used_gib else "compiler" if used else None,
    }


def _environment(log: LoggedRun, facts: RunFacts) -> Result:
    params = log.known.params_billion
    return {
        "devices": facts.devices,
        "chips": facts.chips,
        "devices_per_chip": facts.devices_per_chip,
        "device_kind": facts.accelerator.name if facts.accelerator else log.known.device_kind,
        "slice": facts.slice.name if facts.slice else None,
        "mesh": log.known.mesh,
        "num_params": None if params is None else round(params * 1e9),
        "num_trained_params": None,
        "by_architecture": {"num_params": facts.num_params, "num_active_params": facts.num_active_params},
        "processes": None,
        "versions": facts.versions,
        "peak_tflops_per_device": facts.peak_flops / 1e12 if facts.peak_flops else None,
    }


def _settings(facts: RunFacts, log: LoggedRun) -> Record:
    """Shaped as a recipe is, for comparisons."""
    return {
        "kind": STAGE,
        "model": {"name": facts.model},
        "sequence_length": facts.sequence_length,
        "batch_size": facts.batch_size,
        "precision": facts.precision,
        "data": {"source": facts.data},
        "maxtext": log.known.settings,
    }


def thinned(log: LoggedRun, facts: RunFacts) -> list[Record]:
    """At most MOST_STEPS of the steps that count. Tokens/s and TFLOP/s that the log lacks are computed."""
    apart = max(1, math.ceil(len(log.records) / MOST_STEPS))
    return [_record(step, facts) for step in log.records[::apart]]


def _record(step: Record, facts: RunFacts) -> Record:
    seconds, tokens = reading.number(step.get("step_s")), reading.number(step.get("tokens_per_s_per_device"))
    tflops = reading.number(step.get("tflops_per_device"))
    if tokens is None:
        tokens = _tokens_by_batch(facts, seconds)
    if tflops is None and facts.flops_per_token and tokens is not None:
        tflops = facts.flops_per_token * tokens / 1e12
    return {
        "stage": STAGE,
        "step": step["step"],
        "time": step["time"],
        "step_s": seconds,
        "tflops_per_device": tflops,
        "tokens_per_s_per_device": tokens,
        "loss": step.get("loss"),
    }
