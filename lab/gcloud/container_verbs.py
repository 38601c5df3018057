"""The simulated `gcloud container` commands: requests of the GKE API, and what gcloud prints of their answers."""

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from lab.gcloud.api import ApiError, Json
from lab.gcloud.session import POLL_S, Session

SCOPES = {
    "gke-default": (
        "devstorage.read_only",
        "logging.write",
        "monitoring",
        "service.management.readonly",
        "servicecontrol",
        "trace.append",
    ),
    "storage-full": ("devstorage.full_control",),
    "storage-rw": ("devstorage.read_write",),
    "storage-ro": ("devstorage.read_only",),
    "cloud-platform": ("cloud-platform",),
}
AUTH = "https://www.googleapis.com/auth/"
# of the messages that gcloud shows as Python objects: field -> (enumeration, {value: number})
CANONICAL = (
    "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED UNAUTHENTICATED"
)
CANONICAL += " RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS"
CODES = "UNKNOWN GCE_STOCKOUT GKE_SERVICE_ACCOUNT_DELETED GCE_QUOTA_EXCEEDED"
TYPES = "TYPE_UNSPECIFIED CREATE_CLUSTER DELETE_CLUSTER UPGRADE_MASTER UPGRADE_NODES REPAIR_CLUSTER UPDATE_CLUSTER CREATE_NODE_POOL"
TYPES += " DELETE_NODE_POOL"
ENUMS = {
    "canonicalCode": ("CanonicalCodeValueValuesEnum", CANONICAL.split()),
    "code": ("CodeValueValuesEnum", CODES.split()),
    "operationType": ("OperationTypeValueValuesEnum", TYPES.split()),
    "status": ("StatusValueValuesEnum", ["STATUS_UNSPECIFIED", "PENDING", "RUNNING", "DONE", "ABORTING"]),
}


def location(session: Session, required: bool = True) -> str:
    """ "projects/P/locations/L"; "-" is all locations."""
    flags = session.call.flags
    place = flags.get("location") or flags.get("region") or flags.get("zone")
    if not place and required:
        place = session.properties.get("compute/zone") or session.properties.get("compute/region")
        if not place:
            raise session.fail("One of [--location, --zone, --region] must be supplied.")
    return f"projects/{session.project}/locations/{place or '-'}"


def cluster_of(session: Session) -> str:
    """Full name of the cluster of --cluster."""
    parent = location(session)
    name = session.call.flags.get("cluster") or session.properties.get("container/cluster")
    if not name:
        raise session.missing_property("container", "cluster", "cluster")
    return f"{parent}/clusters/{name}"


def get_cluster(session: Session, parent: str) -> Json:
    """As gcloud asks for a cluster: where it is absent, it says where else there is one of the name."""
    name = session.call.name
    try:
        return session.attempt("GET", f"/v1/{parent}/clusters/{name}")
    except ApiError as error:
        text = session.describe(error)
        if error.status != 404:
            raise session.fail(text) from None
    here, place = parent.split("/")[1], parent.split("/")[3]
    try:
        others = session.attempt("GET", f"/v1/projects/{here}/locations/-/clusters").get("clusters", [])
    except ApiError:
        others = []
    for other in others:
        if other["name"] == name:
            text += f"\nCould not find [{name}] in [{place}].\nDid you mean [{name}] in [{other['zone']}]?"
            raise session.fail(text)
    raise session.fail(f"{text}\nNo cluster named '{name}' in {here}.")


def describe_cluster(session: Session) -> None:
    session.show(get_cluster(session, location(session)))


def list_clusters(session: Session) -> None:
    session.show_list(session.send("GET", f"/v1/{location(session, False)}/clusters").get("clusters", []))


def get_credentials(session: Session) -> None:
    """An entry of the kubeconfig with the context of the cluster; its server is the API server of the test, if there is one."""
    parent = location(session)
    session.say("Fetching cluster endpoint and auth data.")
    cluster = get_cluster(session, parent)
    if cluster["status"] not in ("RUNNING", "RECONCILING"):
        text = f"WARNING: cluster {cluster['name']} is not RUNNING. The kubernetes API may or may not be available. "
        session.say(f"{text}Check the cluster status for more information.")
    url = session.root / "kube" / "url"
    server = url.read_text().strip() if url.exists() else f"https://{cluster['endpoint']}"
    context = f"gke_{parent.split('/')[1]}_{cluster['location']}_{cluster['name']}"
    path = Path(os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or Path.home() / ".kube" / "config")
    config: Json = {"apiVersion": "v1", "kind": "Config", "preferences": {}}
    if path.exists() and path.read_text().strip().startswith(
        "{"
    ):  # that of another program stays as it is: JSON is YAML too
        config = json.loads(path.read_text())
    entries = {
        "clusters": {"name": context, "cluster": {"server": server}},
        "users": {"name": context, "user": {"token": "lab"}},
        "contexts": {"name": context, "context": {"cluster": context, "user": context}},
    }
    for kind, entry in entries.items():
        config[kind] = [*(e for e in config.get(kind) or [] if e["name"] != context), entry]
    config["current-context"] = context
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config, indent=2))
    session.say(f"kubeconfig entry generated for {cluster['name']}.")


def create_pool(session: Session) -> None:
    cluster, name = cluster_of(session), session.call.name
    started = session.send("POST", f"/v1/{cluster}/nodePools", {"parent": cluster, "nodePool": pool_body(session)})
    if "async" in session.call.flags:
        session.show(session.send("GET", operation_path(cluster, started)))
        return
    wait(session, cluster, started, f"Creating node pool {name}")
    pool = session.send("GET", f"/v1/{cluster}/nodePools/{name}")
    session.say(f"Created [{link(cluster)}/nodePools/{name}].")
    session.show([pool])


def pool_body(session: Session) -> Json:
    flags = session.call.flags
    config: Json = {"oauthScopes": scopes(flags.get("scopes", "gke-default"))}
    for field, flag in (("machineType", "machine-type"), ("diskType", "disk-type"), ("imageType", "image-type")):
        if flag in flags:
            config[field] = flags[flag]
    for field, flag in (("labels", "node-labels"), ("resourceLabels", "labels"), ("metadata", "metadata")):
        if flag in flags:
            config[field] = session.pairs(flag)
    for field, flag in (("serviceAccount", "service-account"), ("maxRunDuration", "max-run-duration")):
        if flag in flags:
            config[field] = flags[flag]
    if "disk-size" in flags:
        config["diskSizeGb"] = int(re.sub(r"\D", "", flags["disk-size"]))
    if "tags" in flags:
        config["tags"] = flags["tags"].split(",")
    if "node-taints" in flags:
        taints = (re.fullmatch(r"([^=]+)=([^:]*):(\w+)", text) for text in flags["node-taints"].split(","))
        config["taints"] = [{"key": t[1], "value": t[2], "effect": effect(t[3])} for t in taints if t]
    if "workload-metadata" in flags:
        config["workloadMetadataConfig"] = {"mode": flags["workload-metadata"].upper()}
    if "enable-gvnic" in flags:
        config["gvnic"] = {"enabled": flags["enable-gvnic"] == "true"}
    for field, flag in (("spot", "spot"), ("preemptible", "preemptible"), ("flexStart", "flex-start")):
        if flags.get(flag) == "true":
            config[field] = True
    reservation_affinity(session, config)
    count = flags.get("num-nodes")
    body: Json = {"name": session.call.name, "config": config}
    body["initialNodeCount"] = int(count) if count else default_count(session)
    body["management"] = {
        "autoRepair": flags.get("enable-autorepair", "true") == "true",
        "autoUpgrade": flags.get("enable-autoupgrade", "true") == "true",
    }
    body["upgradeSettings"] = {"maxSurge": 1}
    if "node-version" in flags:
        body["version"] = flags["node-version"]
    if flags.get("enable-autoscaling") == "true":
        body["autoscaling"] = autoscaling(session)
    if "max-pods-per-node" in flags:
        body["maxPodsConstraint"] = {"maxPodsPerNode": flags["max-pods-per-node"]}
    if "node-locations" in flags:
        body["locations"] = sorted(flags["node-locations"].split(","))
    placement = {"policyName": flags.get("placement-policy"), "tpuTopology": flags.get("tpu-topology")}
    placement["type"] = "COMPACT" if flags.get("placement-type", "").upper() == "COMPACT" else None
    if chosen := {key: value for key, value in placement.items() if value}:
        body["placementPolicy"] = chosen
    if "accelerator-network-profile" in flags:
        body["networkConfig"] = {"acceleratorNetworkProfile": flags["accelerator-network-profile"]}
    if flags.get("enable-queued-provisioning") == "true":
        body["queuedProvisioning"] = {"enabled": True}
    return body


def default_count(session: Session) -> int:
    """Nodes of a pool without --num-nodes: those of its topology, else 3."""
    flags = session.call.flags
    if "tpu-topology" not in flags:
        return 3
    total = 1
    for side in flags["tpu-topology"].split("x"):
        total *= int(side)
    chips = re.search(r"-(\d+)t$", flags.get("machine-type", ""))
    return max(1, total // int(chips[1])) if chips else total


def effect(word: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word).upper()


def scopes(text: str) -> list[str]:
    return sorted(
        {
            scope if scope.startswith("https:") else AUTH + scope
            for word in text.split(",")
            for scope in SCOPES.get(word, (word,))
        }
    )


def reservation_affinity(session: Session, config: Json) -> None:
    flags = session.call.flags
    affinity, reservation = flags.get("reservation-affinity", "").lower(), flags.get("reservation")
    if reservation and affinity != "specific":
        raise session.fail(f"Cannot specify --reservation for --reservation-affinity={affinity or None}.\n")
    if affinity == "specific" and not reservation:
        raise session.fail("Must specify --reservation for --reservation-affinity=specific.\n")
    kinds = {"none": "NO_RESERVATION", "any": "ANY_RESERVATION", "specific": "SPECIFIC_RESERVATION"}
    if affinity:
        config["reservationAffinity"] = {"consumeReservationType": kinds[affinity]}
    if affinity == "specific":
        config["reservationAffinity"] |= {"key": "compute.googleapis.com/reservation-name", "values": [reservation]}


def autoscaling(session: Session) -> Json:
    flags = session.call.flags
    fields = {"minNodeCount": "min-nodes", "maxNodeCount": "max-nodes"}
    fields |= {"totalMinNodeCount": "total-min-nodes", "totalMaxNodeCount": "total-max-nodes"}
    counts: Json = {field: int(flags[flag]) for field, flag in fields.items() if flag in flags}
    if "location-policy" in flags:
        counts["locationPolicy"] = flags["location-policy"].upper()
    return {"enabled": True} | counts


def describe_pool(session: Session) -> None:
    session.show(session.send("GET", f"/v1/{cluster_of(session)}/nodePools/{session.call.name}"))


def list_pools(session: Session) -> None:
    session.show_list(session.send("GET", f"/v1/{cluster_of(session)}/nodePools").get("nodePools", []))


def delete_pool(session: Session) -> None:
    flags, cluster, name = session.call.flags, cluster_of(session), session.call.name
    if "quiet" not in flags:
        place = cluster.split("/")[3]
        session.say(
            f"The following node pool will be deleted.\n[{name}] in cluster [{cluster.split('/')[-1]}] in [{place}]"
        )
        session.say("\nDo you want to continue (Y/n)?  ")
        raise session.fail(
            "This prompt could not be answered because you are not in an interactive session.  You can re-run the command with the --quiet flag "
            "to accept default answers for all prompts."
        )
    session.send("GET", f"/v1/{cluster}/nodePools/{name}")
    started = session.send("DELETE", f"/v1/{cluster}/nodePools/{name}")
    if "async" in flags:
        session.show(session.send("GET", operation_path(cluster, started)))
        return
    wait(session, cluster, started, f"Deleting node pool {name}")
    session.say(f"Deleted [{link(cluster)}/nodePools/{name}].")
    if "format" in flags:
        path = operation_path(cluster, started).split("/")
        session.show({"operationId": path[-1], "projectId": path[3], "zone": path[5]})


def update_pool(session: Session) -> None:
    """Labels of the nodes, or of the resources."""
    flags, cluster, name = session.call.flags, cluster_of(session), session.call.name
    body: Json = {}
    for field, flag in (("labels", "node-labels"), ("resourceLabels", "labels")):
        if flag in flags:
            body[field] = {"labels": session.pairs(flag)}
    started = session.send("PUT", f"/v1/{cluster}/nodePools/{name}", body)
    wait(session, cluster, started, f"Updating node pool {name}")
    session.say(f"Updated [{link(cluster)}/nodePools/{name}].")
    session.show(session.send("GET", f"/v1/{cluster}/nodePools/{name}"))


def wait(session: Session, cluster: str, started: Json, message: str) -> None:
    """Until an operation is done, or --timeout seconds are over."""
    limit = time.monotonic() + float(session.call.flags.get("timeout", "1800"))
    session.say(f"{message}...")
    operation = session.send("GET", operation_path(cluster, started))
    while operation["status"] != "DONE":
        if time.monotonic() >= limit:
            session.say(f"Timed out waiting for operation {as_object(operation)}\nfailed.")
            name, text = operation["name"], f"Operation [{as_object(operation)}] is still running, check its status via"
            raise session.fail(f"{text} 'gcloud container operations describe {name}'")
        time.sleep(POLL_S)
        operation = session.send("GET", operation_path(cluster, started))
    session.say("done.")
    if operation.get("statusMessage"):
        raise session.fail(f"Operation [{as_object(operation)}] finished with error: {operation['statusMessage']}")


def as_object(operation: Json) -> str:
    """An operation as gcloud prints it in messages: the text of a Python object."""
    shown = {"clusterConditions": [], "nodepoolConditions": []} | operation
    return f"<Operation\n {fields(shown)}>"


def fields(message: Json) -> str:
    return "\n ".join(f"{key}: {value(key, message[key])}" for key in sorted(message))


def value(key: str, content: object) -> str:
    if key == "error" and isinstance(content, dict):
        return f"<Status\n {fields(content | {'details': []})}>"
    if isinstance(content, list):
        return f"[{', '.join(f'<StatusCondition{chr(10)} {fields(item)}>' for item in content)}]"
    if key in ENUMS and isinstance(content, str):
        enumeration, values = ENUMS[key]
        return f"{enumeration}({content}, {values.index(content)})"
    return repr(content)


def operation_path(cluster: str, operation: Json) -> str:
    return f"/v1/{cluster.rpartition('/clusters/')[0]}/operations/{operation['name']}"


def link(cluster: str) -> str:
    return f"https://container.googleapis.com/v1/{cluster}".replace("/locations/", "/zones/")


def list_operations(session: Session) -> None:
    session.show_list(session.send("GET", f"/v1/{location(session, False)}/operations").get("operations", []))


def describe_operation(session: Session) -> None:
    session.show(session.send("GET", f"/v1/{location(session)}/operations/{session.call.name}"))


RUN: dict[str, Callable[[Session], None]] = {
    "container clusters describe": describe_cluster,
    "container clusters list": list_clusters,
    "container clusters get-credentials": get_credentials,
    "container node-pools create": create_pool,
    "container node-pools describe": describe_pool,
    "container node-pools list": list_pools,
    "container node-pools delete": delete_pool,
    "container node-pools update": update_pool,
    "container operations list": list_operations,
    "container operations describe": describe_operation,
}
