"""The real trainer as one process or several, started as a target starts it, and what it leaves."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp

from podwright.counted_steps import read_steps
from podwright.recipe import load
from podwright.rundir import RunDir, main_stage, recipe_of, write_json

ROOT = Path(__file__).resolve().parents[2]
TINY = [
    "model.name=qwen3-micro",
    "data.num_train=200",
    "data.num_test=12",
    "batch_size=8",
    "grpo.num_generations=4",
    "rollout.max_prompt_length=80",
    "rollout.total_generation_steps=16",
    "warm_start.max_steps=3",
    "warm_start.batch_size=8",
    "evaluation.batch_size=8",
    "evaluation.every_n_steps=0",
    "checkpoint.every_n_steps=2",
    "training.max_steps=4",
]
# what a repetition changes: the clock, and whether a step was traced
TIMES = ("profiled", "compiled", "time", "attempt", "_s", "per_s", "per_s_per_device", "mfu", "peak_memory", "tflops")


DEMO = "qwen3-tiny-arithmetic-grpo"


def prepare(path, *overrides, recipe=DEMO):
    """`recipe` with `overrides`; the demo is cut down to TINY first."""
    run = RunDir(path)
    write_json(run.recipe, load.load(recipe, [*(TINY if recipe == DEMO else ()), *overrides]).model_dump(mode="json"))
    return run


def put_foreign_names(run):
    """Files and folders in the run directory whose names only resemble those of checkpoints, attempts and devices."""
    run.checkpoints.mkdir(exist_ok=True)
    for name in ("step-3.pt", "step-0000000009.pt", "step-00000005 (copy).pt", "9.txt", "1².pt"):
        (run.checkpoints / name).write_bytes(b"of somebody else")
    for name in ("009", "²", "9.old", "backup"):
        (run.checkpoints / name).mkdir()
        (run.path / "attempts" / name).mkdir(parents=True)
    (run.checkpoints / "newest").symlink_to("a disk that is not mounted")


def environment(devices=1):
    """That of the tests, whose compiler does not optimize (conftest.py), with another number of devices."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
    return os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}


def start(run, attempt=1, devices=1, **more):
    run.attempt(attempt).mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "podwright.train", str(run.path), "--attempt", str(attempt)]
    with run.log(attempt).open("w") as log:
        return subprocess.Popen(argv, cwd=ROOT, env=environment(devices) | more, stdout=log, stderr=subprocess.STDOUT)


def joined(processes):
    """What a launcher puts into the environment of each of several processes."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    fixed = {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": str(processes)}
    return [fixed | {"JAX_PROCESS_ID": str(number)} for number in range(processes)]


def start_several(run, attempt=1, processes=2, devices=4, module="podwright.train", **more):
    """One trainer in several processes; the log of process N is N.txt beside the run."""
    run.attempt(attempt).mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", module, str(run.path), "--attempt", str(attempt)]
    started = []
    for number, names in enumerate(joined(processes)):
        with (run.path.parent / f"{number}.txt").open("w") as log:
            env = environment(devices) | names | more
            started.append(subprocess.Popen(argv, cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT))
    return started


def finish_several(run, processes, attempt=1, timeout=900):
    """The exit codes by process, and exit.json."""
    codes = [process.wait(timeout) for process in processes]
    return codes, json.loads(run.exit(attempt).read_text())


def logs(run):
    return "\n".join(path.read_text() for path in sorted(run.path.parent.glob("?.txt")))


def finish(run, process, attempt=1, timeout=900):
    process.wait(timeout)
    record = json.loads(run.exit(attempt).read_text())
    return record | {"log": run.log(attempt).read_text()}


def train(path, *overrides, devices=1, recipe=DEMO, profiled=()):
    run = prepare(path, *overrides, recipe=recipe)
    if profiled:
        write_json(run.profiled, profiled)
    return run, finish(run, start(run, devices=devices))


def figures(run):
    """Every figure of every step that does not depend on the clock."""
    return {
        stage: [
            {k: v for k, v in r.items() if not any(k.endswith(t) or k.startswith(t) for t in TIMES)} for r in records
        ]
        for stage in ("warm_start", main_stage(recipe_of(run)))
        if (records := read_steps(run, stage))
    }


def state(run, step):
    """Every array of a checkpoint, weights and optimizer, as bytes."""
    path, reader = run.checkpoints / str(step) / "state", ocp.PyTreeCheckpointer()
    leaves = reader.metadata(path).item_metadata.tree
    found = reader.restore(path, restore_args=jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), leaves))
    return {jax.tree_util.keystr(key): np.asarray(x).tobytes() for key, x in jax.tree_util.tree_leaves_with_path(found)}


def weights(run):
    """The bytes of the last checkpoint's exported weights."""
    out = run.path.parent / f"{run.name}-export"
    options = {"path": str(run.path), "out": str(out), "onnx": False}
    argv = [sys.executable, "-m", "podwright.train", "export", json.dumps(options)]
    if not out.exists():
        subprocess.run(argv, cwd=ROOT, env=environment(), check=True, capture_output=True)
    return (out / "model.safetensors").read_bytes()
