"""The objects of Kueue that a run brings for its own node pools: a flavor that stands for their nodes, and queues in which the run alone
waits. They carry the labels of the run, come before the pools and go with them; no other object of Kueue is changed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from podwright.rundir import Record
from podwright.targets.base import RUN_LABEL, PlannedCall
from podwright.targets.gke.jobset import Manifest
from podwright.targets.gke.kubectl import Kubectl
from podwright.targets.gke.submit import CREATE
from podwright.targets.google.replies import Consequence, Reply
from podwright.targets.machines import Request

CHIPS = "google.com/tpu"
"""the resource that nodes with TPUs have, one for each chip"""
_VERSION = "kueue.x-k8s.io/v1beta1"
KINDS = ("LocalQueue", "ClusterQueue", "ResourceFlavor")
"""in the order of their deletion: what uses another goes first"""
_RESOURCES = ",".join(f"{kind.lower()}s.kueue.x-k8s.io" for kind in KINDS)


@dataclass(frozen=True)
class QueueObjects:
    """What a cluster has of Kueue with a label."""

    installed: bool
    """whether it has Kueue at all"""
    objects: tuple[Record, ...] = ()

    @property
    def complete(self) -> bool:
        """Of a request: whether nothing is missing."""
        return not self.installed or {each["kind"] for each in self.objects} == set(KINDS)


def manifests(request: Request, namespace: str) -> list[Manifest]:
    """In the order of their creation. The quota counts chips, as pods ask for them, and nothing else: pods that ask for cpu or memory
    are not admitted."""
    labels = dict(request.labels)
    toleration = {"key": CHIPS, "operator": "Exists", "effect": "NoSchedule"}
    nodes = {"nodeLabels": {RUN_LABEL: labels[RUN_LABEL]}, "tolerations": [toleration]}
    quota = {"name": CHIPS, "nominalQuota": request.num_chips}
    group = {"coveredResources": [CHIPS], "flavors": [{"name": request.name, "resources": [quota]}]}
    only_here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return [
        _object("ResourceFlavor", request.name, labels, nodes),
        _object("ClusterQueue", request.name, labels, {"namespaceSelector": only_here, "resourceGroups": [group]}),
        _object("LocalQueue", request.name, labels, {"clusterQueue": request.name}, namespace),
    ]


def deletion(request: Request, kind: str) -> tuple[str, ...]:
    """The words of kubectl that delete one of them."""
    return ("delete", f"{kind.lower()}s.kueue.x-k8s.io", request.name, "--wait=false", "--ignore-not-found")


def _object(kind: str, name: str, labels: dict[str, str], spec: Manifest, namespace: str = "") -> Manifest:
    metadata = {"name": name, "labels": labels} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": _VERSION, "kind": kind, "metadata": metadata, "spec": spec}


class RunQueues:
    """In one cluster."""

    def __init__(self, kubectl: Kubectl, namespace: str):
        self._kubectl = kubectl
        self._namespace = namespace

    def read(self, selector: str = RUN_LABEL) -> QueueObjects | Reply:
        """With a label, those of all runs by default; or why that is not known."""
        answer, failure = self._kubectl.json(["get", _RESOURCES, f"--selector={selector}"])
        if failure and failure.consequence is Consequence.ABSENT:
            return QueueObjects(installed=False)
        return failure or QueueObjects(True, tuple((answer or {}).get("items", ())))

    def of(self, request: Request) -> QueueObjects | Reply:
        seen = self.read(f"{RUN_LABEL}={request.labels[RUN_LABEL]}")
        if isinstance(seen, Reply):
            return seen
        return QueueObjects(seen.installed, tuple(o for o in seen.objects if o["metadata"]["name"] == request.name))

    def creating(self, request: Request) -> list[PlannedCall]:
        """For a dry run, in order."""
        objects = manifests(request, self._namespace)
        return [PlannedCall(self._kubectl.argv(CREATE), manifest) for manifest in objects]

    def deleting(self, request: Request) -> list[PlannedCall]:
        """For a dry run, in order."""
        return [PlannedCall(self._kubectl.argv(deletion(request, kind))) for kind in KINDS]

    def create(self, request: Request) -> tuple[Reply | None, bool]:
        """What is missing of them, if the cluster has Kueue: why that failed, or None, and whether any of them exists nevertheless."""
        seen = self.of(request)
        if isinstance(seen, Reply):
            return seen, False
        there = {each["kind"] for each in seen.objects}
        for manifest in manifests(request, self._namespace) if seen.installed else ():
            if manifest["kind"] not in there:
                failure = self._kubectl.do(CREATE, json.dumps(manifest))
                if failure and failure.consequence is not Consequence.EXISTS:
                    return failure, bool(there)
                there.add(manifest["kind"])
        return None, bool(there)

    def delete(self, request: Request) -> Reply | None:
        """Those that are there; why that failed, or None."""
        seen = self.of(request)
        if isinstance(seen, Reply):
            return seen
        there = {each["kind"] for each in seen.objects}
        for kind in KINDS:
            if kind in there and (failure := self._kubectl.do(deletion(request, kind))):
                return failure
        return None
