"""Real training on a simulated cluster: pods are processes of this machine, started from what a run creates there by the real kubectl."""

import base64
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from podwright.rundir import RunDir, read_jsonl
from tests.bucket import EmulatedBucket
from tests.conftest import _QUICK
from tests.e2e.conftest import Bench, wait_for
from tests.e2e.trainer import DEMO, ROOT, TINY, figures, weights
from tests.lab.kube import samples
from tests.lab.kube.control import Kube

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="pods of the simulated cluster need root")
STEPS = 4
COMPILED = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
FOUR_HOSTS = ("mesh.fsdp=16", "batch_size=16", "warm_start.batch_size=16", "evaluation.batch_size=16", "data.num_test=16")  # fmt: skip
IMAGE = {"python": f'#!/bin/sh\nexec {sys.executable} "$@"\n', "pip": "#!/bin/sh\nexit 0\n"}
"""what stands in front of PATH in the pods: the packages of this environment, so that pip has nothing to do"""


class TrainingCluster(Bench):
    """A bench with the target `pod`, whose pods have `devices` devices each."""

    launch = ROOT / "tests" / "lab" / "launch_gke.py"

    def __init__(self, folder: Path, kube: Kube, bucket: EmulatedBucket, topology: str, devices: int):
        super().__init__(folder)
        self.kube, self.bucket = kube, bucket
        self.canary = f"canary-{secrets.token_hex(8)}"
        flags = f"--xla_force_host_platform_device_count={devices} {_QUICK}"
        self.variables = {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "XLA_FLAGS": flags, "HF_HUB_OFFLINE": "1"}
        self.variables |= {name: os.environ[name] for name in COMPILED} | bucket.environment
        self.variables["HF_TOKEN"] = self.canary
        entry = {
            "kind": "gke",
            "project": "my-project",
            "cluster": "my-cluster",
            "zones": ["us-central1-a"],
            "bucket": f"{bucket.url}/runs",
            "topology": topology,
            "env": list(self.variables),
        }
        (folder / "targets.yaml").write_text(yaml.safe_dump({"pod": entry}))
        image = folder / "image"
        image.mkdir()
        for name, text in IMAGE.items():
            (image / name).write_text(text)
            (image / name).chmod(0o755)
        kube.set(path=[str(image)])
        for each in samples.priority_classes():
            kube.create(each)

    def add_nodes(self, pool: str, hosts: int, topology: str) -> None:
        for node in samples.pool(pool, hosts, topology=topology):
            self.kube.create(node)

    def add_queue(self, chips: int, topology: str) -> None:
        for each in samples.queues(chips, topology=topology):
            self.kube.create(each)

    def train(self, name: str, *overrides: str) -> "subprocess.Popen[str]":
        own = self.kube.environment | {"PODWRIGHT_TARGETS": str(self.folder / "targets.yaml"), "POLL_S": "1"}
        words = (
            "run",
            DEMO,
            *TINY,
            f"training.max_steps={STEPS}",
            *overrides,
            "--on",
            "pod",
            "--name",
            name,
            "--force",
        )
        return self.start(*words, **self.variables, **own)

    def directory(self, name: str) -> RunDir:
        return RunDir(self.folder / "runs" / name)

    def committed(self, name: str, tree: str) -> bool:
        url = self.directory(name).storage_url
        return bool(url and self.bucket.names(f"{url.removeprefix(f'{self.bucket.url}/')}/{tree}/commit_success.txt"))

    def left(self) -> list[str]:
        """What exists of runs in the cluster."""
        kinds = ("jobsets", "jobs", "pods", "workloads", "configmaps", "secrets")
        return [f"{kind}/{each['metadata']['name']}" for kind in kinds for each in self.kube.objects(kind)]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedBucket]:
    with EmulatedBucket() as emulated:
        for name, value in emulated.environment.items():
            monkeypatch.setenv(name, value)
        yield emulated


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[Kube]:
    with Kube(tmp_path, controllers=True, project="my-project", cluster="my-cluster") as cluster:
        yield cluster


def finished(launcher: "subprocess.Popen[str]") -> str:
    out, err = launcher.communicate(timeout=1200)
    assert launcher.returncode == 0, (out[-3000:], err[-3000:])
    return out + err


def test_processes_of_two_slices_train_as_one_and_a_secret_is_nowhere_to_be_seen(
    tmp_path: Path, kube: Kube, bucket: EmulatedBucket
) -> None:
    cluster = TrainingCluster(tmp_path, kube, bucket, "2x v6e-4", devices=1)
    cluster.add_queue(8, "2x2")
    for number in range(2):
        cluster.add_nodes(f"np-{number}", 1, "2x2")
    began = time.monotonic()
    try:
        said = finished(cluster.train("r", "mesh.fsdp=2", "training.max_steps=2"))
    finally:
        cluster.close()
    print(f"{time.monotonic() - began:.0f} s")
    run = cluster.directory("r")
    assert len(figures(run)["grpo"]) == 2 and cluster.left() == []
    starts = [line for line in run.log(1).read_text().splitlines() if "podwright: process" in line]
    assert [line.split("podwright: ")[1].split(" on ")[0] for line in starts] == ["process 0 of 2"], starts
    marks = cluster.canary.encode(), base64.b64encode(cluster.canary.encode())
    seen: dict[str, Any] = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    seen |= {name: bucket.content(name) or b"" for name in bucket.names()}
    seen |= {"calls": json.dumps(kube.requests()).encode(), "said": said.encode()}
    assert [place for place, content in seen.items() if any(mark in content for mark in marks)] == []
    assert any("/checkpoints/" in place for place in seen) and any("/records/" in place for place in seen)


@pytest.mark.long
def test_a_run_whose_nodes_are_taken_ends_with_the_weights_of_an_undisturbed_one(
    tmp_path: Path, kube: Kube, bucket: EmulatedBucket
) -> None:
    cluster = TrainingCluster(tmp_path, kube, bucket, "v6e-16", devices=4)
    cluster.add_queue(16, "4x4")
    cluster.add_nodes("np-0", 4, "4x4")
    try:
        began = time.monotonic()
        finished(cluster.train("calm", *FOUR_HOSTS))
        print(f"undisturbed: {time.monotonic() - began:.0f} s")
        began = time.monotonic()
        launcher = cluster.train("robbed", *FOUR_HOSTS)
        wait_for(lambda: cluster.committed("robbed", "checkpoints/2") or launcher.poll() is not None, 1200)
        kube.set(nodes=[{"node": "gke-np-0-*", "event": "preempted"}])
        wait_for(lambda: not kube.objects("nodes"), 60)
        cluster.add_nodes("np-1", 4, "4x4")
        finished(launcher)
        print(f"robbed: {time.monotonic() - began:.0f} s")
    finally:
        cluster.close()
    robbed, calm = cluster.directory("robbed"), cluster.directory("calm")
    assert [r["ending"] for r in read_jsonl(robbed.journal) if r["event"] == "ended"] == ["PREEMPTED", "FINISHED"]
    assert [r["step"] for r in read_jsonl(robbed.events) if r["event"] == "resumed"] == [2]
    assert figures(robbed) == figures(calm) and len(figures(robbed)["grpo"]) == STEPS
    assert weights(robbed) == weights(calm) and cluster.left() == []
