"""Published step times of public MaxText recipes: published.json, from the repository AI-Hypercomputer/tpu-recipes at c8cfe2f (2026-08-07).

`arguments` are those of the recipe that decide its time; of v6e and v5p those of the model of that name in benchmarks/ of MaxText
e591f30, with the batch that total_weights of the published log line gives. TFLOP/s that were measured before 2025-07-27 count causal
attention in full (MaxText's pull request 1988), and those before 2026-04-07 count sliding windows otherwise (its commit 6288c2333):
across these dates only step times and tokens/s compare.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PublishedRun:
    recipe: str
    """its folder below training/ of tpu-recipes"""
    on: str
    """the slices, as --on names them"""
    arguments: Mapping[str, str]
    step_s: float
    tokens_per_s_per_chip: float | None
    tflops_per_chip: float
    """as published: see the module about its date"""
    date: str
    """when the figure was entered"""

    @property
    def model(self) -> str:
        return self.arguments["model_name"]

    @property
    def source(self) -> str:
        page = "ironwood" if self.recipe.startswith("ironwood/") else self.recipe
        return f"tpu-recipes c8cfe2f training/{page}/README.md, {self.date}"


@functools.cache
def runs() -> tuple[PublishedRun, ...]:
    """Every published figure, those of models without a formula among them."""
    rows = json.loads(Path(__file__).with_suffix(".json").read_text())
    return tuple(PublishedRun(**row | {"arguments": _pairs(row["arguments"])}) for row in rows)


def _pairs(text: str) -> dict[str, str]:
    return {key: value for key, _, value in (word.partition("=") for word in text.split())}
