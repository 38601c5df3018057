"""The entry of a ConfigMap in which xpk looks up whether a cluster has the machines of a workload: `CLUSTER-resources-configmap`, machines by
slice. xpk submits nothing for a slice that is not there, and looks nothing up in a cluster without the ConfigMap.

A run that creates its node pools adds the entry of its slice if it is missing, with an annotation that says so, and removes both with
the pools. An entry of somebody else is never changed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from podwright import slices
from podwright.rundir import Record
from podwright.slices import Slice
from podwright.targets.base import PlannedCall
from podwright.targets.gke import xpk_shape
from podwright.targets.gke.kubectl import Kubectl
from podwright.targets.gke.kubectl_replies import context_of
from podwright.targets.gke.queues import QueueObjects
from podwright.targets.google.replies import Consequence, Reply
from podwright.targets.machines import Request
from podwright.targets.settings.gke import GkeSettings

KIND = "Entry of xpk for"
_NAMESPACE = "default"
"""of the ConfigMap, whatever that of the target is now"""
REPLACE = ("replace", "--filename=-")
_CLAIM = "podwright.entry/"
"""begins the annotation of a request whose entry it is: slice, machines, and the labels of the request"""
_TRIES = 5
"""for a ConfigMap that somebody else changes at the same moment"""
_AUTOPROVISION = "AUTOPROVISION"
"""in place of a number: the cluster creates node pools itself, and xpk compares no machines"""


@dataclass(frozen=True)
class Entry:
    device: str
    """the slice by its number, such as tpu7x-256, by whatever name it is submitted"""
    machines: int
    """of all slices that a run needs"""

    @classmethod
    def of(cls, slice_: Slice) -> Entry:
        return cls(slice_.counted, xpk_shape.vms_per_slice(slice_) * slice_.num_slices)


def name_of_map(own: GkeSettings) -> str:
    return f"{own.cluster}-resources-configmap"


def shortage(config: Record, entry: Entry, slice_: Slice) -> str:
    """Why xpk would submit nothing: "missing", the number of machines that are too few, or "" if it would."""
    data = config.get("data") or {}
    assert slice_.accelerator.pod
    if data.get(slice_.accelerator.pod.gke_accelerator) == _AUTOPROVISION:
        return ""
    if entry.device not in data:
        return "missing"
    there = str(data[entry.device])
    return there if there.isdigit() and int(there) < entry.machines else ""


def correction(own: GkeSettings, entry: Entry) -> str:
    """What to type to have the entry."""
    patch = json.dumps({"data": {entry.device: str(entry.machines)}}, separators=(",", ":"))
    return f"kubectl patch configmap {name_of_map(own)} --namespace={_NAMESPACE} --context={context_of(own)} --type=merge --patch='{patch}'"


class XpkEntries:
    """In one cluster; for `NodePoolProvisioner` in the place of `RunQueues`, since xpk submits to the queue of the cluster."""

    def __init__(self, kubectl: Kubectl, own: GkeSettings):
        self._kubectl = kubectl.within(_NAMESPACE)
        self._own = own

    def read(self) -> QueueObjects | Reply:
        """Of all requests; or why they are not known."""
        config, failure = self._config()
        if failure:
            return failure
        return QueueObjects(True, tuple(_shown(name, claim) for name, claim in _claims(config or {}).items()))

    def of(self, request: Request) -> QueueObjects | Reply:
        seen = self.read()
        if isinstance(seen, Reply):
            return seen
        return QueueObjects(True, tuple(each for each in seen.objects if each["metadata"]["name"] == request.name))

    def create(self, request: Request) -> tuple[Reply | None, bool]:
        """If it is missing: why xpk would submit nothing, or None, and whether the entry may have been added nevertheless."""
        slice_ = slices.parse(request.details["slice"])
        entry = Entry.of(slice_)

        def added(config: Record) -> Record | Reply | None:
            claims = _claims(config)
            ours = any(claim["device"] == entry.device for claim in claims.values())
            short = shortage(config, entry, slice_)
            if request.name in claims or not (short or ours):
                return None
            if short not in ("", "missing") and not ours:
                what = f"TooFew: ConfigMap {name_of_map(self._own)} has {short} machines of {entry.device}, and the run needs {entry.machines}"
                return Reply(Consequence.FINAL, what, f"type {correction(self._own, entry)}")
            return with_entry(config, request, entry)

        failure = self._changed(added)
        return failure, failure is not None and failure.consequence is not Consequence.FINAL

    def delete(self, request: Request) -> Reply | None:
        """If it is there; why that failed, or None."""
        return self._changed(lambda config: without_entry(config, request.name))

    def creating(self, request: Request) -> list[PlannedCall]:
        """For a dry run; what is in the ConfigMap besides is not shown."""
        entry = Entry.of(slices.parse(request.details["slice"]))
        return [PlannedCall(self._kubectl.argv(REPLACE), with_entry(_empty(self._own), request, entry))]

    def deleting(self, request: Request) -> list[PlannedCall]:
        return [PlannedCall(self._kubectl.argv(REPLACE), _empty(self._own))]

    def _config(self) -> tuple[Record | None, Reply | None]:
        """None for both where the cluster has none. One with an annotation of a run that cannot be read is a failure: nothing of it is changed."""
        config, failure = self._kubectl.json(("get", "configmap", name_of_map(self._own)))
        if failure and failure.consequence is Consequence.ABSENT:
            return None, None
        if config and (key := _unreadable(config)):
            what = f"Damaged: annotation {key} of ConfigMap {name_of_map(self._own)} is not as a run of Podwright has written it, and nothing of it is changed"
            where = f"--namespace={_NAMESPACE} --context={context_of(self._own)}"
            edit = f"type kubectl edit configmap {name_of_map(self._own)} {where}, and correct it, or remove it with the entry of its slice"
            return None, Reply(Consequence.FINAL, what, edit)
        return config, failure

    def _changed(self, change: Callable[[Record], Record | Reply | None]) -> Reply | None:
        """Replace it by what `change` makes of it, which the server refuses where it is no longer what was read."""
        failure: Reply | None = None
        for _ in range(_TRIES):
            config, failure = self._config()
            if failure or config is None:
                return failure
            after = change(config)
            if after is None or isinstance(after, Reply):
                return after
            failure = self._kubectl.do(REPLACE, json.dumps(after))
            if failure is None or failure.consequence is not Consequence.REPEAT:
                return failure
        return failure


def with_entry(config: Record, request: Request, entry: Entry) -> Record:
    """With the entry of a request; of several that share one the largest number counts."""
    changed = copy.deepcopy(config)
    claim = {"device": entry.device, "machines": entry.machines, "labels": dict(request.labels)}
    annotations = changed["metadata"].setdefault("annotations", {})
    annotations[_CLAIM + request.name] = json.dumps(claim)
    changed["data"] = (changed.get("data") or {}) | {entry.device: str(_most(changed, entry.device))}
    return changed


def without_entry(config: Record, name: str) -> Record | None:
    """Without the entry of request `name`, unless others share it; None where it has none."""
    claim = _claims(config).get(name)
    if claim is None:
        return None
    changed = copy.deepcopy(config)
    del changed["metadata"]["annotations"][_CLAIM + name]
    if not changed["metadata"]["annotations"]:
        del changed["metadata"]["annotations"]
    device, data = claim["device"], changed.get("data") or {}
    if most := _most(changed, device):
        data[device] = str(most)
    else:
        data.pop(device, None)
    return changed


def _most(config: Record, device: str) -> int:
    """Machines of the largest request that shares the entry."""
    return max((claim["machines"] for claim in _claims(config).values() if claim["device"] == device), default=0)


def _claims(config: Record) -> Mapping[str, Record]:
    """By the name of the request; of a ConfigMap without `_unreadable` annotations."""
    return {key.removeprefix(_CLAIM): json.loads(text) for key, text in _annotations(config).items()}


def _annotations(config: Record) -> dict[str, str]:
    """Those of requests."""
    annotations = config.get("metadata", {}).get("annotations") or {}
    return {key: text for key, text in annotations.items() if key.startswith(_CLAIM)}


def _unreadable(config: Record) -> str:
    """The first annotation of a request that somebody else has changed so that it cannot be read, or ""."""
    return next((key for key, text in _annotations(config).items() if not _is_claim(text)), "")


def _is_claim(text: str) -> bool:
    try:
        claim = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if not isinstance(claim, dict) or not isinstance(labels := claim.get("labels"), dict):
        return False
    machines = claim.get("machines")
    return (
        isinstance(claim.get("device"), str)
        and isinstance(machines, int)
        and not isinstance(machines, bool)
        and machines > 0
        and all(isinstance(value, str) for value in labels.values())
    )


def _shown(name: str, claim: Record) -> Record:
    return {"kind": KIND, "metadata": {"name": name, "labels": claim["labels"]}}


def _empty(own: GkeSettings) -> Record:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name_of_map(own), "namespace": _NAMESPACE}}
