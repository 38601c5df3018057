"""Jobs with indexed pods: pods are created, counted and replaced, and a Job ends by its limits and rules. Texts are those of Kubernetes 1.32."""

from calendar import timegm
from time import strptime

from lab.kube.controllers import knobs, objects
from lab.kube.controllers.jobset import is_ended
from lab.kube.controllers.objects import Json
from lab.kube.errors import ApiError
from lab.kube.store import Store

TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
COMPONENT = "job-controller"
MOST_FAILURES = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
DEADLINE = ("DeadlineExceeded", "Job was active longer than specified deadline")
DONE = ("CompletionsReached", "Reached expected number of succeeded pods")


class JobController:
    def __init__(self) -> None:
        self.again: dict[str, float] = {}  # when pods are created again that were refused, by uid of the job
        self.started: dict[str, float] = {}  # by uid

    def step(self, store: Store, now: float) -> None:
        pods: dict[str, list[Json]] = {}
        jobs = {objects.uid(job): job for job in store.list("jobs")}
        for pod in store.list("pods"):
            reference = objects.owner(pod)
            if reference and reference["kind"] == "Job":
                pods.setdefault(reference["uid"], []).append(pod)
                if reference["uid"] not in jobs:
                    objects.remove_finalizer(store, "pods", pod, TRACKING)
        for uid, job in jobs.items():
            if not objects.deleting(job):
                self.reconcile(store, job, pods.get(uid, []), now)

    def reconcile(self, store: Store, job: Json, pods: list[Json], now: float) -> None:
        active = [pod for pod in pods if not objects.finished(pod)]
        if is_ended(job):
            self.untrack(store, pods)
            return
        self.start_or_suspend(store, job, now)
        target = objects.condition(job, "FailureTarget")
        if job["spec"].get("suspend"):
            end_pods(store, active)
            count(store, job, pods, now, counts_failures=False)
            return
        counted = count(store, job, pods, now)
        verdict = (target["reason"], target["message"]) if target else self.verdict(store, job, counted, pods, now)
        if verdict:
            end_pods(store, active)
            self.end(store, job, verdict, [] if target is None else active, target is not None, now)
        elif len(indexes(objects.status(counted).get("completedIndexes", ""))) >= completions(job):
            self.complete(store, job, now)
        else:
            self.create_pods(store, counted, pods, now)

    def start_or_suspend(self, store: Store, job: Json, now: float) -> None:
        suspended = bool(job["spec"].get("suspend"))
        if suspended:
            self.started.pop(objects.uid(job), None)
            if objects.add_condition(store, "jobs", job, now, "Suspended", True, "JobSuspended", "Job suspended"):
                objects.change(store, "jobs", job, lambda copy: copy["status"].pop("startTime", None) and None)
                store.record_event("jobs", job, "Normal", "Suspended", "Job suspended", COMPONENT)
            return
        self.started.setdefault(objects.uid(job), now)
        if objects.is_true(job, "Suspended"):
            objects.add_condition(store, "jobs", job, now, "Suspended", False, "JobResumed", "Job resumed")
            store.record_event("jobs", job, "Normal", "Resumed", "Job resumed", COMPONENT)
        if "startTime" not in objects.status(job):
            objects.change(
                store, "jobs", job, lambda copy: copy.setdefault("status", {}).update(startTime=objects.timestamp(now))
            )

    def verdict(self, store: Store, job: Json, counted: Json, pods: list[Json], now: float) -> tuple[str, str] | None:
        """(reason, message) of a Job that is to fail."""
        for pod in pods:
            if objects.status(pod).get("phase") == "Failed" and is_tracked(pod):
                action, message = policy(job, pod)
                if action == "FailJob":
                    return "PodFailurePolicy", message
        limit = job["spec"].get("activeDeadlineSeconds")
        if limit is not None:
            chosen = knobs.of(store)["deadline_s"]
            if now >= self.started[objects.uid(job)] + (limit if chosen is None else chosen):
                return DEADLINE
        if objects.status(counted).get("failed", 0) > job["spec"].get("backoffLimit", 6):
            return MOST_FAILURES
        return None

    def end(
        self, store: Store, job: Json, verdict: tuple[str, str], active: list[Json], marked: bool, now: float
    ) -> None:
        """First the intention, then, when its last pod has ended, the failure."""
        if not marked:
            objects.add_condition(store, "jobs", job, now, "FailureTarget", True, *verdict)
        elif not active:
            objects.add_condition(store, "jobs", job, now, "Failed", True, *verdict)
            store.record_event("jobs", job, "Warning", *verdict, COMPONENT)

    def complete(self, store: Store, job: Json, now: float) -> None:
        def function(copy: Json) -> None:
            objects.set_condition(copy, now, "SuccessCriteriaMet", True, *DONE)
            objects.set_condition(copy, now, "Complete", True, *DONE)
            copy["status"]["completionTime"] = objects.timestamp(now)

        objects.change(store, "jobs", job, function)
        store.record_event("jobs", job, "Normal", "Completed", "Job completed", COMPONENT)

    def untrack(self, store: Store, pods: list[Json]) -> None:
        for pod in pods:
            objects.remove_finalizer(store, "pods", pod, TRACKING)

    def create_pods(self, store: Store, job: Json, pods: list[Json], now: float) -> None:
        uid = objects.uid(job)
        if now < self.again.get(uid, 0.0):
            return
        waits = bool(job["spec"].get("podFailurePolicy"))  # it replaces a pod only when that has ended
        busy = {index_of(pod) for pod in pods if not objects.finished(pod) and (waits or not objects.deleting(pod))}
        done = indexes(objects.status(job).get("completedIndexes", ""))
        missing = [each for each in range(completions(job)) if each not in done and each not in busy]
        for index in missing[: max(0, job["spec"].get("parallelism", 1) - len(busy))]:
            body = pod_of(job, index)
            try:
                pod = store.create("pods", body)
            except ApiError as error:
                self.again[uid] = now + knobs.of(store)["backoff_s"]
                store.record_event(
                    "jobs", job, "Warning", "FailedCreate", f"Error creating: {error.message}", COMPONENT
                )
                continue
            text = f"Created pod: {objects.name(pod)}"
            store.record_event("jobs", job, "Normal", "SuccessfulCreate", text, COMPONENT)


def end_pods(store: Store, active: list[Json]) -> None:
    for pod in active:
        if not objects.deleting(pod):
            objects.delete(store, "pods", pod)


def completions(job: Json) -> int:
    return int(job["spec"].get("completions", job["spec"].get("parallelism", 1)))


def is_tracked(pod: Json) -> bool:
    """Whether the Job has yet to count it."""
    return TRACKING in (pod["metadata"].get("finalizers") or [])


def index_of(pod: Json) -> int:
    return int(objects.annotations(pod)[INDEX])


def count(store: Store, job: Json, pods: list[Json], now: float, counts_failures: bool = True) -> Json:
    """Count pods that have ended, each once, and let go of them; the Job as it is then."""
    done = indexes(objects.status(job).get("completedIndexes", ""))
    failed = objects.status(job).get("failed", 0)
    verdicts = [pod for pod in pods if objects.finished(pod) and is_tracked(pod)]
    kept = []
    for pod in verdicts:
        action, _ = policy(job, pod)
        if objects.status(pod)["phase"] == "Succeeded":
            done.add(index_of(pod))
        elif action == "FailJob" and not objects.condition(job, "FailureTarget") and counts_failures:
            kept.append(pod)  # until the Job has been marked
        elif action != "Ignore" and counts_failures:
            failed += 1
    given_up = []
    if not job["spec"].get("podFailurePolicy"):  # then a pod that is being deleted counts at once
        given_up = [p for p in pods if objects.deleting(p) and not objects.finished(p) and is_tracked(p)]
        failed += len(given_up) * counts_failures
    active = [pod for pod in pods if not objects.finished(pod) and not objects.deleting(pod)]
    terminating = [pod for pod in pods if not objects.finished(pod) and objects.deleting(pod)]
    ready = [pod for pod in active if objects.is_true(pod, "Ready")]

    def function(copy: Json) -> None:
        copy.setdefault("status", {}).update(
            active=len(active),
            ready=len(ready),
            terminating=len(terminating),
            succeeded=len(done),
            failed=failed,
            completedIndexes=ranges(done),
        )

    changed = objects.change(store, "jobs", job, function)
    for pod in (*verdicts, *given_up):
        if pod not in kept:
            objects.remove_finalizer(store, "pods", pod, TRACKING)
    for pod in terminating:
        if not objects.spec(pod).get("nodeName"):  # it runs nowhere
            objects.remove_finalizer(store, "pods", pod, TRACKING)
    return changed or job


def policy(job: Json, pod: Json) -> tuple[str, str]:
    """(action, message) of the first rule of podFailurePolicy that a failed pod matches; ("Count", "") for none."""
    rules = (job["spec"].get("podFailurePolicy") or {}).get("rules") or []
    for number, rule in enumerate(rules):
        if codes := rule.get("onExitCodes"):
            for each in objects.status(pod).get("containerStatuses") or []:
                ended = each["state"].get("terminated")
                named = codes.get("containerName") in (None, each["name"])
                if ended and named and ended["exitCode"] and is_among(codes, ended["exitCode"]):
                    what = (
                        f"Container {each['name']} for pod {objects.key(pod)} failed with exit code {ended['exitCode']}"
                    )
                    return rule["action"], f"{what} matching {rule['action']} rule at index {number}"
        for wanted in rule.get("onPodConditions") or []:
            there = objects.condition(pod, wanted["type"])
            if there and there["status"] == wanted.get("status", "True"):
                what = f"Pod {objects.key(pod)} has condition {wanted['type']}"
                return rule["action"], f"{what} matching {rule['action']} rule at index {number}"
    return "Count", ""


def is_among(codes: Json, code: int) -> bool:
    return (code in codes["values"]) == (codes["operator"] == "In")


def pod_of(job: Json, index: int) -> Json:
    template = job["spec"]["template"]
    own = template.get("metadata") or {}
    job_name = objects.name(job)
    labels = {
        "batch.kubernetes.io/controller-uid": objects.uid(job),
        "batch.kubernetes.io/job-name": job_name,
        "controller-uid": objects.uid(job),
        "job-name": job_name,
        INDEX: str(index),
    }
    body = dict(template["spec"])
    body["hostname"] = f"{job_name}-{index}"
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
    body["containers"] = [
        {**each, "env": [*(each.get("env") or []), {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}]}
        for each in body["containers"]
    ]
    metadata = {
        "generateName": f"{job_name}-{index}-",
        "namespace": objects.namespace(job),
        "labels": (own.get("labels") or {}) | labels,
        "annotations": (own.get("annotations") or {}) | {INDEX: str(index)},
        "ownerReferences": [objects.owner_reference(job)],
        "finalizers": [TRACKING],
    }
    return {"metadata": metadata, "spec": body, "status": {"phase": "Pending"}}


def indexes(text: str) -> set[int]:
    """Of `0-2,5`."""
    pairs = [part.split("-") for part in text.split(",") if part]
    return {each for pair in pairs for each in range(int(pair[0]), int(pair[-1]) + 1)}


def ranges(numbers: set[int]) -> str:
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def seconds(text: str) -> float:
    """Of a timestamp of the API."""
    return float(timegm(strptime(text, "%Y-%m-%dT%H:%M:%SZ")))
