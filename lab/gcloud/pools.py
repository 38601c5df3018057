"""GKE in the simulated cloud: node pools, their nodes and operations, and when each state goes on to the next: `advance` at every tick."""

import fnmatch
import re
import secrets
import time
import uuid
from typing import Any

from lab.gcloud import catalog, history, metadata
from lab.gcloud.pool_texts import REFUSALS, STAYS, PoolRefusal
from lab.gcloud.store import State, timestamp

Json = dict[str, Any]
SERVICE = "https://container.googleapis.com/v1"
FAMILIES = {"tpu7x": "tpu7x", "ct6e": "tpu-v6e-slice", "ct5p": "tpu-v5p-slice", "ct5lp": "tpu-v5-lite-podslice"}
GENERATIONS = {"tpu7x": "tpu7x", "ct6e": "v6e", "ct5p": "v5p", "ct5lp": "v5litepod"}
SINGLE_HOST = {
    ("tpu7x", 4): "2x2x1",
    ("tpu7x", 1): "1x1x1",
    ("ct5p", 4): "2x2x1",
    ("ct6e", 4): "2x2",
    ("ct5lp", 4): "2x2",
}
RPC = {
    "RESOURCE_EXHAUSTED": 8,
    "INVALID_ARGUMENT": 3,
    "FAILED_PRECONDITION": 9,
    "NOT_FOUND": 5,
    "ABORTED": 10,
}  # google.rpc.Code


def family(machine_type: str) -> str:
    return machine_type.partition("-")[0]


def chips(machine_type: str) -> int:
    """TPU chips of a VM: 4 of tpu7x-standard-4t; 0 of machines without a TPU."""
    match = re.fullmatch(r"(\w+)-.*-(\d+)t", machine_type)
    return int(match[2]) if match and match[1] in FAMILIES else 0


def product(topology: str) -> int:
    total = 1
    for side in topology.split("x"):
        total *= int(side)
    return total


def location_link(full_name: str) -> str:
    """The resource's own address: that of a zonal cluster has `zones` in it."""
    return f"{SERVICE}/" + re.sub(r"/locations/([a-z0-9]+-[a-z0-9]+-[a-z]/)", r"/zones/\1", full_name)


def begin(state: State, cluster: str, target: str, kind: str, until: float | None = None) -> str:
    """The full name of a new operation of a cluster; one with `until` ends by itself then."""
    parent = cluster.rpartition("/clusters/")[0]
    stamp = f"{time.time_ns() // 1_000_000}-{uuid.uuid4()}"
    full_name = f"{parent}/operations/operation-{stamp}"
    record = {"name": full_name, "cluster": cluster, "target": target, "kind": kind, "created": time.time()}
    record["pending_until"] = record["created"] + state["knobs"]["times"]["operation_pending"]
    state["gke_operations"][full_name] = record | {"done_at": None, "until": until, "aborted_at": None, "error": None}
    return full_name


def finish(state: State, operation: str | None, error: Json | None = None) -> None:
    """`error`: {"message", "code", "canonical"}."""
    record = state["gke_operations"].get(operation)
    if record and record["done_at"] is None:
        record["done_at"], record["error"] = time.time() + state["knobs"]["times"]["operation"], error


def done(record: Json) -> bool:
    return record["done_at"] is not None and time.time() >= record["done_at"]


def status(record: Json) -> str:
    if done(record):
        return "DONE"
    if record["aborted_at"] is not None:
        return "ABORTING"
    return "PENDING" if time.time() < record["pending_until"] else "RUNNING"


def running(state: State, cluster: str) -> list[Json]:
    """The operations of a cluster that have not ended."""
    return [dict(r) for r in state["gke_operations"].values() if r["cluster"] == cluster and not done(r)]


def operation_view(record: Json) -> Json:
    project, location, name = record["name"].split("/")[1::2]
    shown: Json = {
        "name": name,
        "operationType": record["kind"],
        "selfLink": numbered(location_link(record["name"]), project),
        "startTime": timestamp(record["created"]),
        "status": status(record),
        "targetLink": numbered(location_link(record["target"]), project),
        "zone": location,
    }
    if done(record):
        shown["endTime"] = timestamp(record["done_at"])
        if error := record["error"]:
            shown["statusMessage"] = error["message"]
            shown["error"] = {"code": RPC[error["canonical"]], "message": error["message"]}
            shown |= {"detail": error["message"], "clusterConditions": [condition(error)]}
    return shown


def numbered(link: str, project: str) -> str:
    """Links of GKE name the project by its number."""
    return link.replace(f"/projects/{project}/", f"/projects/{metadata.PROJECT_NUMBER}/")


def condition(error: Json) -> Json:
    return {"canonicalCode": error["canonical"], "message": error["message"]} | (
        {"code": error["code"]} if error["code"] else {}
    )


def view(state: State, record: Json) -> Json:
    """The API's NodePool."""
    body = dict(record["body"])
    body |= {"status": record["state"], "selfLink": location_link(record["name"])}
    project, short = record["name"].split("/")[1], record["name"].split("/")[-1]
    group = f"gke-{record['cluster'].split('/')[-1]}-{short}-{record['hex']}-grp"
    body["instanceGroupUrls"] = [
        f"https://www.googleapis.com/compute/v1/projects/{project}/zones/{zone}/instanceGroupManagers/{group}"
        for zone in body["locations"]
    ]
    if record["error"]:
        body |= {"statusMessage": record["error"]["message"], "conditions": [condition(record["error"])]}
    return body


def become(state: State, record: Json, new: str, error: Json | None = None) -> None:
    record["state"], record["since"], record["error"] = new, time.time(), error
    history.keep(record, None if new == "GONE" else view(state, record))


def new_pool(state: State, full_name: str, body: Json, zone: str, topology: str, foreign: bool = False) -> Json:
    """A pool that is PROVISIONING; `topology` is that of its slice, "" without a TPU."""
    config = body["config"]
    affinity = config.get("reservationAffinity", {})
    reservation = (affinity.get("values") or [""])[0]
    model = "flex" if config.get("flexStart") else "spot" if config.get("spot") else "on-demand"
    autoscaled = bool(body.get("autoscaling", {}).get("enabled")) and not body.get("initialNodeCount")
    count = body["autoscaling"]["maxNodeCount"] if autoscaled else body.get("initialNodeCount", 0)
    record: Json = {
        "name": full_name,
        "cluster": full_name.rpartition("/nodePools/")[0],
        "zone": zone,
        "machine_type": config["machineType"],
        "chips": chips(config["machineType"]),
        "vms": count,
        "autoscaled": autoscaled,
        "topology": topology,
        "model": "reserved" if reservation else model,
        "reservation": reservation,
        "policy": body.get("placementPolicy", {}).get("policyName", ""),
        "run_limit": float(config["maxRunDuration"].rstrip("s")) if "maxRunDuration" in config else None,
        "foreign": foreign,
        "operation": None,
        "outcome": None,
        "used_at": 0.0,
        "nodes": [],
        "drained": False,
        "hex": secrets.token_hex(4),
        "history": [],
        "error": None,
        "body": body,
    }
    state["pools"][full_name] = record
    become(state, record, "PROVISIONING")
    return record


def details(state: State, record: Json, refusal: PoolRefusal, **more: Any) -> Json:
    """The error of an operation or of a pool: a refusal with its blanks filled in."""
    shown = {
        "gce": refusal.instance or refusal.code,
        "status": "CREATING",
        "needed": record["vms"],
        "short": record["vms"],
    }
    message = refusal.text.format_map(blanks(record) | shown | more)
    return {"message": message, "code": refusal.code, "canonical": refusal.canonical}


def blanks(record: Json) -> Json:
    zone = record["zone"]
    return {
        "pool": record["name"].split("/")[-1],
        "project": record["name"].split("/")[1],
        "cluster": record["cluster"].split("/")[-1],
        "zone": zone,
        "region": catalog.region(zone),
        "vms": record["vms"],
        "machine_type": record["machine_type"],
        "reservation": record["reservation"],
        "instance": f"gke-tpu-{record['hex']}-{record['hex'][:4]}",
        "quota": "TPUS_PER_TPU_FAMILY",
        "limit": "0.0",
    }


def advance(state: State, with_pods: bool = False) -> None:
    """`with_pods`: whether somebody sees the pods of nodes, and says when they are gone."""
    now = time.time()
    for operation in state["gke_operations"].values():
        if operation["until"] is not None and now >= operation["until"]:
            finish(state, operation["name"])
    for pool in list(state["pools"].values()):
        operation = state["gke_operations"].get(pool["operation"]) or {}
        match pool["state"]:
            case "PROVISIONING" if operation.get("aborted_at") is not None:
                abort(state, pool, operation, now)
            case "PROVISIONING" if now >= operation.get("pending_until", 0.0):
                provision(state, pool, now)
            case "RUNNING_WITH_ERROR":
                fill(state, pool, now)
            case "STOPPING" if pool.get("kept_as"):
                if now >= pool["since"] + state["knobs"]["times"]["pool_deleting"]:
                    give_up_deletion(state, pool)
            case "STOPPING" if now >= pool["since"] + state["knobs"]["times"]["pool_deleting"] and (
                pool["drained"] or not with_pods
            ):
                remove_nodes(state, pool)
                finish(state, pool["operation"])
                become(state, pool, "GONE")
        advance_nodes(state, pool, now)


def give_up_deletion(state: State, pool: Json) -> None:
    """[?] what GKE shows of a deletion that fails."""
    error = {"message": "Internal error. Please try again", "code": "", "canonical": "ABORTED"}
    finish(state, pool["operation"], error)
    become(state, pool, pool["kept_as"], pool["error"])
    pool["kept_as"] = ""


def abort(state: State, pool: Json, operation: Json, now: float) -> None:
    """A creation that somebody cancels ends some time later; [?] what is said of it, and the state of its pool."""
    if now >= operation["aborted_at"]:
        error = {"message": "Operation was aborted.", "code": "", "canonical": "ABORTED"}
        finish(state, pool["operation"], error)
        become(state, pool, "ERROR", error)


def provision(state: State, pool: Json, now: float) -> None:
    times = state["knobs"]["times"]
    refusal = REFUSALS[pool["outcome"]["kind"]] if pool["outcome"] and pool["outcome"]["kind"] else None
    if now < pool["since"] + (times["pool_retry"] if refusal and refusal.after_retries else times["pool"]):
        return
    if refusal is None and not pool["autoscaled"]:
        if pool["reservation"] and usable(state, pool) < pool["vms"]:
            refusal = REFUSALS["later"]
        elif not pool["reservation"] and not has_capacity(state, pool):
            if now < pool["since"] + times["pool_retry"]:
                return
            refusal = REFUSALS["stockout"]
    if refusal is None:
        finish(state, pool["operation"])
        become(state, pool, "RUNNING")
        if not pool["autoscaled"]:
            start_nodes(state, pool, now)
        return
    error = details(state, pool, refusal, **(pool["outcome"] or {}).get("more", {}))
    if pool["outcome"] and pool["outcome"].get("message"):
        error["message"] = pool["outcome"]["message"]
    finish(state, pool["operation"], error)
    if refusal.arrives == STAYS:
        become(state, pool, "RUNNING_WITH_ERROR", error)  # [?] which state such a pool shows
        if pool["outcome"] and pool["outcome"].get("nodes"):
            start_nodes(state, pool, now)
    else:
        become(state, pool, "ERROR", error)


def fill(state: State, pool: Json, now: float) -> None:
    """A pool whose nodes were to come later gets them as soon as its reservation has room."""
    if pool["nodes"]:
        return
    fill_at = (pool["outcome"] or {}).get("fill_at")
    if fill_at is None and pool["outcome"] is None:
        ready = bool(pool["reservation"]) and usable(state, pool) >= pool["vms"]
    else:
        ready = fill_at is not None and now >= fill_at
    if ready:
        become(state, pool, "RUNNING")
        start_nodes(state, pool, now)


def start_nodes(state: State, pool: Json, now: float) -> None:
    times = state["knobs"]["times"]
    wanted = (pool["outcome"] or {}).get("nodes")
    for index in range(pool["vms"] if wanted is None else wanted):
        add_node(pool, now + (index + 1) * times["node_apart"])


def add_node(pool: Json, ready_at: float) -> None:
    name = f"gke-tpu-{pool['hex']}-{secrets.token_hex(2)}"
    if not pool["chips"]:
        name = (
            f"gke-{pool['cluster'].split('/')[-1]}-{pool['name'].split('/')[-1]}-{pool['hex']}-{secrets.token_hex(2)}"
        )
    node = {"name": name, "ready_at": ready_at, "on": False, "gone_at": None, "back_s": None}
    node |= {"notice_s": 0.0, "lost_at": None}
    pool["nodes"].append(node)


def advance_nodes(state: State, pool: Json, now: float) -> None:
    for node in list(pool["nodes"]):
        if not node["on"] and node["gone_at"] is None and now >= node["ready_at"]:
            node["on"] = True
            if not pool["foreign"]:
                row = {"id": node["name"], "name": node["name"], "pool": pool["name"].split("/")[-1]}
                row |= {"zone": pool["zone"], "chips": pool["chips"], "ready_at": now, "gone_at": None}
                state["ledger"].append(row)
        elif node["on"] and pool["run_limit"] and now >= node["ready_at"] + pool["run_limit"]:
            lose_node(state, node)
        elif node["on"] and node["lost_at"] is not None and now >= node["lost_at"]:
            lose_node(state, node, node["back_s"])
        elif node["gone_at"] and node["back_s"] is not None and now >= node["gone_at"] + node["back_s"]:
            pool["nodes"].remove(node)
            add_node(pool, now)
    if pool["autoscaled"] and pool["nodes"] and all(node["gone_at"] for node in pool["nodes"]):
        pool["nodes"] = []  # scaled to zero


def lose_node(state: State, node: Json, back_s: float | None = None) -> None:
    node["on"], node["gone_at"], node["back_s"] = False, time.time(), back_s
    for row in state["ledger"]:
        if row["id"] == node["name"] and row["gone_at"] is None:
            row["gone_at"] = node["gone_at"]


def remove_nodes(state: State, pool: Json) -> None:
    for node in pool["nodes"]:
        lose_node(state, node)
    pool["nodes"] = []


def living(pool: Json) -> list[Json]:
    """Nodes that have a VM, ready or about to be."""
    return [node for node in pool["nodes"] if node["gone_at"] is None]


def has_capacity(state: State, pool: Json) -> bool:
    """Free chips of a zone, as `capacity` says, less what its pools use."""
    zone = pool["zone"]
    for key in (f"{zone}/{pool['model']}", zone):
        steps = state["knobs"]["capacity"].get(key)
        if steps is not None:
            limit = next((limit for since, limit in reversed(steps) if since <= time.time()), None)
            others = [other for other in state["pools"].values() if other["zone"] == zone and not other["foreign"]]
            used = sum(len(living(other)) * other["chips"] for other in others if not other["reservation"])
            return limit is None or used + pool["vms"] * pool["chips"] <= limit
    return True


def in_use(state: State, reservation: Json) -> int:
    """VMs of a reservation that somebody has: others, and pools of ours, with their nodes or without."""
    holders = [pool for pool in state["pools"].values() if pool["reservation"].split("/")[0] == reservation["name"]]
    holders = [pool for pool in holders if pool["zone"] == reservation["zone"] and pool["state"] != "GONE"]
    return int(reservation["in_use"]) + sum(len(living(pool)) for pool in holders)


def usable(state: State, pool: Json) -> int:
    """VMs that its reservation can start now."""
    reservation = find_reservation(state, pool["name"].split("/")[1], pool["zone"], pool["reservation"])
    if reservation is None:
        return 0
    free: int = reservation["vms"] - in_use(state, reservation)
    return free if reservation["usable"] is None else min(free, reservation["usable"])


def find_reservation(state: State, project: str, zone: str, name: str) -> Json | None:
    """`name` may have a block in it: NAME/reservationBlocks/BLOCK; that of another project is projects/P/reservations/NAME."""
    parts = name.split("/")
    if parts[0] == "projects":
        project, parts = parts[1], parts[3:]
    for record in state["reservations"]:
        if (record["project"], record["zone"], record["name"]) == (project, zone, parts[0]):
            return dict(record)
    return None


def planned_outcome(state: State, pool: str) -> Json | None:
    """What a knob says about the next pool of a name; it is used up by it."""
    for outcome in state["knobs"]["pool_outcomes"]:
        if fnmatch.fnmatch(pool, outcome["pool"]):
            outcome["count"] -= 1
            if outcome["count"] <= 0:
                state["knobs"]["pool_outcomes"].remove(outcome)
            return dict(outcome)
    return None
