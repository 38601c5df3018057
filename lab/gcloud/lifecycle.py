"""States of queued resources, nodes and operations, and when each goes on to the next: `advance` is called at every tick."""

import fnmatch
import secrets
import time
from typing import Any

from lab.gcloud import catalog, history
from lab.gcloud.store import State, number, timestamp

Json = dict[str, Any]
ON = ("CREATING", "READY", "RESTARTING", "REPAIRING")  # states of a node whose machines use capacity


def begin(state: State, parent: str, target: str, verb: str) -> str:
    """The name of a new operation that is pending."""
    project, zone = parent.split("/")[1], parent.split("/")[3]
    stamp = f"{time.time_ns() // 1_000_000}-{number(state):x}-{secrets.token_hex(4)}-{secrets.token_hex(4)}"
    name = f"projects/{project}/locations/{zone}/operations/operation-{stamp}"
    state["operations"][name] = {
        "name": name,
        "target": target,
        "verb": verb,
        "created": time.time(),
        "done_at": None,
        "state": "ON",
    }
    return name


def finish(state: State, operation: str | None, error: Json | None = None) -> None:
    """End an operation; its end shows `times.operation` seconds later. What has ended stays as it is."""
    record = state["operations"].get(operation)
    if record and record["done_at"] is None:
        record["done_at"] = time.time() + state["knobs"]["times"]["operation"]
        record["error"] = error
        target = state["requests"].get(record["target"]) or state["nodes"].get(record["target"])
        record["response"] = present(target) if target and record["verb"] != "delete" else {}


def operation_view(record: Json) -> Json:
    collection = record["target"].split("/")[-2]
    metadata = {
        "@type": "type.googleapis.com/google.cloud.common.OperationMetadata",
        "createTime": timestamp(record["created"]),
        "target": record["target"],
        "verb": record["verb"],
        "cancelRequested": False,
        "apiVersion": "v2",
    }
    shown: Json = {"name": record["name"], "metadata": metadata, "done": False}
    if record["done_at"] is None or time.time() < record["done_at"]:
        return shown
    metadata["endTime"] = timestamp(record["done_at"])
    if record["error"]:
        return shown | {"done": True, "error": record["error"]}
    kind = "google.protobuf.Empty"
    if record["verb"] != "delete":
        kind = f"google.cloud.tpu.v2.{'Node' if collection == 'nodes' else 'QueuedResource'}"
    return shown | {"done": True, "response": {"@type": f"type.googleapis.com/{kind}"} | record["response"]}


def become(state: State, record: Json, new: str, initiator: str = "SERVICE", error: Json | None = None) -> None:
    record["state"], record["since"] = new, time.time()
    if "node_ids" in record:
        record["initiator"], record["failed"] = initiator, error
    if new == "GONE":
        finish(state, record["operation"])
    remember(record)


def remember(record: Json) -> None:
    """Keep what the record looks like from now on, for readers that lag behind."""
    history.keep(record, None if record["state"] == "GONE" else present(record))


def present(record: Json) -> Json:
    body = dict(record["body"])
    if "node_ids" in record:
        data = {"state": record["state"], "stateInitiator": record["initiator"]}
        kind = {"WAITING_FOR_RESOURCES": "accepted"}.get(record["state"], record["state"].lower())
        data[f"{kind}Data"] = {"error": record["failed"]} if record["failed"] else {}
        return body | {"state": data}
    body |= {"state": record["state"]}
    if record["state"] in ("READY", "RESTARTING", "REPAIRING", "PREEMPTED"):
        body["health"] = record["health"]
    if record["hosts"] and record["state"] != "CREATING":
        body["networkEndpoints"] = [endpoint(record, host) for host in endpoint_hosts(record)]
    return body


def endpoint(record: Json, host: Json) -> Json:
    external = record["body"]["networkConfig"].get("enableExternalIps")
    access = {"externalIp": host["address"]} if external else {}
    return {"ipAddress": host["internal"], "port": 8470, "accessConfig": access}


def endpoint_hosts(record: Json) -> list[Json]:
    """Its hosts in the order of networkEndpoints."""
    return [record["hosts"][worker] for worker in record["order"] if worker < len(record["hosts"])]


def new_node(
    state: State,
    full_name: str,
    body: Json,
    preemptible: bool,
    reserved: bool,
    operation: str | None = None,
    request: str = "",
) -> None:
    """`request` is the full name of the queued resource that it belongs to."""
    now, zone = time.time(), full_name.split("/")[3]
    network = {"network": "default", "enableExternalIps": True, **body.get("networkConfig", {})}
    count = catalog.num_hosts(body["acceleratorType"], state["knobs"]["num_hosts"])
    record = {
        "name": full_name,
        "zone": zone,
        "type": body["acceleratorType"],
        "chips": catalog.chips(body["acceleratorType"]),
        "num_hosts": count,
        "order": order(state, full_name, count),
        "preemptible": preemptible,
        "reserved": reserved,
        "request": request,
        "operation": operation,
        "hosts": [],
        "boot": "",
        "health": "HEALTHY",
        "preempt": None,
        "token": f"ya29.lab-{secrets.token_hex(16)}",
        "hex": secrets.token_hex(4),
        "history": [],
        "body": {k: v for k, v in body.items() if k != "schedulingConfig"}
        | {
            "name": full_name,
            "id": str(secrets.randbelow(1 << 62)),
            "apiVersion": "V2",
            "createTime": timestamp(now),
            "networkConfig": network,
            "schedulingConfig": {k: True for k, on in (("spot", preemptible), ("reserved", reserved)) if on},
            "serviceAccount": {"email": "lab@example.iam.gserviceaccount.com", **body.get("serviceAccount", {})},
        }
        | ({"queuedResource": request} if request else {}),
    }
    record["doomed"] = not request and not has_capacity(state, zone, record["chips"], preemptible, reserved)
    if not record["doomed"]:
        record["boot"] = "wanted"
    state["nodes"][full_name] = record
    become(state, record, "CREATING")


def order(state: State, full_name: str, count: int) -> list[int]:
    """Worker numbers in the order of networkEndpoints."""
    for pattern, chosen in state["knobs"]["endpoint_order"]:
        if fnmatch.fnmatch(full_name.split("/")[-1], pattern):
            return (sorted(chosen[:count]) == list(range(count)) and chosen[:count]) or list(range(count))[::-1]
    return list(range(count))


def has_capacity(state: State, zone: str, chips: int, preemptible: bool, reserved: bool = False) -> bool:
    """Free chips of a zone: what `capacity` says less what runs there. A zone that it does not name has no limit."""
    model = "reserved" if reserved else "spot" if preemptible else "on-demand"
    for key in (f"{zone}/{model}", zone):
        steps = state["knobs"]["capacity"].get(key)
        if steps is not None:
            limit = next((limit for since, limit in reversed(steps) if since <= time.time()), None)
            used = [n["chips"] for n in state["nodes"].values() if n["zone"] == zone and n["state"] in ON and n["boot"]]
            return limit is None or sum(used) + chips <= limit
    return True


def quota_exhausted(state: State, zone: str, accelerator_type: str, preemptible: bool, nodes: int) -> str:
    """The service's sentence when another allocation exceeds a limit; "" when none does."""
    generation = catalog.generation(accelerator_type)
    chips = catalog.chips(accelerator_type) * nodes
    for limit in state["knobs"]["quota"]:
        scope, place = limit["scope"], limit["place"]
        here = zone if scope == "zone" else catalog.region(zone)
        if place != here or limit["preemptible"] != preemptible or limit["generation"] != generation:
            continue
        holders = [*state["requests"].values(), *(n for n in state["nodes"].values() if not n["request"])]
        used = sum(
            catalog.chips(h["type"]) * len(h.get("node_ids", [0]))
            for h in holders
            if h["state"] != "GONE"
            and h["preemptible"] == preemptible
            and catalog.generation(h["type"]) == generation
            and here in (h["zone"], catalog.region(h["zone"]))
        )
        if used + chips > limit["chips"]:
            kind = "Preemptible" if preemptible else ""
            per = "Zone" if scope == "zone" else "Region"
            name = f"TPU{generation.removeprefix('tpu').upper()}{kind}PerProjectPer{per}ForTPUAPI"
            return f"Quota limit '{name}' has been exceeded. Limit: {limit['chips']} in {scope} {place}."
    return ""


def advance(state: State) -> None:
    """Everything whose time has come goes on."""
    now, times = time.time(), state["knobs"]["times"]
    for request in list(state["requests"].values()):
        advance_request(state, request, now, times)
    for node in list(state["nodes"].values()):
        advance_node(state, node, now, times)


def nodes_of(state: State, request: Json) -> list[Json]:
    parent = request["name"].rpartition("/queuedResources/")[0]
    named = [state["nodes"].get(f"{parent}/nodes/{name}") for name in request["node_ids"]]
    return [node for node in named if node and node["request"] == request["name"] and node["state"] != "GONE"]


def advance_request(state: State, request: Json, now: float, times: Json) -> None:
    age, nodes = now - request["since"], nodes_of(state, request)
    match request["state"]:
        case "CREATING" if age >= times["creating"]:
            refused = unsupported_flex(request)
            become(state, request, "FAILED" if refused else "ACCEPTED", error=refused)
            finish(state, request["operation"], refused)
        case "ACCEPTED" | "WAITING_FOR_RESOURCES" if request["valid_until"] and now > request["valid_until"]:
            expired = {"code": 4, "message": "The queued resource was not provisioned before its valid-until time [?]"}
            become(state, request, "FAILED", error=expired)
        case "ACCEPTED" if age >= times["accepted"]:
            if not provision(state, request):
                become(state, request, "WAITING_FOR_RESOURCES")
        case "WAITING_FOR_RESOURCES":
            provision(state, request)
        case "PROVISIONING" if error := provisioning_error(state, request):
            remove(state, nodes)
            if error["back"]:
                become(state, request, "WAITING_FOR_RESOURCES")
            else:
                become(state, request, "FAILED", error={"code": error["code"], "message": error["message"]})
        case "PROVISIONING" if any(node["state"] == "PREEMPTED" for node in nodes):
            remove(state, nodes)
            become(state, request, "WAITING_FOR_RESOURCES")
        case "PROVISIONING" if age >= times["provisioning"] and all(node["boot"] == "on" for node in nodes):
            for node in nodes:
                make_ready(state, node)
            become(state, request, "ACTIVE")
        case "ACTIVE":
            over = request["run_limit"] is not None and age >= request["run_limit"]
            lost = len(nodes) < len(request["node_ids"]) or any(n["state"] in ("PREEMPTED", "DELETING") for n in nodes)
            if over or lost:
                user = any(n["state"] == "DELETING" for n in nodes)
                switch_off(state, nodes)
                become(state, request, "SUSPENDING", initiator="USER" if user else "SERVICE")
        case "SUSPENDING" if age >= times["suspending"]:
            remove(state, nodes)
            become(state, request, "SUSPENDED", initiator=request["initiator"])
        case "DELETING" if request.get("kept_as"):
            if age >= times["deleting"]:
                give_up_deletion(state, request)
        case "DELETING":
            if any(node["state"] != "DELETING" for node in nodes):
                switch_off(state, nodes)
            if age >= times["deleting"]:
                remove(state, nodes)
                become(state, request, "GONE")


def begin_deletion(state: State, record: Json) -> None:
    """`kept_as`: of one that will fail, the state in which it is afterwards. [?] what the cloud shows of a deletion that fails."""
    fails = state["knobs"]["failing_deletions"] > 0 and record["state"] != "DELETING"
    if fails:
        state["knobs"]["failing_deletions"] -= 1
    record["kept_as"] = record["state"] if fails else ""
    become(state, record, "DELETING", initiator="USER")


def give_up_deletion(state: State, record: Json) -> None:
    finish(state, record["operation"], {"code": 13, "message": "Internal error. Please try again"})
    become(state, record, record["kept_as"], initiator="USER")
    record["kept_as"] = ""


def unsupported_flex(request: Json) -> Json | None:
    if not request["flex"] or request["zone"] in catalog.FLEX_ZONES.get(catalog.generation(request["type"]), ()):
        return None
    text = f'FLEX_START provisioning model is not supported for accelerator type "{request["type"]}" in location "{request["zone"]}"'
    return {"code": 3, "message": text}


def provisioning_error(state: State, request: Json) -> Json | None:
    """The next planned failure that this request's name matches; it is used up."""
    plans = state["knobs"]["provisioning_errors"]
    for plan in plans:
        if fnmatch.fnmatch(request["name"].split("/")[-1], plan["request"]):
            plans.remove(plan)
            return dict(plan)
    return None


def provision(state: State, request: Json) -> bool:
    """Create the nodes of a queued resource, if there is room for all of them."""
    chips = catalog.chips(request["type"]) * len(request["node_ids"])
    if not has_capacity(state, request["zone"], chips, request["preemptible"], request["reserved"]):
        return False
    parent = request["name"].rpartition("/queuedResources/")[0]
    spec = request["body"]["tpu"]["nodeSpec"][0]["node"]
    for name in request["node_ids"]:
        full_name = f"{parent}/nodes/{name}"
        new_node(state, full_name, spec, request["preemptible"], request["reserved"], request=request["name"])
    become(state, request, "PROVISIONING")
    return True


def advance_node(state: State, node: Json, now: float, times: Json) -> None:
    age = now - node["since"]
    match node["state"]:
        case "CREATING" if node["doomed"] and age >= times["stockout"]:
            finish(state, node["operation"], stockout(node))
            if age >= times["stockout"] + times["ghost"]:
                remove(state, [node])
        case "CREATING" if not node["request"] and node["boot"] == "on" and age >= times["provisioning"]:
            make_ready(state, node)
            finish(state, node["operation"])
        case "READY" | "RESTARTING" | "REPAIRING" if node.get("maintenance"):
            maintain(state, node, node["maintenance"], now)
        case "DELETING" if node.get("kept_as"):
            if age >= times["deleting"]:
                give_up_deletion(state, node)
        case "DELETING":
            node["boot"] = "off"
            if age >= times["deleting"] and not node["request"]:
                remove(state, [node])
    if node["preempt"] and node["state"] in ON and now >= node["preempt"]["at"] + node["preempt"]["notice_s"]:
        if node["state"] == "CREATING":
            text = "Cloud TPU received a bad request. update is not supported while in state PREEMPTED"
            finish(state, node["operation"], {"code": 3, "message": f"{text} [EID: 0x{secrets.token_hex(8)}]"})
        node["boot"] = "off"
        become(state, node, "PREEMPTED")
        close_account(state, node)


def maintain(state: State, node: Json, plan: Json, now: float) -> None:
    """UNHEALTHY_MAINTENANCE, then away with or without a restart of the hosts, then healthy again; hosts keep addresses, keys and disks."""
    if node["state"] == "READY":
        if node["health"] == "HEALTHY":
            node["health"] = "UNHEALTHY_MAINTENANCE"
            remember(node)
        if now >= plan["at"] + plan["unhealthy_s"]:
            node["boot"] = "off" if plan["state"] == "RESTARTING" else node["boot"]
            become(state, node, plan["state"])
    elif plan["away_s"] is not None and now >= node["since"] + plan["away_s"]:
        if node["boot"] == "off":
            node["boot"] = "wanted"
        elif node["boot"] == "on":
            node["maintenance"], node["health"] = None, "HEALTHY"
            become(state, node, "READY")


def stockout(node: Json) -> Json:
    if node["reserved"]:
        text = "Insufficient reserved capacity. Contact customer support to increase your reservation."
    else:
        text = (
            f'There is no more capacity in the zone "{node["zone"]}"; you can try in another zone where Cloud TPU Nodes are offered '
            "(see https://cloud.google.com/tpu/docs/regions)"
        )
    return {"code": 9 if node["reserved"] else 8, "message": f"{text} [EID: 0x{secrets.token_hex(8)}]"}


def make_ready(state: State, node: Json) -> None:
    become(state, node, "READY")
    row = {"name": node["name"].split("/")[-1], "zone": node["zone"], "chips": node["chips"]}
    state["ledger"].append(row | {"id": node["body"]["id"], "ready_at": node["since"], "gone_at": None})


def close_account(state: State, node: Json) -> None:
    for row in state["ledger"]:
        if row["id"] == node["body"]["id"] and row["gone_at"] is None:
            row["gone_at"] = time.time()


def switch_off(state: State, nodes: list[Json]) -> None:
    for node in nodes:
        node["boot"] = "off"
        if node["state"] != "DELETING":
            become(state, node, "DELETING")


def remove(state: State, nodes: list[Json]) -> None:
    for node in nodes:
        node["boot"] = "off"
        close_account(state, node)
        become(state, node, "GONE")
