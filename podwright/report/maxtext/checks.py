"""What the figures of a log are held against: the formula of tokens and time, the peak of the hardware, the FLOPs of the architecture."""

from __future__ import annotations

import math
import statistics
from typing import Any

from podwright.report.maxtext.facts import ANOTHER, RunFacts
from podwright.report.maxtext.steady import Steady, sample
from podwright.report.records import Result
from podwright.watch.maxtext_log import MaxTextLog

CLOSE = 0.01
"""relative difference that rounding explains"""
SAME_FORMULA = 0.1
"""two counts of FLOPs that differ by less differ in what they leave out, such as gates and norms"""
Check = dict[str, Any]
"""{check, verdict, ...}: the check's name, one of ok, warning and unknown, and the figures that its sentence names"""


def of(log: MaxTextLog, facts: RunFacts, chosen: Steady, figures: Result) -> list[Check]:
    return [
        _tokens(log, facts, chosen),
        _peak(facts, figures["steady_state"]),
        _flops(figures["flops"], figures["steady_state"], facts),
        *_conflicts(log, facts),
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


def _tokens(log: MaxTextLog, facts: RunFacts, chosen: Steady) -> Check:
    """Tokens/s of a chip = total_weights / step time / chips, the median over the steps that count."""
    if not chosen.rows:
        return {"check": "tokens", "verdict": "unknown", "why": "steps"}
    table, each = log.steps, facts.devices_per_chip
    if facts.devices is None:
        return {"check": "tokens", "verdict": "unknown", "why": "devices"}
    ratios, expected, rounding = list[float](), list[float](), 0.0
    for row in sample(chosen.rows):
        weights, tokens, seconds = table.weights[row], table.tokens[row], table.seconds[row]
        if weights > 0 and tokens > 0 and seconds > 0:
            expected.append(weights / seconds / facts.devices)
            ratios.append(tokens / expected[-1])
            rounding = max(rounding, 0.0005 / seconds)
    if not ratios:
        return {"check": "tokens", "verdict": "unknown", "why": "weights"}
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


def _peak(facts: RunFacts, speed: Result) -> Check:
    """TFLOP/s above what the hardware can do."""
    if not speed["num_steps"]:
        return {"check": "peak", "verdict": "unknown", "why": "steps"}
    peak, logged = facts.peak_flops, speed["logged_tflops_per_device"]
    if peak is None or logged is None:
        return {"check": "peak", "verdict": "unknown", "why": "hardware" if peak is None else "tflops"}
    verdict = "warning" if logged * 1e12 > peak else "ok"
    return {"check": "peak", "verdict": verdict, "logged": logged, "peak": peak / 1e12, "share": logged * 1e12 / peak}


def _flops(counted: Result, speed: Result, facts: RunFacts) -> Check:
    """The log's FLOP formula against the architecture."""
    if not speed["num_steps"]:
        return {"check": "flops", "verdict": "unknown", "why": "steps"}
    ratio = counted["ratio"]
    if ratio is None:
        return {"check": "flops", "verdict": "unknown", "why": "log" if counted["per_token"] else "architecture"}
    return {
        "check": "flops",
        "verdict": "ok" if abs(ratio - 1) <= SAME_FORMULA else "warning",
        "logged": speed["logged_tflops_per_device"],
        "true": speed["tflops_per_device"],
        "mfu": speed["mfu"],
        "logged_gflop": counted["logged_per_token"] / 1e9,
        "true_gflop": counted["per_token"] / 1e9,
        "ratio": ratio,
    }


def _conflicts(log: MaxTextLog, facts: RunFacts) -> list[Check]:
    sentences = list(facts.conflicts)
    if facts.recipe and (steps := _other_steps(log, facts)):
        sentences.append(f"{', '.join(steps)}: {ANOTHER}")
    return [{"check": "conflict", "verdict": "warning", "what": sentence} for sentence in sentences]


def _other_steps(log: MaxTextLog, facts: RunFacts) -> list[str]:
    """What the steps themselves show: more of them than planned, and more tokens than a step has or a whole fraction, which padding
    does not give."""
    last, sentences = log.steps.step[len(log.steps) - 1], list[str]()
    if facts.steps_planned and last >= facts.steps_planned:
        sentences.append(f"step {last} is in the log, and the recipe has {facts.steps_planned} steps")
    weights = max(log.steps.weights[row] for row in range(len(log.steps)))
    tokens = (facts.batch_size or 0) * (facts.sequence_length or 0)
    if tokens and weights > 0 and (weights > tokens or (weights < tokens and tokens % weights == 0)):
        each = f"{facts.batch_size:,} sequences of {facts.sequence_length:,}"
        sentences.append(f"a step has {weights:,.0f} tokens in the log and {tokens:,} in the recipe, {each}")
    return sentences


def _of_lines(log: MaxTextLog) -> list[Check]:
    """Lines that could not be read, or that do not count."""
    rows = list[Check]()
    if log.damaged:
        rows.append({"check": "damaged", "verdict": "warning", "num": log.damaged, "what": log.damaged_example})
    if log.cut:
        rows.append({"check": "cut", "verdict": "warning", "what": log.cut})
    if log.repeated:
        rows.append({"check": "repeated", "verdict": "ok", "num": log.repeated})
    if log.hosts:
        rows.append({"check": "hosts", "verdict": "ok", "num": log.hosts})
    return rows


def _of_loss(log: MaxTextLog, figures: Result) -> list[Check]:
    if log.not_finite is None:
        return []
    last = log.steps.loss[len(log.steps) - 1]
    return [{"check": "loss", "verdict": "warning", "step": log.not_finite, "recovered": math.isfinite(last)}]
