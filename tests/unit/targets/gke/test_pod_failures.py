"""Which pod of an attempt failed first, and what that makes of the attempt."""

from typing import Any

import pytest

from podwright.rundir import Ending
from podwright.targets.base import Polled
from podwright.targets.gke import pod_failures
from podwright.targets.gke.pod_logs import logs_of
from tests.unit.targets.gke.test_waiting import conditions, job, pod

Json = dict[str, Any]


def ended(*pods: Json, jobs: tuple[Json, ...] = (), num_pods: int = 4) -> Polled:
    return pod_failures.ended(jobs, pod_failures.failures(pods, 4).values(), num_pods)


def exited(number: int, code: int, second: int, reason: str = "Error") -> Json:
    over = {"exitCode": code, "reason": reason, "finishedAt": f"2026-01-01T00:00:{second:02}Z"}
    return pod(number, "Failed", f"node-{number}", containerStatuses=[{"name": "c", "state": {"terminated": over}}])


def taken(number: int, why: str, second: int, text: str = "", code: int = 0, **status: str) -> Json:
    of = exited(number, code, second) if code else pod(number, "Failed", f"node-{number}")
    disrupted = conditions(DisruptionTarget=("True", why, text))
    disrupted["conditions"][0]["lastTransitionTime"] = f"2026-01-01T00:00:{second:02}Z"
    return of | {"status": of["status"] | disrupted | status}


def test_the_pod_that_failed_by_itself_counts_before_those_that_were_ended_for_it() -> None:
    polled = ended(exited(0, 137, 1), exited(1, 143, 1), exited(2, 1, 5))
    assert polled.ending is None and polled.returncode == 1 and polled.first == 2
    assert polled.who == "pod pw-r-slice-job-0-2-abcde on node node-2" and polled.failed_hosts == ("node-2",)


def test_of_several_that_failed_by_themselves_the_earliest_counts() -> None:
    assert ended(exited(0, 1, 9), exited(1, 134, 3), exited(2, 1, 4)).returncode == -6


def test_pods_that_were_only_killed_tell_that_much() -> None:
    polled = ended(exited(0, 137, 1), exited(1, 137, 2))
    assert polled.ending is None and polled.returncode == -9 and polled.first == 0


@pytest.mark.parametrize(
    ("reason", "ending"),
    [
        ("TerminationByKubelet", Ending.PREEMPTED),
        ("PreemptionByScheduler", Ending.PREEMPTED),
        ("EvictionByEvictionAPI", Ending.PREEMPTED),
        ("DeletionByTaintManager", Ending.NODE_LOST),
        ("DeletionByPodGC", Ending.NODE_LOST),
    ],
)
def test_a_disruption_counts_before_what_follows_from_it(reason: str, ending: Ending) -> None:
    polled = ended(exited(0, 1, 10), taken(3, reason, 20, "the node is shut down"), exited(1, 137, 9))
    assert polled.ending is ending and polled.first == 3 and polled.failed_hosts == ("node-3",)
    assert reason in polled.detail and "the node is shut down" in polled.detail


def test_a_crash_long_before_a_disruption_is_the_cause() -> None:
    assert ended(exited(0, 1, 1), taken(3, "DeletionByPodGC", 50)).returncode == 1


@pytest.mark.parametrize("reason", ["Terminated", "NodeShutdown"])
def test_a_pod_that_its_node_ended_for_its_own_end_was_preempted(reason: str) -> None:
    of = pod(1, "Failed", "node-1", reason=reason, message="Pod was terminated in response to imminent node shutdown.")
    assert ended(of, exited(0, 137, 1)).ending is Ending.PREEMPTED


def test_lack_of_memory_and_of_disk_are_no_preemptions() -> None:
    polled = ended(exited(0, 137, 5, "OOMKilled"), exited(1, 1, 6))
    assert polled.ending is Ending.OUT_OF_MEMORY and polled.first == 0 and "memory" in polled.detail and polled.fix
    low = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi."
    polled = ended(taken(0, "TerminationByKubelet", 1, low, reason="Evicted", message=low))
    assert polled.ending is Ending.OUT_OF_MEMORY
    full = "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 5Gi."
    polled = ended(taken(0, "TerminationByKubelet", 1, full, reason="Evicted", message=full))
    assert polled.ending is Ending.CRASHED and "ephemeral-storage" in polled.detail and "free some space" in polled.fix


def failed_job(reason: str, message: str) -> Json:
    return job() | {"status": conditions(Failed=("True", reason, message))}


def test_the_end_of_the_time_of_an_attempt_is_no_fault_of_its_pods() -> None:
    over = failed_job("DeadlineExceeded", "Job was active longer than specified deadline")
    over["spec"]["activeDeadlineSeconds"] = 86400
    polled = ended(exited(0, 143, 1), jobs=(over,))
    assert polled.ending is Ending.TIMED_OUT and "24 h" in polled.detail


def test_the_job_tells_of_pods_that_are_gone() -> None:
    code = "Container jax-tpu for pod default/pw-r-0-x failed with exit code 1 matching FailJob rule at index 0"
    polled = ended(jobs=(failed_job("PodFailurePolicy", code),))
    assert polled.returncode == 1 and polled.who == "pod pw-r-0-x"
    taken_ = "Pod default/pw-r-0-x has condition DisruptionTarget matching FailJob rule at index 1"
    assert ended(jobs=(failed_job("PodFailurePolicy", taken_),)).ending is Ending.PREEMPTED
    limit = failed_job("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    assert ended(jobs=(limit,)).ending is Ending.NODE_LOST


def test_pods_that_their_failed_job_ended_tell_of_one_that_is_gone() -> None:
    limit = failed_job("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    limit["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:00:10Z"
    assert ended(exited(0, 143, 11), exited(1, 137, 40), jobs=(limit,)).ending is Ending.NODE_LOST
    killed = ended(exited(0, 143, 11), exited(1, 137, 10), jobs=(limit,))
    assert killed.ending is None and killed.returncode == -9 and killed.first == 1, "its end was that of the job"
    crashed = ended(exited(0, 143, 11), exited(1, 1, 9), jobs=(limit,))
    assert crashed.ending is None and crashed.returncode == 1


def deleted(number: int, second: int, ended: Json | None = None, grace_s: int = 30) -> Json:
    """A pod whose deletion was requested at that second, and what became of it."""
    running = [{"name": "c", "state": {"running": {}}}]
    of = ended or pod(number, "Running", f"node-{number}", containerStatuses=running)
    when = f"2026-01-01T00:{(second + grace_s) // 60:02}:{(second + grace_s) % 60:02}Z"
    return of | {"metadata": of["metadata"] | {"deletionTimestamp": when, "deletionGracePeriodSeconds": grace_s}}


def failed_at(second: int) -> Json:
    limit = failed_job("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    limit["status"]["conditions"][0]["lastTransitionTime"] = f"2026-01-01T00:00:{second:02}Z"
    return limit


def test_a_pod_that_somebody_deleted_ends_the_attempt_without_a_retry() -> None:
    others = (deleted(0, 20, exited(0, 143, 22)), exited(2, 134, 12))  # ended by the job, and for lack of the first one
    polled = ended(deleted(1, 10, exited(1, 143, 13)), *others, jobs=(failed_at(20),))
    assert polled.ending is Ending.STOPPED and polled.first == 1 and not polled.failed_hosts
    sentence = "pod pw-r-slice-job-0-1-abcde was deleted on the cluster, not by Podwright"
    assert polled.detail == f"{sentence}, and the other pods ended with it"
    alone = ended(deleted(1, 10, exited(1, 143, 13)), jobs=(failed_at(20),), num_pods=1)
    assert alone.detail == sentence


def test_pods_that_their_job_deletes_were_not_deleted_by_somebody() -> None:
    followers = (deleted(0, 10, exited(0, 143, 11)), deleted(1, 10, exited(1, 3, 12)), deleted(3, 10))
    assert ended(*followers, exited(2, 1, 9), jobs=(failed_at(10),)).returncode == 1
    lost = ended(*followers, taken(2, "DeletionByPodGC", 9), jobs=(failed_at(10),))
    assert lost.ending is Ending.NODE_LOST
    assert ended(*followers, jobs=(failed_at(10),)).ending is Ending.NODE_LOST, (
        "the fourth pod is gone, by what it failed"
    )


def test_pods_that_were_deleted_before_the_attempt_began_explain_nothing() -> None:
    moved = pod(3, "Pending", "node-3")  # by JobSet, to the nodes of the slice
    moved = deleted(3, 1, moved)
    assert not pod_failures.failures([moved], 4)
    known = pod_failures.failures([deleted(0, 2, exited(0, 143, 4)), exited(1, 1, 40)], 4)
    jobset = {"status": conditions(Suspended=("False", "ResumeJobs", ""))}
    jobset["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:00:20Z"  # Kueue had queued it again
    kept = pod_failures.since_resumed(known, jobset)
    assert pod_failures.ended((failed_at(40),), kept.values(), 4).returncode == 1
    assert pod_failures.since_resumed(known, None) == known


def test_a_deletion_that_ends_all_pods_at_once_is_known_by_there_being_no_other_cause() -> None:
    pods = [deleted(number, 10, exited(number, 3, 10)) for number in range(4)]
    assert ended(*pods, jobs=(failed_at(10),)).ending is Ending.STOPPED


def test_a_failure_has_the_number_that_the_log_of_its_container_has() -> None:
    both = exited(1, 1, 5)
    names = ["jax-tpu-1", "jax-tpu-2"]
    fine = {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-01-01T00:00:04Z"}
    failed = both["status"]["containerStatuses"][0]["state"]["terminated"]
    both["spec"] = both["spec"] | {"containers": [{"name": name} for name in names]}
    both["status"]["containerStatuses"] = [
        {"name": name, "state": {"terminated": state}} for name, state in zip(names, (fine, failed), strict=True)
    ]
    both["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"] = "1"
    polled = pod_failures.ended((), pod_failures.failures([both], 4).values(), 8)
    logs = {log.container: log.process for log in logs_of([both], 4)}
    assert logs == {"jax-tpu-1": 10, "jax-tpu-2": 11} and polled.first == 11
    assert polled.who == "container jax-tpu-2 of pod pw-r-slice-job-0-1-abcde on node node-1"


def test_a_container_that_the_cluster_has_added_is_no_process() -> None:
    pods = [exited(number, 1, 5) for number in (0, 1)]
    for each in pods:
        own = {"name": "c", "resources": {"limits": {"google.com/tpu": 4}}}
        each["spec"] = each["spec"] | {"containers": [{"name": "proxy", "resources": {"limits": {"cpu": 1}}}, own]}
    assert [(log.container, log.process) for log in logs_of(pods, 4)] == [("c", 0), ("c", 1)]
    assert ended(*pods[1:]).first == 1


def test_failures_are_kept_as_they_were_seen() -> None:
    seen = pod_failures.failures([exited(0, 1, 1), taken(1, "DeletionByPodGC", 3), deleted(2, 4)], 4)
    assert len(seen) == 3
    assert pod_failures.from_records(pod_failures.to_records(seen)) == seen
    assert not pod_failures.failures([pod(0, "Running"), pod(1, "Succeeded")], 4)
