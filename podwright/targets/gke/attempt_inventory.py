"""What attempts of runs have left in a cluster: their JobSets, ConfigMaps and Secrets, put together by attempt. Objects without the labels of a
run are neither listed nor deleted, and values of Secrets are not read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from podwright.errors import UserError
from podwright.rundir import Record
from podwright.targets.base import RUN_LABEL, Barred
from podwright.targets.gke.attempt import ATTEMPT_LABEL
from podwright.targets.gke.cluster_view import by_kind, is_true, labels_of, name_of
from podwright.targets.gke.kubectl import Kubectl
from podwright.targets.google.labels import BY_LABEL, RUN_DIR_KEY, creator, unix
from podwright.targets.google.replies import Reply, require_deletable
from podwright.targets.machines import AllocationState, Owned, Request
from podwright.targets.settings.gke import GkeSettings

JOBSETS = "jobsets.jobset.x-k8s.io"
OBJECTS = f"{JOBSETS},configmaps,secrets"
"""the kinds of what an attempt creates"""
_METADATA = '--output=jsonpath={range .items[*]}{.kind}{"\\t"}{.metadata}{"\\n"}{end}'


@dataclass
class LeftObjects:
    """Of one attempt, what exists; of other objects than its JobSet the metadata alone."""

    jobset: Record | None = None
    others: list[Record] = field(default_factory=list)

    @property
    def every(self) -> list[Record]:
        return [*([self.jobset] if self.jobset else []), *self.others]


class AttemptInventory:
    """In the namespace of one target."""

    def __init__(self, kubectl: Kubectl, settings: GkeSettings):
        self._kubectl = kubectl
        self._settings = settings

    def list_owned(self) -> list[Owned]:
        """UserError where the cluster lists no JobSets, whose pods may use TPUs; what else was not listed is said with each of them."""
        selector = f"--selector={RUN_LABEL},{ATTEMPT_LABEL}"
        jobsets, failure = self._kubectl.items(("get", JOBSETS, selector))
        if failure and not failure.reason.startswith("NoJobSet"):
            fault = Barred if failure.is_final else UserError
            raise fault(
                f"the cluster does not list its JobSets: {failure.reason}",
                failure.fix or "try again",
                "no-list-of-cloud",
            )
        left: dict[str, LeftObjects] = {}
        for jobset in by_kind(jobsets, "JobSet"):
            left[name_of(jobset)] = LeftObjects(jobset)
        unknown = []
        for kind in ("configmaps", "secrets"):
            text, failure = self._kubectl.text(("get", kind, selector, _METADATA))
            unknown += [f"{kind} were not listed ({failure.reason})"] if failure else []
            for line in text.splitlines():
                shown, _, metadata = line.partition("\t")
                other = {"kind": shown, "metadata": json.loads(metadata)}
                left.setdefault(name_of(other), LeftObjects()).others.append(other)
        return [self._owned(name, each, "; ".join(unknown)) for name, each in sorted(left.items())]

    def jobsets_of(self, request: Request) -> tuple[list[str], Reply | None]:
        """The names of those that `deletion` would delete, with their kind; or why they are not known."""
        text, failure = self._kubectl.text(("get", JOBSETS, _selector(request), "--output=name"))
        absent = failure is not None and failure.reason.startswith("NoJobSet")
        return text.split(), None if absent else failure

    def delete(self, request: Request) -> None:
        """All that has the labels of the attempt. UserError where no repetition would help."""
        require_deletable(self._kubectl.do(deletion(request)), request)

    def _owned(self, name: str, left: LeftObjects, unknown: str) -> Owned:
        own = self._settings
        labels = dict(labels_of(left.every[0]))
        annotations = [each["metadata"].get("annotations") or {} for each in left.every]
        run_dir = next((text for each in annotations if (text := each.get(RUN_DIR_KEY))), "")
        times = [unix(each["metadata"].get("creationTimestamp", "")) for each in left.every]
        state, shown = _state(left)
        details = {"project": own.project, "cluster": own.cluster, "location": own.location, "namespace": own.namespace}
        return Owned(
            Request(name, own.location, labels=labels, details=details),
            unquote(run_dir),
            state,
            min((time for time in times if time is not None), default=None),
            labels.get(BY_LABEL) == creator(),
            cloud_state=shown,
            remark=unknown,
        )


def deletion(request: Request) -> tuple[str, ...]:
    """The words of kubectl that delete what a request has in the cluster besides pools and queues: of one attempt, or of all of its run."""
    return ("delete", OBJECTS, _selector(request), "--wait=false", "--ignore-not-found")


def _selector(request: Request) -> str:
    labels = [f"{key}={request.labels[key]}" for key in (RUN_LABEL, ATTEMPT_LABEL) if key in request.labels]
    return f"--selector={','.join(labels)}"


def _state(left: LeftObjects) -> tuple[AllocationState, str]:
    """READY of a JobSet whose pods run, or may; and what to call it."""
    if left.jobset is None:
        return AllocationState.PARTIAL, f"only {' and '.join(sorted(each['kind'] for each in left.others))}"
    if left.jobset["metadata"].get("deletionTimestamp"):
        return AllocationState.DELETING, "JobSet being deleted"
    for condition in ("Completed", "Failed"):
        if is_true(left.jobset, condition):
            return AllocationState.LOST, f"JobSet {condition.lower()}"
    suspended = left.jobset.get("spec", {}).get("suspend")
    return AllocationState.READY, "JobSet queued" if suspended else "JobSet running"


def with_attempts(listed: Sequence[Owned], inventory: AttemptInventory) -> list[Owned]:
    """`listed`, and attempts of runs of which it has nothing; where the cluster does not list them, that is said with each. UserError then,
    if nothing is listed."""
    tags = {each.request.labels.get(RUN_LABEL) for each in listed}
    try:
        return [*listed, *(each for each in inventory.list_owned() if each.request.labels.get(RUN_LABEL) not in tags)]
    except UserError as e:
        if not listed:
            raise
        return [replace(each, remark="; ".join(filter(None, (each.remark, e.what)))) for each in listed]
