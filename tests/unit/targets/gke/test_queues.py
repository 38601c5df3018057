"""The objects of Kueue that a run brings for its node pools."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.kube.controllers import quota
from podwright.shell import Shell
from podwright.targets.gke.kubectl import Kubectl
from podwright.targets.gke.pools import NodePoolProvisioner
from podwright.targets.gke.queues import KINDS, QueueObjects, RunQueues, manifests
from podwright.targets.google.replies import Consequence, Reply
from tests.unit.targets.gke.entry import gke

OWN = gke(provisioning="spot", topology="2x v6e-16", namespace="research")
REQUEST = NodePoolProvisioner(Shell(), OWN).describe_request(Path("/runs/r"), 1.0, 1, ())
FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE = manifests(REQUEST, OWN.namespace)


class Cluster(Shell):
    """kubectl over a dictionary of objects by kind."""

    def __init__(self, failure: str = "") -> None:
        super().__init__()
        self.failure = failure
        self.objects: dict[str, dict[str, Any]] = {}
        self.calls: list[Sequence[str]] = []

    def ask(self, argv, *_, given="", **__):  # type: ignore[no-untyped-def]
        words = [word for word in argv[1:] if not word.startswith(("--context", "--namespace", "--request"))]
        self.calls.append(words)
        if self.failure:
            return 1, "", self.failure
        match words[0]:
            case "create":
                manifest = json.loads(given)
                self.objects[manifest["kind"]] = manifest
            case "delete":
                self.objects = {k: v for k, v in self.objects.items() if not words[1].startswith(f"{k.lower()}s.")}
        return 0, json.dumps({"kind": "List", "items": list(self.objects.values())}), ""


def test_each_names_the_one_before_and_carries_the_labels_of_the_run() -> None:
    tag = REQUEST.labels["podwright-run"]
    assert FLAVOR["spec"]["nodeLabels"] == {"podwright-run": tag}
    assert FLAVOR["spec"]["tolerations"][0]["key"] == "google.com/tpu"
    (group,) = CLUSTER_QUEUE["spec"]["resourceGroups"]
    assert group["flavors"][0]["name"] == REQUEST.name
    assert group["flavors"][0]["resources"][0] == {"name": "google.com/tpu", "nominalQuota": 32}
    assert CLUSTER_QUEUE["spec"]["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "research"}
    assert LOCAL_QUEUE["spec"]["clusterQueue"] == REQUEST.name and LOCAL_QUEUE["metadata"]["namespace"] == "research"
    for each in (FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE):
        assert each["metadata"]["name"] == REQUEST.name and each["metadata"]["labels"] == REQUEST.labels


def test_what_is_missing_is_created_and_what_is_there_is_deleted_users_first() -> None:
    cluster = Cluster()
    queues = RunQueues(Kubectl(cluster, OWN), OWN.namespace)
    cluster.objects["ResourceFlavor"] = FLAVOR
    assert queues.create(REQUEST) == (None, True) and set(cluster.objects) == {
        "ResourceFlavor",
        "ClusterQueue",
        "LocalQueue",
    }
    assert sum(words[0] == "create" for words in cluster.calls) == 2
    seen = queues.of(REQUEST)
    assert isinstance(seen, QueueObjects) and {each["kind"] for each in seen.objects} == set(KINDS)
    assert queues.delete(REQUEST) is None and not cluster.objects
    deleted = [words[1] for words in cluster.calls if words[0] == "delete"]
    assert [each.partition(".")[0] for each in deleted] == ["localqueues", "clusterqueues", "resourceflavors"]


def test_a_refusal_in_the_middle_says_that_something_exists() -> None:
    forbidden = 'Error from server (Forbidden): clusterqueues is forbidden: User "u" cannot create resource'

    class Refusing(Cluster):
        def ask(self, argv, *rest, given="", **more):  # type: ignore[no-untyped-def]
            if '"kind": "ClusterQueue"' in given:
                return 1, "", forbidden
            return super().ask(argv, *rest, given=given, **more)

    failure, any_there = RunQueues(Kubectl(Refusing(), OWN), OWN.namespace).create(REQUEST)
    assert failure and failure.reason.startswith("NoPermission") and any_there


def test_objects_of_another_name_are_left_alone() -> None:
    cluster = Cluster()
    theirs = {"kind": "LocalQueue", "metadata": {"name": "multislice-queue", "labels": REQUEST.labels}}
    cluster.objects["LocalQueue"] = theirs
    queues = RunQueues(Kubectl(cluster, OWN), OWN.namespace)
    assert queues.of(REQUEST) == QueueObjects(True)
    assert queues.delete(REQUEST) is None and cluster.objects == {"LocalQueue": theirs}


@pytest.mark.parametrize("served", ["v1beta2", "v1beta1"])
def test_objects_are_of_a_version_that_kueue_serves(served: str) -> None:
    class Served(Cluster):
        def ask(self, argv, *rest, given="", **more):  # type: ignore[no-untyped-def]
            if given and (version := json.loads(given)["apiVersion"]) != f"kueue.x-k8s.io/{served}":
                return (
                    1,
                    "",
                    f'error: resource mapping not found for name: "q": no matches for kind "Q" in version "{version}"',
                )
            return super().ask(argv, *rest, given=given, **more)

    cluster = Served()
    assert RunQueues(Kubectl(cluster, OWN), OWN.namespace).create(REQUEST) == (None, True)
    assert {each["apiVersion"] for each in cluster.objects.values()} == {f"kueue.x-k8s.io/{served}"}


def test_default_requests_of_a_namespace_keep_no_run_waiting() -> None:
    pod = {
        "containers": [{"resources": {"limits": {"google.com/tpu": 4}, "requests": {"cpu": "100m", "memory": "2Gi"}}}]
    }
    pod |= {"nodeSelector": {"podwright-run": REQUEST.labels["podwright-run"]}}
    sets = [{"name": "slice-job", "count": 8, "template": {"spec": pod}}]
    assert quota.assign(CLUSTER_QUEUE, {REQUEST.name: FLAVOR}, {}, sets).fits


def test_a_cluster_without_kueue_gets_none() -> None:
    cluster = Cluster('error: the server doesn\'t have a resource type "localqueues"')
    queues = RunQueues(Kubectl(cluster, OWN), OWN.namespace)
    assert queues.create(REQUEST) == (None, False) and queues.delete(REQUEST) is None
    seen = queues.of(REQUEST)
    assert isinstance(seen, QueueObjects) and not seen.installed and not seen.objects
    assert not any(words[0] in ("create", "delete") for words in cluster.calls)


@pytest.mark.parametrize(
    "text", ["Unable to connect to the server: dial tcp: i/o timeout", "Error from server (Forbidden): x"]
)
def test_a_cluster_that_does_not_answer_has_unknown_queues(text: str) -> None:
    queues = RunQueues(Kubectl(Cluster(text), OWN), OWN.namespace)
    for answer in (queues.of(REQUEST), queues.create(REQUEST)[0], queues.delete(REQUEST)):
        assert isinstance(answer, Reply) and answer.consequence in (Consequence.UNKNOWN, Consequence.FINAL)
