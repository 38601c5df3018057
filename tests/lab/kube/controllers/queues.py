"""States of Kueue's queues: whether they take workloads, what is used of them. Texts are those of Kueue 0.17."""

from collections import Counter

from tests.lab.kube.controllers import objects, quota
from tests.lab.kube.controllers.objects import Json
from tests.lab.kube.store import Store

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
    for queue in store.list("clusterqueues"):
        true, reason, text = queue_state(queue, flavors)
        objects.add_condition(store, "clusterqueues", queue, now, "Active", true, reason, text)
        locals_ = {
            objects.key(q) for q in store.list("localqueues") if q["spec"]["clusterQueue"] == objects.name(queue)
        }
        own = [w for w in workloads if f"{objects.namespace(w)}/{objects.spec(w).get('queueName')}" in locals_]
        reserving = [w for w in own if objects.is_true(w, "QuotaReserved")]
        numbers = {
            "pendingWorkloads": len(own) - len(reserving),
            "reservingWorkloads": len(reserving),
            "admittedWorkloads": sum(objects.is_true(w, "Admitted") for w in own),
        }
        used = usage_of(workloads, objects.name(queue))
        store.patch_status(
            "clusterqueues",
            objects.name(queue),
            "",
            numbers | {"flavorsUsage": usage_rows(queue, used), "flavorsReservation": usage_rows(queue, used)},
        )
    for local in store.list("localqueues"):
        queue_body = store.find("clusterqueues", local["spec"]["clusterQueue"])
        state = (True, "Ready", "Can submit new workloads to localQueue")
        if objects.spec(local).get("stopPolicy", "None") != "None":
            state = (False, "Stopped", "LocalQueue is stopped")
        elif queue_body is None:
            state = (False, "ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue")
        elif not objects.is_true(queue_body, "Active"):
            state = (False, "ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue")
        objects.add_condition(store, "localqueues", local, now, "Active", *state)


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
