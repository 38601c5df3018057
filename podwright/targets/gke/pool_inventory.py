"""What a cluster and its region have of podwright's: node pools, and workload policies and queues whose pools are gone, put together by
the request that they were created for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from podwright.accelerators import TPUS
from podwright.rundir import Record
from podwright.targets.base import RUN_LABEL
from podwright.targets.gke import pool_calls, pool_states
from podwright.targets.gke.kubectl import Kubectl
from podwright.targets.gke.queues import RunQueues
from podwright.targets.google.gcloud import Gcloud
from podwright.targets.google.labels import BY_LABEL, EXPIRES_LABEL, RUN_DIR_KEY, creator, unix
from podwright.targets.google.replies import Reply
from podwright.targets.machines import AllocationState, ChargedChips, Owned, Request
from podwright.targets.settings.gke import GkeSettings

_STATES = {
    "STOPPING": AllocationState.DELETING,
    "ERROR": AllocationState.REFUSED,
    "PROVISIONING": AllocationState.WAITING,
}
_LABEL = re.compile(r"(podwright-[a-z]+)=(\S+)")


@dataclass
class RequestParts:
    """Of one request, what exists."""

    labels: dict[str, str]
    pools: list[Record] = field(default_factory=list)
    policy: bool = False
    queues: bool = False
    """whether there are objects of Kueue"""


def listed(gcloud: Gcloud, kubectl: Kubectl, own: GkeSettings) -> list[Owned]:
    """UserError where node pools, which cost, are not listed; what else could not be listed is said with each of them."""
    place = own.zones[0]
    parts: dict[str, RequestParts] = {}
    for pool in gcloud.rows(pool_calls.list_pools(own)):
        if RUN_LABEL in (labels := pool_states.labels_of(pool)):
            name = str(pool["name"]).rpartition("-")[0]
            parts.setdefault(name, RequestParts(dict(labels))).pools.append(pool)
    policies, no_policies = gcloud.listed(pool_calls.list_policies(own), place)
    for row in policies:
        if RUN_LABEL in (labels := dict(_LABEL.findall(row.get("description", "")))):
            parts.setdefault(row["name"], RequestParts(labels)).policy = True
    queues = RunQueues(kubectl, own.namespace).read()
    for each in () if isinstance(queues, Reply) else queues.objects:
        labels = each["metadata"].get("labels", {})
        parts.setdefault(each["metadata"]["name"], RequestParts(dict(labels))).queues = True
    if not parts:
        return []
    operations, _ = gcloud.listed(pool_calls.list_operations(own), place)
    nodes, no_nodes = kubectl.items(["get", "nodes", f"--selector={RUN_LABEL}"])
    unknown = []
    for what, answer in (("nodes", no_nodes), ("workload policies", no_policies), ("queues", queues)):
        if isinstance(answer, Reply):
            unknown.append(f"{what} were not listed ({answer.reason})")
    own_operations = pool_states.of_cluster(operations, own.cluster)
    known_nodes = None if no_nodes else nodes
    return [
        _owned(name, each, own, own_operations, known_nodes, "; ".join(unknown)) for name, each in sorted(parts.items())
    ]


def _owned(
    name: str,
    parts: RequestParts,
    own: GkeSettings,
    operations: Sequence[Record],
    nodes: Sequence[Record] | None,
    unknown: str,
) -> Owned:
    created = [pool_states.creation_of(operations, str(pool["name"])) for pool in parts.pools]
    starts = []
    for operation in created:
        start = unix(operation.get("startTime", "")) if operation else None
        if start is not None:
            starts.append(start)
    statuses = sorted({str(pool.get("status", "unknown")) for pool in parts.pools})
    rest = ["workload policy"] * parts.policy + ["queues"] * parts.queues
    metadata = parts.pools[0].get("config", {}).get("metadata", {}) if parts.pools else {}
    expires = parts.labels.get(EXPIRES_LABEL, "")
    flex = any(pool.get("config", {}).get("flexStart") for pool in parts.pools)
    return Owned(
        _request(name, parts, own),
        unquote(metadata.get(RUN_DIR_KEY, "")),
        _state(statuses),
        min(starts, default=None),
        parts.labels.get(BY_LABEL) == creator(),
        cloud_state=", ".join(statuses) or f"only {' and '.join(rest)}",
        remark=unknown,
        expires=float(expires) if flex and expires.isdigit() else None,
        charged=_charged(parts, nodes),
    )


def _charged(parts: RequestParts, nodes: Sequence[Record] | None) -> ChargedChips | None:
    """Of the nodes that exist, however many a pool is to have; None where they are not known."""
    if nodes is None and parts.pools:
        return None
    names = {str(pool["name"]) for pool in parts.pools}  # another request of the run has nodes with the same label
    costing = [node for node in nodes or () if pool_states.pool_of(node) in names]
    per_node = _chips_of_node(parts.pools[0])[1] if parts.pools else 0
    return ChargedChips(per_node * len(costing), pool_states.mean_start(costing))


def _state(statuses: Sequence[str]) -> AllocationState:
    """Of all pools together; PARTIAL where there is none."""
    known = [_STATES.get(status, AllocationState.READY) for status in statuses]
    for state in (AllocationState.REFUSED, AllocationState.READY, AllocationState.WAITING, AllocationState.DELETING):
        if state in known:
            return state
    return AllocationState.PARTIAL


def _request(name: str, parts: RequestParts, own: GkeSettings) -> Request:
    chips = [_chips(pool) for pool in parts.pools]
    first: Mapping[str, Record] = parts.pools[0] if parts.pools else {}
    zone = next(iter(first.get("locations", [])), own.zones[0])
    affinity = first.get("config", {}).get("reservationAffinity", {})
    reservation = next(iter(affinity.get("values", [])), "")
    policies = {pool.get("placementPolicy", {}).get("policyName") for pool in parts.pools}
    return Request(
        name,
        f"{zone}/{reservation}" if reservation else zone,
        labels=parts.labels,
        chip=chips[0][0] if chips else "",
        num_chips=sum(number for _, number in chips),
        price=own.price,
        details={
            "project": own.project,
            "cluster": own.cluster,
            "location": own.location,
            "pools": [str(pool["name"]) for pool in parts.pools],
            "policy": name if parts.policy or name in policies else "",
            "reservation": reservation,
            "queues": parts.queues,
        },
    )


def _chips(pool: Record) -> tuple[str, int]:
    """Accelerator and number of chips of all nodes that a pool has, or may have."""
    accelerator, chips = _chips_of_node(pool)
    return accelerator, chips * (pool.get("initialNodeCount", 0) or pool.get("autoscaling", {}).get("maxNodeCount", 0))


def _chips_of_node(pool: Record) -> tuple[str, int]:
    machine_type = str(pool.get("config", {}).get("machineType", ""))
    family = machine_type.partition("-")[0]
    match = re.search(r"-(\d+)t$", machine_type)
    if not match:
        return "", 0
    for row in TPUS:
        types = row.pod.machine_types.values() if row.pod else ()
        if any(name.startswith(f"{family}-") for name in types):
            return row.name, int(match[1])
    return "", 0
