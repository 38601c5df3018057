"""Parts of Kubernetes objects that every controller reads or writes: conditions, owners, times, events."""

import hashlib
import secrets
import string
import time
from collections.abc import Callable, Mapping
from typing import Any

from lab.kube.errors import ApiError
from lab.kube.store import Store

Json = dict[str, Any]
LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # of generated names; no vowels


def timestamp(now: float) -> str:
    """Of the API: whole seconds, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))


def suffix(length: int = 5) -> str:
    return "".join(secrets.choice(LETTERS) for _ in range(length))


def digest(text: str, length: int) -> str:
    return hashlib.sha1(text.encode()).hexdigest()[:length]


def name(body: Json) -> str:
    return str(body["metadata"]["name"])


def namespace(body: Json) -> str:
    return str(body["metadata"].get("namespace", ""))


def uid(body: Json) -> str:
    return str(body["metadata"]["uid"])


def key(body: Json) -> str:
    return f"{namespace(body)}/{name(body)}"


def labels(body: Json) -> dict[str, str]:
    return body["metadata"].get("labels") or {}


def annotations(body: Json) -> dict[str, str]:
    return body["metadata"].get("annotations") or {}


def spec(body: Json) -> Json:
    return body.get("spec") or {}


def status(body: Json) -> Json:
    return body.get("status") or {}


def deleting(body: Json) -> bool:
    return bool(body["metadata"].get("deletionTimestamp"))


def condition(body: Json, kind: str) -> Json | None:
    return next((each for each in status(body).get("conditions") or [] if each["type"] == kind), None)


def is_true(body: Json, kind: str) -> bool:
    there = condition(body, kind)
    return bool(there and there["status"] == "True")


def set_condition(body: Json, now: float, kind: str, true: bool | str, reason: str, message: str) -> bool:
    """Whether it changed; the time of transition is that of a change of the status."""
    value = true if isinstance(true, str) else str(true)
    conditions = body.setdefault("status", {}).setdefault("conditions", [])
    there = next((each for each in conditions if each["type"] == kind), None)
    wanted = {"type": kind, "status": value, "reason": reason, "message": message}
    if there is None:
        conditions.append(wanted | {"lastTransitionTime": timestamp(now)})
        return True
    if all(there.get(field) == text for field, text in wanted.items()):
        return False
    changed = there["status"] != value
    there.update(wanted)
    if changed:
        there["lastTransitionTime"] = timestamp(now)
    return True


def owner_reference(owner: Json) -> Json:
    fields = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": name(owner), "uid": uid(owner)}
    return fields | {"controller": True, "blockOwnerDeletion": True}


def owner(body: Json) -> Json | None:
    return next((each for each in body["metadata"].get("ownerReferences") or [] if each.get("controller")), None)


def is_owned_by(body: Json, parent: Json) -> bool:
    reference = owner(body)
    return bool(reference and reference["uid"] == uid(parent))


def finished(pod: Json) -> bool:
    return status(pod).get("phase") in ("Succeeded", "Failed")


def chips(pod_spec: Mapping[str, Any]) -> int:
    """google.com/tpu that the containers of a pod ask for together."""
    return requests(pod_spec).get("google.com/tpu", 0)


def requests(pod_spec: Mapping[str, Any]) -> dict[str, int]:
    """Of all containers: cpu in thousandths, memory in bytes, others counted."""
    total: dict[str, int] = {}
    for container in pod_spec.get("containers") or []:
        resources = container.get("resources") or {}
        for resource, amount in ((resources.get("limits") or {}) | (resources.get("requests") or {})).items():
            total[resource] = total.get(resource, 0) + quantity(resource, amount)
    return total


UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def quantity(resource: str, amount: str | int | float) -> int:
    text = str(amount)
    if resource == "cpu":
        return int(text[:-1]) if text.endswith("m") else int(float(text) * 1000)
    unit = text.lstrip(string.digits + ".")
    return int(float(text.removesuffix(unit)) * UNITS[unit]) if unit else int(float(text))


def change(store: Store, resource: str, body: Json, function: Callable[[Json], None]) -> Json | None:
    """Let a function change the stored object; None where it is gone by now."""
    try:
        return store.change(resource, name(body), namespace(body), function)
    except ApiError as error:
        if error.code == 404:
            return None
        raise


def patch_status(store: Store, resource: str, body: Json, status: Json) -> None:
    """A merge patch of `.status`, where the object is still there."""
    try:
        store.patch_status(resource, name(body), namespace(body), status)
    except ApiError as error:
        if error.code != 404:
            raise


def delete(
    store: Store, resource: str, body: Json, propagation: str = "Background", grace_s: float | None = None
) -> None:
    """Where it is still there."""
    try:
        store.delete(resource, name(body), namespace(body), propagation, grace_s)
    except ApiError as error:
        if error.code != 404:
            raise


def add_condition(
    store: Store, resource: str, body: Json, now: float, kind: str, true: bool | str, reason: str, message: str
) -> bool:
    """Whether that is new."""
    changed = False

    def function(copy: Json) -> None:
        nonlocal changed
        changed = set_condition(copy, now, kind, true, reason, message)

    change(store, resource, body, function)
    return changed


def add_finalizer(store: Store, resource: str, body: Json, finalizer: str) -> None:
    if finalizer not in (body["metadata"].get("finalizers") or []):
        change(store, resource, body, lambda copy: copy["metadata"].setdefault("finalizers", []).append(finalizer))


def remove_finalizer(store: Store, resource: str, body: Json, finalizer: str) -> None:
    def function(copy: Json) -> None:
        left = [each for each in copy["metadata"].get("finalizers") or [] if each != finalizer]
        copy["metadata"].pop("finalizers", None)
        if left:
            copy["metadata"]["finalizers"] = left

    change(store, resource, body, function)
