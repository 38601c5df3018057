"""JobSets: their Jobs and headless service, what becomes of them, restarts and removal. Texts are those of JobSet 0.10."""

from lab.kube.controllers import knobs, objects
from lab.kube.controllers.objects import Json
from lab.kube.errors import ApiError
from lab.kube.store import Store

PREFIX = "jobset.sigs.k8s.io/"
RESTARTS = f"{PREFIX}restart-attempt"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
COMPONENT = "jobset-controller-manager"
COMPLETED = ("AllJobsCompleted", "jobset completed successfully")
FAILED = ("FailedJobs", "jobset failed due to one or more job failures")
MOST_RESTARTS = ("ReachedMaxRestarts", "jobset failed due to reaching max number of restarts")
POLICY_FAILED = ("FailJobSetFailurePolicyAction", "applying FailJobSet failure policy action")
SUSPENDED = ("SuspendedJobs", "jobset is suspended")
RESUMED = ("ResumeJobs", "jobset is resumed")


class JobSetController:
    def __init__(self) -> None:
        self.ended: dict[str, float] = {}  # by uid

    def step(self, store: Store, now: float) -> None:
        for jobset in store.list("jobsets"):
            self.reconcile(store, jobset, now)

    def reconcile(self, store: Store, jobset: Json, now: float) -> None:
        if objects.deleting(jobset):
            return
        jobs = [job for resource, job in store.owned(objects.uid(jobset)) if resource == "jobs"]
        current = objects.status(jobset).get("restarts", 0)
        if is_finished(jobset):
            self.clean_up(store, jobset, jobs, now)
            return
        older = [job for job in jobs if int(objects.labels(job).get(RESTARTS, 0)) < current]
        for job in older:
            if not objects.deleting(job):
                objects.delete(store, "jobs", job)
        jobs = [job for job in jobs if job not in older]
        failed = [job for job in jobs if objects.is_true(job, "Failed")]
        if failed:
            self.fail(store, jobset, failed, now)
        elif jobs and len(jobs) == expected(jobset) and all(objects.is_true(job, "Complete") for job in jobs):
            self.finish(store, jobset, "Completed", *COMPLETED, now)
        else:
            self.create_jobs(store, jobset, [*jobs, *older], now)
            self.suspend_or_resume(store, jobset, jobs, now)
        write_status(store, jobset, jobs)

    def create_jobs(self, store: Store, jobset: Json, jobs: list[Json], now: float) -> None:
        there = {objects.name(job) for job in jobs}
        try:
            create_service(store, jobset)
            index = 0
            for group in jobset["spec"]["replicatedJobs"]:
                for number in range(group.get("replicas", 1)):
                    job = job_of(jobset, group, number, index)
                    if job["metadata"]["name"] not in there:
                        store.create("jobs", job)
                    index += 1
        except ApiError as error:
            store.record_event("jobsets", jobset, "Warning", "JobCreationFailed", error.message, COMPONENT)

    def suspend_or_resume(self, store: Store, jobset: Json, jobs: list[Json], now: float) -> None:
        wanted = bool(jobset["spec"].get("suspend"))
        for job in jobs:
            if bool(job["spec"].get("suspend")) == wanted or is_ended(job):
                continue

            def function(copy: Json, job: Json = job) -> None:
                copy["spec"]["suspend"] = wanted
                if not wanted:
                    copy["spec"]["template"] = template_like(jobset, job)

            objects.change(store, "jobs", job, function)
        reason, message = SUSPENDED if wanted else RESUMED
        if not wanted and not objects.is_true(jobset, "Suspended"):
            return
        if objects.add_condition(store, "jobsets", jobset, now, "Suspended", wanted, reason, message):
            store.record_event("jobsets", jobset, "Normal", "Suspended", message, COMPONENT)

    def fail(self, store: Store, jobset: Json, failed: list[Json], now: float) -> None:
        first = min(failed, key=lambda job: (objects.condition(job, "Failed") or {})["lastTransitionTime"])
        policy = jobset["spec"].get("failurePolicy")
        reason, message = FAILED
        if policy:
            reason, message = MOST_RESTARTS
            job_reason = (objects.condition(first, "Failed") or {})["reason"]
            rule = next((r for r in policy.get("rules") or [] if applies(r, first, job_reason)), None)
            if rule and rule["action"] == "FailJobSet":
                reason, message = POLICY_FAILED
            elif objects.status(jobset).get("restarts", 0) < policy.get("maxRestarts", 0):
                restart(store, jobset, now)
                return
        self.finish(store, jobset, "Failed", reason, f"{message} (first failed job: {objects.name(first)})", now)

    def finish(self, store: Store, jobset: Json, kind: str, reason: str, message: str, now: float) -> None:
        def function(copy: Json) -> None:
            objects.set_condition(copy, now, kind, True, reason, message)
            copy["status"]["terminalState"] = kind

        objects.change(store, "jobsets", jobset, function)
        store.record_event(
            "jobsets", jobset, "Normal" if kind == "Completed" else "Warning", reason, message, COMPONENT
        )

    def clean_up(self, store: Store, jobset: Json, jobs: list[Json], now: float) -> None:
        for job in jobs:
            if not is_ended(job) and not objects.deleting(job):
                objects.delete(store, "jobs", job)
        ttl = jobset["spec"].get("ttlSecondsAfterFinished")
        ended = self.ended.setdefault(objects.uid(jobset), now)
        chosen = knobs.of(store)["ttl_s"]
        if ttl is not None and now >= ended + (ttl if chosen is None else chosen):
            objects.delete(store, "jobsets", jobset, "Foreground")
        write_status(store, jobset, [job for job in jobs if is_ended(job)])


def is_finished(jobset: Json) -> bool:
    return objects.is_true(jobset, "Completed") or objects.is_true(jobset, "Failed")


def is_ended(job: Json) -> bool:
    return objects.is_true(job, "Complete") or objects.is_true(job, "Failed")


def expected(jobset: Json) -> int:
    return sum(group.get("replicas", 1) for group in jobset["spec"]["replicatedJobs"])


def applies(rule: Json, job: Json, reason: str) -> bool:
    reasons, groups = rule.get("onJobFailureReasons"), rule.get("targetReplicatedJobs")
    return (not reasons or reason in reasons) and (
        not groups or objects.labels(job)[f"{PREFIX}replicatedjob-name"] in groups
    )


def restart(store: Store, jobset: Json, now: float) -> None:
    def function(copy: Json) -> None:
        body = copy.setdefault("status", {})
        body["restarts"] = body.get("restarts", 0) + 1

    objects.change(store, "jobsets", jobset, function)
    number = objects.status(jobset).get("restarts", 0) + 1
    store.record_event("jobsets", jobset, "Warning", "Restarting", f"restarting jobset, attempt {number}", COMPONENT)


def subdomain(jobset: Json) -> str:
    return str((jobset["spec"].get("network") or {}).get("subdomain") or objects.name(jobset))


def has_hostnames(jobset: Json) -> bool:
    return bool((jobset["spec"].get("network") or {}).get("enableDNSHostnames", True))


def create_service(store: Store, jobset: Json) -> None:
    if not has_hostnames(jobset) or store.find("services", subdomain(jobset), objects.namespace(jobset)):
        return
    metadata = {"name": subdomain(jobset), "namespace": objects.namespace(jobset)}
    metadata["ownerReferences"] = [objects.owner_reference(jobset)]
    selector = {f"{PREFIX}jobset-name": objects.name(jobset)}
    body = {"clusterIP": "None", "selector": selector, "publishNotReadyAddresses": True}
    store.create("services", {"metadata": metadata, "spec": body})


def job_of(jobset: Json, group: Json, number: int, index: int) -> Json:
    """Job `number` of a replicated job; `index` counts over all of them."""
    job_name = f"{objects.name(jobset)}-{group['name']}-{number}"
    template = group["template"]
    values = {
        f"{PREFIX}jobset-name": objects.name(jobset),
        f"{PREFIX}jobset-uid": objects.uid(jobset),
        f"{PREFIX}replicatedjob-name": group["name"],
        f"{PREFIX}replicatedjob-replicas": str(group.get("replicas", 1)),
        f"{PREFIX}global-replicas": str(expected(jobset)),
        f"{PREFIX}job-index": str(number),
        f"{PREFIX}job-global-index": str(index),
        f"{PREFIX}job-key": objects.digest(f"{objects.namespace(jobset)}/{job_name}", 40),
        RESTARTS: str(objects.status(jobset).get("restarts", 0)),
    }
    exclusive = {k: v for k, v in objects.annotations(jobset).items() if k.startswith("alpha.jobset.")}
    own = template.get("metadata") or {}
    body = {**template["spec"], "suspend": bool(jobset["spec"].get("suspend"))}
    body["template"] = pod_template(jobset, template["spec"]["template"], values, values | exclusive)
    metadata = {
        "name": job_name,
        "namespace": objects.namespace(jobset),
        "labels": (own.get("labels") or {}) | values,
        "annotations": (own.get("annotations") or {}) | values | exclusive,
        "ownerReferences": [objects.owner_reference(jobset)],
    }
    return {"metadata": metadata, "spec": body}


def pod_template(jobset: Json, template: Json, labels: Json, annotations: Json) -> Json:
    own = template.get("metadata") or {}
    body = dict(template["spec"])
    if has_hostnames(jobset):
        body["subdomain"] = subdomain(jobset)
    metadata = {
        "labels": (own.get("labels") or {}) | labels,
        "annotations": (own.get("annotations") or {}) | annotations,
    }
    return {"metadata": metadata, "spec": body}


def template_like(jobset: Json, job: Json) -> Json:
    """The pod template that a job has after the JobSet's was changed, as Kueue does when it admits."""
    group_name = objects.labels(job)[f"{PREFIX}replicatedjob-name"]
    group = next(each for each in jobset["spec"]["replicatedJobs"] if each["name"] == group_name)
    now = job_of(jobset, group, int(objects.labels(job)[f"{PREFIX}job-index"]), 0)["spec"]["template"]
    now["metadata"] = job["spec"]["template"]["metadata"]
    return now


def write_status(store: Store, jobset: Json, jobs: list[Json]) -> None:
    rows = []
    for group in jobset["spec"]["replicatedJobs"]:
        own = [job for job in jobs if objects.labels(job).get(f"{PREFIX}replicatedjob-name") == group["name"]]
        row = {"name": group["name"], "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
        for job in own:
            state, need = objects.status(job), job["spec"].get("parallelism", 1)
            row["succeeded"] += objects.is_true(job, "Complete")
            row["failed"] += objects.is_true(job, "Failed")
            row["suspended"] += bool(job["spec"].get("suspend"))
            row["active"] += state.get("active", 0) > 0
            row["ready"] += not is_ended(job) and need > 0 and state.get("ready", 0) + state.get("succeeded", 0) >= need
        rows.append(row)

    def function(copy: Json) -> None:
        body = copy.setdefault("status", {})
        body["replicatedJobsStatus"] = rows
        body.setdefault("restarts", 0)

    objects.change(store, "jobsets", jobset, function)
