"""What the API server has of one attempt, and short ways to read it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from podwright.rundir import Record

JOB_INDEX = "jobset.sigs.k8s.io/job-index"
POD_INDEX = "batch.kubernetes.io/job-completion-index"
JOB_NAME = "batch.kubernetes.io/job-name"
CHIPS = "google.com/tpu"
"""the resource that nodes with TPUs have, one for each chip"""
_POWERS = {"n": -3, "u": -2, "m": -1, "": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


@dataclass(frozen=True)
class ClusterView:
    """The objects of an attempt at one moment; what was not queried is not in `queried`."""

    jobset: Record | None = None
    jobs: tuple[Record, ...] = ()
    pods: tuple[Record, ...] = ()
    workload: Record | None = None
    """of Kueue"""
    has_kueue: bool = True
    """whether the cluster has it, where it was asked"""
    unanswered: str = ""
    """why something that was asked is not known, and what to type; "" where all is"""
    queue: Record | None = None
    """the ClusterQueue that the workload waits in"""
    events: tuple[Record, ...] = ()
    """of the object on which the attempt waits"""
    priority_exists: bool = True
    """whether the cluster has the PriorityClass of the pods"""
    queried: frozenset[str] = frozenset()

    @property
    def suspended(self) -> bool:
        return bool(self.jobset and self.jobset.get("spec", {}).get("suspend"))

    @property
    def pending(self) -> list[Record]:
        """Pods none of whose containers has begun."""
        return [pod for pod in self.pods if phase_of(pod) == "Pending"]

    @property
    def unscheduled(self) -> list[Record]:
        """Pods that wait for a node."""
        return [pod for pod in self.pods if is_unscheduled(pod)]

    @property
    def is_gone(self) -> bool:
        """Whether the JobSet was deleted before it had ended; one that waits for its dependents to be deleted is still listed."""
        if self.jobset is None:
            return True
        return deleted_s(self.jobset) is not None and not (
            is_true(self.jobset, "Completed") or is_true(self.jobset, "Failed")
        )


def by_kind(items: Iterable[Record], kind: str) -> tuple[Record, ...]:
    return tuple(item for item in items if item.get("kind") == kind)


def name_of(item: Record) -> str:
    return str(item.get("metadata", {}).get("name", ""))


def uid_of(item: Record) -> str:
    return str(item.get("metadata", {}).get("uid", ""))


def phase_of(pod: Record) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def node_of(pod: Record) -> str:
    """ "" before it has one."""
    return str(pod.get("spec", {}).get("nodeName", ""))


def labels_of(item: Record) -> Mapping[str, str]:
    labels: Mapping[str, str] = item.get("metadata", {}).get("labels") or {}
    return labels


def condition(item: Record | None, kind: str) -> Record:
    """{} where the object has none of that kind."""
    conditions = ((item or {}).get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each.get("type") == kind), {})


def is_true(item: Record | None, kind: str) -> bool:
    return condition(item, kind).get("status") == "True"


def processes_of(pod: Record, pods_per_job: int) -> dict[str, int]:
    """The number of the process in each of its containers, by their names: jobs, the pods of each, and the containers of those, in their
    order. Logs, failures and `--process` all count so. A container without TPUs that the cluster has added has none."""
    labels = labels_of(pod)
    annotations = pod.get("metadata", {}).get("annotations") or {}
    index = labels.get(POD_INDEX) or annotations.get(POD_INDEX) or "0"
    containers = pod["spec"]["containers"]
    with_chips = [each for each in containers if CHIPS in ((each.get("resources") or {}).get("limits") or {})]
    names = [each["name"] for each in with_chips or containers]
    first = (int(labels.get(JOB_INDEX) or 0) * pods_per_job + int(index)) * len(names)
    return {name: first + k for k, name in enumerate(names)}


def deleted_s(item: Record) -> float | None:
    """Unix seconds when its deletion was requested; None where it was not. Its timestamp has the grace added."""
    metadata = item.get("metadata", {})
    stamp = metadata.get("deletionTimestamp")
    return seconds(stamp) - float(metadata.get("deletionGracePeriodSeconds") or 0) if stamp else None


def seconds(text: str) -> float:
    """Unix seconds of a time as the cluster writes it; infinite for one that is not known."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return float("inf")


def quantity(value: str | float) -> float:
    """A number of the cluster: 16, "16", or with a unit, as it writes large ones: "10k", "1Ti", "500m"."""
    match = re.fullmatch(r"(.*?)([numkKMGTPE]?)(i?)", str(value))
    assert match
    number, unit, binary = match.groups()
    return float(number) * (1024.0 if binary else 1000.0) ** _POWERS[unit]


def has_begun(pod: Record) -> bool:
    """Whether a container of it runs or has run."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    states = [status.get("state") or {} for status in statuses]
    return any({"running", "terminated"} & state.keys() for state in states)


def containers_of(pod: Record) -> list[Record]:
    """The status of each, those that run before the others first."""
    status: dict[str, Any] = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def is_unscheduled(pod: Record) -> bool:
    """Whether a pod waits for a node."""
    return phase_of(pod) == "Pending" and not node_of(pod)
