"""Nodes and the scheduler of the simulated cluster, and what is done to objects before they are stored."""

from typing import Any

import pytest

from lab.kube import samples
from lab.kube.controllers import job, objects, scheduler
from lab.kube.controllers.objects import Json
from lab.kube.errors import ApiError
from lab.tests.stepped_cluster import Cluster


def submitted(cluster: Cluster, **settings: Any) -> Cluster:
    cluster.add(samples.jobset("w", "true", **settings))
    cluster.tick()
    return cluster


def pending(cluster: Cluster) -> list[str]:
    """Why pods have no node."""
    rows = [objects.condition(pod, "PodScheduled") or {} for pod in cluster.pods()]
    return [row["message"] for row in rows if row.get("status") == "False" and row["reason"] == "Unschedulable"]


def environment(pod: Json) -> dict[str, str]:
    return {each["name"]: each["value"] for each in pod["spec"]["containers"][0]["env"] if "value" in each}


def test_chips_register_some_time_after_the_node_is_ready() -> None:
    cluster = Cluster(plugin_s=30.0)
    cluster.add(*samples.pool())
    cluster.tick()
    node = cluster.get("nodes", "gke-np-0-0", "")
    assert objects.is_true(node, "Ready") and node["status"]["allocatable"] == {"google.com/tpu": "0"}
    submitted(cluster, exclusive=False)
    preemption = "preemption: 0/4 nodes are available: 4 No preemption victims found for incoming pod."
    assert pending(cluster) == [f"0/4 nodes are available: 4 Insufficient google.com/tpu. {preemption}"] * 4
    cluster.tick(60)
    assert pending(cluster) == [] and len({pod["spec"]["nodeName"] for pod in cluster.pods()}) == 4


def test_pod_without_a_node_names_every_reason() -> None:
    cluster = Cluster()
    cluster.add(*samples.pool(hosts=2), *samples.pool("np-1", hosts=1, topology="8x8"))
    submitted(cluster, hosts=3, exclusive=False)
    reasons = "1 node(s) didn't match Pod's node affinity/selector, 2 Insufficient google.com/tpu"
    hints = "1 Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod"
    text = f"0/3 nodes are available: {reasons}. preemption: 0/3 nodes are available: {hints}."
    assert pending(cluster) == [text] and text in cluster.events("FailedScheduling")


def test_cluster_without_nodes_says_so() -> None:
    assert pending(submitted(Cluster(), exclusive=False)) == ["no nodes available to schedule pods"] * 4


def test_taint_that_a_pod_does_not_tolerate_is_named() -> None:
    cluster = Cluster()
    cluster.add(*samples.pool())
    submitted(cluster, exclusive=False, pod={"tolerations": []})
    assert "4 node(s) had untolerated taint {google.com/tpu: present}" in pending(cluster)[0]


def test_followers_wait_for_the_leader_and_stay_in_its_pool() -> None:
    cluster = Cluster()
    cluster.add(*samples.pool("np-0", hosts=2), *samples.pool("np-1", hosts=4))
    cluster.controllers = [each for each in cluster.controllers if not isinstance(each, scheduler.Scheduler)]
    submitted(cluster, hosts=2)
    assert [job.index_of(pod) for pod in cluster.pods()] == [0]
    refusal = 'admission webhook "vpod.kb.io" denied the request: follower pod node selector not set'
    assert cluster.events("FailedCreate") == [f"Error creating: {refusal}"]
    cluster.controllers.append(scheduler.Scheduler())
    cluster.tick()
    pools = {
        cluster.get("nodes", pod["spec"]["nodeName"], "")["metadata"]["labels"]["cloud.google.com/gke-nodepool"]
        for pod in cluster.pods()
    }
    assert len(cluster.pods()) == 2 and len(pools) == 1


def test_each_slice_has_a_pool_of_its_own() -> None:
    cluster = Cluster()
    cluster.add(*samples.pool("np-0"), *samples.pool("np-1"))
    submitted(cluster, slices=2)
    pools: dict[str, set[str]] = {}
    for pod in cluster.pods():
        number = objects.labels(pod)["jobset.sigs.k8s.io/job-index"]
        pools.setdefault(number, set()).add(pod["spec"]["nodeName"].rsplit("-", 1)[0])
    assert sorted(map(sorted, pools.values())) == [["gke-np-0"], ["gke-np-1"]]


def test_third_job_has_no_pool_left() -> None:
    cluster = Cluster()
    cluster.add(*samples.pool("np-0", hosts=2, chips=16))
    submitted(cluster, slices=2, hosts=2)
    assert "2 node(s) didn't match pod anti-affinity rules" in pending(cluster)[0]


def test_autoscaler_says_why_it_adds_no_nodes() -> None:
    text = "pod didn't trigger scale-up: 1 in backoff after failed scale-up"
    cluster = submitted(Cluster(scale_up=[{"pod": "w-*", "message": text}]), exclusive=False)
    assert set(cluster.events("NotTriggerScaleUp")) == {text}


def test_pods_of_a_deleted_node_fail_as_disrupted_and_go() -> None:
    cluster = submitted(Cluster(gc_s=3.0).with_slice())
    lost = next(pod for pod in cluster.pods() if job.index_of(pod) == 2)
    cluster.store.delete("nodes", lost["spec"]["nodeName"])
    cluster.tick(7)
    there = cluster.store.find("pods", objects.name(lost), "default")
    if there is not None:
        assert objects.status(there)["phase"] == "Failed"
        assert (objects.condition(there, "DisruptionTarget") or {})["reason"] == "DeletionByPodGC"
    cluster.tick()
    assert cluster.store.find("pods", objects.name(lost), "default") is None
    assert objects.is_true(cluster.get("jobsets", "w"), "Failed")
    changes = [
        c.new.body
        for c in cluster.store.changes
        if c.resource == "pods" and c.new.body["metadata"]["uid"] == objects.uid(lost)
    ]
    assert any(
        (objects.condition(body, "DisruptionTarget") or {}).get("message") == "PodGC: node no longer exists"
        for body in changes
    )


def test_unreachable_node_loses_its_pods_after_a_while() -> None:
    cluster = Cluster(unreachable_s=20.0).with_slice()
    submitted(cluster)
    pod = next(pod for pod in cluster.pods() if job.index_of(pod) == 1)
    node = pod["spec"]["nodeName"]
    cluster.store.knobs["nodes"] = [{"node": node, "event": "unreachable"}]
    cluster.tick()
    lost = ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
    assert cluster.condition("nodes", node, "Ready", "") == lost
    assert cluster.condition("pods", objects.name(pod), "Ready")[:2] == ("False", "NodeNotReady")
    assert cluster.condition("pods", objects.name(pod), "DisruptionTarget") is None
    cluster.tick(40)
    changes = [
        c.new.body
        for c in cluster.store.changes
        if c.resource == "pods" and c.new.body["metadata"]["uid"] == objects.uid(pod)
    ]
    reasons = {(objects.condition(body, "DisruptionTarget") or {}).get("reason") for body in changes}
    assert "DeletionByTaintManager" in reasons


@pytest.mark.parametrize("name", ["medium", "urgent"])
def test_pod_of_an_unknown_priority_class_is_forbidden(name: str) -> None:
    cluster = Cluster()
    cluster.add(*samples.pool(), *samples.priority_classes())
    submitted(cluster, pod={"priorityClassName": name})
    if name == "medium":
        assert {pod["spec"]["priority"] for pod in cluster.pods()} == {500}
    else:
        assert cluster.pods() == []
        text = "is forbidden: no PriorityClass with name urgent was found"
        assert any(event.endswith(text) for event in cluster.events("FailedCreate"))


def test_pods_on_tpus_get_the_variables_of_gke() -> None:
    cluster = Cluster()
    cluster.add(*samples.pool("np-0"), *samples.pool("np-1"))
    submitted(cluster, slices=2)
    pod = next(p for p in cluster.pods() if p["spec"]["hostname"] == "w-slice-job-1-3")
    values = environment(pod)
    assert (
        values["TPU_WORKER_ID"] == "3" and values["TPU_WORKER_HOSTNAMES"] == "127.0.0.1,127.0.0.1,127.0.0.1,127.0.0.1"
    )
    assert values["TPU_TOPOLOGY"] == "4x4"
    assert (values["MEGASCALE_NUM_SLICES"], values["MEGASCALE_SLICE_ID"]) == ("2", "1")
    assert values["MEGASCALE_COORDINATOR_ADDRESS"] == "127.0.0.1"


@pytest.mark.parametrize("lacking", ["chips", "topology", "hostnames"])
def test_pods_that_lack_a_condition_of_the_webhook_get_no_variables(lacking: str) -> None:
    cluster = Cluster()
    cluster.add(*samples.pool())
    body = samples.jobset("w", "true", exclusive=False)
    own = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    if lacking == "chips":
        del own["containers"][0]["resources"]
    elif lacking == "topology":
        del own["nodeSelector"]
    else:
        body["spec"]["network"] = {"enableDNSHostnames": False}
    cluster.add(body)
    cluster.tick()
    assert len(cluster.pods()) == 4 and not any("TPU_WORKER_ID" in environment(pod) for pod in cluster.pods())


def test_single_slice_gets_no_variables_of_several() -> None:
    cluster = submitted(Cluster().with_slice())
    assert not any(name.startswith("MEGASCALE") for name in environment(cluster.pods()[0]))


def test_names_too_long_for_pods_are_refused() -> None:
    with pytest.raises(ApiError, match="63 characters"):
        Cluster().add(samples.jobset("w" * 48, "true"))


def test_preempted_node_comes_back_under_its_name_and_stays() -> None:
    cluster = Cluster(nodes=[{"node": "gke-np-0-1", "event": "preempted", "back_s": 5.0}], gc_s=1.0).with_slice()
    before = cluster.store.find("nodes", "gke-np-0-1", "")
    assert before is None
    cluster.tick(20)
    node = cluster.get("nodes", "gke-np-0-1", "")
    assert objects.is_true(node, "Ready") and node["status"]["allocatable"] == {"google.com/tpu": "4"}
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["google.com/tpu"]
    assert len(submitted(cluster).pods()) == 4
