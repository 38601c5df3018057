"""Why an attempt in a cluster waits: the first broken link of JobSet, Kueue, pods, scheduling, image, readiness. Pure.

`question` says what has to be asked before that link can be explained, `explain` does it. What can never pass by itself is an ending;
whatever may, is waited for. The texts are those of Kueue 0.9 to 0.17, JobSet 0.8 to 0.10 and Kubernetes 1.28 to 1.33.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from podwright.rundir import Ending, Record
from podwright.targets.base import Polled, Process
from podwright.targets.gke.cluster_view import (
    JOB_NAME,
    ClusterView,
    condition,
    containers_of,
    is_true,
    labels_of,
    name_of,
    uid_of,
)
from podwright.targets.gke.jobset import QUEUE_LABEL

QUEUE_S = 15.0
"""for which a queue must say that it never admits an attempt: its objects may just have been created"""
PULL_S = 120.0
"""the same of an image that cannot be pulled"""


@dataclass(frozen=True)
class Question:
    """What the cluster has to be asked next: `what` of the object `name`."""

    what: str
    name: str


@dataclass(frozen=True)
class Explanation:
    polled: Polled
    after_s: float = 0.0
    """for how long an ending must have been said before it counts"""


@dataclass(frozen=True)
class WaitingRule:
    pattern: str
    reason: str
    """as `Reason: what it means`, with the groups of the pattern"""
    fix: str = ""
    ending: Ending | None = None
    """of what never passes by itself"""
    pulls: bool = False
    """whether it is about an image"""


_CLUSTER_QUEUE = "type kubectl get clusterqueues --context={context} -o yaml"
_KUEUE = (
    WaitingRule(
        r"Pending the preemption of (?P<what>[^\n]*)",
        "Preempting: Kueue ends workloads of lower priority first ({what})",
    ),
    WaitingRule(
        r"insufficient unused quota(?: in cohort)? for (?P<what>[\w./-]+) in flavor (?P<flavor>[\w.-]+),? (?P<more>[\d.]+\w*) more needed",
        "Quota: other workloads of the queue hold {what} of flavor {flavor}; {more} more must become free",
    ),
    WaitingRule(
        r"[Nn]o longer fits after processing another workload|waiting for all (?:admitted )?(?:pods|workloads)[^\n]*",
        "Queued: Kueue starts another workload first",
    ),
    WaitingRule(
        r"topology \"(?P<what>[^\"]+)\" (?:doesn't allow to fit|allows to fit only)(?P<more>[^\n]*)",
        "Topology: no part of topology {what} has enough free nodes together ({message})",
    ),
    WaitingRule(
        r"(?:LocalQueue|ClusterQueue) (?P<what>[\w.-]+) is stopped",
        "Stopped: queue {what} is stopped by whoever runs the cluster (stopPolicy)",
    ),
    WaitingRule(
        r"(?P<kind>LocalQueue|ClusterQueue) (?P<what>[\w.-]+) is inactive",
        "Inactive: {kind} {what} admits nothing now",
    ),
    WaitingRule(
        r"request > maximum capacity \((?P<need>[\d.]+\w*) > (?P<most>[\d.]+\w*)\)",
        "TooLarge: the queue never has more than {most}, and the slice needs {need}",
        "take a smaller slice, or have nominalQuota of the ClusterQueue raised: " + _CLUSTER_QUEUE,
        Ending.NO_CAPACITY,
    ),
    WaitingRule(
        r"insufficient quota for (?P<what>[\w./-]+) in flavor (?P<flavor>[\w.-]+)[^\n]*current podset request \((?P<need>[^)]+)\)"
        r" > maximum capacity \((?P<most>[^)]+)\)",
        "TooLarge: flavor {flavor} of the queue never has more than {most} {what}, and the slice needs {need}",
        "take a smaller slice, or have nominalQuota of the ClusterQueue raised: " + _CLUSTER_QUEUE,
        Ending.NO_CAPACITY,
    ),
    WaitingRule(
        r"> maximum capacity|borrowing limit for \S+ in flavor \S+ exceeded|exceeds the maximum|insufficient quota for (?P<what>[\w./-]+)",
        "TooLarge: the slice is larger than what the queue ever has ({message})",
        "take a smaller slice, or have nominalQuota of the ClusterQueue raised: " + _CLUSTER_QUEUE,
        Ending.NO_CAPACITY,
    ),
    WaitingRule(
        r"flavor (?P<flavor>[\w.-]+) doesn't match node affinity",
        "NoFlavor: flavor {flavor} of the queue is for other nodes than those of the slice",
        "have a ResourceFlavor with the nodeLabels of the slice added to the ClusterQueue: " + _CLUSTER_QUEUE,
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"untolerated taint (?P<what>\{[^}]*\}|[^\n]+?) in flavor (?P<flavor>[\w.-]+)",
        "Taint: the nodes of flavor {flavor} have the taint {what}, which the pods of the run do not tolerate",
        "take another queue, or have the taint removed from the flavor",
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"untolerated taint (?P<what>[^\n]+)",
        "Taint: the nodes of the queue have the taint {what}, which the pods of the run do not tolerate",
        "take another queue, or have the taint removed from the flavor",
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"resource (?P<what>[\w./-]+) unavailable in ClusterQueue",
        "NoResource: the pods ask for {what}, and the ClusterQueue has no quota for it",
        "have {what} added to coveredResources of the ClusterQueue: " + _CLUSTER_QUEUE,
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"LocalQueue (?P<what>[\w.-]+) doesn't exist",
        "NoQueue: namespace {namespace} has no queue {what}",
        "type kubectl get localqueues --namespace={namespace} --context={context}, and set queue of the target to one of them",
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"ClusterQueue (?P<what>[\w.-]+) doesn't exist",
        "NoQueue: the cluster has no ClusterQueue {what}, to which queue {queue} belongs",
        "set queue of the target to another one, or have it created: " + _CLUSTER_QUEUE,
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"namespace (?:doesn't match|does not match|\S+ doesn't match) ClusterQueue selector",
        "NoQueue: the ClusterQueue of queue {queue} takes nothing from namespace {namespace}",
        "set namespace of the target to another one, or have namespaceSelector of the ClusterQueue changed",
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"LimitRange|must not exceed its limits|requests exceed",
        "Limits: the pods ask for more than namespace {namespace} allows ({message})",
        "type kubectl describe limitrange --namespace={namespace} --context={context}",
        Ending.BAD_INPUT,
    ),
)
"""Waits before what never passes: a message names every flavor, and one that will have room is enough."""

_INACTIVE = (
    WaitingRule(
        r"references missing ResourceFlavor\(s\): (?P<what>[^.;\n]+)",
        "NoFlavor: ClusterQueue {name} names ResourceFlavor {what}, which the cluster does not have",
        "have ResourceFlavor {what} created, or removed from the ClusterQueue; podwright target check shows both",
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"is stopped|StopPolicy|stopped", "Stopped: ClusterQueue {name} is stopped by whoever runs the cluster"
    ),
    WaitingRule(r"(?P<what>\S[^\n]*)", "Inactive: ClusterQueue {name} admits nothing: {what}"),
)

_CREATING = (
    WaitingRule(
        r"follower pod node selector not set",
        "Starting: the pods of the slice follow its first one, which has no node yet",
    ),
    WaitingRule(
        r"failed calling webhook \"(?P<what>[^\"]+)\"|no endpoints available for service \"(?P<what2>[^\"]+)\"",
        "WebhookDown: {what}, which checks pods, does not answer; the cluster tries again",
    ),
    WaitingRule(
        r"no PriorityClass with name (?P<what>\S+) was found",
        "NoPriority: the cluster has no PriorityClass {what}",
        "set priority of the target to one of: kubectl get priorityclasses --context={context}",
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"violates PodSecurity \"(?P<what>[^\"]+)\"",
        "PodSecurity: namespace {namespace} refuses pods with the rights that TPUs need (PodSecurity {what})",
        "set namespace of the target to one that allows privileged pods",
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"exceeded quota: (?P<what>[^,\n]+)",
        "Quota: namespace {namespace} has no room in ResourceQuota {what}",
    ),
    WaitingRule(
        r"error looking up service account (?P<what>\S+)|serviceaccount \"(?P<what2>[^\"]+)\" not found",
        "NoAccount: there is no service account {what}",
        "create it, or correct the recipe",
        Ending.BAD_INPUT,
    ),
    WaitingRule(r"(?P<what>\S[^\n]*)", "Refused: the cluster creates no pods of the run: {what}"),
)

_SCHEDULING = (
    WaitingRule(
        r"pod didn't trigger scale-up[^\n]*in backoff after failed scale-up",
        "NoCapacity: the autoscaler could not add nodes and tries again later ({message})",
    ),
    WaitingRule(
        r"didn't match pod anti-affinity rules|didn't satisfy existing pods anti-affinity rules",
        "Occupied: pods of another JobSet, which may have ended, hold the nodes of the slice; "
        "kubectl get jobsets --all-namespaces --context={context} shows it, and deleting one that has ended frees them",
    ),
    WaitingRule(
        r"Insufficient google\.com/tpu",
        "Busy: other pods use the TPUs of the nodes, or a node that just started has not registered its TPUs yet",
    ),
    WaitingRule(
        r"0/(?P<count>\d+) nodes are available: (?P=count) node\(s\) didn't match Pod's node affinity/selector",
        "NoNodes: none of the {count} nodes of the cluster is of the slice ({selector})",
    ),
    WaitingRule(
        r"had untolerated taint (?P<what>\{[^}]*\})",
        "Taint: nodes of the slice have the taint {what} now",
    ),
    WaitingRule(
        r"didn't match Pod's node affinity/selector|no nodes available|0/0 nodes are available",
        "NoNodes: no free node of the cluster is of the slice ({selector})",
    ),
    WaitingRule(
        r"didn't trigger scale-up[^\n]*",
        "NoCapacity: the autoscaler adds no nodes ({message})",
    ),
    WaitingRule(r"triggered scale-up", "ScalingUp: the autoscaler is adding nodes"),
)

_CONTAINERS = (
    WaitingRule(
        r"InvalidImageName|couldn't parse image|invalid reference format",
        "BadImage: {image} is no name of an image",
        "correct image of the target or of the recipe",
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"no match for platform|exec format error",
        "BadImage: {image} is not for the processors of the nodes",
        "build the image for linux/amd64",
        Ending.BAD_INPUT,
        True,
    ),
    WaitingRule(
        r"(?:ErrImagePull|ImagePullBackOff)[^\n]*(?:40[13]|[Uu]nauthorized|[Ff]orbidden|denied|insufficient_scope|no basic auth)",
        "NoPermission: the nodes may not pull {image}",
        "give the service account of the nodes the role roles/artifactregistry.reader on it, then resume the run",
        Ending.BAD_INPUT,
        True,
    ),
    WaitingRule(
        r"(?:ErrImagePull|ImagePullBackOff)[^\n]*(?:not found|manifest unknown|does not exist|NotFound)",
        "NoImage: there is no image {image}",
        "build it (podwright render writes the script), or correct image of the target, then resume the run",
        Ending.BAD_INPUT,
        True,
    ),
    WaitingRule(
        r"ErrImagePull|ImagePullBackOff|RegistryUnavailable|ErrImageNeverPull",
        "Pulling: image {image} could not be pulled yet ({message})",
    ),
    WaitingRule(
        r"CreateContainerConfigError[^\n]*(?P<kind>secret|configmap) \"(?P<what>[^\"]+)\" not found",
        "NoObject: the pods need {kind} {what}, which namespace {namespace} does not have",
        "resume the run: it is created again",
        Ending.CRASHED,
        True,
    ),
    WaitingRule(
        r"(?:CreateContainerConfigError|CreateContainerError|RunContainerError|StartError)[^\n]*",
        "NotStarted: the container cannot be started ({message})",
    ),
    WaitingRule(
        r"(?:FailedMount|FailedAttachVolume): (?P<what>[^\n]*)",
        "Mounting: a volume of the pods cannot be mounted yet ({what})",
    ),
    WaitingRule(r"Pulling: Pulling image \"(?P<what>[^\"]+)\"", "Pulling: the nodes pull image {what}"),
    WaitingRule(
        r"FailedCreatePodSandBox[^\n]*",
        "Starting: a node cannot set up the pod yet ({message})",
    ),
)


def question(view: ClusterView) -> Question | None:
    """What must be asked before `explain` can tell why the attempt waits; None when nothing is missing."""
    if view.jobset is None or is_true(view.jobset, "Completed") or is_true(view.jobset, "Failed"):
        return None
    if view.suspended:
        if "workload" not in view.asked:
            return Question("workload", uid_of(view.jobset))
        if view.workload is None and "priority" not in view.asked and (name := _priority(view.jobset)):
            return Question("priority", name)
        inactive = "is inactive" in condition(view.workload, "QuotaReserved").get("message", "")
        if inactive and "queue" not in view.asked:
            return Question("queue", labels_of(view.jobset).get(QUEUE_LABEL, ""))
        return None
    if "events" not in view.asked and (name := _stuck(view)):
        return Question("events", name)
    return None


def explain(view: ClusterView, num_pods: int, started: bool, names: dict[str, str]) -> Explanation:
    """Of an attempt whose JobSet exists and has not ended.

    `started`: whether a process of it was at work before. `names`: namespace, queue and context, for what a user is to type.
    """
    assert view.jobset
    if view.suspended:
        return _queued(view, started, names)
    waits = [pod for pod in view.pods if (pod.get("status") or {}).get("phase", "Pending") == "Pending"]
    unscheduled = [pod for pod in waits if not pod.get("spec", {}).get("nodeName")]
    if unscheduled:  # the pods that follow it are created when the first one has a node
        return _unscheduled(unscheduled, view, num_pods, names)
    if len(view.pods) < num_pods:
        return _creating(view, num_pods, names)
    if waits:
        return _not_running(waits, view, num_pods, names)
    return Explanation(Polled(Process.RUNNING, waiting=_silent_nodes(view.pods)))


def _queued(view: ClusterView, started: bool, names: dict[str, str]) -> Explanation:
    assert view.jobset
    queue = labels_of(view.jobset).get(QUEUE_LABEL, "")
    names = names | {"queue": queue}
    if not queue:
        return _waits(
            "Suspended: somebody has suspended the JobSet; kubectl patch with spec.suspend=false lets it go on"
        )
    if view.workload is None:
        if not view.priority_exists:
            rule = next(rule for rule in _CREATING if "PriorityClass" in rule.pattern)
            text = f"no PriorityClass with name {_priority(view.jobset)} was found"
            return _by_rules((rule,), text, names) or _waits(f"NoPriority: {text}")
        return _waits(f"Queued: Kueue has not looked at the JobSet yet (queue {queue})")
    evicted, quota = condition(view.workload, "Evicted"), condition(view.workload, "QuotaReserved")
    text = evicted.get("message", "")
    if view.workload.get("spec", {}).get("active") is False:
        detail = f"the workload of the JobSet was deactivated in Kueue{f': {text}' if text else ''}"
        return Explanation(Polled(Process.ENDED, ending=Ending.STOPPED, detail=detail))
    if evicted.get("status") == "True" and (started or evicted.get("reason") == "Preempted"):
        detail = f"Kueue took the machines away ({evicted.get('reason', '')}): {text}"
        return Explanation(Polled(Process.ENDED, ending=Ending.PREEMPTED, detail=detail))
    if quota.get("status") == "True":
        return _waits(_checks(view.workload))
    message = quota.get("message", "")
    if "is inactive" in message and (reason := condition(view.queue, "Active").get("message")):
        return _by_rules(_INACTIVE, reason, names | {"name": name_of(view.queue or {})}) or _waits(
            f"Inactive: {reason}"
        )
    if message and (said := _by_rules(_KUEUE, message, names)):
        return said
    if evicted.get("status") == "True":
        return _waits(
            f"Requeued: Kueue took the quota back before a process had started ({evicted.get('reason')}): {text}"
        )
    return _waits(f"Queued: {message}" if message else f"Queued: queue {queue} has not admitted the JobSet yet")


def _checks(workload: Record) -> str:
    """Why a workload that has its quota is not admitted."""
    checks = (workload.get("status") or {}).get("admissionChecks") or []
    open_ = [each for each in checks if each.get("state") != "Ready"]
    if not open_ or is_true(workload, "Admitted"):
        return "Admitted: Kueue has admitted the JobSet, which is about to start"
    first = open_[0]
    more = f": {first['message']}" if first.get("message") else ""
    return f"AdmissionCheck: {first.get('name')} is {first.get('state')}{more}"


def _creating(view: ClusterView, num_pods: int, names: dict[str, str]) -> Explanation:
    if not view.jobs:
        return _waits("Starting: the controller of JobSet has not created the jobs yet")
    text = next((each.get("message", "") for each in _newest(view.events) if each.get("reason") == "FailedCreate"), "")
    if text:
        return _by_rules(_CREATING, text, names) or _waits(f"Refused: {text}")
    return _waits(f"Starting: {len(view.pods)} of {num_pods} pods exist")


def _unscheduled(pods: Sequence[Record], view: ClusterView, num_pods: int, names: dict[str, str]) -> Explanation:
    scheduled = condition(pods[0], "PodScheduled")
    selector = pods[0].get("spec", {}).get("nodeSelector") or {}
    names = names | {"selector": ", ".join(f"{key.rpartition('/')[2]}={value}" for key, value in selector.items())}
    texts = [each.get("message", "") for each in _newest(view.events) if "cale" in each.get("reason", "")]
    for text in (*texts[:1], scheduled.get("message", "")):
        if text and (said := _by_rules(_SCHEDULING, text, names)):
            return said
    if scheduled.get("reason") == "SchedulingGated":
        return _waits("Queued: the pods wait for an admission (SchedulingGated)")
    if text := scheduled.get("message", ""):
        return _waits(f"Scheduling: {text}")
    return _waits(f"Scheduling: {len(pods)} of {num_pods} pods have no node yet")


def _not_running(pods: Sequence[Record], view: ClusterView, num_pods: int, names: dict[str, str]) -> Explanation:
    for pod in pods:
        for container in containers_of(pod):
            waits = container.get("state", {}).get("waiting") or {}
            text = f"{waits.get('reason', '')}: {waits.get('message', '')}"
            if said := _by_rules(_CONTAINERS, text, names | {"image": container.get("image", "")}):
                return said
    for event in _newest(view.events):
        if said := _by_rules(_CONTAINERS, f"{event.get('reason')}: {event.get('message')}", names | {"image": ""}):
            return said
    running = num_pods - len(pods)
    return _waits(f"Starting: the containers of {len(pods)} of {num_pods} pods are being created ({running} run)")


def _by_rules(rules: Sequence[WaitingRule], text: str, names: dict[str, str]) -> Explanation | None:
    """By the first rule of which `text` has the pattern; None where it has none."""
    for rule in rules:
        if match := re.search(rule.pattern, text):
            groups = {key.rstrip("2"): value for key, value in match.groupdict().items() if value}
            said = {"what": "", "message": " ".join(text.split())[:300]} | names | groups
            reason = rule.reason.format(**said)
            if rule.ending is None:
                return _waits(reason)
            detail = reason.partition(": ")[2]
            polled = Polled(
                Process.ENDED, waiting=reason, ending=rule.ending, detail=detail, fix=rule.fix.format(**said)
            )
            return Explanation(polled, PULL_S if rule.pulls else QUEUE_S)
    return None


def _waits(reason: str) -> Explanation:
    return Explanation(Polled(Process.RUNNING, waiting=reason))


def _stuck(view: ClusterView) -> str:
    """The object whose events say why the attempt does not start; "" where it runs."""
    waits = [pod for pod in view.pods if (pod.get("status") or {}).get("phase", "Pending") == "Pending"]
    if unscheduled := [pod for pod in waits if not pod.get("spec", {}).get("nodeName")]:
        return name_of(unscheduled[0])
    if view.jobs:
        counts = {name_of(job): int(job.get("spec", {}).get("parallelism") or 1) for job in view.jobs}
        for pod in view.pods:
            counts[labels_of(pod).get(JOB_NAME, "")] = counts.get(labels_of(pod).get(JOB_NAME, ""), 1) - 1
        if missing := next((name for name, count in counts.items() if name and count > 0), ""):
            return missing
    return name_of(waits[0]) if waits else ""


def _priority(jobset: Record) -> str:
    """The PriorityClass of its pods, or ""."""
    jobs = jobset.get("spec", {}).get("replicatedJobs") or [{}]
    pod = jobs[0].get("template", {}).get("spec", {}).get("template", {}).get("spec", {})
    return str(pod.get("priorityClassName") or "")


def _newest(events: Sequence[Record]) -> list[Record]:
    def when(event: Record) -> str:
        metadata = event.get("metadata", {})
        return str(event.get("lastTimestamp") or event.get("eventTime") or metadata.get("creationTimestamp") or "")

    return sorted(events, key=when, reverse=True)


def _silent_nodes(pods: Sequence[Record]) -> str:
    """Of pods that run: those whose nodes no longer report."""
    silent = [pod for pod in pods if (pod.get("status") or {}).get("reason") == "NodeLost"]
    nodes = sorted({pod.get("spec", {}).get("nodeName", "") for pod in silent})
    return (
        f"NodeSilent: {', '.join(nodes)} {'does' if len(nodes) == 1 else 'do'} not report to the cluster"
        if nodes
        else ""
    )
