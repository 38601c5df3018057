"""The figures of a MaxText run in result.json: what its logs show of speed, loss and ending, with the checks that they were held against."""

from __future__ import annotations

import math
import shlex
import statistics
import zlib
from collections import Counter
from pathlib import Path

from podwright.accelerators import GIB
from podwright.recipe.load import stored
from podwright.report.kinds import KindFacts
from podwright.report.maxtext import checks, log_run, logged
from podwright.report.maxtext.facts import RunFacts, gathered, published_run
from podwright.report.maxtext.logged import LoggedRun
from podwright.report.maxtext.steady import MOST_LISTED, Steady, is_time, known, quartiles, steady
from podwright.report.overfitting import suspicions
from podwright.report.records import Records, Result, number
from podwright.report.result import ending as ending_of_run
from podwright.rundir import Ending, Record
from podwright.watch.maxtext_ending import LogEnding
from podwright.watch.maxtext_ending import ending as ending_of_log
from podwright.watch.maxtext_log import STAGE


def of(records: Records) -> Result:
    """{} where no step was logged."""
    log = logged.of(records)
    if log is None or not log.records:
        return {}
    source = log_run.source_of(records.raw)
    facts = _facts(records, log, source)
    ended = ending_of_log(log.last, log.end, log.steps.step[-1] + 1, facts.steps_planned)
    result = _identity(records, log, facts, source) | _ending(records, ended)
    chosen = steady(log, facts, out_of_data=ended.ending == Ending.OUT_OF_DATA)
    speed = _speed(log, facts, chosen)
    excluded = list(chosen.excluded.values())
    result |= {
        "exit_code": log.known.exit_code,
        "steps": log.steps.step[-1] + 1,
        "steps_planned": facts.steps_planned,
        "steps_logged": log.num_logged,
        "steps_recomputed": log.num_logged - len(log.steps),
        "attempts": _attempts(records, log),
        "steady_state": speed,
        "excluded": [
            {
                "step": log.steps.step[e.row],
                "seconds": log.steps.seconds[e.row],
                "reason": e.reason,
                "by": "rule" if e.by_rule else "evidence",
                "other_step": e.other,
            }
            for e in excluded[:MOST_LISTED]
        ],
        "excluded_counts": dict(Counter(e.reason for e in excluded)),
        "slow_steps": [
            {"step": log.steps.step[row], "seconds": log.steps.seconds[row]} for row in chosen.slow[:MOST_LISTED]
        ],
        "wall_time": _wall_time(log, chosen),
        "loss": _loss(log),
        "last_step_figures": log.more,
        "evaluations": log.evaluations,
        "memory": _memory(log, facts),
        "environment": _environment(log, facts),
        "flops": checks.flops(facts, speed),
        "published": _published(facts, speed),
        "hosts": checks.other_hosts(log) + 1,
        "settings": _settings(facts, log),
        "units": KindFacts.of(STAGE).units,
        "warnings": suspicions(log.records, log.evaluations, None),
    }
    result["checks"] = checks.of(log, facts, chosen, result)
    return result


def _facts(records: Records, log: LoggedRun, source: Record) -> RunFacts:
    recipe = records.recipe
    if source:
        recipe = stored(source["recipe"]) if source["recipe"] else None
    facts = gathered(log.known, recipe, source.get("slice", ""))
    return facts.without_architecture() if checks.other_tokens(log, facts) else facts


def _identity(records: Records, log: LoggedRun, facts: RunFacts, source: Record) -> Result:
    """Which run it is. `mark` of a log is the same when it has grown longer, and another one for the log of another run."""
    about = f"{facts.model or ''} {facts.config}".strip()
    identity: Result = {
        "name": records.name,
        "log": str(log.path),
        "recipe": facts.recipe,
        "model": facts.model,
        "config": facts.config or None,
        "precision": facts.precision,
        "description": records.raw.get("description") or about,
    }
    if not source:
        return identity
    file = source["file"]
    first = [log.first.get(figure) for figure in ("step", "step_s", "loss", "time")]
    name = facts.name or ("log" if file == "-" else Path(file).stem)
    digits = zlib.crc32(repr((facts.model, facts.config, first)).encode())
    of_log = {"name": name, "log": file, "mark": f"{name}-{digits:08x}"}
    return identity | of_log | {"profile": source["profile"], "command": _command(source)}


def _command(source: Record) -> str:
    words = ["podwright", "report", "--log", source["file"]]
    if source["recipe"]:
        words += ["--recipe", source.get("typed") or source["recipe"]["name"]]
    if source["slice"]:
        words += ["--on", source["slice"]]
    return shlex.join(words)


def _ending(records: Records, by_log: LogEnding) -> Result:
    """By the log, except where the run knows something else of its end: a log does not tell of a node that was taken."""
    result: Result = {
        "ending": by_log.ending,
        "ending_reason": by_log.reason,
        "ending_detail": by_log.detail,
        "ending_fix": by_log.fix,
        "ending_zh": dict(by_log.zh),
    }
    by_run = ending_of_run(records)
    if by_run["ending"] not in (None, by_log.ending):
        return result | by_run | {"ending_reason": "of_run"}
    if records.journal:
        result["ending_fix"] = by_run["ending_fix"]
    return result


def _attempts(records: Records, log: LoggedRun) -> list[Record]:
    """The starts of the process; the last one of an attempt has its ending."""
    ended = {event.get("attempt"): event for event in records.journal if event.get("event") == "ended"}
    starts = []
    for start in reversed(log.starts):
        event = ended.pop(start["attempt"], {})
        of_run = {"ending": event.get("ending"), "detail": event.get("detail"), "step": start["last_step"]}
        starts.append(start | of_run)
    return starts[::-1]


def _speed(log: LoggedRun, facts: RunFacts, chosen: Steady) -> Result:
    """Medians of the steps that count; per chip where it is known how many devices a chip has."""
    table, seconds = log.steps, chosen.seconds
    tflops = known(table.tflops[row] for row in chosen.rows)
    tokens = known(table.tokens[row] for row in chosen.rows)
    tokens_s = statistics.median(tokens) if tokens else facts.tokens_per_s(chosen.median_s)
    logged_s = statistics.median(tflops) if tflops else None
    true = facts.flops_per_token * tokens_s / 1e12 if facts.flops_per_token and tokens_s else None
    peak = facts.peak_flops
    tflops_s = logged_s if true is None else true
    return {
        "step_s": chosen.median_s,
        "step_s_iqr": quartiles(seconds),
        "step_s_range": [seconds[0], seconds[-1]] if seconds else None,
        "tokens_per_s_per_device": tokens_s,
        "tokens_per_s_per_chip": facts.per_chip(tokens_s),
        "tokens_source": _source(tokens_s, "log" if tokens else "batch"),
        "tflops_per_device": tflops_s,
        "tflops_per_chip": facts.per_chip(tflops_s),
        "tflops_source": _source(tflops_s, "log" if true is None else "architecture"),
        "logged_tflops_per_device": logged_s,
        "mfu": tflops_s * 1e12 / peak if tflops_s is not None and peak and facts.precision else None,
        "num_steps": len(chosen.rows),
        "num_left_out": len(chosen.excluded),
        "units": KindFacts.of(STAGE).units,
    }


def _source(value: float | None, source: str) -> str | None:
    """Where a figure is from that is known."""
    return None if value is None else source


def _published(facts: RunFacts, speed: Result) -> Record | None:
    """With the errors of what was measured; None where nobody published a run of the same recipe."""
    run = published_run(facts)
    if run is None:
        return None
    row: Record = {"recipe": run.recipe, "source": run.source}
    for key in ("step_s", "tflops_per_chip", "tokens_per_s_per_chip"):
        ours, theirs = speed[key], getattr(run, key)
        row |= {key: theirs, f"{key}_error": ours / theirs - 1 if ours is not None and theirs else None}
    return row


def _wall_time(log: LoggedRun, chosen: Steady) -> Result:
    """`productive_s`: of the steps that count, the first of an attempt with the median, because most of its time compiles."""
    total = max(log.times) - log.times[0] if log.times else None
    seconds, productive = log.steps.seconds, 0.0
    for rows in log.steps.groups:
        productive += math.fsum(s for s in seconds[rows.start + 1 : rows.stop] if is_time(s))
        productive += chosen.median_s or 0.0
    return {
        "phases_s": {},
        f"inside_{STAGE}_s": {},
        "total_s": total,
        "pauses_s": None,  # between attempts, they are in the total
        "started": log.times[0] if log.times else None,
        "ended": max(log.times, default=None),
        "productive_s": productive if chosen.median_s else None,
        "goodput": productive / total if total and chosen.median_s and productive <= total else None,
    }


def _loss(log: LoggedRun) -> Result:
    values = []
    for record in log.records:
        loss = number(record.get("loss"))
        if loss is not None:
            values.append((record["step"], loss))
    first_step, first = values[0] if values else (None, None)
    last_step, last = values[-1] if values else (None, None)
    return {
        "change": last / first - 1 if first and last is not None else None,
        "first": first,
        "last": last,
        "first_step": first_step,
        "last_step": last_step,
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
        "source": _source(used or None, "Memstats" if log.known.memory_used_gib else "compiler"),
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
