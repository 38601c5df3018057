"""What has to be equal between two runs before a figure of one can be held against the other's, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from podwright.report.records import Result, inner


@dataclasses.dataclass(frozen=True)
class Figure:
    key: str
    """dotted path in result.json"""
    words: str
    unit: str
    needs: tuple[str, ...]
    """names of CONDITIONS, besides the kind"""
    change: str = "ratio"
    """how it is held against the first run's: "ratio" or "difference" """


@dataclasses.dataclass(frozen=True)
class Curve:
    title: str
    unit: str
    needs: tuple[str, ...]
    figure: str = ""
    """of a step of the main stage"""
    tested: str = ""
    """dotted path in an evaluation, whose values are drawn as points"""
    warm: bool = False
    """without the steps that compile"""


@dataclasses.dataclass(frozen=True)
class Condition:
    words: str
    why: str
    """why figures that need it are not compared where it differs"""
    of: Callable[[Result, Result], Any]
    """its value by recipe.json and result.json; None where it is not known"""


def _model(recipe: Result, result: Result) -> Any:
    name = inner(recipe, "model.name")
    count = inner(result, "environment.num_params")
    return f"{name}, {count:,} parameters" if name is not None and isinstance(count, int) else name


def _vocabulary(recipe: Result, result: Result) -> Any:
    tokenizer = inner(result, "data.tokenizer") or inner(recipe, "data.tokenizer")
    size = inner(result, "data.vocab_size") or result.get("vocab_size")
    return None if tokenizer is None or size is None else f"{tokenizer}, {size:,} rows"


def _data(recipe: Result, _: Result) -> Any:
    source = inner(recipe, "data.source")
    if source is None:
        return None
    parts = [str(source)]
    for name in ("num_documents", "num_test", "max_operations", "instruction"):
        value = inner(recipe, f"data.{name}")
        if value:
            parts.append(f"{name}={value}")
    return ", ".join(parts)


def _length(recipe: Result, _: Result) -> Any:
    if (length := recipe.get("sequence_length")) is not None:
        return length
    return inner(recipe, "rollout.total_generation_steps")


def _work(recipe: Result, _: Result) -> Any:
    batch, length = recipe.get("batch_size"), recipe.get("sequence_length")
    if batch is None:
        lines = recipe.get("per_device_batch_size")
        parts = inner(recipe, "training.gradient_accumulation_steps") or 1
        return None if lines is None else f"{lines * parts:,} lines a device"
    if length is not None:
        return f"{batch * length:,} tokens"
    return f"{batch * (inner(recipe, 'grpo.num_generations') or 1):,} completions"


def _training(_: Result, result: Result) -> Any:
    tokens = result.get("tokens")
    steps = result["steps"]
    return f"{steps:,} steps" + (f", {tokens:,} tokens" if tokens is not None else "")


CONDITIONS = {
    "kind": Condition("kind of run", "they measure different things", lambda recipe, result: result["kind"]),
    "model": Condition("model", "a different model needs different compute and memory per token", _model),
    "vocabulary": Condition(
        "vocabulary", "tokens of different vocabularies cover different amounts of text", _vocabulary
    ),
    "data": Condition("data", "results on different data do not show which run is better", _data),
    "length": Condition("sequence length", "longer sequences give more context and cost more attention", _length),
    "work": Condition("work of a step", "the steps process different amounts of data", _work),
    "training": Condition(
        "amount of training", "the runs trained for different lengths; compare the curves", _training
    ),
    "hardware": Condition(
        "hardware",
        "the difference would be that of the hardware, not of the settings",
        lambda _, result: inner(result, "environment.device_kind"),
    ),
    "devices": Condition(
        "number of devices",
        "the work is divided over different numbers of devices",
        lambda _, result: inner(result, "environment.devices"),
    ),
    "formula": Condition(
        "FLOP formula",
        "TFLOP/s of the log and those recomputed from the architecture count different operations",
        lambda _, result: inner(result, "steady_state.tflops_source"),
    ),
    "rewards": Condition("rewards", "different rewards have different scales", lambda recipe, _: recipe.get("rewards")),
}
