"""What each verb does to the store: lists in pages, create, update, patch, delete, and `auth can-i`."""

import base64
import contextlib
import json
from collections.abc import Callable

from lab.kube import patches, schema, versions
from lab.kube.call import Call
from lab.kube.errors import ApiError, bad_request, conflict, expired
from lab.kube.faults import Faults, missing_permission
from lab.kube.store import Object, Store, Stored

KEEPS_STATUS = ("nodes", "namespaces")


class Rest:
    def __init__(self, store: Store, faults: Faults) -> None:
        self.store, self.faults = store, faults

    def listed(self, call: Call) -> bytes:
        """A page of a list, with `metadata.continue` where there are more; the token names the last object of the page."""
        limit, token = int(call.query.get("limit", "0") or 0), call.query.get("continue", "")
        selectors = call.query.get("labelSelector", ""), call.query.get("fieldSelector", "")
        with self.store.lock:
            entries, version = self.store.select(call.row.plural, call.namespace, *selectors), self.store.version
        if token:
            version, *last = json.loads(base64.b64decode(token))
            if version < self.store.oldest:
                raise expired("The provided continue parameter is too old to display a consistent list result.")
            entries = [
                e for e in entries if [e.body["metadata"].get("namespace", ""), e.body["metadata"]["name"]] > last
            ]
        metadata: Object = {"resourceVersion": str(version)}
        if limit and len(entries) > limit:
            metadata["remainingItemCount"] = len(entries) - limit
            entries = entries[:limit]
            last = entries[-1].body["metadata"]
            position = json.dumps([version, last.get("namespace", ""), last["name"]])
            metadata["continue"] = base64.b64encode(position.encode()).decode()
        head = {"kind": f"{call.row.kind}List", "apiVersion": call.api_version, "metadata": metadata}
        return json.dumps(head)[:-1].encode() + b',"items":[' + b",".join(text_of(call, e) for e in entries) + b"]}"

    def got(self, call: Call) -> bytes:
        return text_of(call, self.store.stored(call.row.plural, call.name, call.namespace))

    def created(self, call: Call, body: Object) -> Object:
        if call.row.group == "authorization.k8s.io":
            return self.reviewed(call, body)
        body = checked(call, body)
        if call.row.status and call.row.plural not in KEEPS_STATUS:
            body.pop("status", None)
        if call.row.plural == "pods":
            body["status"] = {"phase": "Pending"}
        if call.row.plural == "secrets":
            plain = body.pop("stringData", None) or {}
            encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
            body |= {"type": body.get("type", "Opaque"), "data": {**(body.get("data") or {}), **encoded}}
        return self.store.create(call.row.plural, body, call.namespace, dry_run="dryRun" in call.query)

    def updated(self, call: Call, body: Object) -> Object:
        body = checked(call, body)
        metadata = body["metadata"]
        if metadata.setdefault("name", call.name) != call.name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({call.name})"
            )
        if call.row.namespaced:
            metadata.setdefault("namespace", call.namespace)
        if call.subresource == "status":
            status = body.get("status", {})
            return self.changed(call, lambda copy: copy.update(status=status))
        return self.store.update(call.row.plural, body, keep_status=call.row.status)

    def patched(self, call: Call, kind: str, text: bytes) -> Object:
        def apply(copy: Object) -> None:
            result = patches.apply(call.row, kind, versions.shown(call.row, copy, call.version), text)
            result = checked(call, result)
            if result["metadata"].get("resourceVersion") != copy["metadata"]["resourceVersion"]:
                raise conflict(call.row.qualified, call.name)
            if call.subresource == "status":
                result = copy | {"status": result.get("status", {})}
            elif call.row.status:
                result = {key: value for key, value in result.items() if key != "status"}
                result |= {"status": copy["status"]} if "status" in copy else {}
            copy.clear()
            copy.update(result)

        return self.changed(call, apply)

    def changed(self, call: Call, function: Callable[[Object], None]) -> Object:
        return self.store.change(call.row.plural, call.name, call.namespace, function)

    def deleted(self, call: Call, options: Object) -> Object:
        store, plural = self.store, call.row.plural
        propagation = options.get("propagationPolicy") or call.query.get("propagationPolicy") or "Background"
        grace = options.get("gracePeriodSeconds", call.query.get("gracePeriodSeconds"))
        ways = (propagation, None if grace is None else float(grace))
        if call.verb == "deletecollection":
            selectors = call.query.get("labelSelector", ""), call.query.get("fieldSelector", "")
            chosen = store.list(plural, call.namespace, *selectors)
            for body in chosen:
                with contextlib.suppress(ApiError):
                    store.delete(plural, body["metadata"]["name"], body["metadata"].get("namespace", ""), *ways)
            return {"kind": f"{call.row.kind}List", "apiVersion": call.api_version, "metadata": {}, "items": chosen}
        body = store.get(plural, call.name, call.namespace)
        if (uid := (options.get("preconditions") or {}).get("uid", "")) not in ("", body["metadata"]["uid"]):
            text = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {body['metadata']['uid']}"
            raise ApiError(409, "Conflict", text)
        if not (options.get("dryRun") or "dryRun" in call.query):
            store.delete(plural, call.name, call.namespace, *ways)
        if left := store.find(plural, call.name, call.namespace):
            return left
        details = {"name": call.name, "group": call.row.group, "kind": plural, "uid": body["metadata"]["uid"]}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    def reviewed(self, call: Call, body: Object) -> Object:
        """`kubectl auth can-i`: allowed unless a forbidden fault denies it."""
        if call.row.plural == "selfsubjectrulesreviews":
            rules = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
            return body | {"status": {"resourceRules": rules, "nonResourceRules": [], "incomplete": False}}
        attributes = (body.get("spec") or {}).get("resourceAttributes") or {}
        resource = attributes.get("resource", "") + (
            f"/{attributes['subresource']}" if attributes.get("subresource") else ""
        )
        denied = self.faults.denies(attributes.get("verb", ""), resource)
        reason = missing_permission(attributes.get("verb", ""), resource, attributes.get("group", ""))
        return body | {"status": {"allowed": False, "reason": reason} if denied else {"allowed": True}}


def text_of(call: Call, entry: Stored) -> bytes:
    """An object as JSON in the version of the call."""
    if call.version == call.row.version:
        return entry.text
    return json.dumps(versions.shown(call.row, entry.body, call.version), separators=(",", ":")).encode()


def checked(call: Call, body: Object) -> Object:
    """What a client gave, after the checks of its form, as it is kept."""
    row = call.row
    given = body.get("apiVersion", call.api_version), body.get("kind", row.kind)
    if given != (call.api_version, row.kind):
        expected = f"{row.group}/{call.version}, Kind={row.kind}"
        raise bad_request(f'{given[1]} in version "{given[0]}" cannot be handled as a {row.kind}: expected {expected}')
    body.setdefault("metadata", {})
    schema.check(row, call.version, body, strict=call.query.get("fieldValidation") == "Strict")
    return versions.kept(row, body, call.version)
