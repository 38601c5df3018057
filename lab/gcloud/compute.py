"""Reservations, workload policies and machine types of the Compute Engine API (v1) over the state: `handle` answers one request."""

import re
import secrets
import time
from collections.abc import Mapping
from typing import Any

from lab.gcloud import catalog, history, pools
from lab.gcloud.api import ApiError
from lab.gcloud.store import State, number, timestamp

Json = dict[str, Any]
ROOT = "https://www.googleapis.com/compute/v1"
PATH = re.compile(
    r"^/compute/(?:v1|beta|alpha)/projects/(?P<project>[^/]+)/(?:aggregated|(?:regions|zones)/(?P<place>[^/]+))/"
    r"(?P<collection>reservations|resourcePolicies|machineTypes|operations)(?:/(?P<name>[^/]+)(?:/wait)?)?$"
)
VERBS = {"GET": "get", "POST": "create", "DELETE": "delete"}
REASONS = {400: "resourceInUseByAnotherResource", 403: "forbidden", 404: "notFound", 409: "alreadyExists"}


class ComputeError(ApiError):
    """A refusal in the form of Compute Engine, which has reasons in place of a status."""

    def body(self) -> Json:
        errors = [{"message": self.message, "domain": "global", "reason": REASONS.get(self.status, "backendError")}]
        return {"error": {"code": self.status, "message": self.message, "errors": errors}}


def handle(
    state: State, method: str, path: str, query: Mapping[str, str], body: Json | None = None, caller: str = "user"
) -> Json:
    """The answer to a request, or ComputeError."""
    match = PATH.match(path)
    if not match:
        raise ComputeError(404, f"Method not found: {method} {path}", "NOT_FOUND")
    project, place, collection, name = match["project"], match["place"], match["collection"], match["name"]
    if collection == "operations":
        return dict(state["compute_operations"][name])
    verb = "list" if method == "GET" and not name else VERBS[method]
    where = f"projects/{project}/{'regions' if collection == 'resourcePolicies' else 'zones'}/{place}/{collection}"
    shown_name = (body or {}).get("name") if verb == "create" else name
    permit(
        state, f"compute.{collection}.{verb}", f"{where}/{shown_name}" if shown_name else f"projects/{project}", caller
    )
    match collection, verb:
        case _, "list":
            return listed(state, project, place, collection)
        case "reservations", "get":
            record = pools.find_reservation(state, project, place, name)
            if record is None:
                raise absent(f"{where}/{name}")
            return reservation_view(state, record)
        case "machineTypes", "get":
            if not pools.chips(name) and not name.startswith(("e2-", "n2-")):
                raise absent(f"{where}/{name}")
            return machine_type(project, place, name)
        case "resourcePolicies", "get":
            record = state["policies"].get(f"{where}/{name}")
            view = record and history.view(record, time.time() - state["knobs"]["lag"]["describe"])
            if not view:
                raise absent(f"{where}/{name}")
            return dict(view)
        case "resourcePolicies", "create":
            return create_policy(state, f"{where}/{shown_name}", body or {})
        case "resourcePolicies", "delete":
            return delete_policy(state, f"{where}/{name}")
    raise ComputeError(404, f"Method not found: {method} {path}", "NOT_FOUND")


def permit(state: State, permission: str, resource: str, caller: str) -> None:
    if permission in state["knobs"]["denied"] or f"{caller}:{permission}" in state["knobs"]["denied"]:
        raise ComputeError(403, f"Required '{permission}' permission for '{resource}'")


def absent(full_name: str) -> ComputeError:
    return ComputeError(404, f"The resource '{full_name}' was not found")


def listed(state: State, project: str, place: str | None, collection: str) -> Json:
    if collection == "reservations":
        records = [r for r in state["reservations"] if r["project"] == project and place in (None, r["zone"])]
        items = [(f"zones/{r['zone']}", reservation_view(state, r)) for r in records]
    else:
        at = time.time() - state["knobs"]["lag"]["list"]
        kept = {name: history.view(record, at) for name, record in state["policies"].items()}
        items = [("/".join(name.split("/")[2:4]), view) for name, view in kept.items() if view]
        items = [(where, view) for where, view in items if place in (None, where.split("/")[1])]
    if place:
        return {"items": [view for _, view in items]}
    scopes: Json = {}
    for where, view in items:
        scopes.setdefault(where, {collection: []})[collection].append(view)
    return {"items": scopes}


def reservation_view(state: State, record: Json) -> Json:
    project, zone = record["project"], record["zone"]
    link = f"{ROOT}/projects/{project}/zones/{zone}"
    properties = {"machineType": record["machine_type"]}
    if record["maintenance"]:
        properties["maintenanceInterval"] = record["maintenance"]
    return {
        "kind": "compute#reservation",
        "id": record["id"],
        "creationTimestamp": record["created"],
        "name": record["name"],
        "selfLink": f"{link}/reservations/{record['name']}",
        "zone": link,
        "status": record["status"],
        "specificReservationRequired": True,
        "shareSettings": {"shareType": "LOCAL"},
        "specificReservation": {
            "count": str(record["vms"]),
            "inUseCount": str(pools.in_use(state, record)),
            "assuredCount": str(record["vms"]),
            "instanceProperties": properties,
        },
    }


def machine_type(project: str, zone: str, name: str) -> Json:
    count = pools.chips(name)
    accelerators = {"accelerators": [{"guestAcceleratorType": pools.family(name), "guestAcceleratorCount": count}]}
    return {
        "kind": "compute#machineType",
        "name": name,
        "zone": zone,
        "guestCpus": 56 * max(count, 1),
        "memoryMb": 245760 * max(count, 1),
        "selfLink": f"{ROOT}/projects/{project}/zones/{zone}/machineTypes/{name}",
    } | (accelerators if count else {})


def create_policy(state: State, full_name: str, body: Json) -> Json:
    existing = state["policies"].get(full_name)
    if existing and existing["state"] != "GONE":
        raise ComputeError(409, f"The resource '{full_name}' already exists")
    project, region = full_name.split("/")[1], full_name.split("/")[3]
    record: Json = {"name": full_name, "state": "READY", "history": [], "since": time.time()}
    record["body"] = {
        "kind": "compute#resourcePolicy",
        "id": str(secrets.randbelow(1 << 62)),
        "creationTimestamp": timestamp(time.time())[:23] + "-00:00",
        "status": "READY",
        "selfLink": f"{ROOT}/{full_name}",
        **body,
        "region": f"{ROOT}/projects/{project}/regions/{region}",
    }
    state["policies"][full_name] = record
    history.keep(record, record["body"])
    return operation(state, full_name, "insert")


def delete_policy(state: State, full_name: str) -> Json:
    record = state["policies"].get(full_name)
    if record is None or record["state"] == "GONE":
        raise absent(full_name)
    short = full_name.split("/")[-1]
    for pool in state["pools"].values():
        here = f"projects/{pool['name'].split('/')[1]}/regions/{catalog.region(pool['zone'])}/resourcePolicies/{short}"
        if pool["policy"] == short and here == full_name and pool["state"] != "GONE":
            user = f"projects/{pool['name'].split('/')[1]}/zones/{pool['zone']}/instanceGroupManagers/gke-{pool['hex']}-grp"
            text = f"The resource_policy resource '{full_name}' is already being used by '{user}'"  # [?] a group as its user
            raise ComputeError(400, text)
    record["state"], record["since"] = "GONE", time.time()
    history.keep(record, None)
    return operation(state, full_name, "delete")


def operation(state: State, target: str, kind: str) -> Json:
    """Operations of policies are done at once."""
    name = f"operation-{time.time_ns() // 1_000_000}-{number(state):x}"
    project, region = target.split("/")[1], target.split("/")[3]
    place = f"{ROOT}/projects/{project}/regions/{region}"
    shown = {
        "kind": "compute#operation",
        "id": str(secrets.randbelow(1 << 62)),
        "name": name,
        "operationType": kind,
        "targetLink": f"{ROOT}/{target}",
        "status": "DONE",
        "progress": 100,
        "region": place,
        "selfLink": f"{place}/operations/{name}",
    }
    state["compute_operations"][name] = shown
    return shown
