"""The GKE API (v1) over the state: `handle` answers one HTTP request as the service does. Texts that nobody has shown are marked [?]."""

import re
import time
from collections.abc import Mapping
from typing import Any

from lab.gcloud import catalog, history, pools
from lab.gcloud.api import ApiError, PlannedRefusal
from lab.gcloud.pool_texts import CALL, REFUSALS
from lab.gcloud.store import State

Json = dict[str, Any]
PATH = re.compile(
    r"^/v1(?:beta1|alpha1)?/projects/(?P<project>[^/]+)/locations/(?P<location>[^/]+)/"
    r"(?:operations(?:/(?P<operation>[^/]+))?|clusters(?:/(?P<cluster>[^/]+)(?:/nodePools(?:/(?P<pool>[^/]+))?)?)?)$"
)
DRAIN_S = 3600.0  # for which the pods of a pool that is deleted have their own grace periods at most
MOST_OPERATIONS = 5  # of a cluster at once: github.com/hashicorp/terraform-provider-google #15205
DEFAULTS: Json = {
    "diskSizeGb": 100,
    "diskType": "pd-balanced",
    "imageType": "COS_CONTAINERD",
    "machineType": "e2-medium",
    "serviceAccount": "default",
    "metadata": {"disable-legacy-endpoints": "true"},
    "shieldedInstanceConfig": {"enableIntegrityMonitoring": True},
}


def handle(
    state: State, method: str, path: str, query: Mapping[str, str], body: Json | None = None, caller: str = "user"
) -> Json:
    """The answer to a request, or ApiError."""
    match = PATH.match(path)
    if not match:
        raise ApiError(404, f"Method not found: {method} {path}", "NOT_FOUND")
    parent = f"projects/{match['project']}/locations/{match['location']}"
    if not state["knobs"]["api_enabled"]:
        raise disabled(match["project"])
    if "/operations" in path:
        return operations(state, parent, match["operation"], caller)
    if not match["cluster"]:
        permit(state, "container.clusters.list", f"projects/{match['project']}", caller)
        shown = [cluster_view(state, name) for name in state["clusters"] if in_location(name, parent)]
        return {"clusters": shown} if shown else {}
    cluster = f"{parent}/clusters/{match['cluster']}"
    if "/nodePools" not in path:
        permit(state, "container.clusters.get", cluster, caller)
        require_cluster(state, cluster)
        return cluster_view(state, cluster)
    full_name = f"{cluster}/nodePools/{match['pool']}"
    permit(state, "container.clusters.get" if method == "GET" else "container.clusters.update", cluster, caller)
    require_cluster(state, cluster)
    match method, bool(match["pool"]):
        case "GET", False:
            shown = visible(state, cluster, state["knobs"]["lag"]["list"])
            return {"nodePools": shown} if shown else {}
        case "GET", True:
            view = full_name in state["pools"] and history.view(
                state["pools"][full_name], time.time() - state["knobs"]["lag"]["describe"]
            )
            if not view:
                raise absent(full_name)
            return dict(view)
        case "POST", False:
            return create(state, cluster, (body or {})["nodePool"])
        case "PUT", True:
            return update(state, full_name, body or {})
        case "DELETE", True:
            return delete(state, full_name)
    raise ApiError(404, f"Method not found: {method} {path}", "NOT_FOUND")


def permit(state: State, permission: str, resource: str, caller: str) -> None:
    if permission in state["knobs"]["denied"] or f"{caller}:{permission}" in state["knobs"]["denied"]:
        raise ApiError(403, f'Required "{permission}" permission(s) for "{resource}".')


def disabled(project: str) -> ApiError:
    url = f"https://console.developers.google.com/apis/api/container.googleapis.com/overview?project={project}"
    return ApiError(
        403,
        f"Kubernetes Engine API has not been used in project {project} before or it is disabled. Enable it by visiting {url} then retry. "
        "If you enabled this API recently, wait a few minutes for the action to propagate to our systems and retry.",
    )


def absent(full_name: str) -> ApiError:
    return ApiError(404, f"Not found: {full_name}.")


def in_location(name: str, parent: str) -> bool:
    return name.startswith(parent.removesuffix("/-") + "/")


def require_cluster(state: State, cluster: str) -> None:
    if cluster not in state["clusters"]:
        raise absent(cluster)


def operations(state: State, parent: str, name: str | None, caller: str) -> Json:
    permit(state, f"container.operations.{'get' if name else 'list'}", parent, caller)
    if name:
        record = state["gke_operations"].get(f"{parent}/operations/{name}")
        if record is None:
            raise absent(f"{parent}/operations/{name}")
        return pools.operation_view(record)
    shown = [pools.operation_view(r) for r in state["gke_operations"].values() if in_location(r["name"], parent)]
    return {"operations": shown} if shown else {}


def visible(state: State, cluster: str, lag_s: float) -> list[Json]:
    records = [record for record in state["pools"].values() if record["cluster"] == cluster]
    views = (history.view(record, time.time() - lag_s) for record in records)
    return [view for view in views if view is not None]


def cluster_view(state: State, full_name: str) -> Json:
    record, shown = state["clusters"][full_name], visible(state, full_name, state["knobs"]["lag"]["describe"])
    location, name = full_name.split("/")[3], full_name.split("/")[-1]
    count = sum(len(pools.living(r)) for r in state["pools"].values() if r["cluster"] == full_name)
    busy = record["status"] == "RUNNING" and pools.running(state, full_name)  # [?] which operations show so
    return {
        "name": name,
        "location": location,
        "zone": location,
        "locations": record["zones"],
        "status": "RECONCILING" if busy else record["status"],
        "currentMasterVersion": record["version"],
        "currentNodeVersion": record["version"],
        "currentNodeCount": count,
        "initialClusterVersion": record["version"],
        "endpoint": "192.0.2.10",
        "masterAuth": {"clusterCaCertificate": "TEFC"},
        "network": "default",
        "subnetwork": "default",
        "addonsConfig": {"gcsFuseCsiDriverConfig": {"enabled": True}},
        "autopilot": {},
        "nodePools": shown,
        "selfLink": pools.location_link(full_name),
    } | record["body"]


def create(state: State, cluster: str, body: Json) -> Json:
    full_name = f"{cluster}/nodePools/{body['name']}"
    existing = state["pools"].get(full_name)
    if existing and existing["state"] != "GONE":
        raise ApiError(409, f"Already exists: {full_name}.")
    refuse_while_busy(state, cluster, full_name)
    metadata = {"metadata": DEFAULTS["metadata"] | body["config"].get("metadata", {})}
    config = body["config"] = DEFAULTS | body["config"] | metadata
    zones = body.setdefault("locations", state["clusters"][cluster]["zones"])
    body.setdefault("version", state["clusters"][cluster]["version"])
    if pools.chips(config["machineType"]):
        config["taints"] = [
            *config.get("taints", []),
            {"key": "google.com/tpu", "value": "present", "effect": "NO_SCHEDULE"},
        ]
    record = pools.new_pool(state, full_name, body, zones[0], "")
    outcome = pools.planned_outcome(state, body["name"]) or judged(state, record)
    if outcome and outcome["kind"]:
        refusal = REFUSALS[outcome["kind"]]
        if refusal.arrives == CALL:
            del state["pools"][full_name]
            text = outcome.get("message") or pools.details(state, record, refusal, **outcome.get("more", {}))["message"]
            raise PlannedRefusal(refusal.status, text)
        record["outcome"] = outcome
    elif outcome:
        record["outcome"] = outcome if outcome["nodes"] is not None else None
    record["topology"] = topology(state, record)
    record["operation"] = pools.begin(state, cluster, full_name, "CREATE_NODE_POOL")
    return pools.operation_view(state["gke_operations"][record["operation"]])


def refuse_while_busy(state: State, cluster: str, pool: str) -> None:
    """Where `concurrent_pools` is set, as newer clusters have it, operations on other pools may run too, five of them at most."""
    busy = pools.running(state, cluster)
    if state["knobs"]["concurrent_pools"]:
        others = [r for r in busy if r["target"] not in (cluster, pool)]
        if len(others) >= MOST_OPERATIONS:
            text = REFUSALS["many-operations"].text.format(cluster=cluster.split("/")[-1])
            raise ApiError(429, text)
        busy = [r for r in busy if r["target"] in (cluster, pool)]
    for operation in busy:
        name = operation["name"].split("/")[-1]
        raise ApiError(400, f"Cluster is running incompatible operation {name}.", "FAILED_PRECONDITION")


def topology(state: State, pool: Json) -> str:
    """That of a TPU pool's slice: from the flag, the workload policy, or the machine type of a single host."""
    placement = pool["body"].get("placementPolicy", {})
    if placement.get("tpuTopology"):
        return str(placement["tpuTopology"])
    if policy := find_policy(state, pool):
        return str(policy["body"]["workloadPolicy"].get("acceleratorTopology", ""))
    name, count = pools.family(pool["machine_type"]), pool["chips"]
    return pools.SINGLE_HOST.get((name, count)) or catalog.TOPOLOGIES.get(count, "")


def find_policy(state: State, pool: Json) -> Json | None:
    project, region = pool["name"].split("/")[1], catalog.region(pool["zone"])
    record = state["policies"].get(f"projects/{project}/regions/{region}/resourcePolicies/{pool['policy']}")
    return record if record and record["state"] != "GONE" else None


def judged(state: State, pool: Json) -> Json | None:
    """What is wrong with a pool by the rules of the service: {"kind", "more"}; None when nothing is."""
    kind, more = refusal(state, pool)
    return {"kind": kind, "more": more} if kind else None


def refusal(state: State, pool: Json) -> tuple[str, Json]:
    body, config = pool["body"], pool["body"]["config"]
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", body["name"]):
        return "name", {}
    for field in ("labels", "resourceLabels"):
        for key, value in config.get(field, {}).items():
            if not label_is_valid(field, key, value):
                return "label", {"field": field, "label": f"{key}={value}"}
    regions = [catalog.region(zone) for zone in body["locations"]]
    location = pool["cluster"].split("/")[3]
    if any(location not in (zone, region) for zone, region in zip(body["locations"], regions, strict=True)):
        return "zone-elsewhere", {"region": location}
    affinity = config.get("reservationAffinity", {}).get("consumeReservationType")
    if body.get("queuedProvisioning", {}).get("enabled"):
        if config.get("flexStart") and pool["chips"]:
            return "flex-queued", {}
        if affinity != "NO_RESERVATION":
            return "queued-affinity", {}
    if pool["chips"] and (kind_more := slice_refusal(state, pool))[0]:
        return kind_more
    if pool["reservation"] and (kind_more := reservation_refusal(state, pool))[0]:
        return kind_more
    return ("quota", {}) if quota_exceeded(state, pool) else ("", {})


def label_is_valid(field: str, key: str, value: str) -> bool:
    if field == "resourceLabels":
        return bool(re.fullmatch(r"[a-z][-_a-z0-9]{0,62}", key) and re.fullmatch(r"[-_a-z0-9]{0,63}", value))
    name = key.rpartition("/")[2]
    word = r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?"
    return bool(re.fullmatch(word, name) and re.fullmatch(f"({word})?", value))


def slice_refusal(state: State, pool: Json) -> tuple[str, Json]:
    """tpu7x takes a workload policy and no topology; other generations a topology; a single host neither."""
    placement = pool["body"].get("placementPolicy", {})
    if len(pool["body"]["locations"]) > 1:
        return "several-zones", {"zones": ", ".join(pool["body"]["locations"])}
    workload = pools.family(pool["machine_type"]) == "tpu7x"
    if workload and (placement.get("tpuTopology") or placement.get("type") == "COMPACT"):
        return "placement-policy", {}
    if pool["policy"] and find_policy(state, pool) is None:
        return "no-policy", {"policy": pool["policy"]}
    if pool["vms"] == 1:
        return ("single-host-topology", {}) if placement.get("tpuTopology") else ("", {})
    if not placement.get("tpuTopology") and not pool["policy"]:
        return "no-topology", {}
    needed = pools.product(topology(state, pool)) // pool["chips"]
    if needed != pool["vms"] and pool["policy"]:
        return "gang", {"needed": needed}
    if needed != pool["vms"]:
        return "topology-count", {"topology": topology(state, pool), "needed": needed}
    return "", {}


def reservation_refusal(state: State, pool: Json) -> tuple[str, Json]:
    project, zone = pool["name"].split("/")[1], pool["zone"]
    reservation = pools.find_reservation(state, project, zone, pool["reservation"])
    if reservation is None:
        return "reservation-absent", {}
    if reservation["status"] != "READY":
        return "reservation-not-ready", {"status": reservation["status"]}
    if reservation["machine_type"] != pool["machine_type"] or reservation["maintenance"]:
        return "reservation-incorrect", {}
    short = pool["vms"] - (reservation["vms"] - pools.in_use(state, reservation))
    if short > 0 and reservation["checked"]:
        return "reservation-short", {"short": short}
    return "", {}


def quota_exceeded(state: State, pool: Json) -> bool:
    generation = pools.GENERATIONS.get(pools.family(pool["machine_type"]), "")
    preemptible = pool["model"] in ("spot", "flex")
    for limit in state["knobs"]["quota"]:
        here = pool["zone"] if limit["scope"] == "zone" else catalog.region(pool["zone"])
        if (limit["place"], limit["generation"], limit["preemptible"]) == (here, generation, preemptible):
            used = sum(
                len(pools.living(other)) * other["chips"] for other in state["pools"].values() if other is not pool
            )
            if used + pool["vms"] * pool["chips"] > limit["chips"]:
                return True
    return False


def delete(state: State, full_name: str) -> Json:
    record = require_pool(state, full_name)
    refuse_while_busy(state, record["cluster"], full_name)
    fails = state["knobs"]["failing_deletions"] > 0 and record["state"] != "STOPPING"
    if fails:
        state["knobs"]["failing_deletions"] -= 1
    record["kept_as"] = record["state"] if fails else ""
    pools.become(state, record, "STOPPING", record["error"] if fails else None)
    for node in record["nodes"] if not fails else ():
        node["notice_s"] = DRAIN_S
    record["operation"] = pools.begin(state, record["cluster"], full_name, "DELETE_NODE_POOL")
    return pools.operation_view(state["gke_operations"][record["operation"]])


def update(state: State, full_name: str, body: Json) -> Json:
    """Labels of nodes and of resources, at once."""
    record = require_pool(state, full_name)
    refuse_while_busy(state, record["cluster"], full_name)
    if "labels" in body:
        record["body"]["config"]["labels"] = body["labels"].get("labels", {})
    if "resourceLabels" in body:
        record["body"]["config"]["resourceLabels"] = body["resourceLabels"].get("labels", {})
    pools.become(state, record, record["state"], record["error"])
    operation = pools.begin(state, record["cluster"], full_name, "UPDATE_CLUSTER")
    pools.finish(state, operation)
    return pools.operation_view(state["gke_operations"][operation])


def require_pool(state: State, full_name: str) -> Json:
    record: Json | None = state["pools"].get(full_name)
    if record is None or record["state"] == "GONE":
        raise absent(full_name)
    return record
