"""Why an attempt in a cluster waits: the first broken link of JobSet, Kueue, pods, scheduling, image, readiness. Pure.

`question` says what has to be asked before that link can be explained, `explain` does it. What can never pass by itself is an ending;
whatever may, is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from podwright.failures.match import match
from podwright.rundir import Ending, Record
from podwright.targets.base import Polled, Process
from podwright.targets.gke import intervention
from podwright.targets.gke.cluster_view import (
    JOB_NAME,
    ClusterView,
    condition,
    containers_of,
    is_true,
    labels_of,
    name_of,
    node_of,
    uid_of,
)
from podwright.targets.gke.cluster_view import seconds as unix
from podwright.targets.gke.jobset import QUEUE_LABEL
from podwright.targets.settings.google import seconds

QUEUE_S = 15.0
"""for which a queue must say that it never admits an attempt: its objects may just have been created"""
PULL_S = 120.0
"""the same of an image that cannot be pulled"""
_CREATION_FAILED = ("FailedCreate", "JobCreationFailed", "HeadlessServiceCreationFailed")
"""reasons of events of jobs and JobSets"""


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


def question(view: ClusterView) -> Question | None:
    """What must be asked before `explain` can tell why the attempt waits; None when nothing is missing."""
    if view.jobset is None or view.is_gone or is_true(view.jobset, "Completed") or is_true(view.jobset, "Failed"):
        return None
    if view.suspended:
        if "workload" not in view.queried:
            return Question("workload", uid_of(view.jobset))
        if view.workload is None and "priority" not in view.queried:
            priority = _priority(view.jobset)
            if priority:
                return Question("priority", priority)
        inactive = "is inactive" in condition(view.workload, "QuotaReserved").get("message", "")
        if inactive and "queue" not in view.queried:
            return Question("queue", labels_of(view.jobset).get(QUEUE_LABEL, ""))
        return None
    if "events" in view.queried:
        return None
    stuck = _stuck(view)
    return Question("events", stuck) if stuck else None


def explain(view: ClusterView, num_pods: int, began_s: float, names: dict[str, str]) -> Explanation:
    """Of an attempt whose JobSet exists and has not ended.

    `began_s`: Unix seconds when its first process began; infinite before. `names`: namespace, context, target and run, for what a user is to type,
    and own_queue, which the run brought, or "".
    """
    assert view.jobset
    explanation = _explained(view, num_pods, began_s, names)
    polled = explanation.polled
    if polled.process is not Process.RUNNING or not polled.waiting:
        return explanation
    if view.unanswered and view.unanswered not in polled.waiting:
        polled = replace(polled, waiting=f"{polled.waiting}; more is not known ({view.unanswered})")
    incomplete = len(view.pods) < num_pods or bool(view.unscheduled)
    silent = began_s == float("inf") or incomplete
    return Explanation(replace(polled, silent=silent))


def starting_since(
    view: ClusterView,
    num_pods: int,
    submitted_s: float,
    began_s: float,
    *,
    nodes_come: bool,
    missing_s: float = float("inf"),
) -> float | None:
    """Since when pods on node pools that cost have not started, in Unix seconds; None where all have, or where nothing costs yet.

    `began_s` as for `explain`; one that takes the place of another after that counts from its own creation. `missing_s`: since when some do not
    exist after that. `nodes_come`: whether nodes come when pods ask for them: what waits for nodes costs nothing then.
    """
    begun = began_s < float("inf")
    uncreated = len(view.pods) < num_pods and not begun
    if nodes_come and (view.suspended or uncreated or view.unscheduled):
        return None
    if begun:
        created = [unix(pod["metadata"].get("creationTimestamp", "")) for pod in view.pending]
        return min((time for time in (*created, missing_s) if time < float("inf")), default=None)
    scheduled = [unix(condition(pod, "PodScheduled").get("lastTransitionTime", "")) for pod in view.pods]
    return max([submitted_s, *(time for time in scheduled if nodes_come and time < float("inf"))])


def limited(polled: Polled, waited_s: float | None, patience: str, *, begun: bool = False) -> Polled:
    """Of an attempt on node pools that cost, some of whose pods have not started: its end, if they have not after `patience`, such as 6h.
    `waited_s`: None where none is waited for. `begun`: whether others have."""
    if not polled.waiting or polled.process is not Process.RUNNING or waited_s is None or waited_s < seconds(patience):
        return polled
    what = "some pods did not start" if begun else "no process began"
    detail = (
        f"{what} within {patience} (patience of the target), while the node pools of the run cost: {polled.waiting}"
    )
    return Polled.ended(Ending.NO_CAPACITY, detail, "correct that, then resume the run")


def _explained(view: ClusterView, num_pods: int, began_s: float, names: dict[str, str]) -> Explanation:
    if view.suspended:
        return _queued(view, began_s, names)
    if unscheduled := view.unscheduled:  # the pods that follow it are created when the first one has a node
        return _unscheduled(unscheduled, view, num_pods, names)
    if len(view.pods) < num_pods:
        return _creating(view, num_pods, names)
    if pending := view.pending:
        return _not_running(pending, view, num_pods, names)
    return Explanation(Polled(Process.RUNNING, waiting=_silent_nodes(view.pods)))


def _queued(view: ClusterView, began_s: float, names: dict[str, str]) -> Explanation:
    assert view.jobset
    queue = labels_of(view.jobset).get(QUEUE_LABEL, "") if view.has_kueue else ""
    started = began_s < float("inf")
    own = ("own_queue",) if queue == names["own_queue"] else ()
    names = names | {"queue": queue}
    if started:
        taken = _ended_by_suspension(view, queue, began_s)
        if taken:
            return Explanation(taken)
    if not queue:
        return _waits("Suspended: the JobSet was suspended; kubectl patch with spec.suspend=false resumes it")
    if view.workload is None:
        if view.unanswered:
            return _waits(f"Queued: why is not known ({view.unanswered})")
        if not view.priority_exists:
            text = f"no PriorityClass with name {_priority(view.jobset)} was found"
            return _by_text(text, names, "creation") or _waits(f"NoPriority: {text}")
        return _waits(f"Queued: Kueue has not looked at the JobSet yet (queue {queue})")
    evicted = condition(view.workload, "Evicted")
    quota = condition(view.workload, "QuotaReserved")
    text = evicted.get("message", "")
    if view.workload.get("spec", {}).get("active") is False:
        detail = f"the workload of the JobSet was deactivated in Kueue{f': {text}' if text else ''}"
        return Explanation(Polled.ended(Ending.STOPPED, detail))
    if evicted.get("status") == "True" and (started or evicted.get("reason") == "Preempted"):
        detail = f"Kueue took the machines away ({evicted.get('reason', '')}): {text}"
        return Explanation(Polled.ended(Ending.PREEMPTED, detail))
    if quota.get("status") == "True":
        return _waits(_checks(view.workload))
    message = quota.get("message", "")
    if "is inactive" in message:
        reason = condition(view.queue, "Active").get("message")
        if reason:
            fields = names | {"name": name_of(view.queue or {})}
            return _by_text(reason, fields, *own, "kueue_inactive") or _waits(f"Inactive: {reason}")
    if message:
        explained = _by_text(message, names, *own, "kueue")
        if explained:
            return explained
    if evicted.get("status") == "True":
        return _waits(
            f"Requeued: Kueue took the quota back before a process had started ({evicted.get('reason')}): {text}"
        )
    return _waits(f"Queued: {message}" if message else f"Queued: queue {queue} has not admitted the JobSet yet")


def _ended_by_suspension(view: ClusterView, queue: str, began_s: float) -> Polled | None:
    """Of an attempt that was at work; None where the Workload says itself what became of it."""
    spec = (view.workload or {}).get("spec", {})
    if spec.get("active") is False or is_true(view.workload, "Evicted"):
        return None
    return intervention.suspended(view, name_of(view.jobset or {}), queue, began_s)


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
    refusals = [each for each in _newest(view.events) if each.get("reason") in _CREATION_FAILED]
    if refusals:
        text = refusals[0].get("message", "")
        if text:
            return _by_text(text, names, "creation") or _waits(f"Refused: {text}")
    if not view.jobs:
        return _waits("Starting: the controller of JobSet has not created the jobs yet")
    return _waits(f"Starting: {len(view.pods)} of {num_pods} pods exist")


def _unscheduled(pods: Sequence[Record], view: ClusterView, num_pods: int, names: dict[str, str]) -> Explanation:
    scheduled = condition(pods[0], "PodScheduled")
    selector = pods[0].get("spec", {}).get("nodeSelector") or {}
    names = names | {"selector": ", ".join(f"{key.rpartition('/')[2]}={value}" for key, value in selector.items())}
    texts = [each.get("message", "") for each in _newest(view.events) if "cale" in each.get("reason", "")]
    for text in (*texts[:1], scheduled.get("message", "")):
        if text:
            explained = _by_text(text, names, "scheduler")
            if explained:
                return explained
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
            if explained := _by_text(text, names | {"image": container.get("image", "")}, "container"):
                return explained
    for event in _newest(view.events):
        text = f"{event.get('reason')}: {event.get('message')}"
        if explained := _by_text(text, names | {"image": ""}, "container"):
            return explained
    running = num_pods - len(pods)
    return _waits(f"Starting: the containers of {len(pods)} of {num_pods} pods are being created ({running} run)")


def _by_text(text: str, names: dict[str, str], *seen_in: str) -> Explanation | None:
    """By the first row of the table of failures that matches `text`; None where none does."""
    failure = match(text, *seen_in)
    if failure is None:
        return None
    row, fields = failure.row, {"what": "", "message": " ".join(text.split())[:300]} | names
    cause = failure.cause(fields)
    reason = f"{row.name}: {cause}"
    if row.ending is None:
        return _waits(reason)
    polled = Polled(Process.ENDED, waiting=reason, ending=row.ending, detail=cause, fix=failure.remedy(fields))
    return Explanation(polled, PULL_S if row.pulls else QUEUE_S)


def _waits(reason: str) -> Explanation:
    return Explanation(Polled(Process.RUNNING, waiting=reason))


def _stuck(view: ClusterView) -> str:
    """The object whose events say why the attempt does not start; "" where it runs."""
    if view.unscheduled:
        return name_of(view.unscheduled[0])
    if view.jobs:
        counts = {name_of(job): int(job.get("spec", {}).get("parallelism") or 1) for job in view.jobs}
        for pod in view.pods:
            job = labels_of(pod).get(JOB_NAME, "")
            counts[job] = counts.get(job, 1) - 1
        for name, count in counts.items():
            if name and count > 0:
                return name
    if view.pending:
        return name_of(view.pending[0])
    return "" if view.jobs else name_of(view.jobset or {})


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
    nodes = sorted({node_of(pod) for pod in silent})
    return (
        f"NodeSilent: {', '.join(nodes)} {'does' if len(nodes) == 1 else 'do'} not report to the cluster"
        if nodes
        else ""
    )
