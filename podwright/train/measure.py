"""Times programs of a recipe on the devices that are here, on made-up batches in which nothing ends early.

The control half starts it to learn what this machine's CPU reaches (`plan/compiled/calibrate.py`); the benches hold predictions against it.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import psutil
from jax import Array

from podwright.models import lora, param, qwen3
from podwright.recipe import load
from podwright.recipe.models import Qwen3Dims
from podwright.recipe.schema import GrpoRecipe
from podwright.train.grpo import program
from podwright.train.grpo.program import GrpoSetup
from podwright.train.mesh import make_mesh
from podwright.train.program import Program

STOP_IDS = (-1, -2)  # no token is one of them
FEWEST = 3
QUIET, PATIENCE = 0.1, 2


def run(spec: dict[str, Any], record: Path) -> None:
    """`spec`: jobs (each recipe, dims and programs), rounds, seconds a program and round. One line of JSON a program in `record`.

    A program's time is the shortest median of a round. A round in which others used the machine is repeated, a few times at most.
    Its text is left beside the record.
    """
    timed: list[tuple[dict[str, Any], Callable[[], float], list[Round]]] = []
    for number, job in enumerate(spec["jobs"]):
        recipe = load.require(load.parse(job["recipe"]), GrpoRecipe)
        setup = GrpoSetup(recipe, Qwen3Dims(**job["dims"]), make_mesh(recipe.mesh), STOP_IDS, 0)
        weights = param.initialize(qwen3.declare(setup.dims), setup.mesh, recipe.seed)
        programs = program.programs(setup)
        for name in job["programs"]:
            compiled = programs[name].lower().compile()
            text = compiled.as_text()
            memory = compiled.memory_analysis()
            assert text and memory
            (record.parent / f"{number}-{name}.txt").write_text(text)
            about = {"name": f"{number}-{name}", "temporaries": memory.temp_size_in_bytes}
            timed.append((about, _runner(setup, programs[name], compiled, weights), []))
    for number in range(PATIENCE * spec["rounds"]):
        for _, once, rounds in timed:
            if number < spec["rounds"] or sum(r.others < QUIET for r in rounds) < spec["rounds"]:
                rounds.append(_round(once, spec["seconds"]))
    with record.open("a") as f:
        for about, _, rounds in timed:
            best = min([r for r in rounds if r.others < QUIET] or rounds)
            f.write(json.dumps(about | {"seconds": best.seconds, "others": best.others, "rounds": rounds}) + "\n")


class Round(NamedTuple):
    seconds: float
    """the median of its runs"""
    others: float
    """share of the machine that other processes used meanwhile"""


def _round(once: Callable[[], float], seconds: float) -> Round:
    once()
    taken: list[float] = []
    process = psutil.Process()
    psutil.cpu_percent()  # of the machine and of this process: from here on
    process.cpu_percent()
    while len(taken) < FEWEST or sum(taken) < seconds:
        taken.append(once())
    others = psutil.cpu_percent() - process.cpu_percent() / (psutil.cpu_count() or 1)
    return Round(statistics.median(taken), max(others, 0.0) / 100)


def _runner(setup: GrpoSetup, declared: Program, compiled: Any, weights: Any) -> Callable[[], float]:
    """Runs it once, to its end, and says how many seconds that took."""
    dense = setup.dense if declared.name == "warm_start" else setup
    trained = program.first_params(dense, weights)
    base = program.freeze(dense, weights)
    rest = [_filled(dense, tree) for tree in declared.arguments[1:]]
    if declared.name not in ("update", "warm_start"):
        return lambda: _timed(compiled, lora.policy(trained, base), *rest)[0]
    state = [program.new_state(dense, trained)]
    if base is not None:
        rest[-1] = base

    def once() -> float:
        seconds, (state[0], _) = _timed(compiled, state[0], *rest)
        return seconds

    return once


def _timed(compiled: Any, *arguments: Any) -> tuple[float, Any]:
    begin = time.perf_counter()
    out = jax.block_until_ready(compiled(*arguments))
    return time.perf_counter() - begin, out


def _filled(setup: GrpoSetup, tree: Any) -> Any:
    """Whole numbers that are tokens and lengths alike, True, and -1.0 as a log-probability and an advantage."""
    most = min(setup.recipe.rollout.max_prompt_length, setup.dims.vocab_size - 1)

    def fill(leaf: jax.ShapeDtypeStruct) -> Array:
        if leaf.dtype == jnp.int32:
            value = np.arange(leaf.size, dtype=np.int32).reshape(leaf.shape) % most + 1
        else:
            value = np.full(leaf.shape, True if leaf.dtype == jnp.bool_ else -1.0, leaf.dtype)
        return jax.device_put(value, leaf.sharding)

    return jax.tree.map(fill, tree)
