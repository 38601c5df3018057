"""result.json: every figure of a run, with null for what was not measured.

A run that was stopped at any moment has a result. How it looks is decided in `figures` and `page.py`.
"""

from __future__ import annotations

import shlex
from typing import Any

from podwright.errors import UserError
from podwright.recipe.advice import with_records
from podwright.recipe.load import fingerprint
from podwright.report import kinds, prediction, reproduce, timing
from podwright.report import records as reading
from podwright.report.records import Records, Result, difference, inner, number
from podwright.run import cost, journal
from podwright.run.journal import RunState, fold
from podwright.run.states import Phase, advice
from podwright.rundir import Ending, Record, RunDir, finite, planned_steps
from podwright.watch import damage


def result(run: RunDir) -> Result:
    """All figures of `run` as valid JSON: no NaN, no infinity."""
    return of_records(run, reading.read(run))


def of_records(run: RunDir, records: Records) -> Result:
    steps = records.steps()
    kind = kinds.of(records.raw)
    measured = evaluations(records, kind.FACTS.tested)
    of_kind = kind.figures(records, measured)
    figures: Result = {
        "name": records.name,
        "kind": records.main,
        "recipe": records.raw.get("name"),
        "description": records.raw.get("description"),
        "fingerprint": fingerprint(records.recipe) if records.recipe else None,
        **ending(records),
        "steps": steps[-1]["step"] if steps else 0,
        "steps_planned": planned_steps(records.raw) or records.last("environment").get("max_steps"),
        **of_kind,
        "evaluations": measured,
        "steady_state": timing.steady_state(records, kind.FACTS.steady),
        "profile": _profile(run, steps),
        "wall_time": timing.wall_time(records) | {f"inside_{records.main}_s": kind.breakdown(records)},
        "environment": _environment(records),
        "usage": cost.as_json(cost.usage(map(journal.dated, records.journal), journal.now())),
        "attempts": [_attempt(a, records) for a in records.attempts],
        "resumed_at": [e.get("step") for e in records.named("resumed")],
        "notices": list(dict.fromkeys(str(e.get("message", "")) for e in records.named("notice"))),
        "command": reproduce.command(run, records),
    }
    figures |= of_kind
    figures["damaged"] = damaged_files(run, records, figures["ending"] is not None)
    figures["warnings"] = [f"{sentence}." for sentence in figures["damaged"]] + figures.get("warnings", [])
    figures["expected"] = expected(records.raw.get("expect"), figures)
    figures["predicted"], figures["not_predicted"] = prediction.compared(run, records, figures)
    clean: Result = finite(figures)
    return clean


def damaged_files(run: RunDir, records: Records, ended: bool) -> list[str]:
    """A sentence for each file of the run that has lost records."""
    sentences = damage.of_run(run, *records.readers, ended)
    try:
        if run.journal.exists():
            journal.read(run)
    except UserError as e:
        sentences.append(str(e))
    return sentences


def _profile(run: RunDir, steps: list[Record]) -> Record | None:
    """Which steps were traced, and what opens the traces; None without any."""
    traced = [s["step"] for s in steps if s.get("profiled")]
    return {"steps": traced, "command": f"xprof --logdir {shlex.quote(str(run.profile))}"} if traced else None


def evaluations(records: Records, found_in_each: tuple[str, ...]) -> list[Record]:
    """The tests in the order of their steps; one that was run again after a resume counts once, the last time."""
    newest: dict[tuple[Any, int], Record] = {}
    for event in records.named("evaluation"):
        step = event.get("step")
        newest[event.get("when"), step if isinstance(step, int) else 0] = event
    order = {"before": 0, "during": 1, "after": 2}
    keys = sorted(newest, key=lambda k: (order.get(k[0], 1), k[1]))
    names = ("when", "step", "num", *found_in_each, "seconds")
    return [{name: newest[k].get(name) for name in names} for k in keys]


def ending(records: Records) -> Record:
    """How the newest attempt ended, by the journal or by what the trainer wrote; None while it runs, or when nobody saw it end."""
    state = _journal(records)
    last = records.attempts[-1] if records.attempts else None
    outcome: Record = {}
    if state.phase is Phase.ENDED:
        outcome = {"ending": state.ending, "detail": state.detail, "fix": state.fix}
    elif state.phase is not Phase.READY or not state.attempt:
        outcome = last.exit if last and last.exit and last.number >= state.attempt else {}
    name = outcome.get("ending")
    return {
        "ending": name,
        "ending_detail": outcome.get("detail") or "",
        "ending_fix": _advice(name, outcome.get("fix") or "", records),
    }


def _journal(records: Records) -> RunState:
    try:
        return fold(records.journal)
    except (KeyError, ValueError):  # a journal of another version
        return RunState()


def _advice(name: Any, fix: str, records: Records) -> str:
    if fix or name == Ending.FINISHED or name not in list(Ending):
        return fix
    complete = bool(records.attempts) and records.attempts[-1].exit is not None
    keys = with_records(str(records.raw.get("kind")), records.events, any(records.stages.values()), complete)
    return advice(Ending(name), fix, records.name, keys)


def expected(expect: Any, figures: Result) -> Record:
    """The recipe's promise next to what was measured, and a verdict."""
    expect = expect if isinstance(expect, dict) else {}
    metric = expect.get("metric")
    value = number(expect.get("value"))
    tolerance = number(expect.get("tolerance")) or 0.0
    measured = number(inner(figures, str(metric)))
    error = difference(measured, value)
    return {
        "metric": metric,
        "value": value,
        "tolerance": tolerance,
        "measured": measured,
        "difference": error,
        "verdict": _verdict(value, error, tolerance),
        "hardware": expect.get("hardware"),
        "time": expect.get("time"),
        "evidence": expect.get("evidence") or "",
    }


def _verdict(value: float | None, difference: float | None, tolerance: float) -> str:
    if value is None:
        return "not stated"
    if difference is None:
        return "not measured"
    return "within tolerance" if abs(difference) <= tolerance + 1e-12 else "outside tolerance"


def _environment(records: Records) -> Record:
    last = records.last("environment")
    versions = last.get("versions")
    return {
        name: last.get(name) for name in ("devices", "device_kind", "processes", "num_params", "num_trained_params")
    } | {"versions": versions if isinstance(versions, dict) else {}}


def _attempt(attempt: reading.Attempt, records: Records) -> Record:
    """An attempt that left no exit.json ended as the launcher saw it, such as preempted. `programs`: compiled or cached, in its first step."""
    firsts = [e for e in records.named("first_step") if e.get("stage") == records.main]
    first: Record = next((e for e in firsts if e.get("attempt") == attempt.number), {})
    seen = (e for e in reversed(records.journal) if e.get("event") == "ended" and e.get("attempt") == attempt.number)
    ended = attempt.exit or next(seen, {})
    return {
        "number": attempt.number,
        "ending": ended.get("ending"),
        "detail": ended.get("detail"),
        "step": ended.get("step"),
        "started": attempt.start,
        "ended": attempt.end,
        "first_step_s": first.get("seconds"),
        "programs": first.get("programs"),
    }
