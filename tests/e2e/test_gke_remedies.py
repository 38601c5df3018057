"""What `target check` and `doctor` say of a cluster that lacks something."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.gcloud.control import Folder, Gcloud
from lab.kube import controllers, samples
from lab.kube.control import Kube
from tests.e2e.gke_cluster import SLICE
from tests.e2e.test_gke_pool_runs import A, B, Pools

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")
NO_BUCKET: dict[str, Any] = {"bucket": "", "topology": SLICE}


@pytest.fixture
def pools(tmp_path: Path) -> Iterator[Pools]:
    """A cluster with JobSet, Kueue and the nodes of a slice, and nothing else."""
    with (
        Folder(tmp_path) as folder,
        Gcloud(folder) as gcloud,
        Kube(tmp_path, controllers=True, project="my-project", cluster="my-cluster") as kube,
    ):
        gcloud.cluster("my-cluster", "us-central1", project="my-project", zones=(A, B))
        bench = Pools(tmp_path, kube, gcloud)
        bench.target(zones=[A, B], **NO_BUCKET)
        bench.nodes()
        bench.replay(200)
        yield bench
        bench.close()


def findings(pools: Pools, *levels: str) -> list[dict[str, str]]:
    """Of `target check`, about the cluster."""
    _, out, err = pools.call("target", "check", "pod", "--json")
    return [f for f in json.loads(out or err)["findings"] if f["check"] == "target" and f["level"] in levels]


@pytest.mark.long
def test_a_cluster_without_a_queue_takes_runs_that_bring_their_own(pools: Pools) -> None:
    for each in samples.priority_classes():
        pools.kube.create(each)
    (wrong,) = findings(pools, "error", "warning")
    assert (
        "has no queue multislice-queue" in wrong["message"] and "set provisioning of the target to spot" in wrong["fix"]
    )
    pools.target(zones=[A, B], provisioning="spot")
    assert not findings(pools, "error")
    code, out, err = pools.run_toy()
    assert code == 0 and [event["ending"] for event in pools.events("ended")] == ["FINISHED"], out + err


@pytest.mark.long
def test_a_run_that_was_forced_into_a_missing_queue_ends_with_the_check_that_helps(pools: Pools) -> None:
    for each in samples.priority_classes():
        pools.kube.create(each)
    pools.target(zones=[A, B], topology=SLICE)
    code, out, err = pools.call(*(word for word in pools.words() if word != "--force"))
    assert code == 3 and "error: namespace default has no queue multislice-queue" in out + err, out + err
    assert pools.run_toy()[0] == 1
    (ended,) = pools.events("ended")
    assert ended["ending"] == "BAD_INPUT" and "namespace default has no queue multislice-queue" in ended["detail"]
    assert ended["fix"].startswith("type podwright target check pod, which names the queues of the namespace"), ended


@pytest.mark.long
def test_a_doctor_agrees_with_the_check_and_says_that_no_pod_was_looked_at(pools: Pools) -> None:
    for each in (*samples.queues(8, topology="2x2x2"), *samples.priority_classes()):
        pools.kube.create(each)
    unseen = "inconclusive: the pods of pod were not looked at (packages, disk, files): they exist only while a run has"
    for settings in ({}, {"provisioning": "spot"}):
        pools.target(zones=[A, B], **NO_BUCKET | settings)
        outcomes = [pools.call(*verb) for verb in (["target", "check", "pod"], ["doctor", "--on", "pod"])]
        assert [code for code, _, _ in outcomes] == [4, 4], outcomes
        assert all(unseen in out and "info: gcloud is logged in as " in out for _, out, _ in outcomes), outcomes
    pools.target(zones=[A, B], topology=SLICE, namespace="team-a")
    for verb in (
        ["target", "check", "pod"],
        ["doctor", "--on", "pod"],
        ["run", "toy.yaml", "--on", "pod", "--dry-run"],
    ):
        code, out, err = pools.call(*verb)
        assert code == 3 and "type kubectl create namespace team-a --context=" in out + err, (verb, out, err)
