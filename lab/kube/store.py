"""The cluster's objects in memory, as the API server keeps them: versions, selectors, owners, deletion, and the events that a watch sends.

For the HTTP server and, in the same process, for controllers. An object that is returned is the stored one: it is never to be changed in place,
but with `change`. Every change makes a new object, a new resourceVersion and an event.
"""

import json
import random
import threading
import time
import uuid
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lab.kube import selectors, validation
from lab.kube.discovery import RESOURCES, Resource
from lab.kube.errors import ApiError, already_exists, bad_request, conflict, expired, not_found

__all__ = ["ApiError", "Object", "Store", "micro", "timestamp"]

Object = dict[str, Any]
Key = tuple[str, str, str]  # resource, namespace, name
NAMESPACES = ("default", "kube-system", "jobset-system", "kueue-system")
SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
FOREGROUND = "foregroundDeletion"
GRACE_S = 30
KEPT_EVENTS = 20_000


@dataclass(frozen=True)
class Stored:
    """An object and its JSON, which lists and watches send as it is."""

    body: Object
    text: bytes


@dataclass(frozen=True)
class Change:
    """One event of the store: ADDED, MODIFIED or DELETED, with the object as it was before."""

    version: int
    type: str
    resource: str
    namespace: str
    new: Stored
    old: Object | None


Objects = list[Object]  # inside Store the name `list` is a method's
Entries = list[Stored]
Changes = list[Change]
Dependents = list[tuple[str, Object]]
Names = list[str]


class Store:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.version = 1000
        self.objects: dict[str, dict[tuple[str, str], Stored]] = {name: {} for name in RESOURCES}
        self.changes: list[Change] = []
        self.oldest = self.version  # a watch that starts before it gets 410
        self.listeners: list[Callable[[], None]] = []
        self.keys: dict[str, Key] = {}  # by uid
        self.gone_at: dict[str, float] = {}  # when an owner was first missed, by uid
        self.dependents: dict[str, set[str]] = defaultdict(set)  # uids by the uid of an owner
        self.admission: dict[str, list[Callable[[Store, Object], None]]] = defaultdict(list)
        self.knobs: dict[str, Any] = {}
        for name in NAMESPACES:
            self.create("namespaces", {"metadata": {"name": name}, "status": {"phase": "Active"}})

    # reading

    def get(self, resource: str, name: str, namespace: str = "") -> Object:
        return self.stored(resource, name, namespace).body

    def find(self, resource: str, name: str, namespace: str = "") -> Object | None:
        """The object, or None where there is none of this name."""
        entry = self.objects[resource].get((namespace, name))
        return entry.body if entry else None

    def list(self, resource: str, namespace: str = "", labels: str = "", fields: str = "") -> Objects:
        """Objects of one namespace, or of all for "", in order of namespace and name."""
        return [entry.body for entry in self.select(resource, namespace, labels, fields)]

    def stored(self, resource: str, name: str, namespace: str = "") -> Stored:
        entry = self.objects[resource].get((namespace, name))
        if entry is None:
            raise not_found(RESOURCES[resource].qualified, name)
        return entry

    def select(self, resource: str, namespace: str = "", labels: str = "", fields: str = "") -> Entries:
        match = selectors.compiled(resource, labels, fields)
        with self.lock:
            entries = sorted(self.objects[resource].items())
        return [e for (place, _), e in entries if namespace in ("", place) and (match is None or match(e.body))]

    def owned(self, uid: str) -> Dependents:
        """What has this owner: (resource, object)."""
        with self.lock:
            keys = [self.keys[dependent] for dependent in sorted(self.dependents.get(uid, ()))]
            return [(resource, self.get(resource, name, namespace)) for resource, namespace, name in keys]

    def events_since(self, resource: str, version: int, namespace: str = "") -> tuple[Changes, int]:
        """What happened after a version, and the version up to which that is all. 410 where the history no longer reaches back."""
        with self.lock:
            if version < self.oldest:
                raise expired(f"too old resource version: {version} ({self.oldest})")
            later = self.changes[bisect_right(self.changes, version, key=lambda change: change.version) :]
            return [c for c in later if c.resource == resource and namespace in ("", c.namespace)], self.version

    # writing

    def create(self, resource: str, body: Object, namespace: str = "", dry_run: bool = False) -> Object:
        row = RESOURCES[resource]
        body = json.loads(json.dumps(body))
        metadata = body.setdefault("metadata", {})
        with self.lock:
            place = self._place(row, metadata, namespace)
            if not metadata.get("name") and metadata.get("generateName"):
                metadata["name"] = metadata["generateName"] + "".join(random.choices(SUFFIX, k=5))
            for admit in self.admission[resource]:
                admit(self, body)
            validation.check(row, body)
            if there := self.find(resource, metadata["name"], place):
                raise already_exists(row.qualified, metadata["name"], "deletionTimestamp" in there["metadata"])
            metadata["uid"], metadata["creationTimestamp"] = str(uuid.uuid4()), self.now()
            metadata.pop("deletionTimestamp", None)
            if "spec" in body:
                metadata["generation"] = 1
            head = {"apiVersion": row.api_version, "kind": row.kind}
            body = head | {key: value for key, value in body.items() if key not in head}
            return body if dry_run else self._write("ADDED", row, body, None).body

    def update(self, resource: str, body: Object, keep_status: bool = False) -> Object:
        """The whole object anew; `keep_status` for a PUT that is not of the subresource."""
        name, namespace = body["metadata"]["name"], body["metadata"].get("namespace", "")

        def replace(copy: Object) -> None:
            version = body["metadata"].get("resourceVersion", "")
            if version not in ("", copy["metadata"]["resourceVersion"]):
                raise conflict(RESOURCES[resource].qualified, name)
            given = json.loads(json.dumps(body))
            if keep_status:
                given.pop("status", None)
                given |= {"status": copy["status"]} if "status" in copy else {}
            copy.clear()
            copy.update(given)

        return self.change(resource, name, namespace, replace)

    def change(self, resource: str, name: str, namespace: str, function: Callable[[Object], None]) -> Object:
        """Let a function change a copy of the object, and store that. Nothing is written where it changes nothing."""
        row = RESOURCES[resource]
        with self.lock:
            entry = self.stored(resource, name, namespace)
            old = entry.body
            copy: Object = json.loads(entry.text)
            assert copy == old, f"{resource} {name} was changed in place: use Store.change"
            function(copy)
            metadata = copy["metadata"]
            for field in ("name", "namespace", "uid", "creationTimestamp", "resourceVersion", "deletionTimestamp"):
                restore(metadata, old["metadata"], field)
            if copy == old:
                return old
            validation.check(row, copy, old)
            if copy.get("spec") != old.get("spec"):
                metadata["generation"] = old["metadata"].get("generation", 0) + 1
            body = self._write("MODIFIED", row, copy, old).body
            if "deletionTimestamp" in metadata and not metadata.get("finalizers") and not lingers(resource, body):
                self._remove(row, body)
            return body

    def patch_status(self, resource: str, name: str, namespace: str, status: Object) -> Object:
        """A merge patch of `.status`: lists are replaced, None deletes."""
        return self.change(resource, name, namespace, lambda copy: set_status(copy, status))

    def delete(
        self,
        resource: str,
        name: str,
        namespace: str = "",
        propagation: str = "Background",
        grace_s: float | None = None,
    ) -> Object:
        """Delete an object and what it owns; returns it as it was. A pod that runs on a node stays until its kubelet deletes it with grace_s=0."""
        row = RESOURCES[resource]
        with self.lock:
            body = self.get(resource, name, namespace)
            finalizers = set(body["metadata"].get("finalizers") or ())
            if propagation == "Orphan":
                self._release_dependents(body)
            elif propagation == "Foreground" and self.dependents.get(body["metadata"]["uid"]):
                finalizers.add(FOREGROUND)
            grace = grace_of(resource, body, grace_s)
            if grace or finalizers:
                self._mark(row, body, grace, sorted(finalizers))
            else:
                self._remove(row, body)
            if FOREGROUND in finalizers:
                for dependent, owned in self.owned(body["metadata"]["uid"]):
                    self._delete_dependent(dependent, owned, propagation)
            return body

    def collect_garbage(self) -> None:
        """Delete what names only owners that do not exist: gone before it was created, or gone for as long as the knob `garbage_s` says."""
        with self.lock:
            gone = [uid for uid in self.dependents if uid not in self.keys]
            now = time.monotonic()
            self.gone_at = {uid: self.gone_at.get(uid, now) for uid in gone}
            for uid in gone:
                for resource, body in (
                    self.owned(uid) if now >= self.gone_at[uid] + self.knobs.get("garbage_s", 0) else ()
                ):
                    self._delete_dependent(resource, body)

    def expire_history(self) -> None:
        """Forget past events, as a compaction does: a watch from an older resourceVersion gets 410."""
        with self.lock:
            self.version += 1
            self.oldest = self.version
            self.changes.clear()
            for listener in self.listeners:
                listener()

    def record_event(
        self, resource: str, about: Object, type: str, reason: str, message: str, component: str
    ) -> Object:
        """An Event about an object; the same again is counted up."""
        metadata = about["metadata"]
        involved = {"apiVersion": RESOURCES[resource].api_version, "kind": RESOURCES[resource].kind}
        involved |= {"name": metadata["name"], "uid": metadata["uid"]}
        namespace = metadata.get("namespace", "default")
        if "namespace" in metadata:
            involved["namespace"] = namespace
        with self.lock:
            for event in self.list("events", namespace, fields=f"involvedObject.uid={metadata['uid']},reason={reason}"):
                if event["message"] == message:
                    return self.change("events", event["metadata"]["name"], namespace, count_up)
            name = f"{metadata['name']}.{uuid.uuid4().hex[:16]}"
            event = {"metadata": {"name": name, "namespace": namespace}, "involvedObject": involved, "type": type}
            event |= {"reason": reason, "message": message, "source": {"component": component}, "count": 1}
            event |= {"firstTimestamp": self.now(), "lastTimestamp": self.now(), "reportingComponent": component}
            return self.create("events", event)

    @staticmethod
    def now() -> str:
        return timestamp(time.time())

    # under the lock

    def _place(self, row: Resource, metadata: Object, namespace: str) -> str:
        """The namespace of an object that is to be created; it must be there."""
        if not row.namespaced:
            metadata.pop("namespace", None)
            return ""
        place = metadata.setdefault("namespace", namespace or "default")
        if namespace not in ("", place):
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        if ("", place) not in self.objects["namespaces"]:
            raise not_found("namespaces", place)
        return str(place)

    def _write(self, type: str, row: Resource, body: Object, old: Object | None) -> Stored:
        metadata = body["metadata"]
        self.version += 1
        metadata["resourceVersion"] = str(self.version)
        entry = Stored(body, json.dumps(body, separators=(",", ":")).encode())
        place, uid = metadata.get("namespace", ""), metadata["uid"]
        for owner in owners(old):
            self.dependents[owner].discard(uid)
            if not self.dependents[owner]:
                del self.dependents[owner]
        if type == "DELETED":
            del self.objects[row.plural][place, metadata["name"]], self.keys[uid]
        else:
            self.objects[row.plural][place, metadata["name"]] = entry
            self.keys[uid] = (row.plural, place, metadata["name"])
            for owner in owners(body):
                self.dependents[owner].add(uid)
        self.changes.append(Change(self.version, type, row.plural, place, entry, old))
        if len(self.changes) > 2 * KEPT_EVENTS:
            self.oldest = self.changes[-KEPT_EVENTS - 1].version
            del self.changes[:-KEPT_EVENTS]
        for listener in self.listeners:
            listener()
        return entry

    def _mark(self, row: Resource, body: Object, grace: float, finalizers: Names) -> None:
        copy: Object = json.loads(json.dumps(body))
        metadata = copy["metadata"]
        if "deletionTimestamp" not in metadata or grace < metadata.get("deletionGracePeriodSeconds", grace):
            metadata["deletionTimestamp"] = timestamp(time.time() + grace)
            metadata["deletionGracePeriodSeconds"] = int(grace)
        if finalizers:
            metadata["finalizers"] = finalizers
        if copy != body:
            self._write("MODIFIED", row, copy, body)

    def _remove(self, row: Resource, body: Object) -> None:
        """Take an object out, then what it owned, then the owners that waited for that."""
        name, uid = body["metadata"]["name"], body["metadata"]["uid"]
        self._write("DELETED", row, json.loads(json.dumps(body)), body)
        if row.plural == "namespaces":
            self._empty_namespace(name)
        for resource, dependent in self.owned(uid) if not self.knobs.get("garbage_s") else ():
            self._delete_dependent(resource, dependent)
        for owner in owners(body):
            if owner in self.keys and not self.dependents.get(owner):
                self._finish_foreground(*self.keys[owner])

    def _finish_foreground(self, resource: str, namespace: str, name: str) -> None:
        metadata = self.get(resource, name, namespace)["metadata"]
        if "deletionTimestamp" in metadata and FOREGROUND in (metadata.get("finalizers") or ()):
            self.change(
                resource, name, namespace, lambda copy: drop(copy["metadata"], "finalizers", lambda f: f == FOREGROUND)
            )

    def _delete_dependent(self, resource: str, body: Object, propagation: str = "Background") -> None:
        metadata = body["metadata"]
        others = [owner for owner in owners(body) if owner in self.keys and not self._is_deleted(owner)]
        if not others and "deletionTimestamp" not in metadata:
            self.delete(resource, metadata["name"], metadata.get("namespace", ""), propagation)

    def _is_deleted(self, uid: str) -> bool:
        resource, namespace, name = self.keys[uid]
        return "deletionTimestamp" in self.get(resource, name, namespace)["metadata"]

    def _release_dependents(self, body: Object) -> None:
        uid = body["metadata"]["uid"]
        for resource, dependent in self.owned(uid):
            metadata = dependent["metadata"]
            self.change(
                resource,
                metadata["name"],
                metadata.get("namespace", ""),
                lambda copy: drop(copy["metadata"], "ownerReferences", lambda owner: owner["uid"] == uid),
            )

    def _empty_namespace(self, namespace: str) -> None:
        for resource in RESOURCES:
            for body in self.list(resource, namespace) if RESOURCES[resource].namespaced else ():
                if self.find(resource, body["metadata"]["name"], namespace):
                    self.delete(resource, body["metadata"]["name"], namespace, grace_s=0)


def timestamp(seconds: float) -> str:
    """metav1.Time: UTC in whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def micro(seconds: float) -> str:
    """metav1.MicroTime: UTC with six digits."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1e6):06d}Z"


def count_up(event: Object) -> None:
    event |= {"count": event["count"] + 1, "lastTimestamp": Store.now()}


def owners(body: Object | None) -> list[str]:
    return [owner["uid"] for owner in (body or {"metadata": {}})["metadata"].get("ownerReferences") or ()]


def restore(metadata: Object, old: Object, field: str) -> None:
    """Put back what no client may change."""
    metadata.pop(field, None)
    if field in old:
        metadata[field] = old[field]


def drop(holder: Object, field: str, gone: Callable[[Any], bool]) -> None:
    """Take out of a list what `gone` names; an empty list goes too."""
    left = [value for value in holder.get(field) or () if not gone(value)]
    holder.pop(field, None)
    if left:
        holder[field] = left


def set_status(copy: Object, status: Object) -> None:
    copy["status"] = merged(copy.get("status") or {}, status)


def merged(value: Any, patch: Any) -> Any:
    """RFC 7396, JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    base = value if isinstance(value, dict) else {}
    kept = {key: base[key] for key in base if key not in patch}
    return kept | {key: merged(base.get(key), part) for key, part in patch.items() if part is not None}


def grace_of(resource: str, body: Object, requested_s: float | None) -> float:
    """Seconds that a deleted pod gets; 0 for what is not running anywhere."""
    if resource != "pods" or not body.get("spec", {}).get("nodeName"):
        return 0
    if body.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    return float(body["spec"].get("terminationGracePeriodSeconds", GRACE_S) if requested_s is None else requested_s)


def lingers(resource: str, body: Object) -> bool:
    """A deleted pod stays until its kubelet has ended it, finished or not, and has deleted it without grace."""
    graceless = body["metadata"].get("deletionGracePeriodSeconds") == 0
    return resource == "pods" and bool(body.get("spec", {}).get("nodeName")) and not graceless
