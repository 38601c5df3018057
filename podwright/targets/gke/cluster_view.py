"""What the API server has of one attempt, and short ways to read it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from podwright.rundir import Record

JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
POD_INDEX = "batch.kubernetes.io/job-completion-index"
JOB_NAME = "batch.kubernetes.io/job-name"


@dataclass(frozen=True)
class ClusterView:
    """The objects of an attempt at one moment; what was not queried is not in `queried`."""

    jobset: Record | None = None
    jobs: tuple[Record, ...] = ()
    pods: tuple[Record, ...] = ()
    workload: Record | None = None
    """of Kueue"""
    unanswered: str = ""
    """why the workload is not known, where that is so"""
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


def by_kind(items: Iterable[Record], kind: str) -> tuple[Record, ...]:
    return tuple(item for item in items if item.get("kind") == kind)


def name_of(item: Record) -> str:
    return str(item.get("metadata", {}).get("name", ""))


def uid_of(item: Record) -> str:
    return str(item.get("metadata", {}).get("uid", ""))


def labels_of(item: Record) -> Mapping[str, str]:
    labels: Mapping[str, str] = item.get("metadata", {}).get("labels") or {}
    return labels


def condition(item: Record | None, kind: str) -> Record:
    """{} where the object has none of that kind."""
    conditions = ((item or {}).get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each.get("type") == kind), {})


def is_true(item: Record | None, kind: str) -> bool:
    return condition(item, kind).get("status") == "True"


def process_of(pod: Record, pods_per_job: int) -> int:
    """The number of its process: jobs, and the pods of each, in their order."""
    labels = labels_of(pod)
    annotations = pod.get("metadata", {}).get("annotations") or {}
    index = labels.get(POD_INDEX) or annotations.get(POD_INDEX) or "0"
    return int(labels.get(JOB_INDEX) or 0) * pods_per_job + int(index)


def containers_of(pod: Record) -> list[Record]:
    """The status of each, those that run before the others first."""
    status: dict[str, Any] = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
