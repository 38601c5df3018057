"""How an attempt in a cluster ended: which of its pods failed first, and by what. Pure.

Pods that failed may be deleted with their nodes before the JobSet has ended, so what was once seen of them is kept (`to_records`).
Exit codes 137 and 143 of a pod follow from the end of others: its job ends them. A pod that was deleted before its job had failed was
deleted by somebody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from podwright.failures.match import match
from podwright.rundir import Ending, Record
from podwright.targets.base import Polled, Process
from podwright.targets.gke.cluster_view import (
    condition,
    containers_of,
    deleted_s,
    has_begun,
    is_true,
    name_of,
    node_of,
    processes_of,
    seconds,
    uid_of,
)

_TERMINATED, _KILLED = 143, 137
"""exit codes of a container that got SIGTERM or SIGKILL"""
_KILLED_AT_ONCE_S = 5.0
"""after the failure of its job, within which a pod that was killed was killed before: what the job ends has a grace first"""
_SLACK_S = 30.0
"""by which a process may be seen to fail before the taking of another's node is written down that caused it"""
STUCK_S = 600.0
"""after the end of its grace"""


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
    container: str = ""
    """that failed, of a pod with several"""
    deleted_s: float | None = None
    """Unix seconds when its deletion was requested, if the cloud did not take its node"""
    fix: str = ""

    @property
    def who(self) -> str:
        place = f"pod {self.pod} on node {self.node}" if self.node else f"pod {self.pod}"
        return f"container {self.container} of {place}" if self.container else place

    @property
    def seconds(self) -> float:
        return seconds(self.time)

    @property
    def after_deletion(self) -> bool:
        return self.deleted_s is not None and self.seconds >= self.deleted_s


def failures(pods: Iterable[Record], pods_per_job: int) -> dict[str, PodFailure]:
    """By the uid of its pod, each failure of a pod that can be seen now."""
    return {uid_of(pod): failure for pod in pods if (failure := _failure(pod, pods_per_job))}


def stuck(pods: Iterable[Record], now_s: float) -> list[Record]:
    """Those that are still there so long after their deletion that their nodes must hang: a job does not fail before its last pod has ended."""
    return [pod for pod in pods if seconds(pod["metadata"].get("deletionTimestamp", "")) + STUCK_S < now_s]


def to_records(known: dict[str, PodFailure]) -> Record:
    return {uid: asdict(failure) for uid, failure in known.items()}


def from_records(records: Record) -> dict[str, PodFailure]:
    return {
        uid: PodFailure(**{**record, "ending": Ending(record["ending"]) if record["ending"] else None})
        for uid, record in records.items()
    }


def since_resumed(known: dict[str, PodFailure], jobset: Record | None) -> dict[str, PodFailure]:
    """Without pods that were deleted when the JobSet was last suspended, as Kueue does with one that it queues again."""
    resumed = condition(jobset, "Suspended")
    if resumed.get("status") != "False":
        return known
    resumed_s = seconds(resumed.get("lastTransitionTime", ""))
    return {uid: f for uid, f in known.items() if f.deleted_s is None or f.deleted_s >= resumed_s}


def ended(jobs: Sequence[Record], known: Iterable[PodFailure], num_pods: int) -> Polled:
    """Of an attempt with `num_pods` pods whose JobSet has failed, or is gone after pods of it failed. `known`: all failures that were ever
    seen."""
    if text := _deadline(jobs):
        fix = "resume the run: the next attempt has the whole time again"
        return Polled.ended(Ending.TIMED_OUT, text, fix)
    failed_at = min((_failed_at(job) for job in jobs), default=float("inf"))
    known = list(known)
    causes = [failure for failure in known if not _follows(failure, failed_at)]
    deleted = _deleted(known, failed_at, all_seen=not causes and len(known) == num_pods)
    if deleted:
        others = ", and the other pods ended with it" if num_pods > 1 else ""
        detail = f"pod {deleted.pod} was deleted on the cluster, not by Podwright{others}"
        return Polled(Process.ENDED, ending=Ending.STOPPED, detail=detail, first=deleted.process, who=deleted.who)
    first = _first(causes)
    if first is None:
        return _by_jobs(jobs)
    hosts = (first.node,) if first.node else ()
    if first.ending:
        return Polled(
            Process.ENDED,
            _returncode(first.code),
            ending=first.ending,
            detail=f"{first.who}: {first.why}",
            fix=first.fix,
            first=first.process,
            who=first.who,
            failed_hosts=hosts,
        )
    return Polled(Process.ENDED, _returncode(first.code), first=first.process, who=first.who, failed_hosts=hosts)


def _failure(pod: Record, pods_per_job: int) -> PodFailure | None:
    status = pod.get("status") or {}
    disrupted = condition(pod, "DisruptionTarget")
    over = {}
    for each in containers_of(pod):
        terminated = each.get("state", {}).get("terminated")
        if terminated and each["name"]:
            over[each["name"]] = terminated
    failed = {name: state for name, state in over.items() if state.get("exitCode")}
    taken = disrupted.get("status") == "True"
    deleted = deleted_s(pod) if has_begun(pod) else None  # JobSet moves pods of a slice before they begin
    if not failed and not taken and deleted is None and status.get("phase") != "Failed":
        return None
    name = _worst(failed)
    worst = failed.get(name, {})
    ending, why, fix = _cause(status, disrupted if taken else {}, worst)
    time = (disrupted.get("lastTransitionTime") if taken else None) or worst.get("finishedAt") or ""
    node = node_of(pod)
    numbers = processes_of(pod, pods_per_job)
    number = numbers.get(name, min(numbers.values()))
    container = name if len(numbers) > 1 else ""
    code = worst.get("exitCode")
    return PodFailure(
        name_of(pod), number, node, str(time), ending, code, why, container, None if ending else deleted, fix
    )


def _worst(failed: dict[str, Record]) -> str:
    """The container that was killed for lack of memory, else the one that failed first; "" for none."""
    for name, state in failed.items():
        if state.get("reason") == "OOMKilled":
            return name
    return min(failed, key=lambda name: str(failed[name].get("finishedAt", "")), default="")


def _cause(status: Record, disrupted: Record, container: Record) -> tuple[Ending | None, str, str]:
    """Ending, cause and remedy by the rows of the table of failures; without ending what the pod itself says."""
    message = " ".join(str(status.get("message", "")).split())
    texts = [f"pod {status.get('reason')}: {message or 'its node is gone'}", f"container {container.get('reason')}"]
    if disrupted:
        texts.append(f"node {disrupted.get('reason')}: {disrupted.get('message') or message or 'its node is gone'}")
    failure = match("\n".join(texts), "pod")
    return (failure.row.ending, failure.cause({}), failure.row.remedy) if failure else (None, message, "")


def _failed_at(job: Record) -> float:
    """Unix seconds when it was known to fail; newer clusters tell that before its pods have ended."""
    for kind in ("FailureTarget", "Failed"):
        if is_true(job, kind):
            return seconds(condition(job, kind).get("lastTransitionTime", ""))
    return float("inf")


def _follows(failure: PodFailure, failed_at: float) -> bool:
    """Whether the job had failed already, and ended the pod."""
    if not failure.ending and failure.after_deletion:
        return True
    if failure.ending or failure.code not in (_TERMINATED, _KILLED):
        return False
    return (
        failure.seconds >= failed_at - 1
        if failure.code == _TERMINATED
        else failure.seconds > failed_at + _KILLED_AT_ONCE_S
    )


def began_with_deletion(known: Sequence[PodFailure]) -> bool:
    """Whether a pod was deleted before any had failed."""
    requested = min((f.deleted_s for f in known if f.deleted_s is not None), default=float("-inf"))
    return requested > float("-inf") and not any(f.ending or f.seconds < requested for f in known)


def _deleted(known: Sequence[PodFailure], failed_at: float, all_seen: bool) -> PodFailure | None:
    """The pod that somebody deleted, by which the others ended; None where there is none. A job deletes its other pods when it has failed,
    at most a second before it says so. `all_seen`: no pod is gone that may have failed before."""
    deleted = [f for f in known if f.deleted_s is not None and (all_seen or f.deleted_s < failed_at - 1)]
    if not deleted or not began_with_deletion(known):
        return None
    return min(deleted, key=lambda f: (f.deleted_s, f.process))


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
            return Polled.ended(Ending.PREEMPTED, text)
    if any(condition(job, "Failed") for job in jobs):
        detail = "a pod of the attempt failed and is gone, as when its node is deleted"
        return Polled.ended(Ending.NODE_LOST, detail)
    return Polled(Process.ENDED)


def _returncode(code: int | None) -> int | None:
    """A container says 128 and the signal's number of a process that was killed."""
    return 128 - code if code is not None and 128 < code < 160 else code
