"""What jax itself says about meshes on TPU topologies: questions as JSON on stdin, answers as JSON on stdout.

A process of its own, because libtpu is loaded once and wants its environment set before. A question names a topology and its options,
shapes, and `how`: "create" for mesh_utils.create_device_mesh with `split`, "trainer" for podwright.train.mesh.make_mesh.
The answer to a shape is "" where a mesh is made, else the message.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
ENV = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "JAX_PLATFORMS": "cpu",
}


def installed() -> bool:
    return importlib.util.find_spec("libtpu") is not None


def versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("jax", "libtpu")}


def ask(questions: list[dict[str, Any]]) -> list[list[str]]:
    return [said for said, _ in ask_timed(questions)]


def ask_timed(questions: list[dict[str, Any]]) -> list[tuple[list[str], float]]:
    """With jax's seconds of CPU time for each question."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve())],
        input=json.dumps(questions),
        env={**os.environ, **ENV, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [(said, seconds) for said, seconds in json.loads(done.stdout.splitlines()[-1])]


def answer(question: dict[str, Any]) -> tuple[list[str], float]:
    from jax.experimental import mesh_utils, topologies

    from podwright.errors import UserError
    from podwright.recipe import schema
    from podwright.train.mesh import make_mesh

    name, options = question["libtpu"]
    devices = list(topologies.get_topology_desc(platform="tpu", topology_name=name, **options).devices)
    said = []
    start = time.process_time()
    for shape in question["shapes"]:
        try:
            if question["how"] == "trainer":
                data, fsdp, tensor = shape
                made = make_mesh(schema.GrpoMesh(data=data, fsdp=fsdp, tensor=tensor), devices).devices
            else:
                made = mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=question["split"])
            assert made.shape == tuple(shape) and len(set(made.flat)) == len(devices)
            said.append("")
        except NotImplementedError as e:
            said.append(str(e))
        except UserError as e:
            said.append(e.what)
    return said, time.process_time() - start


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps([answer(question) for question in json.load(sys.stdin)]))
