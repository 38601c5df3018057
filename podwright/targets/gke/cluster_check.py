"""What a cluster lacks for runs of a target: login, JobSet, the queue with its flavors, and the nodes of the slice. Nothing is created.

Of a target whose runs create their node pools, and bring queues of their own, only what every run needs is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

from podwright.errors import UserError, counted
from podwright.rundir import Record
from podwright.slices import Slice
from podwright.targets.base import RUN_LABEL, Remark
from podwright.targets.gke import jobset, xpk_entries, xpk_shape
from podwright.targets.gke.cluster_view import condition, is_true, labels_of, name_of
from podwright.targets.gke.kubectl import Kubectl
from podwright.targets.gke.kubectl_replies import context_of
from podwright.targets.gke.queues import CHIPS
from podwright.targets.gke.xpk_entries import Entry
from podwright.targets.google.access import failed
from podwright.targets.google.replies import Consequence, Reply
from podwright.targets.settings.gke import GkeSettings

_POOL = "cloud.google.com/gke-nodepool"
_POLICY = "cloud.google.com/placement-policy-name"
_ZONE = "topology.kubernetes.io/zone"
_NEEDED = {
    "create JobSets": ("create", "jobsets.jobset.x-k8s.io"),
    "read the logs of pods": ("get", "pods", "--subresource=log"),
}
"""rights that a run needs besides listing what it has created, and how kubectl is asked for them"""


def check(own: GkeSettings, kubectl: Kubectl, name: str) -> list[Remark]:
    """Of target `name`. Each remark says what was looked at; after an error that all further calls would repeat there are none."""
    try:
        remarks = _submission(own, kubectl)
        if any(r.level != "info" for r in remarks):
            return remarks
        remarks += _priority(own, kubectl)
        if own.places and own.submit != "xpk":
            what = (
                "runs create node pools and bring queues of their own (podwright-run=...): the cluster's are not used"
            )
            return [*remarks, Remark("info", what), *_own_queues(own, kubectl)]
        slice_ = own.devices()
        remarks += _queue(own, kubectl, slice_)
        if slice_ is None:
            what = f"the nodes of cluster {own.cluster} were not looked at: target {name} has no topology, and recipes name theirs"
            return [*remarks, Remark("info", what)]
        remarks += [] if own.places else _nodes(own, kubectl, slice_, name)
        return [*remarks, *_xpk(own, kubectl, slice_)]
    except UserError as e:  # kubectl is not on this machine
        return [Remark("error", e.what, e.fix, unanswered=True)]


def _submission(own: GkeSettings, kubectl: Kubectl) -> list[Remark]:
    """Whether this login may create JobSets in the namespace."""
    where = f"cluster {own.cluster} in {own.location}"
    _, failure = kubectl.json(("get", "jobsets,jobs,pods", "--selector=podwright-run=check"))
    if failure:
        return [failed(where, failure)]
    for what, words in _NEEDED.items():
        if refused := _not_allowed(own, kubectl, f"{what} in namespace {own.namespace}", *words):
            return [refused]
    return [Remark("info", f"{where} answers, has JobSet, and you may create JobSets in namespace {own.namespace}")]


def _not_allowed(own: GkeSettings, kubectl: Kubectl, what: str, *words: str) -> Remark | None:
    """Of a cluster that answers; None where this login may."""
    where = f"cluster {own.cluster} in {own.location}"
    text, failure = kubectl.text(("auth", "can-i", *words))
    answer = text.strip().splitlines()[-1:] or [""]
    if answer[0].partition(" ")[0] == "no":  # no - REASON
        fix = f"ask for the role Kubernetes Engine Developer (roles/container.developer) in {own.project}"
        return Remark("error", f"you may not {what} of {where}", fix)
    return failed(where, failure) if failure else None


def _own_queues(own: GkeSettings, kubectl: Kubectl) -> list[Remark]:
    """Whether this login may do in the cluster what a run does that creates its node pools."""
    wanted = [("list the nodes", "list", "nodes")]
    _, failure = kubectl.json(("get", "localqueues", f"--selector={RUN_LABEL}=check"))
    if failure is None or failure.consequence is not Consequence.ABSENT:
        queues = ("LocalQueue", "ClusterQueue", "ResourceFlavor")
        wanted += [
            (f"{verb} a {kind}", verb, f"{kind.lower()}s.kueue.x-k8s.io")
            for kind in queues
            for verb in ("create", "delete")
        ]
    refused = [remark for each in wanted if (remark := _not_allowed(own, kubectl, *each))]
    return refused or [Remark("info", "you may list nodes, and create and delete the queues of a run")]


def _unseen(what: str, failure: Reply) -> Remark:
    """Of what a run does not need to be seen by this login."""
    remark = failed(what, failure)
    if not failure.reason.startswith("NoPermission"):
        return remark
    return Remark("inconclusive", f"{remark.what}; a run starts without that", remark.fix)


def _priority(own: GkeSettings, kubectl: Kubectl) -> list[Remark]:
    """Of a target that names one: what a recipe names is looked at when a run waits."""
    if not own.priority:
        return []
    _, failure = kubectl.json(("get", "priorityclass", own.priority))
    if failure is None:
        return [Remark("info", f"the cluster has PriorityClass {own.priority}")]
    if failure.consequence is not Consequence.ABSENT:
        return [_unseen(f"PriorityClass {own.priority}", failure)]
    fix = f"set priority of the target to one of: kubectl get priorityclasses --context={context_of(own)}"
    return [Remark("error", f"the cluster has no PriorityClass {own.priority}: no pod of a run would be created", fix)]


def _queue(own: GkeSettings, kubectl: Kubectl, slice_: Slice | None) -> list[Remark]:
    """The LocalQueue of the target, its ClusterQueue, and the flavors of that."""
    queue, failure = kubectl.json(("get", "localqueue", own.queue))
    context = f"--context={context_of(own)}"
    absent = failure is not None and failure.consequence is Consequence.ABSENT
    if absent and own.submit == "xpk":
        device = f" --device-type={slice_.names()['xpk']}" if slice_ else " and the slice"
        adapt = f"xpk cluster adapt --cluster={own.cluster} --project={own.project} --zone={own.zones[0]}{device}"
        what = f"namespace {own.namespace} has no queue {own.queue} (LocalQueue of Kueue), to which xpk submits"
        return [Remark("error", what, f"type {adapt}, or set submit=jobset in the target's file")]
    if failure and failure.reason.startswith("NoKind"):
        return [Remark("info", f"cluster {own.cluster} has no Kueue: a JobSet starts when nodes are free")]
    if failure and failure.consequence is Consequence.ABSENT:
        fix = f"set queue of the target to one of: kubectl get localqueues --namespace={own.namespace} {context}"
        return [Remark("error", f"namespace {own.namespace} has no queue {own.queue} (LocalQueue of Kueue)", fix)]
    if failure or queue is None:
        return [_unseen(f"queue {own.queue}", failure)] if failure else []
    name = queue.get("spec", {}).get("clusterQueue", "")
    cluster_queue, failure = kubectl.json(("get", "clusterqueue", name))
    if failure and failure.reason.startswith("NoPermission"):
        what = f"queue {own.queue} belongs to ClusterQueue {name}, which you may not read"
        return [Remark("inconclusive", what, "ask whoever runs the cluster whether its flavors are for the slice")]
    if failure and failure.consequence is Consequence.ABSENT:
        fix = (
            f"set queue of the target to one whose ClusterQueue exists: kubectl get localqueues,clusterqueues {context}"
        )
        return [Remark("error", f"queue {own.queue} belongs to ClusterQueue {name}, which does not exist", fix)]
    if failure or cluster_queue is None:
        return [failed(f"ClusterQueue {name}", failure)] if failure else []
    active = condition(cluster_queue, "Active")
    if active.get("status") == "False":
        fix = f"have that corrected by whoever runs the cluster: kubectl get clusterqueue {name} {context} -o yaml"
        return [Remark("error", f"ClusterQueue {name} admits nothing: {active.get('message', '')}", fix)]
    rows, failure = kubectl.json(("get", "resourceflavors"))
    if failure or rows is None:
        return [_unseen("the flavors of the cluster", failure)] if failure else []
    return _flavors(own, cluster_queue, rows.get("items", []), slice_)


def _flavors(own: GkeSettings, queue: Record, rows: Sequence[Record], slice_: Slice | None) -> list[Remark]:
    """Whether one of the queue's is for the nodes of the slice, and ever large enough."""
    name, quotas, context = name_of(queue), _quotas(queue), f"--context={context_of(own)}"
    if not quotas:
        fix = f"have {CHIPS} added to its resourceGroups: kubectl edit clusterqueue {name} {context}"
        return [Remark("error", f"ClusterQueue {name} has no quota for {CHIPS}", fix)]
    known = {name_of(row): row for row in rows}
    if missing := [flavor for flavor in quotas if flavor not in known]:
        what = f"ClusterQueue {name} names ResourceFlavor {', '.join(missing)}, which the cluster does not have"
        fix = f"have it created, or removed from the queue: kubectl edit clusterqueue {name} {context}"
        return [Remark("error", what, fix)]
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
        flavor["name"]: float(resource.get("nominalQuota") or 0)
        for group in queue.get("spec", {}).get("resourceGroups") or []
        for flavor in group.get("flavors") or []
        for resource in flavor.get("resources") or []
        if resource.get("name") == CHIPS
    }


def _is_for(flavor: Record, wanted: dict[str, str]) -> bool:
    """Kueue compares the labels that pods ask for and that the flavor has."""
    labels = flavor.get("spec", {}).get("nodeLabels") or {}
    return all(labels[key] == value for key, value in wanted.items() if key in labels)


def _nodes(own: GkeSettings, kubectl: Kubectl, slice_: Slice, name: str) -> list[Remark]:
    """Node pools of the slice: nodes that are ready with their chips, their zone, and their workload policy."""
    wanted = jobset.node_selector(slice_)
    policy = wanted.pop(_POLICY, "")
    selector = ",".join(f"{key}={value}" for key, value in wanted.items())
    rows, failure = kubectl.json(("get", "nodes", f"--selector={selector}"))
    if failure or rows is None:
        return [_unseen(f"the nodes of cluster {own.cluster}", failure)] if failure else []
    nodes, needed = rows.get("items", []), xpk_shape.vms_per_slice(slice_) * slice_.num_slices
    create = (
        f"type podwright render RECIPE --on {name} -o DIR and bash DIR/node_pool.sh, which creates them, or set provisioning of the target: "
        "reserved, spot, on-demand or flex-start have runs create theirs"
    )
    if not nodes:
        what = f"cluster {own.cluster} has no node of {slice_.name} now ({selector})"
        return [Remark("error", what, create)]
    remarks = []
    pools: dict[str, list[Record]] = {}
    for node in nodes:
        pools.setdefault(labels_of(node).get(_POOL, ""), []).append(node)
    with_policy = {pool: rows for pool, rows in pools.items() if not policy or _all_have(rows, _POLICY, policy)}
    if not with_policy:
        what = f"none of the node pools of {slice_.name} ({', '.join(pools)}) has the workload policy {policy}, which its pods ask for"
        return [Remark("error", what, create)]
    ready = [node for rows in with_policy.values() for node in rows if _is_usable(node)]
    shown = f"{len(ready)} of {counted(needed, 'node')} that a run needs are ready with their chips, in {counted(len(with_policy), 'node pool')} ({', '.join(with_policy)})"
    level = "info" if len(ready) >= needed else "warning"
    remarks.append(
        Remark(level, f"{slice_.name}: {shown}", "" if level == "info" else f"a run waits for the others; {create}")  # type: ignore[arg-type]
    )
    zones = sorted({zone for rows in with_policy.values() for node in rows if (zone := labels_of(node).get(_ZONE, ""))})
    if other := [zone for zone in zones if zone not in own.zones]:
        what = f"nodes of {slice_.name} are in {', '.join(other)}, which is not among zones of the target"
        remarks.append(Remark("warning", what, f"write zones=[{', '.join(zones)}]"))
    return remarks


def _is_usable(node: Record) -> bool:
    chips = ((node.get("status") or {}).get("allocatable") or {}).get(CHIPS, "0")
    return is_true(node, "Ready") and not node.get("spec", {}).get("unschedulable") and str(chips) not in ("", "0")


def _all_have(nodes: Sequence[Record], key: str, value: str) -> bool:
    return all(labels_of(node).get(key) == value for node in nodes)


def _xpk(own: GkeSettings, kubectl: Kubectl, slice_: Slice) -> list[Remark]:
    """The entry that xpk looks up; a run uses it with submit=xpk alone."""
    config, entry = xpk_entries.name_of_map(own), Entry.of(slice_)
    row, failure = kubectl.json(("get", "configmap", config, "--namespace=default"))
    used = "" if own.submit == "xpk" else "; runs do not use it"
    if failure and failure.consequence is Consequence.ABSENT:
        return [Remark("info", f"the cluster has no ConfigMap {config}: xpk would not check what it submits{used}")]
    if failure or row is None:
        return [failed(f"ConfigMap {config}", failure)] if failure and not used else []
    short = xpk_entries.shortage(row, entry, slice_)
    if not short:
        return [Remark("info", f"ConfigMap {config}, which only xpk reads, has {entry.device}")]
    has = (
        f"has no {entry.device}"
        if short == "missing"
        else f"has {short} machines of {entry.device}, and {slice_.name} needs {entry.machines}"
    )
    what = f"ConfigMap {config} {has}: xpk would refuse it (Workload scheduling validation failed){used}"
    if used:
        return [Remark("info", what, f"for xpk type {xpk_entries.correction(own, entry)}")]
    if own.places and short == "missing":
        return [
            Remark(
                "info", f"ConfigMap {config} has no {entry.device}: a run adds it, and removes it with its node pools"
            )
        ]
    return [Remark("error", what, f"if the cluster has these machines, type {xpk_entries.correction(own, entry)}")]
