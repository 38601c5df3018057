"""What a cluster lacks for runs of a target: login, JobSet, the queue with its flavors, and the nodes of the slice. Nothing is created.

Of a target whose runs create their node pools, and bring queues of their own, only what every run needs is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from podwright.errors import UserError, counted
from podwright.rundir import Record
from podwright.slices import Slice
from podwright.targets.base import RUN_LABEL, Remark
from podwright.targets.gke import jobset, queue_check, queues, xpk_shape
from podwright.targets.gke.cluster_view import CHIPS, is_true, labels_of
from podwright.targets.gke.kubectl import Kubectl
from podwright.targets.gke.kubectl_replies import context_of
from podwright.targets.gke.queue_check import unseen
from podwright.targets.google.access import failed
from podwright.targets.google.replies import Consequence
from podwright.targets.settings.gke import GkeSettings

_ZONE = "topology.kubernetes.io/zone"
_NEEDED = (
    ("create", "jobsets.jobset.x-k8s.io"),
    ("delete", "jobsets.jobset.x-k8s.io"),
    ("get", "pods", "--subresource=log"),
)
"""rights that a run needs besides listing what it has created, as kubectl is asked for them"""
_NEEDED_WITH_CODE = (("create", "configmaps"), ("create", "secrets"))
"""rights that a recipe needs which brings its code and variables, unlike one with an image of its own"""


def check(own: GkeSettings, kubectl: Kubectl, name: str) -> list[Remark]:
    """Of target `name`. Each remark says what was looked at; after an error that all further calls would repeat there are none."""
    try:
        remarks = _submission(own, kubectl)
        if any(r.level != "info" for r in remarks):
            return remarks
        remarks += _namespace(own, kubectl)
        if any(r.level == "error" for r in remarks):
            return remarks
        remarks += _with_code(own, kubectl) + _priority(own, kubectl)
        if own.places:
            what = (
                "runs create node pools and bring queues of their own (podwright-run=...): the cluster's are not used"
            )
            return [*remarks, Remark("info", what), *_own_queues(own, kubectl)]
        slice_ = own.devices()
        remarks += queue_check.check(own, kubectl, slice_)
        return [*remarks, *(_nodes(own, kubectl, slice_, name) if slice_ else [_unknown_slice(own, name)])]
    except UserError as e:  # kubectl is not on this machine
        return [Remark("error", e.what, e.fix, unanswered=True)]


def _unknown_slice(own: GkeSettings, name: str) -> Remark:
    """What depends on the slice of a run, of a target without one."""
    what = f"not looked at: the nodes of cluster {own.cluster} for the slice of a run: target {name} has no topology, and recipes name theirs"
    return Remark("inconclusive", what, f"type podwright plan RECIPE --on {name}, which looks at them for its slice")


def _submission(own: GkeSettings, kubectl: Kubectl) -> list[Remark]:
    """Whether this login may create JobSets in the namespace."""
    where = f"cluster {own.cluster} in {own.location}"
    _, failure = kubectl.json(("get", "jobsets,jobs,pods", "--selector=podwright-run=check"))
    if failure:
        return [failed(where, failure)]
    if refused := _refused(own, kubectl, _NEEDED):
        return [refused]
    return [Remark("info", f"{where} answers, has JobSet, and you may create JobSets in namespace {own.namespace}")]


def _namespace(own: GkeSettings, kubectl: Kubectl) -> list[Remark]:
    """Whether it exists: lists of a namespace that does not are empty, and only a creation fails. Each cluster has `default`."""
    if own.namespace == "default":
        return []
    namespace, failure = kubectl.json(("get", "namespace", own.namespace))
    if failure and failure.reason.startswith("NoNamespace"):
        return [Remark("error", f"cluster {own.cluster} has no namespace {own.namespace}", failure.fix)]
    if failure:
        return [unseen(f"namespace {own.namespace}", failure)]
    if (namespace.get("status") or {}).get("phase") == "Terminating":
        what = f"namespace {own.namespace} is being deleted"
        return [Remark("error", what, "set namespace of the target to another one")]
    return [Remark("info", f"cluster {own.cluster} has namespace {own.namespace}")]


def _refused(own: GkeSettings, kubectl: Kubectl, rights: Iterable[Sequence[str]]) -> Remark | None:
    """Of a cluster that answers: the first of `rights` that this login has not; None where it has all."""
    where = f"cluster {own.cluster} in {own.location}"
    for words in rights:
        text, failure = kubectl.text(("auth", "can-i", *words))
        last_line = text.strip().rpartition("\n")[2]
        if last_line.partition(" ")[0] == "no":  # no - REASON
            fix = f"ask for the role Kubernetes Engine Developer (roles/container.developer) in {own.project}"
            return Remark("error", f"you may not {' '.join(words)} in namespace {own.namespace} of {where}", fix)
        if failure:
            return failed(where, failure)
    return None


def _with_code(own: GkeSettings, kubectl: Kubectl) -> list[Remark]:
    """Whether recipes of grpo and pretrain, which need a bucket, can be submitted."""
    refused = _refused(own, kubectl, _NEEDED_WITH_CODE) if own.bucket else None
    if refused is None or refused.level != "error":
        return [refused] if refused else []
    return [Remark("warning", f"{refused.what}; recipes of grpo and pretrain need it", refused.fix)]


def _own_queues(own: GkeSettings, kubectl: Kubectl) -> list[Remark]:
    """Whether this login may do in the cluster what a run does that creates its node pools."""
    rights = [("list", "nodes")]
    _, failure = kubectl.json(("get", "localqueues", f"--selector={RUN_LABEL}=check"))
    if failure is None or failure.consequence is not Consequence.ABSENT:
        rights += [(verb, f"{kind.lower()}s.kueue.x-k8s.io") for kind in queues.KINDS for verb in ("create", "delete")]
    refused = _refused(own, kubectl, rights)
    return [refused or Remark("info", "you may list nodes, and create and delete the queues of a run")]


def _priority(own: GkeSettings, kubectl: Kubectl) -> list[Remark]:
    """That of the target, or else the one of recipes that name none, which is then no error."""
    name = own.priority or jobset.PRIORITY
    context = f"--context={context_of(own)}"
    _, failure = kubectl.json(("get", "priorityclass", name))
    if failure is None:
        return [Remark("info", f"the cluster has PriorityClass {name}")]
    if failure.consequence is not Consequence.ABSENT:
        return [unseen(f"PriorityClass {name}", failure)]
    fix = f"set priority of the target to one of: kubectl get priorityclasses {context}"
    what = f"the cluster has no PriorityClass {name}: no pod would be created"
    if own.priority:
        return [Remark("error", what, fix)]
    return [Remark("warning", f"{what} whose recipe names no other", fix)]


def _nodes(own: GkeSettings, kubectl: Kubectl, slice_: Slice, name: str) -> list[Remark]:
    """Nodes of the slice that are ready with their chips, with their workload policy, and their zones."""
    selector = ",".join(f"{key}={value}" for key, value in jobset.node_selector(slice_).items())
    nodes, failure = kubectl.items(("get", "nodes", f"--selector={selector}"))
    if failure:
        return [unseen(f"the nodes of cluster {own.cluster}", failure)]
    create = f"type podwright render RECIPE --on {name} -o DIR and bash DIR/node_pool.sh, or set provisioning of the target: runs then create theirs"
    if not nodes:
        return [Remark("error", f"cluster {own.cluster} has no node of {slice_.name} now ({selector})", create)]
    needed = xpk_shape.vms_per_slice(slice_) * slice_.num_slices
    ready = sum(map(_is_usable, nodes))
    shown = f"{slice_.name}: {ready} of {counted(needed, 'node')} that a run needs are ready with their chips"
    remarks = [Remark("info", shown)]
    if ready < needed:
        remarks = [Remark("warning", shown, f"a run waits for the others; {create}")]
    zones = {labels_of(node).get(_ZONE, "") for node in nodes}
    if others := ", ".join(sorted(zones - {"", *own.zones})):
        what = f"nodes of {slice_.name} are in {others}, which is not among zones of the target"
        remarks.append(Remark("warning", what, f"add {others} to zones"))
    return remarks


def _is_usable(node: Record) -> bool:
    chips = ((node.get("status") or {}).get("allocatable") or {}).get(CHIPS, "0")
    is_cordoned = node.get("spec", {}).get("unschedulable")
    return is_true(node, "Ready") and not is_cordoned and str(chips) not in ("", "0")
