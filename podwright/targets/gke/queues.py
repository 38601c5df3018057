"""The objects of Kueue that a run brings for its own node pools: a flavor that stands for their nodes, and queues in which the run alone
waits. They carry the labels of the run, come before the pools and go with them; no other object of Kueue is changed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from podwright.rundir import Record
from podwright.targets.base import RUN_LABEL, PlannedCall
from podwright.targets.gke.cluster_view import CHIPS
from podwright.targets.gke.jobset import Manifest
from podwright.targets.gke.kubectl import Kubectl
from podwright.targets.gke.submit import CREATE
from podwright.targets.google.replies import Consequence, Reply
from podwright.targets.machines import Request

_GROUP = "kueue.x-k8s.io"
_VERSIONS = ("v1beta2", "v1beta1")
"""Kueue serves the first from 0.15 on, and the second before 0.20; what a run creates is the same in both"""
_UNCOUNTED = {"cpu": 1_000_000, "memory": "1000Ti", "ephemeral-storage": "1000Ti"}
"""what pods of a run do not ask for, unless the cluster gives them default requests (LimitRange, webhooks): Kueue admits no pod
that asks for what the queue has no quota of"""
KINDS = ("LocalQueue", "ClusterQueue", "ResourceFlavor")
"""in the order of their deletion: what uses another goes first"""
_RESOURCES = ",".join(f"{kind.lower()}s.{_GROUP}" for kind in KINDS)


@dataclass(frozen=True)
class QueueObjects:
    """What a cluster has of Kueue with a label."""

    installed: bool
    """whether it has Kueue at all"""
    objects: tuple[Record, ...] = ()


def manifests(request: Request, namespace: str) -> list[Manifest]:
    """In the order of their creation. The quota counts chips, as pods ask for them; cpu and memory are those of the nodes."""
    name = request.name
    labels = dict(request.labels)
    toleration = {"key": CHIPS, "operator": "Exists", "effect": "NoSchedule"}
    flavor = {"nodeLabels": {RUN_LABEL: labels[RUN_LABEL]}, "tolerations": [toleration]}
    quotas = [{"name": each, "nominalQuota": most} for each, most in {CHIPS: request.num_chips, **_UNCOUNTED}.items()]
    group = {"coveredResources": [CHIPS, *_UNCOUNTED], "flavors": [{"name": name, "resources": quotas}]}
    only_here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return [
        _object("ResourceFlavor", name, labels, flavor),
        _object("ClusterQueue", name, labels, {"namespaceSelector": only_here, "resourceGroups": [group]}),
        _object("LocalQueue", name, labels, {"clusterQueue": name}, namespace),
    ]


def deletion(request: Request, kind: str) -> tuple[str, ...]:
    """The words of kubectl that delete one of them."""
    return ("delete", f"{kind.lower()}s.{_GROUP}", request.name, "--wait=false", "--ignore-not-found")


def _object(kind: str, name: str, labels: dict[str, str], spec: Manifest, namespace: str = "") -> Manifest:
    metadata: Manifest = {"name": name, "labels": labels}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": f"{_GROUP}/{_VERSIONS[0]}", "kind": kind, "metadata": metadata, "spec": spec}


class RunQueues:
    """In one cluster."""

    def __init__(self, kubectl: Kubectl, namespace: str):
        self._kubectl = kubectl
        self._namespace = namespace

    def read(self, selector: str = RUN_LABEL) -> QueueObjects | Reply:
        """With a label, those of all runs by default; or why that is not known."""
        objects, failure = self._kubectl.items(["get", _RESOURCES, f"--selector={selector}"])
        if failure and failure.consequence is Consequence.ABSENT:
            return QueueObjects(installed=False)
        return failure or QueueObjects(True, tuple(objects))

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
                failure = self._created(manifest)
                if failure and failure.consequence is not Consequence.EXISTS:
                    return failure, bool(there)
                there.add(manifest["kind"])
        return None, bool(there)

    def _created(self, manifest: Manifest) -> Reply | None:
        """In the newest version that the cluster serves; why that failed, or None."""
        failure: Reply | None = None
        for version in _VERSIONS:
            failure = self._kubectl.do(CREATE, json.dumps(manifest | {"apiVersion": f"{_GROUP}/{version}"}))
            if failure is None or failure.consequence is not Consequence.ABSENT:
                return failure
        return failure

    def delete(self, request: Request) -> Reply | None:
        """Those that are there; why that failed, or None."""
        seen = self.of(request)
        if isinstance(seen, Reply):
            return seen
        there = {each["kind"] for each in seen.objects}
        for kind in KINDS:
            if kind in there:
                failure = self._kubectl.do(deletion(request, kind))
                if failure:
                    return failure
        return None
