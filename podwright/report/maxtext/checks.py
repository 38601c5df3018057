"""What the figures of a log are held against: the formula of tokens and time, the peak of the hardware, the FLOPs of the architecture.

A check is {check, verdict, sentence, ...}: its name, one of ok, warning and unknown, a key of words.yaml, and the figures in that sentence.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator

from podwright.accelerators import ACCELERATORS
from podwright.errors import listed
from podwright.report.maxtext.facts import RunFacts
from podwright.report.maxtext.logged import LoggedRun
from podwright.report.maxtext.steady import Steady, is_time, known
from podwright.report.records import Result
from podwright.report.words import Sentence
from podwright.rundir import Record

CLOSE = 0.01
"""relative difference that rounding explains"""
SAME_FORMULA = 0.1
"""two counts of FLOPs that differ by less differ in what they leave out, such as gates and norms"""
_FASTEST = max(max(row.bf16_flops, row.fp8_flops) for row in ACCELERATORS)
"""FLOP/s of a device, of all that are known"""


def of(log: LoggedRun, facts: RunFacts, chosen: Steady, figures: Result) -> list[Record]:
    tokens = _tokens(log, facts, chosen)
    flops_hold = tokens["verdict"] != "warning"  # the log counts TFLOP/s by its tokens/s
    return [
        tokens,
        _peak(facts, figures["steady_state"]),
        _flops(figures["flops"], figures["steady_state"], facts, flops_hold),
        *(_warning("conflict", what=sentence) for sentence in (*facts.conflicts, *_other_steps(log, facts))),
        *_of_times(log, chosen),
        *_missing(log),
        *_of_lines(log),
        *_of_loss(log),
    ]


def flops(facts: RunFacts, speed: Result) -> Result:
    """FLOPs of a token: by the architecture, and as the log's TFLOP/s and tokens/s imply them."""
    logged, tokens = speed["logged_tflops_per_device"], speed["tokens_per_s_per_device"]
    implied = logged * 1e12 / tokens if logged and tokens else None
    counted = facts.flops_per_token
    return {
        "per_token": counted,
        "source": facts.flops_source,
        "logged_per_token": implied,
        "ratio": implied / counted if implied and counted else None,
    }


def other_tokens(log: LoggedRun, facts: RunFacts) -> float:
    """The most tokens of a step, if they are more than the recipe's or a fraction 1 / n of them, which padding does not give; else 0."""
    tokens = facts.tokens_per_step
    if not facts.recipe or not tokens:
        return 0
    weights = max(known(log.steps.weights), default=0)
    is_fraction = 0 < weights < tokens and tokens % weights == 0
    return weights if weights > tokens or is_fraction else 0


def other_hosts(log: LoggedRun) -> int:
    """How many, besides the one whose lines count."""
    return len({host for state in log.states for host in state.other_hosts})


def _check(name: str, verdict: str, sentence: str, **figures: object) -> Record:
    return {"check": name, "verdict": verdict, "sentence": f"{name}_{sentence}" if sentence else name, **figures}


def _warning(name: str, sentence: str = "", **figures: object) -> Record:
    return _check(name, "warning", sentence, **figures)


def _unknown(name: str, why: str, **figures: object) -> Record:
    return _check(name, "unknown", f"unknown_{why}", why=why, **figures)


def _tokens(log: LoggedRun, facts: RunFacts, chosen: Steady) -> Record:
    """Tokens/s of a chip = total_weights / step time / chips, the median over the steps that count."""
    if not chosen.rows:
        return _unknown("tokens", "steps")
    if facts.devices is None:
        return _unknown("tokens", "devices")
    table = log.steps
    ratios = list[float]()
    expected = list[float]()
    rounding = 0.0
    for row in chosen.rows:
        weights, tokens, seconds = table.weights[row], table.tokens[row], table.seconds[row]
        if 0 < weights < math.inf and 0 < tokens < math.inf:
            expected.append(weights / seconds / facts.devices)
            ratios.append(tokens / expected[-1])
            rounding = max(rounding, 0.0005 / seconds)
    if not ratios:
        return _no_tokens(log, chosen)
    ratio = statistics.median(ratios)
    tokens_s = statistics.median(expected) * (facts.devices_per_chip or 1)
    figures = {
        "logged": ratio * tokens_s,
        "expected": tokens_s,
        "per": "chip" if facts.devices_per_chip else "device",
        "ratio": ratio,
        "num_steps": len(ratios),
    }
    if abs(ratio - 1) <= CLOSE + rounding:
        return _check("tokens", "ok", "ok", why="", **figures)
    why = "devices" if any(abs(ratio / n - 1) <= CLOSE for n in (2, 0.5, 4, 0.25)) else "padding"
    return _warning("tokens", why, why=why, **figures)


def _no_tokens(log: LoggedRun, chosen: Steady) -> Record:
    """No step has both figures: the log lacks one of them, or it is never above 0."""
    columns = {"total_weights": log.steps.weights, "Tokens/s": log.steps.tokens}
    absent = []
    for name, column in columns.items():
        if not any(0 < column[row] < math.inf for row in chosen.rows):
            absent.append(name)
    return _unknown("tokens", "weights", what=", ".join(absent or columns))


def _peak(facts: RunFacts, speed: Result) -> Record:
    """TFLOP/s above what the hardware can do."""
    peak, logged = facts.peak_flops, speed["logged_tflops_per_device"]
    if not speed["num_steps"]:
        return _unknown("peak", "steps")
    if peak is None and logged is not None and logged * 1e12 > _FASTEST:
        return _warning("peak", "of_any", logged=logged, fastest=_FASTEST / 1e12)
    if peak is None:
        return _unknown("peak", "hardware")
    if logged is None:
        return _unknown("peak", "tflops")
    precision = facts.peak_precision
    figures = {"precision": precision, "logged": logged, "peak": peak / 1e12, "share": logged * 1e12 / peak}
    if logged * 1e12 > peak:
        return _warning("peak", "warning", **figures)
    return _check("peak", "ok", "ok" if precision else "fastest", **figures)


def _flops(counted: Result, speed: Result, facts: RunFacts, tokens_hold: bool) -> Record:
    """The log's FLOP formula against the architecture."""
    what = facts.model or "the model"
    ratio = counted["ratio"]
    if not speed["num_steps"]:
        return _unknown("flops", "steps")
    if ratio is None and counted["per_token"]:
        return _unknown("flops", "log", what=what)
    if ratio is None and facts.of_another:
        return _unknown("flops", "another", what=what)
    if ratio is None:
        return _unknown("flops", "architecture", what=what) | ({} if facts.model else {"sentence": "flops_no_model"})
    figures = {
        "logged": speed["logged_tflops_per_device"],
        "true": speed["tflops_per_device"],
        "mfu": speed["mfu"],
        "logged_gflop": counted["logged_per_token"] / 1e9,
        "true_gflop": counted["per_token"] / 1e9,
        "ratio": ratio,
        "doubtful": not tokens_hold,
    }
    if abs(ratio - 1) <= SAME_FORMULA:
        return _check("flops", "ok", "ok", **figures)
    return _warning("flops", "warning" if tokens_hold else "doubtful", **figures)


def _other_steps(log: LoggedRun, facts: RunFacts) -> Iterator[Sentence]:
    """What the steps themselves show: more of them than planned, and tokens that the recipe's steps do not have."""
    last, planned = log.steps.step[-1], facts.steps_planned
    if facts.recipe and planned and last >= planned:
        text = "step {step} is in the log, and the recipe has {planned} steps: probably another recipe"
        yield Sentence(text, step=last, planned=planned)
    if weights := other_tokens(log, facts):
        yield Sentence(
            "a step has {tokens:,.0f} tokens in the log and {stated:,} in the recipe, {rows:,} sequences of {length:,}: "
            "probably another recipe",
            tokens=weights,
            stated=facts.tokens_per_step,
            rows=facts.batch_size,
            length=facts.sequence_length,
        )


def _of_times(log: LoggedRun, chosen: Steady) -> Iterator[Record]:
    """Times that no step can have, the first of each attempt among them."""
    table = log.steps
    wrong = [row for row in range(len(table)) if not is_time(table.seconds[row]) and row not in table.hidden]
    if chosen.median_s is not None:  # a single 0 is rounded, and in the list of what does not count
        wrong = [row for row in wrong if table.seconds[row] != 0]
    why = "all" if chosen.median_s is None else "some"
    if wrong:
        yield _warning("times", why, why=why, num=len(wrong))


def _missing(log: LoggedRun) -> Iterator[Record]:
    """Steps between the first and the last that the log does not have."""
    gaps = [(before + 1, after - 1) for before, after in itertools.pairwise(log.steps.step) if after - before > 1]
    names = [str(first) if first == last else f"{first}-{last}" for first, last in gaps]
    if gaps:
        yield _warning("missing", num=sum(last - first + 1 for first, last in gaps), what=listed(names))


def _of_lines(log: LoggedRun) -> Iterator[Record]:
    """Lines that could not be read, or that do not count."""
    damaged = [state for state in log.states if state.damaged]
    if damaged:
        yield _warning("damaged", num=sum(state.damaged for state in damaged), what=damaged[0].damaged_example)
    if log.last.cut:
        yield _warning("cut", what=log.last.cut)
    if repeated := sum(state.repeated for state in log.states):
        yield _check("repeated", "ok", "", num=repeated)
    if num := other_hosts(log):
        host = next((state.host for state in log.states if state.host), "")
        yield _check("hosts", "ok", "named" if host else "", num=num, what=host)


def _of_loss(log: LoggedRun) -> Iterator[Record]:
    if log.not_finite is not None:
        recovered = math.isfinite(log.steps.loss[-1])
        yield _warning("loss", "recovered" if recovered else "nan", step=log.not_finite, recovered=recovered)
