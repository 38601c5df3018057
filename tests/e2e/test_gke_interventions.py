"""What somebody does to a run on the cluster, past Podwright: it ends with who did what, and is not started again by itself."""

from collections.abc import Callable
from typing import Any

import pytest

from lab.kube import controllers, samples
from tests.e2e.conftest import wait_for
from tests.e2e.gke_cluster import HOSTS, Cluster

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")


def at_work(cluster: Cluster) -> Any:
    """A run whose pods have printed something; it would be started again after a fault."""
    started = cluster.start_toy("--retries", "2")
    wait_for(lambda: len(cluster.running()) == HOSTS and cluster.path("attempts/1/log.txt").exists())
    return started


def ended(cluster: Cluster, out: str) -> dict[str, Any]:
    """The ending of the only attempt, of which nothing is left."""
    records = cluster.events("ended")
    assert len(records) == 1, records
    (record,) = records
    assert not cluster.events("retrying"), out
    cluster.kube.set(controllers_down=[])
    wait_for(lambda: cluster.left() == [])
    assert "podwright resume r" in out or record["fix"] in out, out
    return record


def test_a_jobset_that_a_colleague_deletes_is_named_and_not_started_again(cluster: Cluster) -> None:
    cluster.fill()
    cluster.replay(1)
    started = at_work(cluster)
    (jobset,) = cluster.kube.objects("jobsets")
    name = jobset["metadata"]["name"]
    cluster.kube.call("delete", "jobset", name, "--wait=false")
    record = ended(cluster, out := cluster.ends(started))
    assert record["ending"] == "STOPPED" and record["fix"] == "", out
    assert record["detail"] == f"JobSet {name} was deleted on the cluster, not by Podwright"


def delete_pod(cluster: Cluster) -> None:
    pod = next(pod["metadata"]["name"] for pod in cluster.running() if "-0-1-" in pod["metadata"]["name"])
    cluster.kube.call("delete", "pod", pod, "--wait=false")


def delete_workload(cluster: Cluster) -> None:
    cluster.kube.call("delete", "workloads", "--all", "--wait=false")


def suspend(cluster: Cluster) -> None:
    cluster.kube.set(controllers_down=["kueue"])  # it would take that back, sometimes before anything of it was done
    (jobset,) = cluster.kube.objects("jobsets")
    cluster.kube.call(
        "patch", "jobset", jobset["metadata"]["name"], "--type=merge", '--patch={"spec":{"suspend":true}}'
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("act", "detail"),
    [
        (delete_pod, "was deleted on the cluster, not by Podwright"),
        (delete_workload, "the Workload of JobSet "),
        (suspend, " was suspended on the cluster (spec.suspend), not by Podwright"),
    ],
)
def test_what_a_colleague_does_to_parts_of_a_run_stops_it(
    cluster: Cluster, act: Callable[[Cluster], None], detail: str
) -> None:
    cluster.fill()
    cluster.replay(1)
    started = at_work(cluster)
    wait_for(lambda: cluster.path("attempts/1/log.txt").read_text().count("\n") > 2)
    act(cluster)
    record = ended(cluster, out := cluster.ends(started))
    assert record["ending"] == "STOPPED" and detail in record["detail"], record | {"out": out}


@pytest.mark.long
def test_a_suspended_jobset_of_a_cluster_without_kueue_ends_the_attempt(cluster: Cluster) -> None:
    cluster.kube.set(absent_groups=["kueue.x-k8s.io"])
    for each in samples.priority_classes():
        cluster.kube.create(each)
    cluster.nodes()
    cluster.replay(1)
    started = at_work(cluster)
    suspend(cluster)
    out = cluster.ends(started)
    (record,) = cluster.events("ended")
    assert record["ending"] == "STOPPED" and "was suspended on the cluster (spec.suspend)" in record["detail"], out


@pytest.mark.long
def test_a_deleted_namespace_is_named_with_how_to_have_it_again(cluster: Cluster) -> None:
    cluster.target(namespace="team")
    cluster.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    cluster.fill()
    queue = samples.queues(8)[-1]
    cluster.kube.create(queue | {"metadata": queue["metadata"] | {"namespace": "team"}})
    cluster.replay(1)
    started = at_work(cluster)
    cluster.kube.call("delete", "namespace", "team", "--wait=false")
    record = ended(cluster, out := cluster.ends(started))
    assert record["ending"] == "STOPPED" and record["detail"].startswith("namespace team, and JobSet "), out
    assert "kubectl create namespace team --context=gke_my-project_us-central1_my-cluster" in record["fix"]
    code, out, err = cluster.call("resume", "r")
    assert code == 1 and "the cluster has no namespace team" in out + err


@pytest.mark.long
def test_a_queue_that_is_drained_is_a_preemption_and_the_run_waits_for_it(cluster: Cluster) -> None:
    cluster.fill()
    cluster.replay(1)
    started = at_work(cluster)
    cluster.kube.patch("clusterqueues", "cluster-queue", {"spec": {"stopPolicy": "HoldAndDrain"}}, "")
    cluster.waits("Stopped: ClusterQueue cluster-queue was stopped by an administrator of the cluster")
    assert [record["ending"] for record in cluster.events("ended")] == ["PREEMPTED"]
    assert cluster.events("ended")[0]["detail"].startswith("Kueue took the machines away (ClusterQueueStopped): ")
    cluster.replay(200)
    cluster.kube.patch("clusterqueues", "cluster-queue", {"spec": {"stopPolicy": "None"}}, "")
    cluster.ends(started)
    assert [record["ending"] for record in cluster.events("ended")] == ["PREEMPTED", "FINISHED"]
    assert cluster.left() == []


@pytest.mark.long
def test_a_queue_on_hold_keeps_what_runs_and_lets_nothing_in(cluster: Cluster) -> None:
    cluster.fill()
    cluster.replay(20)
    started = at_work(cluster)
    cluster.kube.patch("clusterqueues", "cluster-queue", {"spec": {"stopPolicy": "Hold"}}, "")
    cluster.ends(started)
    assert [record["ending"] for record in cluster.events("ended")] == ["FINISHED"]


@pytest.mark.long
def test_a_run_without_rights_that_it_does_not_need_waits_trains_and_says_what_is_missing(cluster: Cluster) -> None:
    for resource in ("workloads", "events", "nodes", "resourceflavors", "priorityclasses", "localqueues"):
        cluster.kube.fault("forbidden", resource=resource)
    cluster.fill(hosts=0)
    cluster.kube.create(samples.workload("other", 8))
    cluster.replay(200)
    started = cluster.start_toy()
    cluster.waits('may not list workloads in the namespace "default"; type gcloud projects')
    cluster.kube.delete("workloads", "other")
    cluster.waits("more is not known (NoPermission: ")
    assert "may not list events in the namespace" in cluster.shown
    cluster.nodes()
    out = cluster.ends(started)
    assert [record["ending"] for record in cluster.events("ended")] == ["FINISHED"], out
