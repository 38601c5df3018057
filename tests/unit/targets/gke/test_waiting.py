"""Why an attempt waits, by the objects of the cluster: each text has its sentence, and what never passes ends the attempt."""

from dataclasses import replace
from typing import Any

import pytest

from podwright.rundir import Ending
from podwright.targets.base import Process
from podwright.targets.gke import waiting
from podwright.targets.gke.cluster_view import ClusterView

BEGAN_S = 1767225900.0
"""2026-01-01T00:05:00Z"""
NAMES = {"namespace": "default", "context": "gke_p_l_c", "target": "pod", "run": "r", "own_queue": ""}
Json = dict[str, Any]
POD_SPEC: Json = {
    "containers": [{"name": "c"}],
    "priorityClassName": "medium",
    "nodeSelector": {"cloud.google.com/gke-tpu-topology": "2x2x1"},
}


def jobset(suspended: bool = False, **labels: str) -> Json:
    template = {"spec": {"template": {"spec": POD_SPEC}}}
    return {
        "kind": "JobSet",
        "metadata": {
            "name": "pw-r",
            "uid": "u",
            "labels": labels or {"kueue.x-k8s.io/queue-name": "q"},
        },
        "spec": {"suspend": suspended, "replicatedJobs": [{"replicas": 1, "template": template}]},
    }


def conditions(**texts: tuple[str, str, str]) -> Json:
    return {
        "conditions": [
            {"type": kind, "status": status, "reason": reason, "message": message}
            for kind, (status, reason, message) in texts.items()
        ]
    }


def workload(**texts: tuple[str, str, str]) -> Json:
    return {"kind": "Workload", "metadata": {"name": "w"}, "spec": {"active": True}, "status": conditions(**texts)}


def queued(message: str, queue: str = "") -> ClusterView:
    """A JobSet that Kueue has not admitted, with the Active condition of its ClusterQueue."""
    cluster_queue = {"metadata": {"name": "cq"}, "status": conditions(Active=("False", "Inactive", queue))}
    return ClusterView(
        jobset(True),
        workload=workload(QuotaReserved=("False", "Inadmissible", message)),
        queue=cluster_queue if queue else None,
    )


def job(parallelism: int = 1) -> Json:
    return {"kind": "Job", "metadata": {"name": "pw-r-slice-job-0"}, "spec": {"parallelism": parallelism}}


def pod(number: int = 0, phase: str = "Pending", node: str = "n", **status: Any) -> Json:
    labels = {
        "batch.kubernetes.io/job-completion-index": str(number),
        "batch.kubernetes.io/job-name": "pw-r-slice-job-0",
    }
    spec = POD_SPEC | ({"nodeName": node} if node else {})
    metadata = {"name": f"pw-r-slice-job-0-{number}-abcde", "uid": str(number), "labels": labels}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase, **status}}


def pulling(reason: str, message: str) -> Json:
    waits = {"name": "jax-tpu", "image": "image:1", "state": {"waiting": {"reason": reason, "message": message}}}
    return pod(containerStatuses=[waits])


def event(reason: str, message: str) -> Json:
    return {"kind": "Event", "reason": reason, "message": message, "lastTimestamp": "2026-01-01T00:00:00Z"}


def unscheduled(message: str, *events: Json) -> ClusterView:
    status = conditions(PodScheduled=("False", "Unschedulable", message))
    return ClusterView(jobset(), (job(),), (pod(node="", **status),), events=events)


def explained(view: ClusterView, num_pods: int = 1, started: bool = False) -> waiting.Explanation:
    return waiting.explain(view, num_pods, BEGAN_S if started else float("inf"), NAMES)


NEEDS = "couldn't assign flavors to pod set slice-job: "
PASSES = [
    (queued(NEEDS + "insufficient unused quota for google.com/tpu in flavor F, 4 more needed"), "Quota: ", "4 more"),
    (
        queued(NEEDS + "borrowing limit for google.com/tpu in flavor F exceeded"),
        "Quota: ",
        "of google.com/tpu of flavor F",
    ),
    (
        queued(
            NEEDS
            + "flavor A doesn't match node affinity, insufficient unused quota for google.com/tpu in flavor F, 4 more needed"
        ),
        "Quota: ",
        "4 more",
    ),
    (queued("LocalQueue q is stopped"), "Stopped: ", "stopPolicy"),
    (queued("ClusterQueue cq is inactive"), "Inactive: ", "cq"),
    (queued("LocalQueue q is inactive", "Can't admit new workloads: is stopped."), "Stopped: ", "cq"),
    (ClusterView(jobset(True), workload=workload(QuotaReserved=("True", "QuotaReserved", ""))), "Admitted: ", "start"),
    (ClusterView(jobset(True), workload=workload()), "Queued: ", "q"),
    (ClusterView(jobset(True)), "Queued: ", "Kueue has not looked"),
    (ClusterView(jobset(True), has_kueue=False), "Suspended: ", "suspend=false"),
    (ClusterView(jobset(True), unanswered="NoPermission: x"), "Queued: why is not known (NoPermission: x)", ""),
    (ClusterView(jobset(True, other="label")), "Suspended: ", "suspend=false"),
    (
        ClusterView(jobset(True), workload=workload(Evicted=("True", "PodsReadyTimeout", "exceeded the timeout"))),
        "Requeued: ",
        "PodsReadyTimeout",
    ),
    (ClusterView(jobset()), "Starting: ", "controller of JobSet"),
    (
        ClusterView(jobset(), events=(event("HeadlessServiceCreationFailed", "exceeded quota: few, requested: x"),)),
        "Quota: ",
        "few",
    ),
    (
        ClusterView(
            jobset(),
            (job(),),
            events=(
                event(
                    "FailedCreate",
                    'Error creating: admission webhook "vpod.kb.io" denied the request: follower pod node selector not set',
                ),
            ),
        ),
        "Starting: ",
        "follow its first",
    ),
    (
        ClusterView(
            jobset(),
            (job(),),
            events=(
                event(
                    "FailedCreate",
                    'Error creating: Internal error occurred: failed calling webhook "mpod.kb.io": failed to call webhook: Post "https://x": '
                    'no endpoints available for service "jobset-webhook-service"',
                ),
            ),
        ),
        "WebhookDown: mpod.kb.io",
        "tries again",
    ),
    (
        unscheduled(
            "0/35 nodes are available: 3 node(s) didn't match Pod's node affinity/selector, 32 Insufficient google.com/tpu. preemption: 0/35 "
            "nodes are available: 3 Preemption is not helpful for scheduling, 32 No preemption victims found for incoming pod."
        ),
        "Busy: ",
        "TPUs",
    ),
    (
        unscheduled("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. preemption: ..."),
        "NoNodes: none of the 3 nodes",
        "gke-tpu-topology=2x2x1",
    ),
    (
        unscheduled("0/4 nodes are available: 4 node(s) didn't match pod anti-affinity rules."),
        "Occupied: ",
        "kubectl get jobsets",
    ),
    (
        unscheduled(
            "0/4 nodes are available: 4 Insufficient google.com/tpu.",
            event("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 in backoff after failed scale-up"),
        ),
        "NoCapacity: ",
        "tries again later",
    ),
    (
        unscheduled(
            "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.",
            event(
                "FailedScaleUp",
                "Node scale up in zones us-central1-c associated with this pod failed: GCE out of resources. Pod is at risk of not being "
                "scheduled.",
            ),
        ),
        "NoCapacity: ",
        "in us-central1-c (GCE out of resources), and tries again",
    ),
    (unscheduled(""), "Scheduling: ", "1 of 1 pods"),
    (
        ClusterView(jobset(), (job(),), (pulling("ErrImagePull", "dial tcp: i/o timeout"),)),
        "Pulling: image image:1",
        "timeout",
    ),
    (
        ClusterView(
            jobset(),
            (job(),),
            (pulling("ImagePullBackOff", 'Back-off pulling image "a-403/i@sha256:78403bc": unexpected EOF'),),
        ),
        "Pulling: ",
        "unexpected EOF",
    ),
    (ClusterView(jobset(), (job(),), (pulling("ContainerCreating", ""),)), "Starting: ", "1 of 1 pods"),
    (
        ClusterView(
            jobset(), (job(),), (pulling("ContainerCreating", ""),), events=(event("Pulling", 'Pulling image "i:1"'),)
        ),
        "Pulling: the nodes pull image i:1",
        "",
    ),
    (ClusterView(jobset(), (job(),), (pod(phase="Running"),)), "", ""),
    (
        ClusterView(jobset(), (job(),), (pod(node=""),), unanswered="NoPermission: events; type g"),
        "Scheduling: ",
        "; more is not known (NoPermission: events; type g)",
    ),
]


@pytest.mark.parametrize(("view", "reason", "part"), PASSES)
def test_what_may_pass_is_waited_for_with_a_sentence(view: ClusterView, reason: str, part: str) -> None:
    polled = explained(view).polled
    assert polled.process is Process.RUNNING and polled.ending is None
    assert polled.waiting.startswith(reason) and part in polled.waiting, polled.waiting


def test_an_attempt_is_silent_while_a_pod_has_no_node_or_no_process_has_begun() -> None:
    message = "0/5 nodes are available: 5 node(s) didn't match Pod's node affinity/selector."
    without_node = unscheduled(message)
    assert explained(without_node).polled.silent and explained(without_node, started=True).polled.silent
    assert explained(replace(without_node, unanswered="NoPermission: events")).polled.silent
    assert explained(ClusterView(jobset(), (job(2),), (pod(),)), 2).polled.silent
    creating = ClusterView(jobset(), (job(),), (pod(),))
    assert explained(creating).polled.silent and not explained(creating, started=True).polled.silent
    assert not explained(ClusterView(jobset(), (job(),), (pod(phase="Running"),))).polled.silent


NEVER = [
    (queued(NEEDS + "flavor X doesn't match node affinity"), Ending.BAD_INPUT, "flavor X", "ResourceFlavor"),
    (
        queued(
            NEEDS
            + "insufficient quota for google.com/tpu in flavor F, previously considered podsets requests (0) + current podset request "
            "(128) > maximum capacity (64)"
        ),
        Ending.NO_CAPACITY,
        "never has more than 64 google.com/tpu, and the slice needs 128",
        "nominalQuota",
    ),
    (
        queued(NEEDS + "insufficient quota for google.com/tpu in flavor F, request > maximum capacity (128 > 64)"),
        Ending.NO_CAPACITY,
        "never has more than 64, and the slice needs 128",
        "nominalQuota",
    ),
    (
        queued(NEEDS + "untolerated taint {dedicated team NoSchedule <nil>} in flavor F"),
        Ending.BAD_INPUT,
        "taint {dedicated team NoSchedule <nil>}",
        "another queue",
    ),
    (queued(NEEDS + "resource cpu unavailable in ClusterQueue"), Ending.BAD_INPUT, "cpu", "coveredResources"),
    (queued("LocalQueue q doesn't exist"), Ending.BAD_INPUT, "no queue q", "podwright target check pod"),
    (queued("ClusterQueue cq doesn't exist"), Ending.BAD_INPUT, "no ClusterQueue cq", "queue of the target"),
    (
        queued("ClusterQueue cq is inactive", "Can't admit new workloads: references missing ResourceFlavor(s): F."),
        Ending.BAD_INPUT,
        "ResourceFlavor F",
        "created",
    ),
    (
        ClusterView(jobset(True), priority_exists=False),
        Ending.BAD_INPUT,
        "no PriorityClass medium",
        "kubectl get priorityclasses",
    ),
    (
        ClusterView(
            jobset(),
            (job(),),
            events=(
                event(
                    "FailedCreate",
                    'Error creating: pods "x" is forbidden: no PriorityClass with name medium was found',
                ),
            ),
        ),
        Ending.BAD_INPUT,
        "no PriorityClass medium",
        "priority of the target",
    ),
    (
        ClusterView(
            jobset(),
            (job(),),
            events=(
                event(
                    "FailedCreate",
                    'Error creating: admission webhook "warden-validating.common-webhooks.networking.gke.io" denied the request: GKE Warden '
                    'rejected the request because it violates one or more constraints.\nViolations details: {"[denied by '
                    'autogke-disallow-hostnamespaces]":["enabling hostNetwork is not allowed in Autopilot."]}',
                ),
            ),
        ),
        Ending.BAD_INPUT,
        "an Autopilot cluster refuses pods",
        "a Standard cluster",
    ),
    (
        ClusterView(
            jobset(),
            (job(),),
            (pulling("ErrImagePull", 'failed to resolve reference "image:1": image:1: not found'),),
        ),
        Ending.BAD_INPUT,
        "no image image:1",
        "build it",
    ),
    (
        ClusterView(
            jobset(), (job(),), (pulling("ImagePullBackOff", "Back-off ... 403 Forbidden: artifactregistry denied"),)
        ),
        Ending.BAD_INPUT,
        "may not pull image:1",
        "artifactregistry.reader",
    ),
    (
        ClusterView(jobset(True), workload=workload(Evicted=("True", "Preempted", "by a higher priority"))),
        Ending.PREEMPTED,
        "by a higher priority",
        "",
    ),
    (
        ClusterView(jobset(True), workload=workload() | {"spec": {"active": False}}),
        Ending.STOPPED,
        "deactivated",
        "",
    ),
]


@pytest.mark.parametrize(("view", "ending", "detail", "fix"), NEVER)
def test_what_never_passes_ends_the_attempt_with_what_to_type(
    view: ClusterView, ending: Ending, detail: str, fix: str
) -> None:
    explanation = explained(view)
    polled = explanation.polled
    assert polled.process is Process.ENDED and polled.ending is ending
    assert detail in polled.detail and fix in polled.fix, polled
    assert "{" not in polled.fix and explanation.after_s >= (15 if polled.fix else 0)


OF_RUN = "which was created for the run alone, was deleted on the cluster, not by Podwright"


@pytest.mark.parametrize(
    ("view", "detail"),
    [
        (queued("LocalQueue q doesn't exist"), f"LocalQueue q, {OF_RUN}"),
        (queued("ClusterQueue q doesn't exist"), f"ClusterQueue q, {OF_RUN}"),
        (
            queued("ClusterQueue q is inactive", "Can't admit new workloads: references missing ResourceFlavor(s): q."),
            f"ResourceFlavor q, {OF_RUN}",
        ),
    ],
)
def test_a_queue_of_the_run_that_somebody_deleted_is_named_with_how_to_have_another(
    view: ClusterView, detail: str
) -> None:
    polled = waiting.explain(view, 1, float("inf"), NAMES | {"own_queue": "q"}).polled
    assert (polled.ending, polled.detail) == (Ending.STOPPED, detail)
    assert polled.fix == "type podwright resume r, which creates others"


def test_an_eviction_of_an_attempt_that_was_at_work_is_a_preemption() -> None:
    view = ClusterView(jobset(True), workload=workload(Evicted=("True", "PodsReadyTimeout", "x")))
    assert explained(view, started=True).polled.ending is Ending.PREEMPTED
    assert explained(view).polled.process is Process.RUNNING, "no process had started: Kueue queues it again"


def created(of: Json, stamp: str) -> Json:
    return of | {"metadata": of["metadata"] | {"creationTimestamp": stamp}}


RESERVED = ("True", "QuotaReserved", "")
SUSPENDED = jobset(True)
OLD = created(workload(QuotaReserved=RESERVED), "2026-01-01T00:00:00Z")
INTERVENTIONS = [
    (
        ClusterView(SUSPENDED, workload=OLD),
        Ending.STOPPED,
        "JobSet pw-r was suspended on the cluster (spec.suspend), not by Podwright",
    ),
    (ClusterView(SUSPENDED, has_kueue=False), Ending.STOPPED, "JobSet pw-r was suspended on the cluster"),
    (ClusterView(jobset(True, other="label")), Ending.STOPPED, "JobSet pw-r was suspended on the cluster"),
    (
        ClusterView(SUSPENDED),
        Ending.STOPPED,
        "the Workload of JobSet pw-r was deleted on the cluster, not by Podwright",
    ),
    (
        ClusterView(SUSPENDED, workload=created(workload(), "2026-01-01T00:10:01Z")),
        Ending.STOPPED,
        "the Workload of JobSet pw-r was deleted",
    ),
    (
        ClusterView(
            SUSPENDED, workload=OLD | {"status": conditions(Evicted=("False", "QuotaReserved", "Previously: x"))}
        ),
        Ending.PREEMPTED,
        "Kueue took the machines away (Previously: x)",
    ),
    (ClusterView(SUSPENDED, unanswered="NoPermission: w"), Ending.PREEMPTED, "why is not known: NoPermission: w"),
    (
        ClusterView(
            SUSPENDED, workload=OLD | {"status": conditions(Evicted=("True", "ClusterQueueStopped", "is stopped"))}
        ),
        Ending.PREEMPTED,
        "Kueue took the machines away (ClusterQueueStopped): is stopped",
    ),
]


@pytest.mark.parametrize(("view", "ending", "detail"), INTERVENTIONS)
def test_an_attempt_that_was_suspended_at_work_ends_with_who_did_it(
    view: ClusterView, ending: Ending, detail: str
) -> None:
    explanation = explained(view, started=True)
    polled = explanation.polled
    assert polled.process is Process.ENDED and polled.ending is ending and detail in polled.detail, polled
    assert not explanation.after_s


def test_only_what_an_explanation_needs_is_asked() -> None:
    def asked(view: ClusterView) -> waiting.Question | None:
        return waiting.question(view)

    assert asked(ClusterView(jobset(), (job(),), (pod(phase="Running"),))) is None
    assert asked(ClusterView(jobset(True))) == waiting.Question("workload", "u")
    known = frozenset(["workload"])
    assert asked(ClusterView(jobset(True), queried=known)) == waiting.Question("priority", "medium")
    assert asked(ClusterView(jobset(True), queried=known | {"priority"})) is None
    inactive = ClusterView(jobset(True), workload=queued("ClusterQueue cq is inactive").workload, queried=known)
    assert asked(inactive) == waiting.Question("queue", "q")
    assert asked(ClusterView(jobset())) == waiting.Question("events", "pw-r"), "why it creates no jobs"
    assert asked(ClusterView(jobset(), (job(2),), (pod(phase="Running"),))) == waiting.Question(
        "events", "pw-r-slice-job-0"
    )
    assert asked(ClusterView(jobset(), (job(),), (pod(node=""),))) == waiting.Question(
        "events", "pw-r-slice-job-0-0-abcde"
    )
