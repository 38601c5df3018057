"""Real training on a simulated cluster: pods are processes of this machine, started from what a run creates there by the real kubectl."""

import base64
import json
import os
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
import yaml

from conftest import _QUICK
from lab.bucket import EmulatedBucket
from lab.kube import controllers, samples
from lab.kube.control import Kube
from podwright import slices
from podwright.data.tokenizer import Tokenizer
from podwright.models import convert, param, qwen3
from podwright.recipe import schema
from podwright.recipe.models import Qwen3Dims
from podwright.rundir import RunDir, append_jsonl, read_jsonl
from podwright.targets.gke import xpk_shape
from podwright.train.mesh import make_mesh
from tests.e2e.conftest import Bench, wait_for
from tests.e2e.gke_cluster import objects_of_runs
from tests.e2e.trainer import DEMO, ROOT, TINY, figures, weights

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")
STEPS = 6
REWARD = """
import time

def fn(prompts, completions, **columns):
    time.sleep(1)
    return [float(len(text) % 7) for text in completions]
"""
"""slow enough that a signal comes in the middle of a run; a file of this machine, which pods read from the bucket"""
COMPILED = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
FOUR_HOSTS = ("mesh.fsdp=16", "batch_size=16", "warm_start.batch_size=16", "evaluation.batch_size=16", "data.num_test=16")  # fmt: skip
_VARIABLES = "export JAX_PLATFORMS=cpu " + " ".join(f"{name}='{os.environ[name]}'" for name in COMPILED)
IMAGE = {"python": f'#!/bin/sh\n{_VARIABLES}\nexec {sys.executable} "$@"\n', "pip": "#!/bin/sh\nexit 0\n"}
"""what stands in front of PATH in the pods: the packages of this environment, so that pip has nothing to do"""


class TrainingCluster(Bench):
    """A bench with the target `pod`, a queue and nodes for slices of `topology`, whose pods have `devices` devices each."""

    launch = ROOT / "lab" / "launch_gke.py"

    def __init__(self, folder: Path, kube: Kube, bucket: EmulatedBucket, topology: str, devices: int):
        super().__init__(folder)
        self.kube, self.bucket = kube, bucket
        self.canary = f"canary-{secrets.token_hex(8)}"
        flags = f"--xla_force_host_platform_device_count={devices} {_QUICK}"
        self.variables = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": flags, "HF_HUB_OFFLINE": "1"}
        self.variables |= bucket.environment
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
        self.slice = slices.parse(topology)
        for each in (*samples.priority_classes(), *samples.queues(self.slice.num_chips, topology=self.slice.topology)):
            kube.create(each)
        for number in range(self.slice.num_slices):
            self.add_nodes(f"np-{number}")

    def add_nodes(self, pool: str) -> None:
        """Those of one slice."""
        for node in samples.pool(pool, xpk_shape.vms_per_slice(self.slice), topology=self.slice.topology):
            self.kube.create(node)

    def start(self, *argv: str, **env: str) -> "subprocess.Popen[str]":
        own = {"PODWRIGHT_TARGETS": str(self.folder / "targets.yaml"), "POLL_S": "1"}
        return super().start(*argv, **self.variables, **self.kube.environment, **own, **env)

    def resumes(self, name: str) -> None:
        code, out, err = self.call("resume", name)
        assert code == 0, out + err

    def train(self, name: str, *overrides: str) -> "subprocess.Popen[str]":
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
        return self.start(*words)

    def directory(self, name: str) -> RunDir:
        return RunDir(self.folder / "runs" / name)

    def committed(self, name: str, tree: str) -> bool:
        url = self.directory(name).storage_url
        return bool(url and self.bucket.names(f"{url.removeprefix(f'{self.bucket.url}/')}/{tree}/commit_success.txt"))

    def wait(self, condition: Callable[[], bool], launcher: "subprocess.Popen[str]") -> None:
        """Also until the launcher has ended."""
        wait_for(lambda: launcher.poll() is not None or condition(), 1200)
        assert launcher.poll() is None, launcher.communicate()

    def take(self, pool: str, other: str, notice_s: float = 0.0) -> None:
        """The nodes of a pool, for those of another one."""
        self.kube.set(nodes=[{"node": f"gke-{pool}-*", "event": "preempted", "notice_s": notice_s}])
        wait_for(lambda: not self.kube.objects("nodes"))
        self.add_nodes(other)

    def endings(self, name: str) -> list[str]:
        return [r["ending"] for r in read_jsonl(self.directory(name).journal) if r["event"] == "ended"]

    def left(self) -> list[str]:
        """What exists of runs in the cluster."""
        return objects_of_runs(self.kube)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedBucket]:
    with EmulatedBucket() as emulated:
        for name, value in emulated.environment.items():
            monkeypatch.setenv(name, value)
        yield emulated


def finished(launcher: "subprocess.Popen[str]") -> str:
    out, err = launcher.communicate(timeout=1200)
    assert launcher.returncode == 0, (out[-3000:], err[-3000:])
    return out + err


@pytest.mark.long
@pytest.mark.crowded
def test_processes_of_two_slices_train_as_one_and_a_secret_is_nowhere_to_be_seen(
    tmp_path: Path, kube: Kube, bucket: EmulatedBucket
) -> None:
    cluster = TrainingCluster(tmp_path, kube, bucket, "2x v6e-8", devices=1)
    began = time.monotonic()
    try:
        said = finished(cluster.train("r", "mesh.data=2", "mesh.fsdp=2", "training.max_steps=2"))
    finally:
        cluster.close()
    print(f"{time.monotonic() - began:.0f} s")
    run = cluster.directory("r")
    assert len(figures(run)["grpo"]) == 2 and cluster.left() == []
    for number in range(4):
        assert f"podwright: process {number} of 4 on " in run.log(1, number).read_text()
    marks = cluster.canary.encode(), base64.b64encode(cluster.canary.encode())
    seen: dict[str, Any] = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    seen |= {name: bucket.content(name) or b"" for name in bucket.names()}
    seen |= {"calls": json.dumps(kube.requests()).encode(), "said": said.encode()}
    assert [place for place, content in seen.items() if any(mark in content for mark in marks)] == []
    assert any("/checkpoints/" in place for place in seen) and any("/records/" in place for place in seen)


@pytest.mark.long
@pytest.mark.crowded
def test_runs_whose_nodes_are_taken_end_with_the_weights_of_an_undisturbed_one(
    tmp_path: Path, kube: Kube, bucket: EmulatedBucket
) -> None:
    """One loses its nodes without a word, and goes on from its newest checkpoint; another one is told, and saves first."""
    cluster = TrainingCluster(tmp_path, kube, bucket, "v6e-16", devices=4)
    (tmp_path / "slow.py").write_text(REWARD)
    overrides = (*FOUR_HOSTS, "rewards=[{function: 'slow.py:fn'}]")
    try:
        finished(cluster.train("calm", *overrides))
        lost = cluster.train("lost", *overrides)
        cluster.wait(lambda: cluster.committed("lost", "checkpoints/2"), lost)
        cluster.take("np-0", "np-1")
        finished(lost)
        told = cluster.train("told", *overrides, "checkpoint.every_n_steps=3")
        cluster.wait(lambda: cluster.committed("told", "checkpoints/3"), told)
        cluster.take("np-1", "np-2", notice_s=60)
        finished(told)
    finally:
        cluster.close()
    calm, lost_run, told_run = (cluster.directory(name) for name in ("calm", "lost", "told"))
    assert cluster.endings("lost") == ["NODE_LOST", "FINISHED"] and cluster.endings("told") == ["PREEMPTED", "FINISHED"]
    resumed = [[r["step"] for r in read_jsonl(run.events) if r["event"] == "resumed"] for run in (lost_run, told_run)]
    (lost_at,), (told_at,) = resumed
    assert lost_at in (2, 4) and told_at > 3, "the second one saved when it was told"
    assert len(figures(calm)["grpo"]) == STEPS
    assert figures(lost_run) == figures(calm) == figures(told_run)
    assert weights(lost_run) == weights(calm) == weights(told_run) and cluster.left() == []


@pytest.mark.long
@pytest.mark.crowded
def test_what_a_run_saved_when_a_colleague_deleted_it_is_collected_and_resumed(
    tmp_path: Path, kube: Kube, bucket: EmulatedBucket
) -> None:
    """Its JobSet, or its only pod: SIGTERM, a checkpoint, no retry, and after a resume the figures and weights of an undisturbed run."""
    cluster = TrainingCluster(tmp_path, kube, bucket, "v6e-4", devices=4)
    (tmp_path / "slow.py").write_text(REWARD)
    steps = 10
    overrides = ("mesh.fsdp=4", f"training.max_steps={steps}", "rewards=[{function: 'slow.py:fn'}]")
    try:
        finished(cluster.train("calm", *overrides))
        for kind in ("jobset", "pod"):
            launcher = cluster.train(kind, *overrides, "--retries", "2")
            cluster.wait(lambda kind=kind: cluster.committed(kind, "checkpoints/2"), launcher)  # type: ignore[misc]
            (name,) = [each["metadata"]["name"] for each in kube.objects(f"{kind}s")]
            kube.call("delete", kind, name, "--wait=false")
            out, err = launcher.communicate(timeout=900)
            run = cluster.directory(kind)
            assert cluster.endings(kind) == ["STOPPED"], (out, err, run.log(1).read_text())
            wait_for(lambda: cluster.left() == [])
            ended = next(r for r in read_jsonl(run.journal) if r["event"] == "ended")
            assert f"{name} was deleted on the cluster, not by Podwright" in ended["detail"], ended
            assert f"podwright resume {kind}" in out + err
            collected = len(figures(run)["grpo"])
            assert 2 <= collected < steps and cluster.committed(kind, f"checkpoints/{collected}")
            cluster.resumes(kind)
            assert [r["step"] for r in read_jsonl(run.events) if r["event"] == "resumed"] == [collected]
    finally:
        cluster.close()
    calm, *others = (cluster.directory(name) for name in ("calm", "jobset", "pod"))
    assert len(figures(calm)["grpo"]) == steps
    assert all(figures(other) == figures(calm) and weights(other) == weights(calm) for other in others)


def local_files(folder: Path) -> None:
    """A checkpoint as transformers writes it, and questions, both of this machine alone."""
    dims, mesh = Qwen3Dims(16, 32, 1, 4, 4, 8, 300, True), make_mesh(schema.GrpoMesh(), jax.devices()[:1])
    tokenizer = Tokenizer.train(["How many apples does Tom have?"], dims.vocab_size)
    weights = param.initialize(qwen3.declare(dims), mesh, 0)
    convert.write(folder / "model", dims, weights, mesh, "float32", tokenizer.stop_ids, tokenizer.pad_id)
    tokenizer.save(folder / "model")
    for n in range(40):
        append_jsonl(folder / "questions.jsonl", {"question": f"{n}+1?", "answer": f"#### {n + 1}"})


@pytest.mark.long
@pytest.mark.crowded
def test_local_weights_and_data_are_uploaded_once_and_a_stopped_run_resumes_without_them(
    tmp_path: Path, kube: Kube, bucket: EmulatedBucket
) -> None:
    cluster = TrainingCluster(tmp_path, kube, bucket, "v6e-4", devices=4)
    mine = tmp_path / "mine"
    local_files(mine)
    (mine / "slow.py").write_text(REWARD)
    kube.set(hidden=[str(mine)])
    overrides = (
        *("model.name=mine", f"model.source={mine}/model", f"data.source={mine}/questions.jsonl", "data.num_test=8"),
        *("data.num_train=32", "mesh.fsdp=4", "checkpoint.every_n_steps=1"),
        f"rewards=[{{function: '{mine}/slow.py:fn'}}]",
    )
    try:
        launcher = cluster.train("r", *overrides)
        cluster.wait(lambda: cluster.committed("r", "checkpoints/2"), launcher)
        code, out, err = cluster.call("stop", "r")
        assert code == 0, out + err
        launcher.communicate(timeout=900)
        run = cluster.directory("r")
        assert cluster.endings("r") == ["STOPPED"] and cluster.left() == [], run.log(1).read_text()
        assert "stopped after step" in next(r for r in read_jsonl(run.journal) if r["event"] == "ended")["detail"]
        cluster.resumes("r")
    finally:
        cluster.close()
    assert cluster.endings("r") == ["STOPPED", "FINISHED"] and len(figures(run)["grpo"]) == STEPS
    stored = [name for name in bucket.names() if "/inputs/" in name]
    parts = ("model/model.safetensors", "model/config.json", "questions.jsonl", "slow.py")
    assert all(any(name.endswith(part) for name in stored) for part in parts), stored
    uploads = Counter(
        request.query.get("name") or request.object_name
        for request in bucket.log
        if request.method == "POST" and request.path.startswith("/upload")
    )
    assert all(uploads[name] == 1 for name in stored), uploads


def test_a_file_that_is_not_there_is_one_line_before_anything_is_created(
    tmp_path: Path, kube: Kube, bucket: EmulatedBucket
) -> None:
    cluster = TrainingCluster(tmp_path, kube, bucket, "v6e-4", devices=4)
    launcher = cluster.train("r", "data.source=questions.jsonl")  # --force: also where the plan has said so
    out, err = launcher.communicate(timeout=900)
    assert launcher.returncode == 1 and "data.source=questions.jsonl is not there" in out + err, out + err
    assert not [call for call in kube.requests() if call["verb"] == "create" and "review" not in call["resource"]]
    assert cluster.endings("r") == [] and cluster.left() == []
