"""Whether the queue of a target is there, and admits a slice: its LocalQueue, the ClusterQueue of that, and the flavors of that. What is
missing is said with the command that creates it. Nothing is created.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from podwright.errors import counted
from podwright.rundir import Record
from podwright.slices import Slice
from podwright.targets.base import Remark
from podwright.targets.gke import jobset, queues
from podwright.targets.gke.cluster_view import CHIPS, condition, name_of, quantity
from podwright.targets.gke.jobset import Manifest
from podwright.targets.gke.kubectl import Kubectl
from podwright.targets.gke.kubectl_replies import context_of
from podwright.targets.google.access import failed
from podwright.targets.google.replies import Consequence, Reply
from podwright.targets.settings.gke import GkeSettings

_OWN_QUEUES = "set provisioning of the target to spot, on-demand, flex-start or reserved: such runs create node pools and bring queues of their own"
_NAMESPACE_NAME = "kubernetes.io/metadata.name"


def check(own: GkeSettings, kubectl: Kubectl, slice_: Slice | None, name: str) -> list[Remark]:
    """Of target `name`; `slice_`: of its runs, None where recipes name theirs."""
    queue, failure = kubectl.json(("get", "localqueue", own.queue))
    context = f"--context={context_of(own)}"
    absent = failure is not None and failure.consequence is Consequence.ABSENT
    if failure and failure.reason.startswith("NoKind"):
        return [Remark("info", f"cluster {own.cluster} has no Kueue: a JobSet starts when nodes are free")]
    if absent:
        what = f"namespace {own.namespace} has no queue {own.queue} (LocalQueue of Kueue)"
        return [Remark("error", what, _queue_to_have(own, kubectl, slice_, name))]
    if failure or queue is None:
        return [unseen(f"queue {own.queue}", failure)] if failure else []
    of_queue = queue.get("spec", {}).get("clusterQueue", "")
    cluster_queue, failure = kubectl.json(("get", "clusterqueue", of_queue))
    if failure and failure.reason.startswith("NoPermission"):
        what = f"queue {own.queue} belongs to ClusterQueue {of_queue}, which you may not read"
        return [
            Remark("inconclusive", what, "ask an administrator of the cluster whether its flavors are for the slice")
        ]
    if failure and failure.consequence is Consequence.ABSENT:
        what = f"queue {own.queue} belongs to ClusterQueue {of_queue}, which does not exist"
        created = _created(own, slice_, name, queues.for_nodes(own, slice_, of_queue)[:2] if slice_ else [])
        return [Remark("error", what, f"{created}, or {_OWN_QUEUES}")]
    if failure or cluster_queue is None:
        return [failed(f"ClusterQueue {of_queue}", failure)] if failure else []
    active = condition(cluster_queue, "Active")
    if active.get("status") == "False":
        fix = (
            f"ask an administrator of the cluster to correct it: kubectl get clusterqueue {of_queue} {context} -o yaml"
        )
        return [Remark("error", f"ClusterQueue {of_queue} admits nothing: {active.get('message', '')}", fix)]
    if _refuses(cluster_queue, own.namespace):
        what = f"ClusterQueue {of_queue} of queue {own.queue} takes nothing from namespace {own.namespace} (namespaceSelector)"
        fix = f"set namespace of the target to another one, or have that changed: kubectl edit clusterqueue {of_queue} {context}"
        return [Remark("error", what, fix)]
    rows, failure = kubectl.json(("get", "resourceflavors"))
    if failure or rows is None:
        return [unseen("the flavors of the cluster", failure)] if failure else []
    return _flavors(own, cluster_queue, rows.get("items", []), slice_)


def unseen(what: str, failure: Reply) -> Remark:
    """Of what a run does not need to be seen by this login."""
    remark = failed(what, failure)
    if not failure.reason.startswith("NoPermission"):
        return remark
    return Remark("inconclusive", f"{remark.what}; a run starts without that", remark.fix)


def _queue_to_have(own: GkeSettings, kubectl: Kubectl, slice_: Slice | None, name: str) -> str:
    """What to type where the namespace lacks the queue: another one that it has, or the command that creates one."""
    rows, _ = kubectl.json(("get", "localqueues"))
    if others := [name_of(row) for row in (rows or {}).get("items", [])]:
        return f"set queue of the target to {' or '.join(others)}, which the namespace has"
    rows, failure = kubectl.json(("get", "clusterqueues"))
    if failure:
        return f"ask an administrator of the cluster for a LocalQueue in namespace {own.namespace} ({failure.reason}), or {_OWN_QUEUES}"
    usable = [row for row in (rows or {}).get("items", []) if not _refuses(row, own.namespace)]
    if usable:
        flavors, _ = kubectl.json(("get", "resourceflavors"))
        known = (flavors or {}).get("items", [])
        usable.sort(key=lambda row: any(r.level == "error" for r in _flavors(own, row, known, slice_)))
        created = _created(own, slice_, name, [queues.local_queue(own, name_of(usable[0]))])
    else:
        created = _created(own, slice_, name, queues.for_nodes(own, slice_, own.queue) if slice_ else [])
    return f"{created}, or {_OWN_QUEUES}"


def _created(own: GkeSettings, slice_: Slice | None, name: str, objects: Sequence[Manifest]) -> str:
    """The command that creates `objects`, in one line; without them, which need a slice, what names it."""
    if not objects:
        return f"type podwright plan RECIPE --on {name}, which says how it is created for the slice of the recipe"
    quota = f", which creates it for {slice_.num_chips} chips of {slice_.name}" if slice_ and len(objects) > 1 else ""
    document = objects[0] if len(objects) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    text = json.dumps(document, separators=(",", ":"))
    return f"type echo '{text}' | kubectl create --context={context_of(own)} --filename=-{quota}"


def _refuses(cluster_queue: Record, namespace: str) -> bool:
    """Whether it certainly takes nothing from the namespace: without a selector it takes nothing at all."""
    selector = cluster_queue.get("spec", {}).get("namespaceSelector")
    return selector is None or (selector.get("matchLabels") or {}).get(_NAMESPACE_NAME, namespace) != namespace


def _flavors(own: GkeSettings, queue: Record, rows: Sequence[Record], slice_: Slice | None) -> list[Remark]:
    """Whether one of the queue's is for the nodes of the slice, and ever large enough."""
    name, quotas, context = name_of(queue), _quotas(queue), f"--context={context_of(own)}"
    if not quotas:
        fix = f"have {CHIPS} added to its resourceGroups: kubectl edit clusterqueue {name} {context}"
        return [Remark("error", f"ClusterQueue {name} has no quota for {CHIPS}", fix)]
    known = {name_of(row): row for row in rows}
    if missing := [flavor for flavor in quotas if flavor not in known]:
        what = f"ClusterQueue {name} names ResourceFlavor {', '.join(missing)}, which the cluster does not have"
        flavor = queues.for_nodes(own, slice_, missing[0])[:1] if slice_ and len(missing) == 1 else []
        created = _created(own, slice_, "", flavor) if flavor else "have it created"
        return [Remark("error", what, f"{created}, or have it removed: kubectl edit clusterqueue {name} {context}")]
    if slice_ is None:
        return [Remark("info", f"queue {own.queue} (ClusterQueue {name}) has flavors {', '.join(quotas)}")]
    wanted = jobset.node_selector(slice_)
    fitting = [flavor for flavor in quotas if _is_for(known[flavor], wanted)]
    if not fitting:
        what = f"no flavor of ClusterQueue {name} ({', '.join(quotas)}) is for nodes of {slice_.name}"
        labels = ", ".join(f"{key}={value}" for key, value in wanted.items())
        fix = f"have a ResourceFlavor with nodeLabels {labels} created, and added with {slice_.num_chips} of {CHIPS}: kubectl edit clusterqueue {name} {context}"
        return [Remark("error", what, fix)]
    most = max(quotas[flavor] for flavor in fitting)
    cohort = queue.get("spec", {}).get("cohort") or queue.get("spec", {}).get("cohortName")
    if most < slice_.num_chips and not cohort:
        what = f"ClusterQueue {name} has at most {counted(int(most), 'chip')} of flavor {', '.join(fitting)}, and {slice_.name} needs {slice_.num_chips}"
        fix = f"take a smaller slice, or have nominalQuota raised: kubectl edit clusterqueue {name} {context}"
        return [Remark("error", what, fix)]
    what = f"queue {own.queue} (ClusterQueue {name}) has flavor {', '.join(fitting)} for {slice_.name}"
    return [Remark("info", f"{what}, with {counted(int(most), 'chip')}")]


def _quotas(queue: Record) -> dict[str, float]:
    """Chips that the queue has of each flavor, borrowed ones left out."""
    return {
        flavor["name"]: quantity(resource.get("nominalQuota") or 0)
        for group in queue.get("spec", {}).get("resourceGroups") or []
        for flavor in group.get("flavors") or []
        for resource in flavor.get("resources") or []
        if resource.get("name") == CHIPS
    }


def _is_for(flavor: Record, wanted: dict[str, str]) -> bool:
    """Kueue compares the labels that pods ask for and that the flavor has."""
    labels = flavor.get("spec", {}).get("nodeLabels") or {}
    return all(labels[key] == value for key, value in wanted.items() if key in labels)
