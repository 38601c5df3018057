"""How an attempt in a cluster ended: which of its pods failed first, and by what. Pure.

Pods that failed may be deleted with their nodes before the JobSet has ended, so what was once seen of them is kept (`to_records`).
Exit codes 137 and 143 of a pod follow from the end of others: its job ends them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from podwright.rundir import Ending, Record
from podwright.targets.base import Polled, Process
from podwright.targets.gke.cluster_view import condition, containers_of, is_true, name_of, process_of, uid_of
from podwright.targets.hosts import oom

_TERMINATED, _KILLED = 143, 137
"""exit codes of a container that got SIGTERM or SIGKILL"""
_KILLED_AT_ONCE_S = 5.0
"""after the failure of its job, within which a pod that was killed was killed before: what the job ends has a grace first"""
_SLACK_S = 30.0
"""by which a process may be seen to fail before the taking of another's node is written down that caused it"""
_LOST = ("DeletionByTaintManager", "DeletionByPodGC")
"""reasons of DisruptionTarget that tell of a node which is gone"""
_FULL = "free some space: write less to the disk of the container, such as to a bucket; then resume the run"


@dataclass(frozen=True)
class PodFailure:
    pod: str
    process: int
    node: str
    time: str
    """as the cluster writes it; "" where it does not"""
    ending: Ending | None
    """None of a process that ended by itself, or was killed"""
    code: int | None
    """exit code of its container"""
    why: str

    @property
    def who(self) -> str:
        return f"pod {self.pod} on node {self.node}" if self.node else f"pod {self.pod}"

    @property
    def seconds(self) -> float:
        return _seconds(self.time)


def failures(pods: Iterable[Record], pods_per_job: int) -> dict[str, PodFailure]:
    """By the uid of its pod, each failure of a pod that can be seen now."""
    return {uid_of(pod): failure for pod in pods if (failure := _failure(pod, pods_per_job))}


def to_records(known: dict[str, PodFailure]) -> Record:
    return {uid: asdict(failure) for uid, failure in known.items()}


def from_records(records: Record) -> dict[str, PodFailure]:
    return {
        uid: PodFailure(**{**record, "ending": Ending(record["ending"]) if record["ending"] else None})
        for uid, record in records.items()
    }


def ended(jobs: Sequence[Record], known: Iterable[PodFailure]) -> Polled:
    """Of an attempt whose JobSet has failed, or is gone after pods of it failed. `known`: all failures that were ever seen."""
    if text := _deadline(jobs):
        fix = "resume the run: the next attempt has the whole time again"
        return Polled(Process.ENDED, ending=Ending.TIMED_OUT, detail=text, fix=fix)
    failed_at = min((_failed_at(job) for job in jobs), default=float("inf"))
    first = _first([failure for failure in known if not _follows(failure, failed_at)])
    if first is None:
        return _by_jobs(jobs)
    hosts = (first.node,) if first.node else ()
    if first.ending:
        fix = oom.FIX if first.ending is Ending.OUT_OF_MEMORY else _FULL if first.ending is Ending.CRASHED else ""
        return Polled(
            Process.ENDED,
            _returncode(first.code),
            ending=first.ending,
            detail=f"{first.who}: {first.why}",
            fix=fix,
            first=first.process,
            who=first.who,
            failed_hosts=hosts,
        )
    return Polled(Process.ENDED, _returncode(first.code), first=first.process, who=first.who, failed_hosts=hosts)


def _failure(pod: Record, pods_per_job: int) -> PodFailure | None:
    status = pod.get("status") or {}
    disrupted = condition(pod, "DisruptionTarget")
    over = [state for each in containers_of(pod) if (state := each.get("state", {}).get("terminated"))]
    failed = [state for state in over if state.get("exitCode")]
    taken = disrupted.get("status") == "True"
    if not failed and not taken and status.get("phase") != "Failed":
        return None
    worst = next((state for state in failed if state.get("reason") == "OOMKilled"), None) or min(
        failed, key=lambda state: str(state.get("finishedAt", "")), default=None
    )
    code = worst.get("exitCode") if worst else None
    ending, why = _cause(status, disrupted if taken else {}, worst or {})
    time = (disrupted.get("lastTransitionTime") if taken else None) or (worst or {}).get("finishedAt") or ""
    node = pod.get("spec", {}).get("nodeName", "")
    return PodFailure(name_of(pod), process_of(pod, pods_per_job), node, str(time), ending, code, why)


def _cause(status: Record, disrupted: Record, container: Record) -> tuple[Ending | None, str]:
    reason, message = status.get("reason", ""), " ".join(str(status.get("message", "")).split())
    if reason == "Evicted" and "memory" in message:
        return Ending.OUT_OF_MEMORY, f"the node ended the pod: {message}"
    if reason == "Evicted" and re.search(r"ephemeral[- ](?:local )?storage|inodes", message):
        return Ending.CRASHED, f"the node ended the pod: {message}"
    if container.get("reason") == "OOMKilled":
        return Ending.OUT_OF_MEMORY, "the container was killed for lack of host memory (OOMKilled)"
    if disrupted.get("reason") in _LOST:
        text = disrupted.get("message") or message or "its node is gone"
        return Ending.NODE_LOST, f"{disrupted['reason']}: {text}"
    if disrupted:
        text = disrupted.get("message") or message or "its node was taken"
        return Ending.PREEMPTED, f"{disrupted.get('reason', '')}: {text}"
    if reason in ("Terminated", "NodeShutdown", "Shutdown", "Preempting", "Preempted"):
        return Ending.PREEMPTED, f"{reason}: {message or 'its node was shut down'}"
    if reason == "NodeLost":
        return Ending.NODE_LOST, f"{reason}: {message or 'its node does not report'}"
    if reason in ("UnexpectedAdmissionError", "NodeAffinity", "OutOfgoogle.com/tpu", "OutOfcpu", "OutOfmemory"):
        return Ending.NODE_LOST, f"the node refused the pod ({reason}): {message}"
    return None, message


def _failed_at(job: Record) -> float:
    """Unix seconds when it was known to fail; newer clusters tell that before its pods have ended."""
    for kind in ("FailureTarget", "Failed"):
        if is_true(job, kind):
            return _seconds(condition(job, kind).get("lastTransitionTime", ""))
    return float("inf")


def _follows(failure: PodFailure, failed_at: float) -> bool:
    """Whether the job had failed already, and ended the pod."""
    if failure.ending or failure.code not in (_TERMINATED, _KILLED):
        return False
    return (
        failure.seconds >= failed_at - 1
        if failure.code == _TERMINATED
        else failure.seconds > failed_at + _KILLED_AT_ONCE_S
    )


def _seconds(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return float("inf")


def _first(known: list[PodFailure]) -> PodFailure | None:
    """The failure that the others follow from."""
    in_order = sorted(known, key=lambda failure: (failure.seconds, failure.process))
    taken = [f for f in in_order if f.ending]
    by_itself = [f for f in in_order if f.ending is None and f.code not in (None, _TERMINATED, _KILLED)]
    if taken and by_itself and by_itself[0].seconds < taken[0].seconds - _SLACK_S:
        return by_itself[0]
    return next(iter([*taken, *by_itself, *in_order]), None)


def _deadline(jobs: Sequence[Record]) -> str:
    for job in jobs:
        if (over := condition(job, "Failed")).get("reason") == "DeadlineExceeded":
            hours = float(job.get("spec", {}).get("activeDeadlineSeconds") or 0) / 3600
            return f"the cluster ended the attempt after {hours:g} h (activeDeadlineSeconds)" if hours else str(over)
    return ""


def _by_jobs(jobs: Sequence[Record]) -> Polled:
    """Of an attempt of which the pod that failed was never seen to."""
    texts = [condition(job, "Failed").get("message", "") for job in jobs]
    for text in texts:
        if match := re.search(r"for pod [\w.-]+/(?P<pod>[\w.-]+) failed with exit code (?P<code>\d+)", text):
            code = int(match["code"])
            return Polled(Process.ENDED, _returncode(code), who=f"pod {match['pod']}")
        if "DisruptionTarget" in text:
            return Polled(Process.ENDED, ending=Ending.PREEMPTED, detail=text)
    if any(condition(job, "Failed") for job in jobs):
        detail = "a pod of the attempt failed and is gone, as when its node is deleted"
        return Polled(Process.ENDED, ending=Ending.NODE_LOST, detail=detail)
    return Polled(Process.ENDED)


def _returncode(code: int | None) -> int | None:
    """A container says 128 and the signal's number of a process that was killed."""
    return 128 - code if code is not None and 128 < code < 160 else code
