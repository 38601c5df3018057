"""Runs that a real xpk submits, with the real kubectl, to a simulated cluster and cloud; pods replay a log of MaxText."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.gcloud.control import Gcloud
from lab.kube import controllers, samples
from lab.kube.control import Kube
from podwright.counted_steps import read_steps
from podwright.rundir import RunDir
from tests import real_xpk
from tests.e2e.conftest import wait_for
from tests.e2e.gke_cluster import MaxTextCluster, simulated_cloud
from tests.unit.report.test_maxtext_report import deepseek

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")
VERSION = "1.16.0"
ZONE = "us-central1-ai1a"
SLICE, DEVICE, HOSTS = "tpu7x-2x2x2", "tpu7x-16", 2
POLICY = "tpu7x-16-2x2x2-placement-policy"
MAP = "my-cluster-resources-configmap"
OPTIONS = {"priority": "very-high", "max-restarts": "0", "project-number": "123456789012", "skip-validation": ""}
QUIET = {"TELEMETRY_ENABLED": "false", "DEPENDENCY_AUTO_DOWNLOAD": "false", "PIP_NO_INDEX": "1"}
"""xpk sends no figures, fetches no programs, and does not ask for newer versions"""


class XpkCluster(MaxTextCluster):
    """A cluster that xpk has adapted, and xpk itself in PATH."""

    def __init__(self, folder: Path, kube: Kube, gcloud: Gcloud):
        super().__init__(folder, kube)
        self.gcloud = gcloud
        real_xpk.hurried(real_xpk.installed(VERSION), folder / "xpk-bin")
        cloud = gcloud.environment
        self.variables = QUIET | cloud | {"PATH": f"{folder / 'xpk-bin'}:{cloud['PATH']}"}
        self.own(xpk=VERSION)

    def own(self, **settings: object) -> None:
        """The target, with an image of a registry that xpk does not look into."""
        self.target(**{"submit": "xpk", "image": "registry.example/maxtext:v1"} | settings)

    def adapted(self, **entries: str) -> dict[str, Any]:
        """The ConfigMap of xpk with these entries."""
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": MAP, "namespace": "default"}}
        return self.kube.create(body | {"data": {key.replace("_", "-"): value for key, value in entries.items()}})

    def entries(self) -> tuple[dict[str, str], dict[str, str]]:
        """Its data, and its annotations."""
        (config,) = self.kube.objects("configmaps")
        return config.get("data") or {}, config["metadata"].get("annotations") or {}

    def toy(self, *, nodes: bool = True) -> None:
        self.recipe(SLICE, {"model_name": "toy", "steps": "10"}, nodes=nodes, xpk=OPTIONS)

    def left(self) -> list[str]:
        return [each for each in super().left() if each != f"configmaps/{MAP}"]

    def jobset(self) -> dict[str, Any]:
        (jobset,) = self.kube.objects("jobsets")
        return jobset


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[XpkCluster]:
    with simulated_cloud(tmp_path, ZONE) as (kube, gcloud):
        bench = XpkCluster(tmp_path, kube, gcloud)
        yield bench
        bench.close()


@pytest.mark.long
def test_a_run_is_submitted_by_xpk_followed_and_deleted(cluster: XpkCluster) -> None:
    cluster.adapted(**{DEVICE: str(HOSTS)})
    before = cluster.entries()
    cluster.toy()
    cluster.logs(deepseek() + "\nEXIT_CODE=0")
    config = Path(cluster.environment["KUBECONFIG"]).read_text()
    code, out, err = cluster.call(*cluster.typed())
    assert code == 0, out + err
    assert "maxtext 10/10" in out and cluster.steps() == list(range(10))
    assert cluster.standing()["ending"] == "FINISHED"
    assert cluster.left() == [] and cluster.entries() == before
    assert Path(cluster.environment["KUBECONFIG"]).read_text() == config, "xpk logs in with a file of its own"
    said = cluster.path("attempts/1/xpk.txt").read_text()
    assert f"Starting xpk v{VERSION}" in said and "kubectl apply" in said


@pytest.mark.long
def test_a_run_for_xpk_brings_pools_and_the_entry_of_their_slice_and_takes_both_away(cluster: XpkCluster) -> None:
    cluster.own(xpk=VERSION, provisioning="spot")
    cluster.adapted(**{"v6e-16": "4"})
    before = cluster.entries()
    cluster.toy(nodes=False)
    for each in samples.queues(8, topology="2x2x2"):
        cluster.kube.create(each)
    cluster.logs(deepseek() + "\nEXIT_CODE=0", lines_per_s=40.0)
    run = cluster.start(*cluster.typed())
    wait_for(lambda: len(cluster.steps()) > 1)
    entries, annotations = cluster.entries()
    assert entries == {"v6e-16": "4", DEVICE: str(HOSTS)} and len(annotations) == 1
    (pool,) = [row for row in cluster.gcloud.pools() if row["name"] != "default-pool"]
    assert pool["policy"] == POLICY and cluster.jobset()["metadata"]["labels"]["podwright-run"]
    out, err = run.communicate(timeout=200)
    assert run.returncode == 0, out + err
    assert cluster.steps() == list(range(10)) and cluster.left() == [] and cluster.entries() == before
    assert [row["name"] for row in cluster.gcloud.pools()] == ["default-pool"]
    assert len(cluster.kube.objects("clusterqueues")) == 1, "that of the cluster"


@pytest.mark.long
def test_a_launcher_killed_while_xpk_is_at_work_leaves_one_workload(cluster: XpkCluster) -> None:
    cluster.adapted(**{DEVICE: str(HOSTS)})
    cluster.toy()
    cluster.logs(deepseek() + "\nEXIT_CODE=0")
    launcher = cluster.start(*cluster.typed())
    said = cluster.path("attempts/1/xpk.txt")
    wait_for(lambda: said.exists() and "Starting xpk" in said.read_text())
    os.kill(launcher.pid, signal.SIGKILL)
    assert not cluster.kube.objects("jobsets")
    code, out, err = cluster.call("resume", "r")
    assert code == 0, out + err
    assert cluster.steps() == list(range(10)) and cluster.left() == []
    created = [r for r in cluster.kube.requests() if (r["verb"], r["resource"]) == ("create", "jobsets")]
    assert len(created) == 1 and said.read_text().count("Starting xpk") == 1


@pytest.mark.long
def test_a_stop_ends_xpk_and_leaves_nothing(cluster: XpkCluster) -> None:
    cluster.adapted(**{DEVICE: str(HOSTS)})
    cluster.toy()
    cluster.kube.fault("hang", verb="list", resource="workloads")
    run = cluster.start(*cluster.typed())
    said = cluster.path("attempts/1/xpk.txt")
    wait_for(lambda: said.exists() and "Check if Workload Already Exists" in said.read_text())
    code, out, err = cluster.call("stop", "r")
    assert code == 0, out + err
    run.communicate(timeout=60)
    cluster.kube.clear_faults()
    assert cluster.standing()["ending"] == "STOPPED" and cluster.left() == []


@pytest.mark.long
def test_what_xpk_says_against_a_run_ends_it_with_what_to_type(cluster: XpkCluster) -> None:
    """The entry goes between the check of the run and xpk's own."""
    cluster.adapted(**{DEVICE: str(HOSTS)})
    cluster.toy()
    run = cluster.start(*cluster.typed())
    wait_for(lambda: cluster.path("attempts/1").exists())
    cluster.kube.patch("configmaps", MAP, {"data": {DEVICE: None}})
    run.communicate(timeout=200)
    row = cluster.standing()
    assert row["ending"] == "BAD_INPUT" and f"has no {DEVICE}" in row["detail"] and cluster.left() == []


@pytest.mark.long
def test_another_xpk_and_a_kind_that_xpk_does_not_start_are_refused_before_anything(cluster: XpkCluster) -> None:
    cluster.own(xpk="1.15.0")
    cluster.toy()
    code, _, err = cluster.call(*cluster.typed())
    assert code == 2 and f"the xpk of this machine is {VERSION}, and the run needs 1.15.0" in err
    code, _, err = cluster.call("run", "qwen3-tiny-arithmetic-grpo", "--on", "pod", "--name", "r")
    assert code == 2 and "has submit=xpk, which starts kind maxtext alone; set submit=jobset" in err
    assert not cluster.path().exists() and not cluster.created()


@pytest.mark.long
def test_a_preempted_attempt_is_submitted_by_xpk_once_more(cluster: XpkCluster) -> None:
    cluster.adapted(**{DEVICE: str(HOSTS)})
    cluster.toy()
    cluster.logs(deepseek() + "\nEXIT_CODE=0", lines_per_s=0.2)
    run = cluster.start(*cluster.typed())
    wait_for(lambda: len(cluster.steps()) > 1)
    cluster.logs(deepseek() + "\nEXIT_CODE=0")
    cluster.kube.set(nodes=[{"node": "gke-np-1", "event": "preempted", "notice_s": 2.0, "back_s": 1.0}])
    out, err = run.communicate(timeout=400)
    assert run.returncode == 0, out + err
    assert [event["ending"] for event in cluster.events("ended")] == ["PREEMPTED", "FINISHED"]
    assert "gke-np-1" in cluster.events("ended")[0]["detail"]
    steps = read_steps(RunDir(cluster.path()), "maxtext")  # MaxText began again: those of the last attempt count
    assert [(r["step"], r["attempt"]) for r in steps] == [(step, 2) for step in range(10)] and cluster.left() == []
    calls = [cluster.path(f"attempts/{number}/xpk.txt").read_text() for number in (1, 2)]
    assert all(text.count("Starting xpk") == 1 for text in calls)
