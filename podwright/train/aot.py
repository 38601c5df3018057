"""Compiles one program of a recipe for devices that are not here, and writes down how far it came.

The control half starts it (`plan/compiled/compile.py`), reads what the compiler dumps, and may end it before code generation.
Only that generates the code of kernels and finds those that want more on-chip memory than there is, so each kernel is
compiled alone first, to the end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.experimental import topologies
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from podwright.recipe import load
from podwright.train import entry


def run(spec: dict[str, Any], record: Path) -> None:
    """`spec`: recipe, dims, topology (null: this machine's CPU devices), program. One line of JSON a phase in `record`.

    The compiler's errors are told by the kernel that has them, and "" for the program.
    """

    def tell(phase: str, **values: Any) -> None:
        with record.open("a") as f:
            f.write(json.dumps({"phase": phase, "time": time.time(), **values}) + "\n")

    recipe = load.parse(spec["recipe"])
    devices = _devices(spec["topology"])
    program = entry.of(recipe.kind).programs(recipe, spec["dims"], devices)[spec["program"]]
    tell(
        "lowering",
        arguments=dict(_sizes(program.arguments)),
        resident={k: sum(b for _, b in _sizes(v)) for k, v in program.resident.items()},
    )
    traced = program.trace()
    lowered = traced.lower()
    tell("kernels")
    begin = time.monotonic()
    kernels = _kernels(traced, devices[0])
    refused = {}
    for name, kernel in kernels:
        try:
            kernel.compile()
        except jax.errors.JaxRuntimeError as e:
            refused[name] = str(e)
    if refused:
        return tell("refused", errors=refused)
    tell("compiling", kernels=len(kernels), kernels_s=time.monotonic() - begin)
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as e:
        return tell("refused", errors={"": str(e)})
    if spec["topology"] is None:  # a TPU's compiler dumps its schedule by itself
        (record.parent / "cpu_after_optimizations.txt").write_text(compiled.as_text() or "")
    memory = compiled.memory_analysis()
    sizes = ("argument_size", "output_size", "alias_size", "temp_size", "host_temp_size", "peak_memory")
    tell("compiled", memory={name: getattr(memory, f"{name}_in_bytes") for name in sizes})


def _devices(topology: dict[str, Any] | None) -> list[jax.Device]:
    if topology is None:
        return jax.devices()
    return list(
        topologies.get_topology_desc(platform="tpu", topology_name=topology["name"], **topology["options"]).devices
    )


def _kernels(traced: jax.stages.Traced, device: jax.Device) -> list[tuple[str, jax.stages.Lowered]]:
    """Every different kernel of a program, by name, with the shapes that it has there on one device."""
    here = NamedSharding(Mesh(np.array([device]), ("device",)), PartitionSpec())
    kernels = {}
    for call in _calls(traced.jaxpr.jaxpr):

        def alone(*arrays: Array, call: JaxprEqn = call) -> Any:
            return call.primitive.bind(*arrays, **call.params)

        avals: list[Any] = [x.aval for x in call.invars]
        lowered = jax.jit(alone).lower(*(jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here) for x in avals))
        kernels[lowered.as_text()] = (call.params["name"], lowered)
    return list(kernels.values())


def _calls(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    """The kernels called there or in what is called there."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "pallas_call":
            yield equation
            continue
        for inner in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: isinstance(x, Jaxpr | ClosedJaxpr)
        ):
            if isinstance(inner, Jaxpr | ClosedJaxpr):
                yield from _calls(inner.jaxpr if isinstance(inner, ClosedJaxpr) else inner)


def _sizes(tree: Any) -> Iterator[tuple[str, int]]:
    """Path and bytes per device of every array."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        shape = leaf.sharding.shard_shape(leaf.shape) if leaf.sharding else leaf.shape
        size = leaf.dtype.itemsize
        for n in shape:
            size *= n
        yield jax.tree_util.keystr(path, simple=True, separator="."), size
