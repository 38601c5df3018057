"""Whether the queue of a target is there, and admits a slice: its LocalQueue, the ClusterQueue of that, and the flavors of that. Nothing is created."""

from __future__ import annotations

from collections.abc import Sequence

from podwright.errors import counted
from podwright.rundir import Record
from podwright.slices import Slice
from podwright.targets.base import Remark
from podwright.targets.gke import jobset
from podwright.targets.gke.cluster_view import CHIPS, condition, name_of, quantity
from podwright.targets.gke.kubectl import Kubectl
from podwright.targets.gke.kubectl_replies import context_of
from podwright.targets.google.access import failed
from podwright.targets.google.replies import Consequence, Reply
from podwright.targets.settings.gke import GkeSettings

_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_OWN_QUEUES = (
    "set provisioning of the target to spot, on-demand, flex-start or reserved: runs then bring queues of their own"
)


def check(own: GkeSettings, kubectl: Kubectl, slice_: Slice | None) -> list[Remark]:
    """`slice_`: of the runs of the target, None where recipes name theirs."""
    queue, failure = kubectl.json(("get", "localqueue", own.queue))
    context = f"--context={context_of(own)}"
    if failure and failure.reason.startswith("NoKind"):
        return [Remark("info", f"cluster {own.cluster} has no Kueue: a JobSet starts when nodes are free")]
    if failure and failure.consequence is Consequence.ABSENT:
        what = f"namespace {own.namespace} has no queue {own.queue} (LocalQueue of Kueue)"
        fix = f"set queue of the target to one of: kubectl get localqueues --namespace={own.namespace} {context}"
        return [Remark("error", what, f"{fix}; or {_OWN_QUEUES}")]
    if failure:
        return [unseen(f"queue {own.queue}", failure)]
    of_queue = queue.get("spec", {}).get("clusterQueue", "")
    what = f"queue {own.queue} belongs to ClusterQueue {of_queue}, which"
    show = f"kubectl get clusterqueue {of_queue} {context} -o yaml"
    cluster_queue, failure = kubectl.json(("get", "clusterqueue", of_queue))
    if failure and failure.reason.startswith("NoPermission"):
        return [Remark("inconclusive", f"{what} you may not read", f"have an administrator type {show}")]
    if failure and failure.consequence is Consequence.ABSENT:
        return [Remark("error", f"{what} does not exist", _OWN_QUEUES)]
    if failure:
        return [failed(f"ClusterQueue {of_queue}", failure)]
    active = condition(cluster_queue, "Active")
    if active.get("status") == "False":
        return [Remark("error", f"{what} admits nothing: {active.get('message', '')}", f"have it corrected: {show}")]
    if _refuses(cluster_queue, own.namespace):
        what += f" takes nothing from namespace {own.namespace} (namespaceSelector)"
        return [Remark("error", what, f"set namespace of the target to another one; {show}")]
    flavors, failure = kubectl.items(("get", "resourceflavors"))
    if failure:
        return [unseen("the flavors of the cluster", failure)]
    return _flavors(own, cluster_queue, flavors, slice_)


def unseen(what: str, failure: Reply) -> Remark:
    """Of what a run does not need to be seen by this login."""
    remark = failed(what, failure)
    if not failure.reason.startswith("NoPermission"):
        return remark
    return Remark("inconclusive", f"{remark.what}; a run starts without that", remark.fix)


def _refuses(cluster_queue: Record, namespace: str) -> bool:
    """Whether it certainly takes nothing from the namespace: without a selector it takes nothing at all."""
    selector = cluster_queue.get("spec", {}).get("namespaceSelector")
    return selector is None or (selector.get("matchLabels") or {}).get(_NAMESPACE_NAME, namespace) != namespace


def _flavors(own: GkeSettings, queue: Record, rows: Sequence[Record], slice_: Slice | None) -> list[Remark]:
    """Whether one of the queue's is for the nodes of the slice, and ever large enough."""
    name = name_of(queue)
    quotas = _quotas(queue)
    edit = f"kubectl edit clusterqueue {name} --context={context_of(own)}"
    if not quotas:
        return [Remark("error", f"ClusterQueue {name} has no quota for {CHIPS}", f"have it added: {edit}")]
    known = {name_of(row): row for row in rows}
    if slice_ is None:
        return [Remark("info", f"queue {own.queue} (ClusterQueue {name}) has flavors {', '.join(quotas)}")]
    wanted = jobset.node_selector(slice_)
    fitting = [flavor for flavor in quotas if flavor in known and _is_for(known[flavor], wanted)]
    if not fitting:
        what = f"no flavor of ClusterQueue {name} ({', '.join(quotas)}) is for nodes of {slice_.name}"
        labels = ", ".join(f"{key}={value}" for key, value in wanted.items())
        return [Remark("error", what, f"have a flavor with nodeLabels {labels} added: {edit}")]
    most = max(quotas[flavor] for flavor in fitting)
    cohort = queue.get("spec", {}).get("cohort") or queue.get("spec", {}).get("cohortName")
    if most < slice_.num_chips and not cohort:
        what = f"ClusterQueue {name} has at most {counted(int(most), 'chip')} of flavor {', '.join(fitting)}, and {slice_.name} needs {slice_.num_chips}"
        return [Remark("error", what, f"take a smaller slice, or have nominalQuota raised: {edit}")]
    what = f"queue {own.queue} (ClusterQueue {name}) has flavor {', '.join(fitting)} for {slice_.name}"
    return [Remark("info", f"{what}, with {counted(int(most), 'chip')}")]


def _quotas(queue: Record) -> dict[str, float]:
    """Chips that the queue has of each flavor, borrowed ones left out."""
    quotas = {}
    for group in queue.get("spec", {}).get("resourceGroups") or []:
        for flavor in group.get("flavors") or []:
            for resource in flavor.get("resources") or []:
                if resource.get("name") == CHIPS:
                    quotas[flavor["name"]] = quantity(resource.get("nominalQuota") or 0)
    return quotas


def _is_for(flavor: Record, wanted: dict[str, str]) -> bool:
    """Kueue compares the labels that pods ask for and that the flavor has."""
    labels = flavor.get("spec", {}).get("nodeLabels") or {}
    return all(labels[key] == value for key, value in wanted.items() if key in labels)
