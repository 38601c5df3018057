"""A cluster of GKE as a target: an attempt is a JobSet, which is created, watched and deleted by kubectl.

A JobSet is found by its labels, which are known before it exists: a launcher that dies before kubectl has answered loses nothing.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from podwright.rundir import Ending, Record, RunDir, read_json, write_json
from podwright.shell import Shell
from podwright.targets import alive, clock
from podwright.targets.base import (
    Handle,
    Job,
    PlannedCall,
    Polled,
    Process,
    Released,
    Remark,
    Rendered,
    Stopped,
    identity,
)
from podwright.targets.gke import (
    attempt,
    attempt_folder,
    attempt_parts,
    cluster_check,
    intervention,
    pod_failures,
    pod_logs,
    pool_access,
    submit,
    waiting,
)
from podwright.targets.gke.attempt_inventory import AttemptInventory
from podwright.targets.gke.cluster_view import ClusterView, by_kind, is_true, node_of, phase_of, uid_of
from podwright.targets.gke.kubectl import Kubectl
from podwright.targets.gke.kubectl_replies import context_of, is_done
from podwright.targets.gke.left_resources import LeftResources
from podwright.targets.gke.pod_failures import PodFailure
from podwright.targets.gke.pod_logs import LogFollower
from podwright.targets.gke.pool_replies import classifier
from podwright.targets.gke.pools import NodePoolProvisioner
from podwright.targets.google.gcloud import Gcloud
from podwright.targets.google.labels import request_name
from podwright.targets.google.replies import Consequence, Reply
from podwright.targets.handles import attempt_of, folder_of
from podwright.targets.hosts import status
from podwright.targets.machines import Hosts, KeptResources, Provisioner, Request
from podwright.targets.settings.gke import GkeSettings

GATHER_LIMIT_S = 120.0
"""for which the logs of an attempt that has ended are requested"""
_LIVE = ("Pending", "Running", "Unknown", "")


class Gke:
    def __init__(self, shell: Shell, name: str, settings: GkeSettings):
        self._shell = shell
        self._settings = settings
        self._kubectl = Kubectl(shell, settings)
        self._gcloud = Gcloud(shell, classifier(settings, name))
        self._name = name
        self.identity = identity(name, settings)
        self.traits = settings.traits()
        pools = NodePoolProvisioner(shell, settings, name)
        self._pools = pools if settings.places else None
        self.provisioner: Provisioner | None = self._pools
        self.attempt_objects: KeptResources = LeftResources(AttemptInventory(self._kubectl, settings), pools)
        self._told_since: dict[str, tuple[str, float]] = {}
        self._gathering: dict[str, float] = {}
        self._followers: dict[str, LogFollower] = {}

    def render(self, job: Job, hosts: Hosts | None = None) -> Rendered:
        own = self._settings
        run = RunDir(job.run_dir)
        name = request_name(run.name, job.run_tag, f"a{job.attempt}")
        objects = attempt.attempt_of(job, own, name)
        manifests = [*objects.before, objects.jobset]
        jobs = objects.jobset["spec"]["replicatedJobs"]
        pods_per_job = int(jobs[0]["template"]["spec"]["parallelism"])
        num_pods = sum(int(each.get("replicas", 1)) for each in jobs) * pods_per_job
        containers = jobs[0]["template"]["spec"]["template"]["spec"]["containers"]
        others = [f"{manifest['kind'].lower()}s" for manifest in objects.before]
        others += ["secrets"] if objects.variables else []
        dependents = [f"{each['kind'].lower()}/{each['metadata']['name']}" for each in objects.before]
        handle = {
            "run_dir": str(job.run_dir),
            "attempt": job.attempt,
            "jobset": name,
            "tag": job.run_tag,
            "queue": attempt.queue_of(job, own),
            "pods": num_pods,
            "processes": num_pods * len(containers),
            "pods_per_job": pods_per_job,
            "kinds": sorted({"jobsets", *others}),
            **self.identity,
        }
        folder = run.attempt(job.attempt)
        order = {
            "settings": self.identity["settings"],
            "jobset": name,
            "dependents": dependents,
            "variables": list(objects.variables),
            "labels": attempt.labels_of(job),
            "annotations": attempt.annotations_of(job),
        }
        files = {
            folder / submit.OBJECTS: json.dumps(manifests, indent=1) + "\n",
            folder / submit.ORDER: json.dumps(order, indent=1) + "\n",
        }
        return Rendered(self._kubectl.argv(submit.CREATE), job.cwd, handle, files=files)

    def planned_calls(self, rendered: Rendered, request: Request | None) -> list[PlannedCall]:
        created, adopted = submit.calls(self._shell, self._kubectl, rendered)
        released = [PlannedCall(self._kubectl.argv(attempt_parts.deletion(rendered.handle)))]
        if request is None or self._pools is None:
            return [*created, *adopted, *released]
        return [*self._pools.creating(request), *created, *adopted, *released, *self._pools.deleting(request)]

    def submit(self, rendered: Rendered) -> Handle:
        run, number = attempt_of(rendered.handle)
        folder = folder_of(rendered)
        clock.mark(folder / attempt_folder.SUBMITTED)
        with alive.held(run.alive(number)) as lock:
            argv = (sys.executable, "-m", submit.__name__, str(folder))
            self._shell.start(argv, cwd=folder, env=rendered.env, log=folder / "submit.txt", keep_open=(lock,))
        return rendered.handle

    def poll(self, handle: Handle) -> Polled:
        run, number = attempt_of(handle)
        folder = run.attempt(number)
        if not folder.is_dir():
            return Polled(Process.ABSENT)
        if ended := read_json(folder / attempt_folder.ENDED):
            return status.from_record(ended)
        if alive.is_held(run.alive(number)):
            return Polled(Process.RUNNING, waiting=attempt_folder.submitting(folder))
        if "ending" in (refused := read_json(folder / submit.RESULT)):
            return status.from_record(refused)
        view, unanswered = self._view(handle)
        if view is None:
            assert unanswered
            why, barred = unanswered.advice, unanswered.is_final
            return Polled(Process.RUNNING, waiting=why, silent=True, barred=barred, fix=unanswered.fix)
        polled = self._judged(handle, view)
        over = polled.process is Process.ENDED
        if polled.process is Process.ABSENT:
            return polled
        failure = self._bring_logs(handle, view, over)
        if over and failure and self._may_wait(handle):
            return Polled(Process.RUNNING, waiting=f"Gathering: {failure}")
        if over:
            write_json(folder / attempt_folder.ENDED, status.to_record(polled))
        return polled

    def stop(self, handle: Handle, *, force: bool = False) -> Stopped:
        """Acknowledged when the JobSet is being deleted, by which its processes get SIGTERM and the grace of their pods."""
        run, number = attempt_of(handle)
        folder = run.attempt(number)
        if not folder.is_dir():
            return Stopped(True)
        (folder / attempt_folder.STOP).touch()
        if alive.is_held(run.alive(number)):
            return Stopped(False, "kubectl has not answered yet")
        if attempt_folder.never_sent(folder):
            return Stopped(True)
        failure = self._kubectl.do(("delete", "jobset", handle["jobset"], "--wait=false"))
        if force and is_done(failure):
            hard = ("--wait=false", "--grace-period=0", "--force")
            failure = self._kubectl.do(("delete", "pods", f"--selector={attempt_parts.labels(handle)}", *hard))
        if failure is None or is_done(failure):
            return Stopped(True)
        return Stopped(False, failure.advice, failure.is_final)

    def release(self, handle: Handle) -> Released:
        """Delete what the attempt created in the cluster; done when its list shows none of it."""
        run, number = attempt_of(handle)
        folder = run.attempt(number)
        if not folder.is_dir() or attempt_folder.never_sent(folder):
            return Released(True)
        if alive.is_held(run.alive(number)):
            (folder / attempt_folder.STOP).touch()
            return Released(False, "kubectl has not answered yet")
        failure = self._kubectl.do(attempt_parts.deletion(handle))
        if failure and not is_done(failure):
            return Released(False, failure.advice, failure.is_final)
        return attempt_parts.released(self._kubectl, handle, self._settings)

    def check(self) -> list[Remark]:
        """What of the cluster stands in the way of a run."""
        remarks = cluster_check.check(self._settings, self._kubectl, self._name)
        return [*remarks, *pool_access.networks(self._settings, self._gcloud)]

    def check_access(self) -> list[Remark]:
        """What of the login, the cluster and the capacity that runs request stands in their way, by gcloud."""
        return pool_access.check(self._settings, self._gcloud, self._name)

    def probe_hosts(self, arguments: list[str]) -> list[Record]:
        """Of no machine: pods have TPUs only while an attempt runs in them."""
        return []

    def _view(self, handle: Handle) -> tuple[ClusterView | None, Reply | None]:
        """Everything that explains the state of the attempt; None where the cluster did not tell what is most needed."""
        items, failure = self._kubectl.items(attempt_parts.listing(["jobsets"], handle))
        if failure:
            return None, failure
        jobsets = by_kind(items, "JobSet")
        view = ClusterView(jobsets[0] if jobsets else None, by_kind(items, "Job"), by_kind(items, "Pod"))
        while more := waiting.question(view):
            view = self._answered(view, more)
        return view, None

    def _answered(self, view: ClusterView, question: waiting.Question) -> ClusterView:
        """With the answer to a question; one that is not answered leaves the explanation with less."""
        view = replace(view, queried=view.queried | {question.what})
        if question.what == "workload":
            of_jobset = f"--selector=kueue.x-k8s.io/job-uid={question.name}"
            rows, failure = self._kubectl.items(("get", "workloads.kueue.x-k8s.io", of_jobset))  # not Kubernetes' own
            newest = max(rows, key=lambda row: row["metadata"]["creationTimestamp"], default=None)
            absent = failure is not None and failure.consequence is Consequence.ABSENT  # of Kueue's kinds
            view = replace(view, workload=newest, has_kueue=not absent)
            return _lacking(view, failure)
        if question.what == "priority":
            _, failure = self._kubectl.json(("get", "priorityclass", question.name))
            view = replace(view, priority_exists=not (failure and failure.consequence is Consequence.ABSENT))
            return _lacking(view, failure)
        if question.what == "queue":
            queue, failure = self._kubectl.json(("get", "localqueue", question.name))
            if name := queue.get("spec", {}).get("clusterQueue", ""):
                queue, failure = self._kubectl.json(("get", "clusterqueue", name))
            return _lacking(replace(view, queue=queue if name else None), failure)
        rows, failure = self._kubectl.items(("get", "events", f"--field-selector=involvedObject.name={question.name}"))
        return _lacking(replace(view, events=tuple(rows)), failure)

    def _bring_logs(self, handle: Handle, view: ClusterView, ended: bool) -> str:
        """Into the directory of the run; why not all of them, or ""."""
        run, number = attempt_of(handle)
        logs = pod_logs.logs_of(view.pods, handle["pods_per_job"])
        name = handle["jobset"]
        if not logs and name not in self._followers:
            return ""
        if name not in self._followers:
            self._followers[name] = LogFollower(
                self._shell, self._kubectl.argv, attempt_parts.labels(handle), run, number
            )
        leaving = any(pod["metadata"].get("deletionTimestamp") for pod in view.pods)
        return self._followers[name].bring(logs, ended, leaving)

    def _may_wait(self, handle: Handle) -> bool:
        """Whether the logs of an attempt that has ended are still requested: a cluster keeps them for an hour."""
        first = self._gathering.setdefault(handle["jobset"], time.monotonic())
        return time.monotonic() - first < GATHER_LIMIT_S

    def _judged(self, handle: Handle, view: ClusterView) -> Polled:
        run, number = attempt_of(handle)
        folder = run.attempt(number)
        known = attempt_folder.remembered(folder, pod_failures.failures(view.pods, handle["pods_per_job"]))
        live = [pod for pod in view.pods if phase_of(pod) in _LIVE]
        if view.is_gone:
            stuck = pod_failures.stuck(live, clock.now())
            unfinished = any(not is_true(job, "Failed") and not is_true(job, "Complete") for job in view.jobs)
            if len(stuck) < len(live) or (unfinished and not stuck):
                return Polled(Process.RUNNING, waiting=attempt_folder.ending(folder, handle["jobset"], len(live)))
            return self._gone(folder, handle, view, known)
        if is_true(view.jobset, "Completed"):
            return Polled(Process.ENDED, 0)
        if is_true(view.jobset, "Failed"):
            return self._failed(handle, view, known)
        (folder / attempt_folder.SEEN).touch()
        attempt_folder.keep(
            folder / attempt_folder.NODES,
            {uid_of(pod): node for pod in view.pods if (node := node_of(pod))},
        )
        own = self._settings
        names = {"namespace": own.namespace, "context": context_of(own), "target": self._name, "run": run.name}
        names["own_queue"] = "" if handle["queue"] == own.queue else handle["queue"]
        began_s = attempt_folder.began_s(run.log(number))
        if intervention.was_resumed(view, began_s):
            view = self._answered(view, waiting.Question("workload", uid_of(view.jobset or {})))
            queue = handle["queue"] if view.has_kueue else ""
            return intervention.suspended(view, handle["jobset"], queue, began_s)
        if not view.suspended and pod_failures.stuck(view.pods, clock.now()):
            return self._failed(handle, view, known)
        explanation = waiting.explain(view, handle["pods"], began_s, names)
        polled = _with_failure(handle, view, self._lasting(handle["jobset"], explanation))
        if own.capacity == "existing":
            return polled
        submitted_s = attempt_folder.submitted_s(folder)
        by_pods = own.capacity == "flex-start"
        begun = began_s < float("inf")
        any_missing = begun and not view.suspended and len(view.pods) < handle["pods"]
        missing_s = attempt_folder.missing_since(folder, any_missing=any_missing)
        since_s = waiting.starting_since(
            view, handle["pods"], submitted_s, began_s, nodes_come=by_pods, missing_s=missing_s
        )
        waited_s = None if since_s is None else clock.now() - since_s
        return waiting.limited(polled, waited_s, own.patience, begun=begun)

    def _failed(self, handle: Handle, view: ClusterView, known: dict[str, PodFailure]) -> Polled:
        run, number = attempt_of(handle)
        known = pod_failures.since_resumed(known, view.jobset)
        polled = pod_failures.ended(view.jobs, known.values(), handle["pods"])
        if polled.ending is not Ending.NODE_LOST or polled.who:
            return polled
        nodes = read_json(run.attempt(number) / attempt_folder.NODES)  # no pod is left that tells
        missing = {node for uid, node in nodes.items() if uid not in known} if len(nodes) == handle["pods"] else set()
        if not missing:
            return polled
        rows, _ = self._kubectl.json(("get", "nodes", "--ignore-not-found", *sorted(missing)))
        listed = by_kind(rows.get("items", [rows]), "Node")
        began_s = attempt_folder.began_s(run.log(number))
        return intervention.pod_deleted(handle["jobset"], missing, listed, began_s) or polled

    def _gone(self, folder: Path, handle: Handle, view: ClusterView, known: dict[str, PodFailure]) -> Polled:
        """Of an attempt of which the cluster has no JobSet and nothing that runs."""
        if (folder / attempt_folder.STOP).exists():
            return Polled(Process.ENDED)
        if known and not pod_failures.began_with_deletion(list(known.values())):
            return pod_failures.ended(view.jobs, known.values(), handle["pods"])
        if not (folder / submit.RESULT).exists():
            return Polled(Process.ABSENT)
        seen = folder / attempt_folder.SEEN
        since_s = time.time() - seen.stat().st_mtime if seen.exists() else float("inf")
        namespace, failure = self._kubectl.json(("get", "namespace", self._settings.namespace))
        exists = failure is None or not failure.reason.startswith("NoNamespace")
        return intervention.gone(handle["jobset"], self._settings, bool(known), since_s, namespace, exists)

    def _lasting(self, name: str, explanation: waiting.Explanation) -> Polled:
        """An ending that only a text tells counts when it has been said for some time."""
        polled = explanation.polled
        now = time.monotonic()
        if polled.process is not Process.ENDED:
            self._told_since.pop(name, None)
            return polled
        text, since = self._told_since.get(name, ("", now))
        if text != polled.detail:
            since = now
        self._told_since[name] = polled.detail, since
        if now - since >= explanation.after_s:
            return replace(polled, waiting="")
        return Polled(Process.RUNNING, waiting=polled.waiting)


def _with_failure(handle: Handle, view: ClusterView, polled: Polled) -> Polled:
    """Of an attempt that the cluster has not ended: with the pod that has failed, and the nodes that are silent."""
    failed = [pod for pod in view.pods if phase_of(pod) == "Failed"]
    at_work = polled.process is Process.RUNNING and (not polled.waiting or polled.waiting.startswith("NodeSilent:"))
    known = pod_failures.since_resumed(pod_failures.failures(failed, handle["pods_per_job"]), view.jobset)
    if not known or not at_work:
        return polled
    first = pod_failures.ended(view.jobs, known.values(), handle["pods"])
    if not first.who:
        return polled
    silent = f" ({polled.waiting})" if polled.waiting else ""
    detail = f"the cluster has not ended JobSet {handle['jobset']}{silent}"
    return replace(first, process=Process.RUNNING, ending=None, detail=detail, fix="")


def _lacking(view: ClusterView, failure: Reply | None) -> ClusterView:
    """`view` with why something of it is not known: the first that is missing explains most."""
    if view.unanswered or failure is None or is_done(failure):
        return view
    return replace(view, unanswered=failure.advice)
