"""The TPU API (v2, v2alpha1) over the state: `handle` answers one HTTP request as the service does.

Field names are those of the generated client of gcloud 528. Texts are those of `research` pages and public issues; a text that nobody has
shown is marked [?].
"""

import re
import secrets
import time
from collections.abc import Mapping
from typing import Any

from lab.gcloud import catalog, history, lifecycle
from lab.gcloud.store import State, timestamp

Json = dict[str, Any]
PATH = re.compile(
    r"^/(?P<version>v1|v2|v2alpha1)/projects/(?P<project>[^/]+)/locations(?:/(?P<zone>[^/]+)"
    r"(?:/(?P<collection>\w+)(?:/(?P<name>[^/:]+)(?P<custom>:\w+)?)?)?)?$"
)
DELETABLE = ("ACCEPTED", "WAITING_FOR_RESOURCES", "SUSPENDED", "FAILED")
VERBS = {"GET": "get", "POST": "create", "DELETE": "delete", "PATCH": "update"}
STATUS = {
    400: "INVALID_ARGUMENT",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    429: "RESOURCE_EXHAUSTED",
}
STATUS |= {401: "UNAUTHENTICATED", 500: "INTERNAL", 503: "UNAVAILABLE"}


class ApiError(Exception):
    """A refusal of the service: `status` is that of HTTP. `raw`: gcloud shows it as an exception of its HTTP client."""

    raw = False

    def __init__(self, status: int, message: str, name: str = "", details: list[Json] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.name, self.details = status, message, name or STATUS[status], details or []

    def body(self) -> Json:
        error = {"code": self.status, "message": self.message, "status": self.name}
        return {"error": error | ({"details": self.details} if self.details else {})}


class PlannedRefusal(ApiError):
    """One that a test has planned: the state is kept, in which the plan is used up."""


def event_id() -> str:
    return f"[EID: 0x{secrets.token_hex(8)}]"


def handle(
    state: State, method: str, path: str, query: Mapping[str, str], body: Json | None = None, caller: str = "user"
) -> Json:
    """The answer to a request, or ApiError. `caller` is "user", or "instance" for a token from the metadata server."""
    match = PATH.match(path)
    if not match:
        raise ApiError(404, f"Method not found: {method} {path}", "NOT_FOUND")
    project, zone, collection, name = match["project"], match["zone"], match["collection"], match["name"]
    if not state["knobs"]["api_enabled"]:
        raise disabled(project)
    verb = "getGuestAttributes" if match["custom"] else VERBS[method]
    verb = "list" if verb == "get" and not name and collection else verb
    permit(state, f"tpu.{collection or 'locations'}.{verb}", f"projects/{project}/locations/{zone}", caller)
    if not zone:
        locations = [{"name": f"projects/{project}/locations/{z}", "locationId": z} for z in catalog.ZONES]
        return {"locations": locations}
    if zone not in catalog.ZONES and not (zone == "-" and verb == "list"):
        if verb == "create" and re.fullmatch(r"[a-z]+-[a-z]+\d+-[a-f]", zone):
            message = f'Cloud TPU received a bad request. The requested zone "{zone}" is not supported. {event_id()}'
            raise ApiError(400, message)
        raise ApiError(403, f"Permission denied on 'locations/{zone}' (or it may not exist).")
    parent = f"projects/{project}/locations/{zone}"
    match collection, verb:
        case "queuedResources", "create":
            return create_request(state, parent, query["queuedResourceId"], body or {})
        case "queuedResources", "delete":
            return delete_request(state, parent, name, query.get("force", "").lower() == "true")
        case "nodes", "create":
            return create_node(state, parent, query["nodeId"], body or {})
        case "nodes", "delete":
            return delete_node(state, parent, name)
        case "nodes", "update":
            return update_node(state, parent, name, query.get("updateMask", ""), body or {})
        case "nodes", "getGuestAttributes":
            return guest_attributes(state, parent, name, (body or {}).get("queryPath", ""))
        case (("queuedResources" | "nodes"), "list"):
            return {collection: visible(state, collection, parent)}
        case (("queuedResources" | "nodes" | "operations"), "get"):
            return get(state, collection, parent, name)
        case (("acceleratorTypes" | "runtimeVersions"), ("list" | "get")):
            return offer(parent, zone, collection, name)
    raise ApiError(404, f"Method not found: {method} {path}", "NOT_FOUND")


def permit(state: State, permission: str, resource: str, caller: str) -> None:
    if permission in state["knobs"]["denied"] or f"{caller}:{permission}" in state["knobs"]["denied"]:
        raise ApiError(403, f"Permission '{permission}' denied on '{resource}'")


def disabled(project: str) -> ApiError:
    """Shape of the details: google.rpc.ErrorInfo and Help, as any API that is off answers."""
    url = f"https://console.developers.google.com/apis/api/tpu.googleapis.com/overview?project={project}"
    message = (
        f"Cloud TPU API has not been used in project {project} before or it is disabled. Enable it by visiting {url} then retry. "
        "If you enabled this API recently, wait a few minutes for the action to propagate to our systems and retry."
    )
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "SERVICE_DISABLED",
        "domain": "googleapis.com",
        "metadata": {"service": "tpu.googleapis.com", "consumer": f"projects/{project}", "activationUrl": url},
    }
    links = [{"description": "Google developers console API activation", "url": url}]
    return ApiError(403, message, details=[info, {"@type": "type.googleapis.com/google.rpc.Help", "links": links}])


def absent(full_name: str) -> ApiError:
    return ApiError(404, f"Resource '{full_name}' was not found")


def records(state: State, collection: str) -> dict[str, Json]:
    kept: dict[str, Json] = state["requests" if collection == "queuedResources" else collection]
    return kept


def visible(state: State, collection: str, parent: str) -> list[Json]:
    """What a list shows: the state of `lag` seconds ago."""
    at = time.time() - state["knobs"]["lag"]["list"]
    prefix = parent.removesuffix("/-") + "/"
    views = (history.view(record, at) for key, record in records(state, collection).items() if key.startswith(prefix))
    return [view for view in views if view is not None]


def get(state: State, collection: str, parent: str, name: str) -> Json:
    full_name = f"{parent}/{collection}/{name}"
    record = records(state, collection).get(full_name)
    if record and collection == "operations":
        return lifecycle.operation_view(record)
    view = record and history.view(record, time.time() - state["knobs"]["lag"]["describe"])
    if not view:
        raise absent(full_name)
    return view


def living(state: State, collection: str, parent: str, name: str) -> Json:
    """The record that a change is for, without lag."""
    full_name = f"{parent}/{collection}/{name}"
    record = records(state, collection).get(full_name)
    if record is None or record["state"] == "GONE":
        raise absent(full_name)
    return record


def free_name(state: State, full_name: str, collection: str) -> None:
    """[?] Peers match the word ALREADY_EXISTS; nobody has shown the sentence."""
    record = records(state, collection).get(full_name)
    if record and (record["state"] != "GONE" or time.time() < record["since"] + state["knobs"]["name_taken_s"]):
        raise ApiError(409, f"Resource '{full_name}' already exists")


def check_type(accelerator_type: str, zone: str) -> None:
    if not catalog.offered(accelerator_type, zone):
        raise ApiError(
            400,
            f'Cloud TPU received a bad request. The requested accelerator configuration for accelerator type, "{accelerator_type}", '
            f'could not be found in the zonal accelerator configurations for "{zone}".; '
            f"the accelerator {accelerator_type} was not found in zone {zone} {event_id()}",
        )


def check_quota(state: State, zone: str, accelerator_type: str, preemptible: bool, nodes: int = 1) -> None:
    """Quota counts what exists, suspended and failed requests too."""
    if reason := lifecycle.quota_exhausted(state, zone, accelerator_type, preemptible, nodes):
        raise ApiError(429, reason)


def create_request(state: State, parent: str, name: str, body: Json) -> Json:
    zone, now = parent.rpartition("/")[2], time.time()
    full_name = f"{parent}/queuedResources/{name}"
    free_name(state, full_name, "queuedResources")
    (spec,) = body["tpu"]["nodeSpec"]
    check_type(spec["node"]["acceleratorType"], zone)
    nodes = node_ids(name, spec)
    for node in nodes:
        free_name(state, f"{parent}/nodes/{node}", "nodes")
    model = body.get("provisioningModel", "")
    preemptible = "spot" in body or model in ("SPOT", "FLEX_START")
    check_quota(state, zone, spec["node"]["acceleratorType"], preemptible, len(nodes))
    policy = body.get("queueingPolicy", {})
    operation = lifecycle.begin(state, parent, full_name, "create")
    record = {
        "name": full_name,
        "body": body | {"name": full_name, "createTime": timestamp(now)},
        "zone": zone,
        "type": spec["node"]["acceleratorType"],
        "node_ids": nodes,
        "preemptible": preemptible,
        "flex": model == "FLEX_START",
        "reserved": "reservationName" in body,
        "valid_until": now + seconds(policy["validUntilDuration"]) if "validUntilDuration" in policy else None,
        "run_limit": seconds(body["runDuration"]["maxRunDuration"]) if "runDuration" in body else None,
        "operation": operation,
        "history": [],
    }
    records(state, "queuedResources")[full_name] = record
    lifecycle.become(state, record, "CREATING", initiator="USER")
    return lifecycle.operation_view(state["operations"][operation])


def node_ids(name: str, spec: Json) -> list[str]:
    if "nodeId" in spec:
        return [spec["nodeId"]]
    several = spec.get("multisliceParams") or spec["multiNodeParams"]
    return [f"{several.get('nodeIdPrefix', name)}-{index}" for index in range(several["nodeCount"])]


def seconds(duration: str) -> float:
    return float(duration.removesuffix("s"))


def delete_request(state: State, parent: str, name: str, force: bool) -> Json:
    record = living(state, "queuedResources", parent, name)
    if record["state"] == "DELETING" and force:
        return lifecycle.operation_view(state["operations"][record["operation"]])
    if record["state"] not in DELETABLE and not force:
        raise ApiError(
            400,
            f"DeleteQueuedResource is not supported when state is {record['state']} (must be one of [{' '.join(DELETABLE)}])",
            "FAILED_PRECONDITION",
        )
    lifecycle.finish(state, record["operation"])
    record["operation"] = lifecycle.begin(state, parent, record["name"], "delete")
    lifecycle.begin_deletion(state, record)
    return lifecycle.operation_view(state["operations"][record["operation"]])


def create_node(state: State, parent: str, name: str, body: Json) -> Json:
    zone = parent.rpartition("/")[2]
    full_name = f"{parent}/nodes/{name}"
    free_name(state, full_name, "nodes")
    body = {"acceleratorType": "v2-8", **body}
    check_type(body["acceleratorType"], zone)
    scheduling = body.get("schedulingConfig", {})
    preemptible = bool(scheduling.get("spot") or scheduling.get("preemptible"))
    check_quota(state, zone, body["acceleratorType"], preemptible)
    operation = lifecycle.begin(state, parent, full_name, "create")
    lifecycle.new_node(state, full_name, body, preemptible, bool(scheduling.get("reserved")), operation=operation)
    return lifecycle.operation_view(state["operations"][operation])


def delete_node(state: State, parent: str, name: str) -> Json:
    record = living(state, "nodes", parent, name)
    if record["state"] == "DELETING":
        return lifecycle.operation_view(state["operations"][record["operation"]])
    lifecycle.finish(state, record["operation"])
    record["operation"] = lifecycle.begin(state, parent, record["name"], "delete")
    lifecycle.begin_deletion(state, record)
    return lifecycle.operation_view(state["operations"][record["operation"]])


def update_node(state: State, parent: str, name: str, mask: str, body: Json) -> Json:
    record = living(state, "nodes", parent, name)
    if record["state"] not in ("READY", "CREATING"):
        message = (
            f"Cloud TPU received a bad request. update is not supported while in state {record['state']} {event_id()}"
        )
        raise ApiError(400, message)
    for field in mask.split(","):
        record["body"][field] = body.get(field, {})
    lifecycle.remember(record)
    operation = lifecycle.begin(state, parent, record["name"], "update")
    lifecycle.finish(state, operation)
    return lifecycle.operation_view(state["operations"][operation])


def guest_attributes(state: State, parent: str, name: str, query_path: str) -> Json:
    """In the order of networkEndpoints."""
    record = living(state, "nodes", parent, name)
    get(state, "nodes", parent, name)
    answers = []
    for host in lifecycle.endpoint_hosts(record):
        items = [{"namespace": "hostkeys", "key": "ssh-ed25519", "value": host["host_key"]}] if host["host_key"] else []
        items += [{"namespace": "guestInventory", "key": "Hostname", "value": host["name"]}]
        items += [{"namespace": "guest", "key": "hostname", "value": host["name"]}]
        namespace, _, key = query_path.partition("/")
        chosen = [i for i in items if namespace in ("", i["namespace"]) and key in ("", i["key"])]
        answers.append({"queryPath": query_path, "queryValue": {"items": chosen}})
    return {"guestAttributes": answers}


def offer(parent: str, zone: str, collection: str, name: str | None) -> Json:
    if collection == "acceleratorTypes":
        items = [
            item for z in ([zone] if zone != "-" else catalog.ZONES) for item in catalog.accelerator_types(parent, z)
        ]
    else:
        items = [{"name": f"{parent}/runtimeVersions/{version}", "version": version} for version in catalog.RUNTIMES]
    if name is None:
        return {collection: items}
    for item in items:
        if item["name"].endswith(f"/{name}"):
            return item
    raise absent(f"{parent}/{collection}/{name}")
