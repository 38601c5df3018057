"""Objects that tests put into the simulated cluster: nodes of a TPU slice, Kueue's queues, priority classes, a JobSet."""

from typing import Any

from lab.kube.controllers.nodes import CHIPS

Object = dict[str, Any]
PRIORITIES = {"very-low": 100, "low": 250, "medium": 500, "high": 750, "very-high": 1000}  # those of xpk
TOLERATION = {"key": "google.com/tpu", "operator": "Exists"}


def node(name: str, pool: str, topology: str = "4x4", chips: int = 4, **labels: str) -> Object:
    """A node as GKE makes it, which gets ready, and its chips, by itself."""
    own = {"cloud.google.com/gke-nodepool": pool, "cloud.google.com/gke-tpu-topology": topology}
    own["cloud.google.com/gke-tpu-accelerator"] = "tpu-v6e-slice"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": own | labels, "annotations": {CHIPS: str(chips)}},
        "spec": {"taints": [{"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}]},
    }


def pool(name: str = "np-0", hosts: int = 4, **shape: Any) -> list[Object]:
    return [node(f"gke-{name}-{number}", name, **shape) for number in range(hosts)]


def queues(
    chips: int, queue: str = "multislice-queue", flavor: str = "v6e", topology: str = "4x4", preempts: bool = False
) -> list[Object]:
    """A ResourceFlavor, the ClusterQueue `cluster-queue`, and a LocalQueue of the namespace default."""
    resources = [{"name": "google.com/tpu", "nominalQuota": chips}]
    group = {"coveredResources": ["google.com/tpu"], "flavors": [{"name": flavor, "resources": resources}]}
    policy = {"preemption": {"withinClusterQueue": "LowerPriority"}} if preempts else {}
    labels = {"cloud.google.com/gke-tpu-topology": topology}
    api = {"apiVersion": "kueue.x-k8s.io/v1beta1"}
    return [
        api | {"kind": "ResourceFlavor", "metadata": {"name": flavor}, "spec": {"nodeLabels": labels}},
        api
        | {
            "kind": "ClusterQueue",
            "metadata": {"name": "cluster-queue"},
            "spec": {"resourceGroups": [group], "namespaceSelector": {}} | policy,
        },
        api
        | {
            "kind": "LocalQueue",
            "metadata": {"name": queue, "namespace": "default"},
            "spec": {"clusterQueue": "cluster-queue"},
        },
    ]


def priority_classes() -> list[Object]:
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        for name, value in PRIORITIES.items()
    ]


def workload(name: str, chips: int, queue: str = "multislice-queue", priority: int = 0) -> Object:
    """Of somebody else: it takes quota, and nothing runs for it."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"google.com/tpu": str(chips)}}}
    sets = [
        {"name": "main", "count": 1, "template": {"spec": {"containers": [container], "tolerations": [TOLERATION]}}}
    ]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"queueName": queue, "podSets": sets, "active": True, "priority": priority},
    }


def jobset(
    name: str,
    *command: str,
    hosts: int = 4,
    slices: int = 1,
    queue: str = "",
    topology: str = "4x4",
    exclusive: bool = True,
    pod: Object | None = None,
    container: Object | None = None,
    **job: Any,
) -> Object:
    """A JobSet whose pods run a command, 4 chips each; `pod`, `container` and further arguments add fields to their specs."""
    body = {
        "name": "trainer",
        "image": "python:3.12-slim",
        "command": list(command),
        "resources": {"limits": {"google.com/tpu": 4}},
    }
    own = {
        "restartPolicy": "Never",
        "nodeSelector": {"cloud.google.com/gke-tpu-topology": topology},
        "hostNetwork": True,
        "tolerations": [TOLERATION],
        "containers": [body | (container or {})],
    }
    numbers = {"parallelism": hosts, "completions": hosts, "backoffLimit": 0}
    template = {"spec": numbers | job | {"template": {"spec": own | (pod or {})}}}
    places = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"} if exclusive else {}
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": "default", "labels": labels, "annotations": places},
        "spec": {
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": [{"name": "slice-job", "replicas": slices, "template": template}],
        },
    }
