"""Kueue of the simulated cluster: admission, every text with which a workload waits, and eviction."""

from typing import Any

import pytest

from lab.kube import samples
from lab.kube.controllers import knobs, objects
from lab.tests.stepped_cluster import Cluster

QUEUE = "multislice-queue"


def submitted(cluster: Cluster, name: str = "w", **settings: Any) -> Cluster:
    cluster.add(samples.jobset(name, "true", **{"queue": QUEUE} | settings))
    cluster.tick()
    return cluster


def change(cluster: Cluster, resource: str, name: str, **fields: Any) -> None:
    namespace = "default" if resource == "localqueues" else ""
    cluster.store.change(resource, name, namespace, lambda copy: copy["spec"].update(fields))


def lose_flavor(cluster: Cluster) -> None:
    """The ClusterQueue names one that is not there; one that is used cannot be deleted."""
    groups = samples.queues(16, flavor="v5e")[1]["spec"]["resourceGroups"]
    change(cluster, "clusterqueues", "cluster-queue", resourceGroups=groups)


def test_jobset_with_a_queue_waits_suspended_until_it_is_admitted() -> None:
    cluster = Cluster(controllers_down=["kueue"]).with_slice()
    cluster.add(samples.jobset("w", "true", queue=QUEUE))
    assert cluster.get("jobsets", "w")["spec"]["suspend"] is True
    cluster.tick()
    assert objects.is_true(cluster.workload(), "Admitted")
    assert cluster.get("jobsets", "w")["spec"]["suspend"] is False and len(cluster.pods()) == 4
    assert objects.condition(cluster.workload(), "Admitted")["message"] == "The workload is admitted"
    row = cluster.workload()["status"]["admission"]["podSetAssignments"][0]
    assert row == {
        "name": "slice-job",
        "flavors": {"google.com/tpu": "v6e"},
        "resourceUsage": {"google.com/tpu": "16"},
        "count": 4,
    }
    numbers = {"pendingWorkloads": 0, "reservingWorkloads": 1, "admittedWorkloads": 1}
    for kind, name, namespace in (("clusterqueues", "cluster-queue", ""), ("localqueues", QUEUE, "default")):
        assert cluster.get(kind, name, namespace)["status"].items() >= numbers.items()


def test_admitted_pods_get_the_labels_and_tolerations_of_their_flavor() -> None:
    cluster = Cluster()
    cluster.add(*samples.pool(**{"podwright-run": "r1"}), *samples.queues(16))
    tolerations = [{"key": "x", "operator": "Exists"}]
    change(cluster, "resourceflavors", "v6e", nodeLabels={"podwright-run": "r1"}, tolerations=tolerations)
    submitted(cluster)
    pod = cluster.pods()[0]
    assert pod["spec"]["nodeSelector"]["podwright-run"] == "r1" and tolerations[0] in pod["spec"]["tolerations"]


def test_finished_jobset_frees_its_quota_for_the_next() -> None:
    cluster = submitted(submitted(Cluster().with_slice()), "v")
    text = "couldn't assign flavors to pod set slice-job: insufficient unused quota for google.com/tpu in flavor v6e, 16 more needed"
    assert cluster.waiting("v") == text
    cluster.end_all()
    condition = objects.condition(cluster.workload(), "Finished") or {}
    assert condition["message"] == "jobset completed successfully" and condition["reason"] == "Succeeded"
    assert objects.is_true(cluster.workload("v"), "Admitted")


def test_request_beyond_the_quota_is_said_to_exceed_it() -> None:
    cluster = submitted(Cluster().with_slice(chips=8))
    considered = "previously considered podsets requests (0) + current podset request (16) > maximum capacity (8)"
    text = f"couldn't assign flavors to pod set slice-job: insufficient quota for google.com/tpu in flavor v6e, {considered}"
    assert cluster.waiting() == text and cluster.pods() == []


def test_foreign_workload_takes_quota() -> None:
    cluster = Cluster().with_slice()
    cluster.add(samples.workload("other", 12))
    cluster.tick()
    submitted(cluster)
    assert "12 more needed" in cluster.waiting()
    cluster.store.delete("workloads", "other", "default")
    cluster.tick()
    assert len(cluster.pods()) == 4


def test_flavor_with_another_label_does_not_match() -> None:
    cluster = submitted(Cluster().with_slice(), topology="8x8")
    text = "couldn't assign flavors to pod set slice-job: flavor v6e doesn't match node affinity"
    assert cluster.waiting() == text


def test_taint_of_a_flavor_is_to_be_tolerated() -> None:
    cluster = Cluster().with_slice()
    change(cluster, "resourceflavors", "v6e", nodeTaints=[{"key": "spot", "value": "true", "effect": "NoSchedule"}])
    assert "untolerated taint" in submitted(cluster).waiting()


def test_resource_that_no_queue_covers_is_unavailable() -> None:
    container = {"resources": {"limits": {"google.com/tpu": 4}, "requests": {"cpu": "8"}}}
    assert (
        "resource cpu unavailable in ClusterQueue" in submitted(Cluster().with_slice(), container=container).waiting()
    )


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("no local queue", "LocalQueue multislice-queue doesn't exist"),
        ("local queue stopped", "LocalQueue multislice-queue is inactive"),
        ("no cluster queue", "ClusterQueue cluster-queue doesn't exist"),
        ("cluster queue stopped", "ClusterQueue cluster-queue is inactive"),
        ("no flavor", "ClusterQueue cluster-queue is inactive"),
    ],
)
def test_queue_that_takes_nothing_is_named(fault: str, text: str) -> None:
    cluster = Cluster().with_slice()
    actions = {
        "no local queue": lambda: cluster.store.delete("localqueues", QUEUE, "default"),
        "local queue stopped": lambda: change(cluster, "localqueues", QUEUE, stopPolicy="Hold"),
        "no cluster queue": lambda: cluster.store.delete("clusterqueues", "cluster-queue"),
        "cluster queue stopped": lambda: change(cluster, "clusterqueues", "cluster-queue", stopPolicy="Hold"),
        "no flavor": lambda: lose_flavor(cluster),
    }
    actions[fault]()
    submitted(cluster)
    assert cluster.waiting() == text and cluster.pods() == []
    assert (objects.condition(cluster.workload(), "QuotaReserved") or {})["reason"] == "Inadmissible"


def test_cluster_queue_names_its_missing_flavors() -> None:
    cluster = Cluster().with_slice()
    lose_flavor(cluster)
    cluster.tick()
    text = "Can't admit new workloads: references missing ResourceFlavor(s): v5e."
    assert cluster.condition("clusterqueues", "cluster-queue", "Active", "") == ("False", "FlavorNotFound", text)
    assert cluster.condition("localqueues", QUEUE, "Active")[1] == "ClusterQueueIsInactive"


def test_unknown_priority_class_leaves_no_word() -> None:
    cluster = submitted(Cluster().with_slice(), pod={"priorityClassName": "urgent"})
    assert cluster.store.list("workloads") == [] and cluster.pods() == []
    assert cluster.get("jobsets", "w")["spec"]["suspend"] is True


def test_newer_kueue_gives_finer_reasons() -> None:
    reasons = {"8x8": "NoMatchingFlavor", "4x4": "ExceedsMaxQuota"}
    for topology, reason in reasons.items():
        cluster = submitted(Cluster(kueue_reasons="new").with_slice(chips=8), topology=topology)
        assert (objects.condition(cluster.workload(), "QuotaReserved") or {})["reason"] == reason


def test_jobset_of_higher_priority_preempts_and_the_other_waits_again() -> None:
    cluster = Cluster()
    cluster.add(*samples.pool(), *samples.queues(16, preempts=True), *samples.priority_classes())
    submitted(cluster, "low", pod={"priorityClassName": "low"})
    assert len(cluster.pods()) == 4
    cluster.add(samples.jobset("high", "true", queue=QUEUE, pod={"priorityClassName": "high"}))
    cluster.tick(3)
    evicted = objects.condition(cluster.workload("low"), "Evicted") or {}
    assert (evicted["status"], evicted["reason"]) == ("True", "Preempted")
    assert evicted["message"].startswith("Preempted to accommodate a workload (UID: ")
    cluster.tick(20)
    names = {objects.labels(pod)["jobset.sigs.k8s.io/jobset-name"] for pod in cluster.pods()}
    assert names == {"high"} and cluster.get("jobsets", "low")["spec"]["suspend"] is True
    cluster.end_all()
    cluster.tick(20)
    assert {objects.labels(pod)["jobset.sigs.k8s.io/jobset-name"] for pod in cluster.pods()} == {"high", "low"}
    again = objects.condition(cluster.workload("low"), "Evicted") or {}
    assert again["status"] == "False" and again["message"].startswith("Previously: Preempted to accommodate")


def test_foreign_workload_of_higher_priority_preempts_too() -> None:
    cluster = Cluster()
    cluster.add(*samples.pool(), *samples.queues(16, preempts=True), *samples.priority_classes())
    submitted(cluster, pod={"priorityClassName": "low"})
    cluster.add(samples.workload("other", 16, priority=1000))
    cluster.tick(20)
    assert cluster.pods() == [] and objects.is_true(cluster.get("workloads", "other"), "Admitted")


@pytest.mark.parametrize("reason", ["Preempted", "ClusterQueueStopped", "PodsReadyTimeout"])
def test_evicted_jobset_stops_and_is_admitted_again(reason: str) -> None:
    cluster = Cluster(pods_ready_timeout_s=60 if reason == "PodsReadyTimeout" else None).with_slice()
    if reason == "PodsReadyTimeout":
        cluster.store.delete("nodes", "gke-np-0-3")
    submitted(cluster)
    before = {objects.uid(pod) for pod in cluster.pods()}
    if reason == "Preempted":
        cluster.store.knobs["evict"] = [{"jobset": "w"}]
    elif reason == "ClusterQueueStopped":
        change(cluster, "clusterqueues", "cluster-queue", stopPolicy="HoldAndDrain")
    cluster.tick(200)
    assert any(
        event.startswith(("Preempted", "The ClusterQueue", "Exceeded"))
        for event in cluster.events(f"EvictedDueTo{reason}")
    )
    assert not before & {objects.uid(pod) for pod in cluster.pods()}
    if reason == "ClusterQueueStopped":
        assert cluster.get("jobsets", "w")["spec"]["suspend"] is True
        change(cluster, "clusterqueues", "cluster-queue", stopPolicy="None")
        cluster.tick(10)
    assert cluster.pods()


def test_cluster_without_kueue_runs_a_jobset_with_a_queue_at_once() -> None:
    cluster = Cluster(absent_groups=["kueue.x-k8s.io"])
    cluster.add(*samples.pool())
    assert len(submitted(cluster).pods()) == 4


def test_kueue_webhook_that_is_down_refuses_jobsets() -> None:
    with pytest.raises(Exception, match='no endpoints available for service "kueue-webhook-service"'):
        submitted(Cluster(webhooks_down=["kueue"]))


def test_unknown_knob_is_refused() -> None:
    with pytest.raises(AssertionError, match="no such knob: ttl"):
        knobs.check({"ttl": 1})


def test_workload_has_its_quota_before_it_is_admitted_where_a_check_comes_between() -> None:
    cluster = Cluster(admission_check_s=30.0).with_slice()
    submitted(cluster)
    assert objects.is_true(cluster.workload(), "QuotaReserved") and not objects.is_true(cluster.workload(), "Admitted")
    assert cluster.workload()["status"]["admissionChecks"][0]["state"] == "Pending" and cluster.pods() == []
    cluster.tick(80)
    assert objects.is_true(cluster.workload(), "Admitted") and len(cluster.pods()) == 4


def test_queue_and_flavor_that_are_used_stay_until_they_are_not() -> None:
    cluster = submitted(Cluster().with_slice())
    cluster.store.delete("resourceflavors", "v6e")
    cluster.store.delete("clusterqueues", "cluster-queue")
    cluster.tick()
    text = "Can't admit new workloads; clusterQueue is terminating"
    assert cluster.condition("clusterqueues", "cluster-queue", "Active", "") == ("False", "Terminating", text)
    assert cluster.store.find("resourceflavors", "v6e") and len(cluster.pods()) == 4
    cluster.store.delete("jobsets", "w", "default")
    cluster.tick(20)
    assert [cluster.store.list(kind) for kind in ("workloads", "clusterqueues", "resourceflavors")] == [[], [], []]


def test_deleted_jobset_takes_its_workload_along() -> None:
    cluster = submitted(Cluster().with_slice())
    cluster.store.delete("jobsets", "w", "default")
    cluster.tick()
    assert cluster.store.list("workloads") == [] and cluster.pods() == []
