"""What the states of node pools, their operations and their nodes mean for a run. Pure; a state that nobody knows is one of waiting, never
one of being gone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from podwright.rundir import Ending, Record
from podwright.targets.base import RUN_LABEL
from podwright.targets.gke import cluster_view
from podwright.targets.gke.cluster_view import CHIPS, is_true, name_of
from podwright.targets.gke.pool_replies import BUSY_CLUSTER
from podwright.targets.google.labels import unix
from podwright.targets.google.replies import Classify, refusal
from podwright.targets.machines import (
    Allocation,
    AllocationState,
    ChargedChips,
    HostAddress,
    Hosts,
    Request,
    deleting,
    filling,
    lost,
    partial,
    ready,
    refused,
    repairing,
    waiting,
)

_CREATE = "CREATE_NODE_POOL"
_POOL_OF_NODE = "cloud.google.com/gke-nodepool"


@dataclass(frozen=True)
class PoolSize:
    """Of each pool of a request."""

    nodes: int
    chips: int
    """of a node"""
    by_pods: bool = False
    """whether nodes come when pods ask for them"""


def labels_of(pool: Record) -> Mapping[str, str]:
    """Of a row of the list of node pools: those of the cloud, not of Kubernetes."""
    labels: Mapping[str, str] = pool.get("config", {}).get("resourceLabels", {})
    return labels


def is_ours(pool: Record, request: Request) -> bool:
    return labels_of(pool).get(RUN_LABEL) == request.labels[RUN_LABEL]


def of_cluster(operations: Sequence[Record], cluster: str) -> list[Record]:
    """Those of a location that are about `cluster` or its pools, the oldest first."""
    own = [each for each in operations if f"/clusters/{cluster}/" in f"{each.get('targetLink', '')}/"]
    return sorted(own, key=lambda each: str(each.get("startTime", "")))


def creation_of(operations: Sequence[Record], pool: str) -> Record | None:
    """The newest operation about a pool, if it creates it."""
    newest = next(
        (o for o in reversed(operations) if str(o.get("targetLink", "")).endswith(f"/nodePools/{pool}")), None
    )
    return newest if newest and newest.get("operationType") == _CREATE else None


def busy(operations: Sequence[Record]) -> str:
    """What may keep a cluster from taking a request, as `Reason: what it means`; "" if nothing does."""
    blocking = next((each for each in operations if each.get("status") != "DONE"), None)
    if blocking is None:
        return ""
    about = str(blocking.get("targetLink", "")).rpartition("/")[2]
    what = f"{blocking.get('name', 'an operation')} ({blocking.get('operationType', 'unknown')} of {about})"
    since = str(blocking.get("startTime", ""))[:19]
    return f"{BUSY_CLUSTER}: the cluster works on {what}{f' since {since}Z' if since else ''}, and takes no other request before it ends"


def is_pending(operations: Sequence[Record], pools: Sequence[str]) -> bool:
    """Whether an operation about one of `pools` has not ended. Others may last for hours, and need not keep a cluster from taking requests."""
    links = tuple(f"/nodePools/{pool}" for pool in pools)
    return any(str(o.get("targetLink", "")).endswith(links) for o in operations if o.get("status") != "DONE")


def pool_lost(name: str) -> Allocation:
    """Of machines that were ready."""
    return lost(Ending.NODE_LOST, f"PoolLost: node pool {name} no longer exists")


def may_have_nodes(pool: Record) -> bool:
    return pool.get("status") in ("RUNNING", "RUNNING_WITH_ERROR", "RECONCILING")


def failure_of(operation: Record | None) -> str:
    """What an operation that has failed says; "" of any other."""
    if operation is None or operation.get("status") != "DONE":
        return ""
    error = operation.get("error", {})
    if not error and not operation.get("statusMessage"):
        return ""
    texts = [error.get("message", ""), operation.get("statusMessage", "")]
    texts += _conditions(operation.get("nodepoolConditions"))
    texts += _conditions(operation.get("clusterConditions"))
    return "\n".join(dict.fromkeys(text for text in texts if text))


def complaint_of(pool: Record) -> str:
    """What a pool says of itself; "" if nothing."""
    texts = [*_conditions(pool.get("conditions")), pool.get("statusMessage", "")]
    return "\n".join(dict.fromkeys(text for text in texts if text))


def _conditions(conditions: object) -> list[str]:
    rows = conditions if isinstance(conditions, list) else []
    return [" ".join(str(row[key]) for key in ("code", "message") if row.get(key)) for row in rows]


@dataclass(frozen=True)
class PoolView:
    """All that is seen of the pools of a request."""

    request: Request
    size: PoolSize
    classify: Classify
    pools: Mapping[str, Record]
    """those that exist and are ours, by name"""
    operations: Sequence[Record]
    """of the cluster, the oldest first"""
    nodes: Sequence[Record] | None
    """of the run; None where they are not known"""
    ready_since: float | None
    """see `Provisioner.describe`"""
    pods_wait: bool = False
    """whether pods of the run have no node"""

    @property
    def names(self) -> list[str]:
        return list(self.request.details["pools"])

    @property
    def own_nodes(self) -> list[Record]:
        """Those of the pools, ready or not."""
        return [node for node in self.nodes or () if pool_of(node) in self.names]

    def charged(self) -> ChargedChips | None:
        """Of all nodes that exist: they cost before they are ready, and while their pools are deleted."""
        if self.nodes is None:
            return None
        return ChargedChips(len(self.own_nodes) * self.size.chips, mean_start(self.own_nodes))

    def allocation(self) -> Allocation:
        """Of a request of which at least one pool exists."""
        return replace(self._allocation(), charged=self.charged())

    def _allocation(self) -> Allocation:
        each = [self._of_pool(name, self.pools[name]) for name in self.names if name in self.pools]
        for state in (AllocationState.REFUSED, AllocationState.LOST, AllocationState.DELETING):
            for answer in each:
                if answer.state is state:
                    return answer
        missing = [name for name in self.names if name not in self.pools]
        if missing:
            if self.ready_since is not None:
                return pool_lost(missing[0])
            wait = busy(self.operations)
            if is_pending(self.operations, missing):
                return waiting(wait)
            return partial(wait or f"Requesting: node pool {missing[0]} does not exist yet")
        for answer in each:
            if answer.state is not AllocationState.READY:
                return answer
        if self.size.by_pods:
            return ready((), None)
        return ready(self.hosts(), mean_start(self.own_nodes))

    def _of_pool(self, name: str, pool: Record) -> Allocation:
        status = pool.get("status", "")
        failure = failure_of(creation_of(self.operations, name))
        match status:
            case "STOPPING":
                return deleting()
            case "ERROR":
                return self._failed(name, failure or complaint_of(pool))
            case "PROVISIONING":
                return waiting(f"Provisioning: GKE creates node pool {name}, and tries for up to 35 min")
            case _ if may_have_nodes(pool):
                return self._of_nodes(name, failure or (complaint_of(pool) if status != "RUNNING" else ""))
        return waiting(f"{status or 'Unknown'}: GKE says no more of node pool {name}")

    def _failed(self, name: str, text: str) -> Allocation:
        reply = self.classify(text, self.request.zone)
        if self.ready_since is not None:
            return lost(Ending.NODE_LOST, f"PoolBroken: node pool {name} is in state ERROR ({reply.reason})")
        answer = refusal(reply, self.request.zone)
        return answer or refused(self.request.zone, f"Failed: node pool {name} could not be created ({reply.reason})")

    def _of_nodes(self, name: str, complaint: str) -> Allocation:
        """Of a pool that GKE calls running. One whose creation has failed may fill itself later; if it is full, nothing is wrong with it."""
        usable = len(self._usable(name))
        by_pods = self.size.by_pods
        wanted = not by_pods or (self.ready_since is not None and self.pods_wait)
        if usable >= self.size.nodes or not wanted:
            return ready(())
        there = f"{usable} of {self.size.nodes} nodes of {name} are ready"
        if self.ready_since is not None and not by_pods:
            return repairing(f"NodesAway: {there}")
        if complaint:
            reply = self.classify(complaint, self.request.zone)
            answer = None if by_pods else refusal(reply, self.request.zone)
            return answer or filling(f"Starting: {there}; {reply.reason}")
        return filling(f"Starting: {there}, with their TPUs")

    def _usable(self, pool: str) -> list[Record]:
        """Nodes that are ready, and whose device plugin has told of the chips, which it does some time later."""
        own = [node for node in self.own_nodes if pool_of(node) == pool]
        return [node for node in own if is_true(node, "Ready") and _chips(node) >= self.size.chips]

    def hosts(self) -> Hosts:
        nodes = [node for name in self.names for node in sorted(self._usable(name), key=name_of)]
        return tuple(HostAddress(name_of(node), _address(node)) for node in nodes)


def mean_start(nodes: Sequence[Record]) -> float | None:
    """Unix seconds, so that chip-hours since then are those of all nodes, each from its own start; None without nodes."""
    times = [unix(node["metadata"].get("creationTimestamp", "")) for node in nodes]
    known = [time for time in times if time is not None]
    return math.fsum(known) / len(known) if known else None


def pool_of(node: Record) -> str:
    return cluster_view.labels_of(node).get(_POOL_OF_NODE, "")


def _chips(node: Record) -> int:
    return int(node.get("status", {}).get("allocatable", {}).get(CHIPS, 0))


def _address(node: Record) -> str:
    addresses = node.get("status", {}).get("addresses", [])
    return next((a["address"] for a in addresses if a.get("type") == "InternalIP"), name_of(node))
