"""A simulated cluster without its HTTP server, for tests of the controllers: time passes by `tick`, and pods end when a test says so."""

import time
from typing import Any

from lab.kube import samples
from lab.kube.controllers import admission, objects
from lab.kube.controllers.job import JobController
from lab.kube.controllers.jobset import JobSetController
from lab.kube.controllers.kueue import KueueController
from lab.kube.controllers.nodes import NodeController
from lab.kube.controllers.objects import Json
from lab.kube.controllers.scheduler import Scheduler
from lab.kube.discovery import ROWS
from lab.kube.store import Store

TICK_S = 0.5


class Cluster:
    """All controllers but the kubelet: pods run when they have a node, and end by `end`."""

    def __init__(self, **knobs: Any) -> None:
        self.store, self.now = Store(), time.time() + 1
        self.store.knobs |= knobs
        admission.install(self.store)
        self.controllers = [NodeController(), KueueController(), JobSetController(), JobController(), Scheduler()]

    def add(self, *bodies: Json) -> None:
        for body in bodies:
            self.store.create(next(row.plural for row in ROWS if row.kind == body["kind"]), body)

    def with_slice(self, hosts: int = 4, chips: int = 16) -> "Cluster":
        self.add(*samples.pool(hosts=hosts), *samples.queues(chips), *samples.priority_classes())
        self.tick()
        return self

    def tick(self, count: int = 10, seconds: float = TICK_S) -> None:
        for _ in range(count):
            self.now += seconds
            for controller in self.controllers:
                controller.step(self.store, self.now)
            self.run_pods()

    def run_pods(self) -> None:
        """In place of the kubelet."""
        for pod in self.pods():
            if not pod["spec"].get("nodeName"):
                continue
            if objects.deleting(pod):
                if not objects.finished(pod):
                    self.end(pod, 143)
                elif not pod["metadata"].get("finalizers"):
                    objects.delete(self.store, "pods", pod, grace_s=0)
            elif pod["status"]["phase"] == "Pending":
                states = [{"name": c["name"], "state": {"running": {}}} for c in pod["spec"]["containers"]]
                self.set_pod(pod, "Running", states)

    def set_pod(self, pod: Json, phase: str, states: list[Json]) -> None:
        def function(copy: Json) -> None:
            copy["status"] |= {"phase": phase, "containerStatuses": states}
            objects.set_condition(copy, self.now, "Ready", phase == "Running", "", "")

        objects.change(self.store, "pods", pod, function)

    def end(self, pod: Json, code: int) -> None:
        names = [container["name"] for container in pod["spec"]["containers"]]
        states = [{"name": name, "state": {"terminated": {"exitCode": code}}} for name in names]
        self.set_pod(pod, "Failed" if code else "Succeeded", states)

    def end_all(self, code: int = 0) -> None:
        for pod in self.pods():
            self.end(pod, code)
        self.tick()

    def pods(self) -> list[Json]:
        return self.store.list("pods")

    def get(self, resource: str, name: str, namespace: str = "default") -> Json:
        return self.store.get(resource, name, namespace)

    def condition(self, resource: str, name: str, kind: str, namespace: str = "default") -> tuple[str, str, str] | None:
        """(status, reason, message)."""
        there = objects.condition(self.get(resource, name, namespace), kind)
        return (there["status"], there["reason"], there["message"]) if there else None

    def workload(self, jobset: str = "w") -> Json:
        rows = self.store.list("workloads")
        return next(row for row in rows if (objects.owner(row) or {}).get("name") == jobset)

    def waiting(self, jobset: str = "w") -> str:
        """What the Workload of a JobSet says of its quota."""
        there = objects.condition(self.workload(jobset), "QuotaReserved")
        return there["message"] if there and there["status"] == "False" else ""

    def events(self, reason: str) -> list[str]:
        return [event["message"] for event in self.store.list("events") if event["reason"] == reason]
