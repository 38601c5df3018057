"""Patches by their content type: JSON merge patch, strategic merge patch with the lists that have keys, JSON patch."""

import json
from typing import Any

from lab.kube.discovery import Resource
from lab.kube.errors import ApiError, bad_request
from lab.kube.store import Object, merged

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
OPERATIONS = "application/json-patch+json"
KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "conditions": "type",
    "ownerReferences": "uid",
    "taints": "key",
    "tolerations": "key",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "addresses": "type",
}


def apply(row: Resource, kind: str, body: Object, text: bytes) -> Object:
    """The object as a patch makes it."""
    patch = json.loads(text)
    if kind == MERGE:
        patched: Object = merged(body, patch)
    elif kind == OPERATIONS:
        patched = operated(body, patch)
    elif kind == STRATEGIC and row.strategic:
        patched = strategic(body, patch, "")
    else:
        accepted = [OPERATIONS, MERGE, *([STRATEGIC] if row.strategic else []), "application/apply-patch+yaml"]
        message = (
            f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
        )
        raise ApiError(415, "UnsupportedMediaType", message)
    return patched


def strategic(value: Any, patch: Any, field: str) -> Any:
    """Lists of KEYS are merged by their key, `$patch: delete` takes an element out; all else is a merge patch."""
    if isinstance(patch, dict):
        base = value if isinstance(value, dict) else {}
        directives = ("$setElementOrder/", "$retainKeys", "$deleteFromPrimitiveList/", "$patch")
        parts = {key: part for key, part in patch.items() if not key.startswith(directives)}
        kept = {key: base[key] for key in base if key not in parts}
        return kept | {k: strategic(base.get(k), part, k) for k, part in parts.items() if part is not None}
    if not isinstance(patch, list) or field not in KEYS or not isinstance(value, list):
        return patch
    key, elements = KEYS[field], list(value)
    for part in patch:
        position = next((n for n, element in enumerate(elements) if element.get(key) == part.get(key)), None)
        if part.get("$patch") == "delete":
            elements = [element for element in elements if element.get(key) != part.get(key)]
        elif position is None:
            elements.append(part)
        else:
            elements[position] = strategic(elements[position], part, "")
    return elements


def operated(body: Object, operations: list[Object]) -> Object:
    """RFC 6902: add, replace, remove and test."""
    copy: Object = json.loads(json.dumps(body))
    for step in operations:
        *path, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        holder: Any = copy
        try:
            for part in path:
                holder = holder[int(part)] if isinstance(holder, list) else holder[part]
            operate(holder, last, step)
        except (KeyError, IndexError, ValueError) as error:
            raise bad_request(f"the server rejected our request due to an error in our request: {error!r}") from error
    return copy


def operate(holder: Any, last: str, step: Object) -> None:
    key: Any = last if isinstance(holder, dict) else len(holder) if last == "-" else int(last)
    if step["op"] == "test":
        if holder[key] != step["value"]:
            raise ApiError(
                422,
                "Invalid",
                f"the server rejected our request due to an error in our request: testing {step['path']}",
            )
    elif step["op"] == "remove":
        del holder[key]
    elif step["op"] == "add" and isinstance(holder, list):
        holder.insert(key, step["value"])
    elif step["op"] in ("add", "replace"):
        if step["op"] == "replace" and isinstance(holder, dict) and key not in holder:
            raise KeyError(key)
        holder[key] = step["value"]
    else:
        raise ValueError(step["op"])
