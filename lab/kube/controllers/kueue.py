"""Kueue: a Workload for each JobSet with a queue, its admission and eviction, and the states of queues. Texts are those of Kueue 0.17."""

import fnmatch

from lab.kube.controllers import admission, knobs, objects, queues, quota
from lab.kube.controllers.jobset import is_finished
from lab.kube.controllers.objects import Json
from lab.kube.store import Store

COMPONENT, JOBSET_COMPONENT = "kueue-admission", "jobset.x-k8s.io/jobset-kueue-controller"
PREEMPTED = "Preempted to accommodate a workload due to prioritization in the ClusterQueue"
READY = ("Started", "All pods reached readiness and the workload is running")
UNREADY = ("WaitForStart", "Not all pods are ready or succeeded")


class KueueController:
    def __init__(self) -> None:
        self.evicted: set[tuple[str, str]] = set()  # (uid of a JobSet, glob of the knob)
        self.admitted: dict[str, float] = {}  # by uid of the Workload
        self.reserved: dict[str, float] = {}  # that wait for their admission check
        self.displaced: dict[str, float] = {}  # until when another workload has the quota, by uid of the Workload

    def step(self, store: Store, now: float) -> None:
        if not admission.kueue_is_installed(store):
            return
        settings = knobs.of(store)
        jobsets = {objects.uid(jobset): jobset for jobset in store.list("jobsets") if is_managed(jobset, settings)}
        owned = {uid: workload_of(store, jobset) for uid, jobset in jobsets.items()}
        for uid, jobset in jobsets.items():
            workload = owned[uid]
            if workload is None and not jobset["spec"].get("suspend") and not is_finished(jobset):
                hold(store, jobset)
            elif workload is None:
                create_workload(store, jobset)
            else:
                self.follow(store, jobset, workload, settings, now)
        queues.set_queue_states(store, now)
        queues.hold_what_is_used(store)
        for workload in store.list("workloads"):
            if objects.deleting(workload):  # a JobSet that is gone, or that goes, needs no quota
                objects.remove_finalizer(store, "workloads", workload, queues.IN_USE)
            else:
                self.check(store, workload, settings, now)
                self.look(store, workload, now)
        self.schedule(store, settings, now)

    def follow(self, store: Store, jobset: Json, workload: Json, settings: Json, now: float) -> None:
        """Bring a JobSet in line with its Workload."""
        if is_finished(jobset):
            kind = "Failed" if objects.is_true(jobset, "Failed") else "Succeeded"
            text = next(
                c["message"]
                for c in jobset["status"]["conditions"]
                if c["type"] in ("Failed", "Completed") and c["status"] == "True"
            )
            objects.add_condition(store, "workloads", workload, now, "Finished", True, kind, text)
            return
        if objects.is_true(workload, "Evicted") and objects.is_true(workload, "QuotaReserved"):
            self.stop(store, jobset, workload, now)
        elif objects.is_true(workload, "Admitted"):
            start(store, jobset, workload)
            self.watch(store, jobset, workload, settings, now)
        elif not jobset["spec"].get("suspend"):
            suspend(store, jobset, workload)

    def stop(self, store: Store, jobset: Json, workload: Json, now: float) -> None:
        """Of an evicted JobSet: when its last pod has gone, its quota is free."""
        suspend(store, jobset, workload)
        selector = f"jobset.sigs.k8s.io/jobset-name={objects.name(jobset)}"
        if any(not objects.finished(pod) for pod in store.list("pods", objects.namespace(jobset), selector)):
            return
        message = (objects.condition(workload, "Evicted") or {})["message"]
        self.admitted.pop(objects.uid(workload), None)
        objects.change(store, "workloads", workload, lambda copy: release(copy, message, now))

    def watch(self, store: Store, jobset: Json, workload: Json, settings: Json, now: float) -> None:
        """Reasons to evict what runs."""
        since = self.admitted.setdefault(objects.uid(workload), now)
        name = objects.name(jobset)
        for row in settings["evict"]:
            mark = (objects.uid(jobset), row["jobset"])
            if mark not in self.evicted and fnmatch.fnmatch(name, row["jobset"]):
                self.evicted.add(mark)
                evict(store, workload, row.get("reason", "Preempted"), row.get("message", PREEMPTED), now)
                self.displaced[objects.uid(workload)] = now + row.get("displaced_s", 0.0)
        limit = settings["pods_ready_timeout_s"]
        if limit is not None:
            ready = is_ready(jobset)
            objects.add_condition(store, "workloads", workload, now, "PodsReady", ready, *(READY if ready else UNREADY))
            if not ready and now >= since + limit:
                evict(
                    store, workload, "PodsReadyTimeout", f"Exceeded the PodsReady timeout {objects.key(workload)}", now
                )
        queue = store.find("clusterqueues", workload["status"]["admission"]["clusterQueue"])
        if queue and objects.spec(queue).get("stopPolicy") == "HoldAndDrain":
            evict(store, workload, "ClusterQueueStopped", "The ClusterQueue is stopped", now)

    def check(self, store: Store, workload: Json, settings: Json, now: float) -> None:
        """Admit one that has its quota, when its admission check has passed."""
        if objects.is_true(workload, "Admitted") or not objects.is_true(workload, "QuotaReserved"):
            return
        since = self.reserved.setdefault(objects.uid(workload), now)
        if now >= since + settings["admission_check_s"]:
            self.reserved.pop(objects.uid(workload))
            objects.change(store, "workloads", workload, lambda copy: mark_admitted(copy, now))
            queue = workload["status"]["admission"]["clusterQueue"]
            text = f"Admitted by ClusterQueue {queue}, wait time since reservation was {now - since:.0f}s"
            store.record_event("workloads", workload, "Normal", "Admitted", text, COMPONENT)

    def look(self, store: Store, workload: Json, now: float) -> None:
        """Of one that has no quota: whether its queues are there and active."""
        if objects.is_true(workload, "QuotaReserved") or objects.is_true(workload, "Finished"):
            return
        name = objects.spec(workload).get("queueName", "")
        local = store.find("localqueues", name, objects.namespace(workload))
        cluster_name = objects.spec(local or {}).get("clusterQueue", "")
        cluster = store.find("clusterqueues", cluster_name)
        text = ""
        if local is None:
            text = f"LocalQueue {name} doesn't exist"
        elif objects.spec(local).get("stopPolicy") in ("Hold", "HoldAndDrain"):
            text = f"LocalQueue {name} is inactive"
        elif cluster is None:
            text = f"ClusterQueue {cluster_name} doesn't exist"
        elif not objects.is_true(cluster, "Active"):
            text = f"ClusterQueue {cluster_name} is inactive"
        if text:
            refuse(store, workload, "Inadmissible", "Misconfigured", text, now)

    def schedule(self, store: Store, settings: Json, now: float) -> None:
        """Admit by priority, then age."""
        flavors = {objects.name(flavor): flavor for flavor in store.list("resourceflavors")}
        workloads = unfinished(store)
        waiting = [
            w
            for w in workloads
            if not objects.is_true(w, "QuotaReserved")
            and objects.spec(w).get("active", True)
            and now >= self.displaced.get(objects.uid(w), now)
        ]
        waiting.sort(
            key=lambda w: (-objects.spec(w).get("priority", 0), w["metadata"]["creationTimestamp"], objects.name(w))
        )
        for workload in waiting:
            queue = queues.active_queue(store, workload)
            if queue is None:
                continue
            name = objects.name(queue)
            used = queues.usage_of(workloads, name)
            verdict = quota.assign(queue, flavors, used, workload["spec"]["podSets"])
            if verdict.fits:
                reserve(store, workload, name, verdict, settings["admission_check_s"], now)
                workloads = unfinished(store)
                continue
            text = verdict.message
            victims = preemptable(queue, workload, workloads) if verdict.reason == "WaitingForQuota" else []
            if victims:
                text += f". Pending the preemption of {len(victims)} workload(s)"
                for victim in victims:
                    preempt(store, victim, workload, name, now)
            refuse(store, workload, "Pending", verdict.reason, text, now, settings)


def unfinished(store: Store) -> list[Json]:
    return [w for w in store.list("workloads") if not objects.is_true(w, "Finished") and not objects.deleting(w)]


def is_managed(jobset: Json, settings: Json) -> bool:
    return admission.QUEUE in objects.labels(jobset) or settings["kueue_manages_all"]


def workload_of(store: Store, jobset: Json) -> Json | None:
    return next((body for kind, body in store.owned(objects.uid(jobset)) if kind == "workloads"), None)


def create_workload(store: Store, jobset: Json) -> None:
    """Nothing, and no word, for a priority class that is not there."""
    if objects.deleting(jobset) or is_finished(jobset):
        return
    sets = [
        {
            "name": group["name"],
            "count": group.get("replicas", 1) * group["template"]["spec"].get("parallelism", 1),
            "template": group["template"]["spec"]["template"],
        }
        for group in jobset["spec"]["replicatedJobs"]
    ]
    body = {
        "podSets": sets,
        "queueName": objects.labels(jobset).get(admission.QUEUE, ""),
        "active": True,
        "priority": 0,
    }
    priority = next(
        (
            each["template"]["spec"]["priorityClassName"]
            for each in sets
            if each["template"]["spec"].get("priorityClassName")
        ),
        "",
    )
    if priority:
        value = admission.priority_of(store, priority)
        if value is None:
            return
        body |= {
            "priority": value,
            "priorityClassName": priority,
            "priorityClassSource": "scheduling.k8s.io/priorityclass",
        }
    metadata = {
        "name": f"jobset-{objects.name(jobset)[:240]}-{objects.digest(objects.uid(jobset), 5)}",
        "namespace": objects.namespace(jobset),
        "labels": {"kueue.x-k8s.io/job-uid": objects.uid(jobset)},
        "ownerReferences": [objects.owner_reference(jobset)],
        "finalizers": [queues.IN_USE],
    }
    workload = store.create("workloads", {"metadata": metadata, "spec": body})
    text = f"Created Workload: {objects.key(workload)}"
    store.record_event("jobsets", jobset, "Normal", "CreatedWorkload", text, JOBSET_COMPONENT)


def start(store: Store, jobset: Json, workload: Json) -> None:
    """Let an admitted JobSet run, on nodes of its flavors."""
    if not jobset["spec"].get("suspend"):
        return
    chosen = {each["name"]: each for each in workload["status"]["admission"]["podSetAssignments"]}

    def function(copy: Json) -> None:
        copy["spec"]["suspend"] = False
        for group in copy["spec"]["replicatedJobs"]:
            own = group["template"]["spec"]["template"]["spec"]
            for name in dict.fromkeys(chosen[group["name"]]["flavors"].values()):
                flavor = objects.spec(store.find("resourceflavors", name) or {})
                own["nodeSelector"] = (own.get("nodeSelector") or {}) | (flavor.get("nodeLabels") or {})
                own["tolerations"] = [*(own.get("tolerations") or []), *(flavor.get("tolerations") or [])]

    objects.change(store, "jobsets", jobset, function)
    queue = workload["status"]["admission"]["clusterQueue"]
    store.record_event(
        "jobsets",
        jobset,
        "Normal",
        "Started",
        f"Admitted by clusterQueue {queue}",
        "jobset.x-k8s.io/jobset-kueue-controller",
    )


def suspend(store: Store, jobset: Json, workload: Json) -> None:
    """Stop a JobSet, with the pod templates that it came with."""
    templates = {each["name"]: each["template"] for each in workload["spec"]["podSets"]}

    def function(copy: Json) -> None:
        copy["spec"]["suspend"] = True
        for group in copy["spec"]["replicatedJobs"]:
            group["template"]["spec"]["template"] = templates[group["name"]]

    objects.change(store, "jobsets", jobset, function)


def hold(store: Store, jobset: Json) -> None:
    """Stop a JobSet that runs without a Workload, as when somebody has deleted that; it is queued anew."""

    def function(copy: Json) -> None:
        copy["spec"]["suspend"] = True

    objects.change(store, "jobsets", jobset, function)
    store.record_event("jobsets", jobset, "Normal", "Stopped", "No matching Workload; restarting job", JOBSET_COMPONENT)


def is_ready(jobset: Json) -> bool:
    rows = {row["name"]: row for row in objects.status(jobset).get("replicatedJobsStatus") or []}
    groups = jobset["spec"]["replicatedJobs"]
    return all(
        rows.get(g["name"], {}).get("ready", 0) + rows.get(g["name"], {}).get("succeeded", 0) >= g.get("replicas", 1)
        for g in groups
    )


def reserve(store: Store, workload: Json, queue: str, verdict: quota.Verdict, check_s: float, now: float) -> None:
    """Give a workload its quota; it is admitted at once where no check comes between."""
    rows = []
    for pod_set in workload["spec"]["podSets"]:
        flavors = verdict.flavors[pod_set["name"]]
        wanted = objects.requests(pod_set["template"]["spec"])
        usage = {resource: quota.shown(resource, wanted[resource] * pod_set["count"]) for resource in flavors}
        rows.append({"name": pod_set["name"], "flavors": flavors, "resourceUsage": usage, "count": pod_set["count"]})
    text = f"Quota reserved in ClusterQueue {queue}"

    def function(copy: Json) -> None:
        copy.setdefault("status", {})["admission"] = {"clusterQueue": queue, "podSetAssignments": rows}
        objects.set_condition(copy, now, "QuotaReserved", True, "QuotaReserved", text)
        for kind in ("Evicted", "Preempted"):
            if there := objects.condition(copy, kind):
                objects.set_condition(copy, now, kind, False, "QuotaReserved", f"Previously: {there['message']}")
        if check_s:
            state = {
                "name": "capacity",
                "state": "Pending",
                "message": "",
                "lastTransitionTime": objects.timestamp(now),
            }
            copy["status"]["admissionChecks"] = [state]
        else:
            mark_admitted(copy, now)

    objects.change(store, "workloads", workload, function)
    text += ", wait time since queued was 0s"
    store.record_event("workloads", workload, "Normal", "QuotaReserved", text, COMPONENT)
    if not check_s:
        text = f"Admitted by ClusterQueue {queue}, wait time since reservation was 0s"
        store.record_event("workloads", workload, "Normal", "Admitted", text, COMPONENT)


def mark_admitted(copy: Json, now: float) -> None:
    for each in copy["status"].get("admissionChecks") or []:
        each["state"] = "Ready"
    objects.set_condition(copy, now, "Admitted", True, "Admitted", "The workload is admitted")


def refuse(
    store: Store, workload: Json, reason: str, new_reason: str, text: str, now: float, settings: Json | None = None
) -> None:
    chosen = new_reason if (settings or knobs.of(store))["kueue_reasons"] == "new" else reason
    if objects.add_condition(store, "workloads", workload, now, "QuotaReserved", False, chosen, text):
        store.record_event("workloads", workload, "Warning", "Pending", text, COMPONENT)


def evict(store: Store, workload: Json, reason: str, message: str, now: float) -> None:
    def function(copy: Json) -> None:
        objects.set_condition(copy, now, "Evicted", True, reason, message)
        if reason == "Preempted":
            objects.set_condition(copy, now, "Preempted", True, "InClusterQueue", message)

    if not objects.is_true(workload, "Evicted"):
        objects.change(store, "workloads", workload, function)
        store.record_event("workloads", workload, "Normal", f"EvictedDueTo{reason}", message, COMPONENT)


def preemptable(queue: Json, workload: Json, workloads: list[Json]) -> list[Json]:
    """All of lower priority in the queue, where its policy allows that, and none that are on their way out."""
    policy = (objects.spec(queue).get("preemption") or {}).get("withinClusterQueue", "Never")
    if policy == "Never":
        return []
    priority = objects.spec(workload).get("priority", 0)
    return [
        other
        for other in workloads
        if (objects.status(other).get("admission") or {}).get("clusterQueue") == objects.name(queue)
        and objects.spec(other).get("priority", 0) < priority
    ]


def preempt(store: Store, victim: Json, workload: Json, queue: str, now: float) -> None:
    owner = (objects.owner(workload) or {}).get("uid", "UNKNOWN")
    who = f"(UID: {objects.uid(workload)}, JobUID: {owner})"
    text = f"Preempted to accommodate a workload {who} due to prioritization in the ClusterQueue; preemptor path: /{queue}; preemptee path: /{queue}"
    evict(store, victim, "Preempted", text, now)
    if objects.owner(victim) is None:  # nothing runs for it
        objects.change(store, "workloads", victim, lambda copy: release(copy, text, now))


def release(copy: Json, text: str, now: float) -> None:
    """Take its quota away. It stays marked as evicted until it gets quota anew."""
    copy["status"].pop("admission", None)
    objects.set_condition(copy, now, "QuotaReserved", False, "Pending", text)
    objects.set_condition(copy, now, "Admitted", False, "NoReservation", "The workload has no reservation")
