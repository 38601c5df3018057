"""result.json: every figure of a run, with null for what was not measured.

A run that was stopped at any moment has a result. How it looks is decided in `plots.py` and `page.py`.
"""

from __future__ import annotations

from typing import Any

from podwright.recipe.load import fingerprint
from podwright.report import records as reading
from podwright.report import reproduce, timing
from podwright.report.records import Records, number
from podwright.run.journal import RunState, fold
from podwright.run.states import advice
from podwright.rundir import Ending, Record, RunDir

Result = dict[str, Any]


def result(run: RunDir) -> Result:
    """All figures of `run` as valid JSON: no NaN, no infinity."""
    return of_records(run, reading.read(run))


def of_records(run: RunDir, records: Records) -> Result:
    steps = records.steps("grpo")
    measured = evaluations(records)
    figures: Result = {
        "name": records.name,
        "recipe": records.raw.get("name"),
        "description": records.raw.get("description"),
        "fingerprint": fingerprint(records.recipe) if records.recipe else None,
        **ending(records),
        "steps": steps[-1]["step"] if steps else 0,
        "steps_planned": _inner(records.raw, "training", "max_steps"),
        "warm_start_steps": len(records.steps("warm_start")),
        **_accuracy(measured),
        "evaluations": measured,
        "paired_test": _paired(records),
        "steady_state": timing.steady_state(records),
        "reward": timing.trend(steps, "reward") | {"unit": "weighted sum, mean over completions"},
        "kl_last": timing.last(steps, "kl"),
        "loss_last": timing.last(steps, "loss"),
        "warm_start_loss": timing.trend(records.steps("warm_start"), "loss"),
        "wall_time": timing.wall_time(records),
        "environment": _environment(records),
        "attempts": [_attempt(a) for a in records.attempts],
        "resumed_at": [e.get("step") for e in records.named("resumed")],
        "notices": list(dict.fromkeys(str(e.get("message", "")) for e in records.named("notice"))),
        "command": reproduce.command(run, records),
    }
    figures["expected"] = expected(records.raw.get("expect"), figures)
    clean: Result = reading.finite(figures)
    return clean


def evaluations(records: Records) -> list[Record]:
    """The tests in the order of their steps; one that was run again after a resume counts once, the last time."""
    found: dict[tuple[Any, int], Record] = {}
    for event in records.named("evaluation"):
        step = event.get("step")
        found[event.get("when"), step if isinstance(step, int) else 0] = event
    order = {"before": 0, "during": 1, "after": 2}
    keys = sorted(found, key=lambda k: (order.get(k[0], 1), k[1]))
    names = ("when", "step", "num", "strict", "flexible", "truncated", "mean_tokens", "seconds")
    return [{name: found[k].get(name) for name in names} for k in keys]


def ending(records: Records) -> dict[str, Any]:
    """How the newest attempt ended, by the journal or by what the trainer wrote; None while it runs, or when nobody saw it end."""
    state = _journal(records)
    last = records.attempts[-1] if records.attempts else None
    found: Record = {}
    if state.ending is not None:
        found = {"ending": state.ending, "detail": state.detail, "fix": state.fix}
    elif last is not None and last.exit is not None and last.number >= state.attempt:
        found = last.exit
    name = found.get("ending")
    return {
        "ending": name,
        "ending_detail": found.get("detail") or "",
        "ending_fix": _advice(name, found.get("fix") or "", records.name),
    }


def _journal(records: Records) -> RunState:
    try:
        return fold(records.journal)
    except (KeyError, ValueError):  # a journal of another version
        return RunState()


def _advice(name: Any, fix: str, run: str) -> str:
    if fix or name == Ending.FINISHED or name not in list(Ending):
        return fix
    return advice(Ending(name), fix, run)


def expected(expect: Any, figures: Result) -> dict[str, Any]:
    """The recipe's promise next to what was measured, and a verdict."""
    expect = expect if isinstance(expect, dict) else {}
    metric = expect.get("metric")
    value, tolerance = number(expect.get("value")), number(expect.get("tolerance")) or 0.0
    measured = number(_inner(figures, *str(metric).split(".")))
    difference = None if value is None or measured is None else measured - value
    return {
        "metric": metric,
        "value": value,
        "tolerance": tolerance,
        "measured": measured,
        "difference": difference,
        "verdict": _verdict(value, difference, tolerance),
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


def _accuracy(measured: list[Record]) -> dict[str, Any]:
    """Strict and flexible accuracy before and after, and the gain in strict accuracy."""
    found: dict[str, Any] = {}
    for when in ("before", "after"):
        test = next((e for e in reversed(measured) if e["when"] == when), {})
        strict, flexible = _graded(test, "strict"), _graded(test, "flexible")
        found[f"accuracy_{when}"] = strict["accuracy"]
        found[f"accuracy_{when}_interval"] = [strict["low"], strict["high"]]
        found[f"accuracy_{when}_flexible"] = flexible["accuracy"]
        found[f"accuracy_{when}_flexible_interval"] = [flexible["low"], flexible["high"]]
        found[f"truncated_{when}"] = number(test.get("truncated"))
        found[f"num_test_{when}"] = test.get("num")
    before, after = found["accuracy_before"], found["accuracy_after"]
    found["accuracy_gain"] = None if before is None or after is None else after - before
    found["accuracy_unit"] = "fraction of the test questions, greedy pass@1, strict; intervals are 95 % Wilson"
    return found


def _graded(test: Record, grading: str) -> dict[str, float | None]:
    value = test.get(grading)
    return {k: number(value.get(k) if isinstance(value, dict) else None) for k in ("accuracy", "low", "high")}


def _paired(records: Records) -> dict[str, Any] | None:
    test = records.last("comparison")
    if not test:
        return None
    return {"gained": test.get("gained"), "lost": test.get("lost"), "p_value": number(test.get("p_value")), "test": "exact McNemar"}


def _environment(records: Records) -> dict[str, Any]:
    last = records.last("environment")
    versions = last.get("versions")
    return {name: last.get(name) for name in ("devices", "device_kind", "processes", "num_params", "num_trained_params")} | {
        "versions": versions if isinstance(versions, dict) else {}
    }


def _attempt(attempt: reading.Attempt) -> dict[str, Any]:
    ended = attempt.exit or {}
    return {
        "number": attempt.number,
        "ending": ended.get("ending"),
        "detail": ended.get("detail"),
        "step": ended.get("step"),
        "started": attempt.start,
        "ended": attempt.end,
    }


def _inner(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
