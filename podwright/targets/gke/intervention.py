"""What somebody did on the cluster to an attempt, which no fault of a machine explains: its JobSet was deleted or suspended, its Workload was
deleted. Such an attempt is not retried by itself. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from podwright.rundir import Ending, Record
from podwright.targets.base import Polled, Process
from podwright.targets.gke.attempt import TTL_S
from podwright.targets.gke.cluster_view import ClusterView, condition, is_true, name_of, seconds
from podwright.targets.gke.kubectl_replies import context_of
from podwright.targets.settings.gke import GkeSettings

CLOCKS_S = 10.0
"""by which the clock of a node may differ from that of the API server"""


def gone(jobset: str, own: GkeSettings, ended_by_it: bool, since_s: float, namespace: Record, exists: bool) -> Polled:
    """Of an attempt whose JobSet is no longer there, of which no pod had failed.

    `ended_by_it`: pods were seen that ended by its deletion. `since_s`: seconds since the JobSet was seen at work. `namespace`: of the target,
    {} where it may not be read; `exists`: whether it may be there.
    """
    name, what, fix = own.namespace, f"JobSet {jobset}", ""
    if not exists or (namespace.get("status") or {}).get("phase") == "Terminating":
        what = f"namespace {name}, and JobSet {jobset} with it,"
        fix = f"type kubectl create namespace {name} --context={context_of(own)}, or set namespace of the target; then resume the run"
    if ended_by_it or since_s < TTL_S:
        detail = f"{what} was deleted on the cluster, not by Podwright"
        return Polled(Process.ENDED, ending=Ending.STOPPED, detail=detail, fix=fix, inferred=not ended_by_it)
    detail = f"{what} is no longer on the cluster: it was deleted, or it ended more than {TTL_S / 3600:g} h ago"
    return Polled(Process.ENDED, ending=Ending.UNKNOWN, detail=detail, fix=fix, inferred=True)


def pod_deleted(jobset: str, missing: Collection[str], nodes: Sequence[Record], began_s: float) -> Polled | None:
    """Of an attempt that failed by a pod which nobody saw fail; None where its node may be at fault.

    `missing`: nodes of the pods that are gone; `nodes`: those of them that the cluster has. `began_s`: Unix seconds when the first process
    began, since when a node may have been replaced by one of its name.
    """
    there = {name_of(node) for node in nodes if _has_stayed(node, began_s)}
    if not missing or not there.issuperset(missing):
        return None
    where = ", ".join(sorted(missing)[:3])
    detail = f"a pod of JobSet {jobset} was deleted on the cluster, not by Podwright (its node {where} is still there)"
    return Polled.ended(Ending.STOPPED, detail)


def _has_stayed(node: Record, began_s: float) -> bool:
    created = seconds(node["metadata"].get("creationTimestamp", ""))
    return created < began_s and is_true(node, "Ready") and not node.get("spec", {}).get("unschedulable")


def was_resumed(view: ClusterView, began_s: float) -> bool:
    """Whether the JobSet was suspended and resumed since its first process began at Unix time `began_s`: its pods are others now."""
    resumed = condition(view.jobset, "Suspended")
    return resumed.get("status") == "False" and seconds(resumed.get("lastTransitionTime", "")) >= began_s + CLOCKS_S


def suspended(view: ClusterView, jobset: str, queue: str, began_s: float) -> Polled:
    """Of an attempt that was at work, whose JobSet is suspended, or was, without a Workload that is evicted now.

    `queue`: of Kueue; "": the cluster has none. `began_s`: Unix seconds when its first process began.
    """
    evicted = condition(view.workload, "Evicted")
    if queue and (evicted or (view.workload is None and view.unanswered)):
        why = evicted.get("message") or f"why is not known: {view.unanswered}"
        return Polled.ended(Ending.PREEMPTED, f"Kueue took the machines away ({why})")
    created = seconds((view.workload or {}).get("metadata", {}).get("creationTimestamp", ""))
    if queue and (view.workload is None or created > began_s):
        detail = f"the Workload of JobSet {jobset} was deleted on the cluster, not by Podwright, for which Kueue ended its pods"
        return Polled.ended(Ending.STOPPED, detail)
    detail = f"JobSet {jobset} was suspended on the cluster (spec.suspend), not by Podwright, which ended its pods"
    return Polled.ended(Ending.STOPPED, detail)
