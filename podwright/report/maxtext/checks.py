"""What the figures of a log are held against: the formula of tokens and time, the peak of the hardware, the FLOPs of the architecture."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import Any

from podwright.accelerators import ACCELERATORS
from podwright.report.maxtext.facts import ANOTHER, RunFacts
from podwright.report.maxtext.logged import LoggedRun
from podwright.report.maxtext.steady import Steady, is_time, known, sample
from podwright.report.records import Result

CLOSE = 0.01
"""relative difference that rounding explains"""
SAME_FORMULA = 0.1
"""two counts of FLOPs that differ by less differ in what they leave out, such as gates and norms"""
MOST_GAPS = 12
"""runs of missing steps that are named"""
Check = dict[str, Any]
"""{check, verdict, ...}: the check's name, one of ok, warning and unknown, and the figures that its sentence names"""


def of(log: LoggedRun, facts: RunFacts, chosen: Steady, figures: Result) -> list[Check]:
    tokens = _tokens(log, facts, chosen)
    return [
        tokens,
        _peak(facts, figures["steady_state"]),
        _flops(figures["flops"], figures["steady_state"], facts, tokens["verdict"] == "warning"),
        *_conflicts(log, facts),
        *_of_times(log, chosen),
        *_missing(log),
        *_of_lines(log),
        *_of_loss(log, figures),
    ]


def flops(facts: RunFacts, speed: Result) -> Result:
    """FLOPs of a token: by the architecture, and as the log's TFLOP/s and tokens/s imply them."""
    logged, tokens = speed["logged_tflops_per_device"], speed["tokens_per_s_per_device"]
    implied = logged * 1e12 / tokens if logged and tokens else None
    counted = facts.flops_per_token
    return {
        "per_token": counted,
        "source": facts.flops_source or None,
        "logged_per_token": implied,
        "ratio": implied / counted if implied and counted else None,
    }


def _tokens(log: LoggedRun, facts: RunFacts, chosen: Steady) -> Check:
    """Tokens/s of a chip = total_weights / step time / chips, the median over the steps that count."""
    if not chosen.rows:
        return {"check": "tokens", "verdict": "unknown", "why": "steps"}
    table, each = log.steps, facts.devices_per_chip
    if facts.devices is None:
        return {"check": "tokens", "verdict": "unknown", "why": "devices"}
    ratios, expected, rounding = list[float](), list[float](), 0.0
    for row in sample(chosen.rows):
        weights, tokens, seconds = table.weights[row], table.tokens[row], table.seconds[row]
        if 0 < weights < math.inf and 0 < tokens < math.inf:
            expected.append(weights / seconds / facts.devices)
            ratios.append(tokens / expected[-1])
            rounding = max(rounding, 0.0005 / seconds)
    if not ratios:
        return _no_tokens(log, chosen)
    ratio = statistics.median(ratios)
    holds = abs(ratio - 1) <= CLOSE + rounding
    why = "" if holds else "devices" if any(abs(ratio / n - 1) <= CLOSE for n in (2, 0.5, 4, 0.25)) else "padding"
    per = each or 1
    return {
        "check": "tokens",
        "verdict": "ok" if holds else "warning",
        "why": why,
        "logged": ratio * statistics.median(expected) * per,
        "expected": statistics.median(expected) * per,
        "per": "chip" if each else "device",
        "ratio": ratio,
        "num_steps": len(ratios),
    }


def _no_tokens(log: LoggedRun, chosen: Steady) -> Check:
    """Why no step has both figures: the log lacks one of them, or it is never above 0."""
    columns = {"total_weights": log.steps.weights, "Tokens/s": log.steps.tokens}
    rows = sample(chosen.rows)
    absent = [name for name, column in columns.items() if not known(column[row] for row in rows)]
    zero = [name for name, column in columns.items() if not any(column[row] > 0 for row in rows)]
    why, names = ("weights", absent) if absent else ("zero", zero or list(columns))
    return {"check": "tokens", "verdict": "unknown", "why": why, "what": ", ".join(names)}


_FASTEST = max(max(row.bf16_flops, row.fp8_flops) for row in ACCELERATORS)
"""FLOP/s of a device, of all that are known"""


def _peak(facts: RunFacts, speed: Result) -> Check:
    """TFLOP/s above what the hardware can do."""
    if not speed["num_steps"]:
        return {"check": "peak", "verdict": "unknown", "why": "steps"}
    peak, logged = facts.peak_flops, speed["logged_tflops_per_device"]
    if peak is None and logged is not None and logged * 1e12 > _FASTEST:
        return {"check": "peak", "verdict": "warning", "logged": logged, "fastest": _FASTEST / 1e12}
    if peak is None or logged is None:
        return {"check": "peak", "verdict": "unknown", "why": "hardware" if peak is None else "tflops"}
    verdict = "warning" if logged * 1e12 > peak else "ok"
    figures = {"logged": logged, "peak": peak / 1e12, "share": logged * 1e12 / peak}
    return {"check": "peak", "verdict": verdict, "precision": facts.peak_precision, **figures}


def _flops(counted: Result, speed: Result, facts: RunFacts, doubtful: bool) -> Check:
    """The log's FLOP formula against the architecture. `doubtful`: the log's tokens/s do not hold, by which the TFLOP/s are counted."""
    if not speed["num_steps"]:
        return {"check": "flops", "verdict": "unknown", "why": "steps"}
    ratio = counted["ratio"]
    if ratio is None:
        why = "log" if counted["per_token"] else "another" if facts.of_another else "architecture"
        return {"check": "flops", "verdict": "unknown", "why": why, "what": facts.model or "the model"}
    return {
        "check": "flops",
        "verdict": "ok" if abs(ratio - 1) <= SAME_FORMULA else "warning",
        "logged": speed["logged_tflops_per_device"],
        "true": speed["tflops_per_device"],
        "mfu": speed["mfu"],
        "logged_gflop": counted["logged_per_token"] / 1e9,
        "true_gflop": counted["per_token"] / 1e9,
        "ratio": ratio,
        "doubtful": doubtful,
    }


def _conflicts(log: LoggedRun, facts: RunFacts) -> list[Check]:
    sentences = list(facts.conflicts)
    if facts.recipe and (steps := _other_steps(log, facts)):
        sentences.append(f"{', '.join(steps)}: {ANOTHER}")
    return [{"check": "conflict", "verdict": "warning", "what": sentence} for sentence in sentences]


def _other_steps(log: LoggedRun, facts: RunFacts) -> list[str]:
    """What the steps themselves show: more of them than planned, and tokens that the recipe's steps do not have."""
    last, sentences = log.steps.step[len(log.steps) - 1], list[str]()
    if facts.steps_planned and last >= facts.steps_planned:
        sentences.append(f"step {last} is in the log, and the recipe has {facts.steps_planned} steps")
    if weights := other_tokens(log, facts):
        each = f"{facts.batch_size:,} sequences of {facts.sequence_length:,}"
        sentences.append(
            f"a step has {weights:,.0f} tokens in the log and {facts.tokens_per_step:,} in the recipe, {each}"
        )
    return sentences


def other_tokens(log: LoggedRun, facts: RunFacts) -> float:
    """The most tokens of a step, if they are more than the recipe's or a fraction 1 / n of them, which padding does not give; else 0."""
    tokens = facts.tokens_per_step
    if not facts.recipe or not tokens:
        return 0
    weights = max(known(log.steps.weights), default=0)
    return weights if weights > tokens or (0 < weights < tokens and tokens % weights == 0) else 0


def _of_times(log: LoggedRun, chosen: Steady) -> list[Check]:
    """Times that no step can have, the first of each attempt among them."""
    table = log.steps
    wrong = [row for row in range(len(table)) if not is_time(table.seconds[row]) and row not in table.hidden]
    if chosen.median_s is not None:  # a single 0 is rounded, and in the list of what does not count
        wrong = [row for row in wrong if table.seconds[row] != 0]
    why = "some" if chosen.median_s is not None else "all"
    return [{"check": "times", "verdict": "warning", "why": why, "num": len(wrong)}] if wrong else []


def _missing(log: LoggedRun) -> list[Check]:
    """Steps between the first and the last that the log does not have."""
    gaps = [(before + 1, after - 1) for before, after in itertools.pairwise(log.steps.step) if after - before > 1]
    if not gaps:
        return []
    names = [str(first) if first == last else f"{first}-{last}" for first, last in gaps[:MOST_GAPS]]
    what = ", ".join([*names, *(["..."] if len(gaps) > MOST_GAPS else [])])
    num = sum(last - first + 1 for first, last in gaps)
    return [{"check": "missing", "verdict": "warning", "num": num, "what": what}]


def _of_lines(log: LoggedRun) -> list[Check]:
    """Lines that could not be read, or that do not count."""
    rows = list[Check]()
    damaged = [state for state in log.states if state.damaged]
    if damaged:
        num = sum(state.damaged for state in damaged)
        rows.append({"check": "damaged", "verdict": "warning", "num": num, "what": damaged[0].damaged_example})
    if log.last.cut:
        rows.append({"check": "cut", "verdict": "warning", "what": log.last.cut})
    if repeated := sum(state.repeated for state in log.states):
        rows.append({"check": "repeated", "verdict": "ok", "num": repeated})
    if log.hosts:
        rows.append({"check": "hosts", "verdict": "ok", "num": log.hosts, "what": log.host})
    return rows


def _of_loss(log: LoggedRun, figures: Result) -> list[Check]:
    if log.not_finite is None:
        return []
    last = log.steps.loss[len(log.steps) - 1]
    return [{"check": "loss", "verdict": "warning", "step": log.not_finite, "recovered": math.isfinite(last)}]
