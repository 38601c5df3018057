"""Compiles one program of a recipe for devices that are not here, and writes down how far it came.

The control half starts it (`plan/compile.py`), reads what the compiler dumps, and may end it before code generation.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
from jax.experimental import topologies

from podwright.recipe import load
from podwright.recipe.models import Qwen3Dims
from podwright.train.grpo import program
from podwright.train.grpo.program import Setup
from podwright.train.mesh import make_mesh

STOP_IDS = (0, 1)  # only their number is compiled in


def run(spec: dict[str, Any], record: Path) -> None:
    """`spec`: recipe, dims, topology (null: this machine's CPU devices), program. One line of JSON a phase in `record`."""

    def tell(phase: str, **values: Any) -> None:
        with record.open("a") as f:
            f.write(json.dumps({"phase": phase, "time": time.time(), **values}) + "\n")

    recipe = load.parse(spec["recipe"])
    devices = _devices(spec["topology"])
    setup = Setup(recipe, Qwen3Dims(**spec["dims"]), make_mesh(recipe.mesh, devices), STOP_IDS, 0)
    made = program.programs(setup)[spec["program"]]
    tell("lowering", arguments=dict(_sizes(made.arguments)), beside={k: sum(b for _, b in _sizes(v)) for k, v in made.beside.items()})
    lowered = made.lower()
    tell("compiling")
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as e:
        tell("refused", error=str(e))
        return
    found = compiled.memory_analysis()
    sizes = ("argument_size", "output_size", "alias_size", "temp_size", "host_temp_size")
    tell("compiled", memory={name: getattr(found, f"{name}_in_bytes") for name in sizes})


def _devices(topology: dict[str, Any] | None) -> list[jax.Device]:
    if topology is None:
        return jax.devices()
    return list(topologies.get_topology_desc(platform="tpu", topology_name=topology["name"], **topology["options"]).devices)


def _sizes(tree: Any) -> Iterator[tuple[str, int]]:
    """Path and bytes per device of every array."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        shape = leaf.sharding.shard_shape(leaf.shape) if leaf.sharding else leaf.shape
        size = leaf.dtype.itemsize
        for n in shape:
            size *= n
        yield jax.tree_util.keystr(path, simple=True, separator="."), size
