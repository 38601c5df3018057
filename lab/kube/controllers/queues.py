"""States of Kueue's queues: whether they take workloads, what is used of them. Texts are those of Kueue 0.17."""

from collections import Counter

from lab.kube.controllers import objects, quota
from lab.kube.controllers.objects import Json
from lab.kube.store import Store

IN_USE = "kueue.x-k8s.io/resource-in-use"


def hold_what_is_used(store: Store) -> None:
    """A deleted flavor stays while a ClusterQueue names it, a deleted ClusterQueue while a workload has quota of it."""
    queues = store.list("clusterqueues")
    named = {row["name"] for queue in queues for group in groups(queue) for row in group["flavors"]}
    holding = [w for w in store.list("workloads") if not objects.is_true(w, "Finished")]
    reserved = {(objects.status(w).get("admission") or {}).get("clusterQueue") for w in holding}
    for resource, used in (("resourceflavors", named), ("clusterqueues", reserved)):
        for body in store.list(resource):
            if not objects.deleting(body):
                objects.add_finalizer(store, resource, body, IN_USE)
            elif objects.name(body) not in used:
                objects.remove_finalizer(store, resource, body, IN_USE)


def groups(queue: Json) -> list[Json]:
    rows: list[Json] = objects.spec(queue).get("resourceGroups") or []
    return rows


def active_queue(store: Store, workload: Json) -> Json | None:
    local = store.find("localqueues", objects.spec(workload).get("queueName", ""), objects.namespace(workload))
    if local is None or objects.spec(local).get("stopPolicy", "None") != "None":
        return None
    queue = store.find("clusterqueues", local["spec"]["clusterQueue"])
    return queue if queue and objects.is_true(queue, "Active") else None


def usage_of(workloads: list[Json], queue: str) -> Counter[tuple[str, str]]:
    """Quota that is reserved in a ClusterQueue, by flavor and resource."""
    used: Counter[tuple[str, str]] = Counter()
    for workload in workloads:
        there = objects.status(workload).get("admission") or {}
        if there.get("clusterQueue") == queue:
            for row in there["podSetAssignments"]:
                for resource, flavor in row["flavors"].items():
                    used[flavor, resource] += objects.quantity(resource, row["resourceUsage"][resource])
    return used


def set_queue_states(store: Store, now: float) -> None:
    flavors = {objects.name(flavor) for flavor in store.list("resourceflavors")}
    workloads = [w for w in store.list("workloads") if not objects.is_true(w, "Finished")]
    locals_ = store.list("localqueues")
    for queue in store.list("clusterqueues"):
        name = objects.name(queue)
        objects.add_condition(store, "clusterqueues", queue, now, "Active", *queue_state(queue, flavors))
        keys = {objects.key(local) for local in locals_ if local["spec"]["clusterQueue"] == name}
        rows = usage_rows(queue, usage_of(workloads, name))
        status = counts([w for w in workloads if queue_key(w) in keys])
        objects.patch_status(store, "clusterqueues", queue, status | {"flavorsUsage": rows, "flavorsReservation": rows})
    for local in locals_:
        cluster_queue = store.find("clusterqueues", local["spec"]["clusterQueue"])
        objects.add_condition(store, "localqueues", local, now, "Active", *local_state(local, cluster_queue))
        own = counts([w for w in workloads if queue_key(w) == objects.key(local)])
        objects.patch_status(store, "localqueues", local, own)


def queue_key(workload: Json) -> str:
    return f"{objects.namespace(workload)}/{objects.spec(workload).get('queueName')}"


def counts(workloads: list[Json]) -> Json:
    reserving = sum(objects.is_true(each, "QuotaReserved") for each in workloads)
    admitted = sum(objects.is_true(each, "Admitted") for each in workloads)
    pending = len(workloads) - reserving
    return {"pendingWorkloads": pending, "reservingWorkloads": reserving, "admittedWorkloads": admitted}


def local_state(local: Json, cluster_queue: Json | None) -> tuple[bool, str, str]:
    """Status, reason and message of a LocalQueue's condition Active [?]."""
    if objects.spec(local).get("stopPolicy", "None") != "None":
        return False, "Stopped", "LocalQueue is stopped"
    if cluster_queue is None:
        return False, "ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue"
    if not objects.is_true(cluster_queue, "Active"):
        return False, "ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue"
    return True, "Ready", "Can submit new workloads to localQueue"


def queue_state(queue: Json, flavors: set[str]) -> tuple[bool, str, str]:
    if objects.deleting(queue):
        return False, "Terminating", "Can't admit new workloads; clusterQueue is terminating"
    missing = sorted({row["name"] for group in groups(queue) for row in group["flavors"]} - flavors)
    texts, reasons = [], []
    if objects.spec(queue).get("stopPolicy", "None") != "None":
        reasons.append("Stopped")
        texts.append("is stopped")
    if missing:
        reasons.append("FlavorNotFound")
        texts.append(f"references missing ResourceFlavor(s): {','.join(missing)}")
    if texts:
        return False, reasons[0], f"Can't admit new workloads: {', '.join(texts)}."
    return True, "Ready", "Can admit new workloads"


def usage_rows(queue: Json, used: Counter[tuple[str, str]]) -> list[Json]:
    return [
        {
            "name": row["name"],
            "resources": [
                {
                    "name": each["name"],
                    "total": quota.shown(each["name"], used[row["name"], each["name"]]),
                    "borrowed": "0",
                }
                for each in row["resources"]
            ],
        }
        for group in groups(queue)
        for row in group["flavors"]
    ]
