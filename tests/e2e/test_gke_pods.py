"""The tiny GRPO recipe as the four pods of an attempt on GKE, started by hand: what they train does not depend on what happens to them."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from podwright.recipe import kinds, load
from podwright.run import create, journal, mirror
from podwright.run.attempt_job import job_of
from podwright.rundir import RunDir, read_jsonl, recipe_of
from podwright.targets.gke import attempt
from tests.bucket import EmulatedBucket
from tests.conftest import _QUICK
from tests.e2e.conftest import wait_for
from tests.e2e.pods import Pods
from tests.e2e.trainer import DEMO, TINY, figures, weights
from tests.unit.targets.gke.entry import gke

STEPS = 4
TRAINED = (*TINY, "mesh.fsdp=16", "batch_size=16", "warm_start.batch_size=16", "evaluation.batch_size=16", "data.num_test=16", f"training.max_steps={STEPS}")  # fmt: skip
COMPILED = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedBucket]:
    with EmulatedBucket() as emulated:
        for name, value in emulated.environment.items():
            monkeypatch.setenv(name, value)
        yield emulated


class Bench:
    def __init__(self, folder: Path, bucket: EmulatedBucket, topology: str = "v6e-16", devices: int = 4):
        self.folder, self.bucket = folder, bucket
        self.settings = gke(bucket=f"{bucket.url}/runs", topology=topology, machine_type="ct6e-standard-4t")
        flags = f"--xla_force_host_platform_device_count={devices} {_QUICK}"
        self.variables = {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "XLA_FLAGS": flags, "HF_HUB_OFFLINE": "1"}
        self.variables |= {name: os.environ[name] for name in COMPILED} | bucket.environment
        self.attempts = 0

    def create(self, name: str, *overrides: str) -> RunDir:
        recipe = load.load(DEMO, [*TRAINED, *overrides])
        return create.create(self.folder / "runs" / name, recipe, "pod", {})

    def start(self, run: RunDir, number: int = 1) -> Pods:
        created = journal.read(run).created
        storage = mirror.keep_in(run, self.settings.bucket, created, self.folder)
        kind = kinds.find("grpo")
        job = job_of(kind, recipe_of(run), run.path, number, self.folder, created, storage=storage, allocation="", takeover=number > 1)
        name = f"pw-{run.name}-{job.run_tag}-a{number}"
        objects = attempt.attempt_of(job, self.settings, name, job.run_tag, "", False)
        return Pods(objects, self.folder / f"{run.name}-{number}", self.variables)

    def committed(self, run: RunDir, tree: str) -> bool:
        place = run.storage_url.removeprefix(f"{self.bucket.url}/")
        return bool(self.bucket.names(f"{place}/{tree}/commit_success.txt"))


def finished(run: RunDir, pods: Pods, number: int = 1) -> None:
    try:
        assert pods.wait() == [0] * len(pods.processes), pods.texts()
    finally:
        pods.kill()
    assert mirror.KeptRun(run).bring(ended_attempt=number) == ""


def test_a_run_whose_nodes_are_taken_ends_with_the_weights_of_an_undisturbed_one(
    tmp_path: Path, bucket: EmulatedBucket
) -> None:
    bench = Bench(tmp_path, bucket)
    began = time.monotonic()
    calm = bench.create("calm")
    finished(calm, bench.start(calm))
    print(f"undisturbed: {time.monotonic() - began:.0f} s")
    robbed = bench.create("robbed")
    pods = bench.start(robbed)
    wait_for(lambda: not pods.alive() or bench.committed(robbed, "checkpoints/2"), 600)
    pods.kill()
    finished(robbed, bench.start(robbed, 2), 2)
    assert [r["step"] for r in read_jsonl(robbed.events) if r["event"] == "resumed"] == [2]
    assert figures(robbed) == figures(calm) and len(figures(robbed)["grpo"]) == STEPS
    assert weights(robbed) == weights(calm)
