"""The objects of an attempt of an own recipe, created by the real kubectl in a simulated API server, and where a secret is to be seen."""

import base64
import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.kube.control import Kube
from podwright.recipe import kinds, load
from podwright.run.attempt_job import job_of
from podwright.shell import Shell
from podwright.targets.base import Process
from podwright.targets.gke.target import Gke
from tests.e2e.conftest import wait_for
from tests.unit.targets.gke.entry import gke

DEMO = "qwen3-tiny-arithmetic-grpo"


@pytest.fixture
def kube(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kube]:
    with Kube(tmp_path, project="my-project", location="us-central1", cluster="my-cluster") as cluster:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        yield cluster


def test_a_secret_is_in_an_object_of_its_own_and_nowhere_else(
    kube: Kube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = f"canary-{secrets.token_hex(8)}"
    monkeypatch.setenv("HF_TOKEN", canary)
    target = Gke(Shell(), "pod", gke(topology="v6e-16", env=["HF_TOKEN", "NOT_SET_HERE"]))
    raw = load.load(DEMO, []).model_dump(mode="json")
    run = tmp_path / "runs" / "r"
    storage = "gs://my-bucket/runs/r-1"
    job = job_of(kinds.find("grpo"), raw, run, 1, tmp_path, 0.0, storage=storage, allocation="")
    handle = target.submit(target.render(job))
    wait_for(lambda: (run / "attempts/1/submit.json").exists())
    assert json.loads((run / "attempts/1/submit.json").read_text()) == {"sent": True}

    created = [call["resource"] for call in kube.requests() if call["verb"] == "create"]
    assert created == ["secrets", "configmaps", "jobsets"]
    name = handle["jobset"]
    secret, (jobset,) = kube.get("secrets", name), kube.objects("jobsets")
    assert {key: base64.b64decode(text).decode() for key, text in secret["data"].items()} == {"HF_TOKEN": canary}
    for each in (secret, kube.get("configmaps", name)):
        assert [owner["uid"] for owner in each["metadata"]["ownerReferences"]] == [jobset["metadata"]["uid"]]
        assert each["metadata"]["labels"].items() >= {"podwright-run": handle["tag"], "podwright-attempt": "1"}.items()

    shown = json.dumps([kube.objects("jobsets"), kube.objects("configmaps"), kube.requests(), handle])
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    marks = canary.encode(), base64.b64encode(canary.encode())
    assert [path for path, content in files.items() if any(mark in content for mark in marks)] == []
    assert not any(mark.decode() in shown for mark in marks) and len(files) > 4
    assert target.poll(handle).process is Process.RUNNING

    wait_for(lambda: target.release(handle).done)
    assert not any(kube.objects(kind) for kind in ("jobsets", "configmaps", "secrets"))
