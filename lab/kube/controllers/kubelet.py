"""The kubelets of all nodes: pods become processes of this machine, their states and exit codes the status of the pods."""

import json
import shutil
from pathlib import Path

from lab.kube.controllers import knobs, objects
from lab.kube.controllers.network import PodNetwork
from lab.kube.controllers.objects import Json
from lab.kube.controllers.pod_run import PodRun
from lab.kube.store import Store
from lab.kube.streams import NODE_OFF

SHUTDOWN = "lab/shutdown"  # annotation of a node that is about to be taken away, with the seconds until then
POD_SHARE = 0.5  # of the notice, which pods get; the rest is the system's, as 15 of 30 s on GKE


class Kubelet:
    def __init__(self, root: Path) -> None:
        self.root, self.network = root, PodNetwork()
        self.runs: dict[str, PodRun] = {}  # by uid
        self.written: dict[str, str] = {}  # status by uid

    def step(self, store: Store, now: float) -> None:
        settings = knobs.of(store)
        nodes = {objects.name(node): node for node in store.list("nodes")}
        pods = {objects.uid(pod): pod for pod in store.list("pods") if objects.spec(pod).get("nodeName")}
        for uid in [uid for uid in self.runs if uid not in pods]:
            self.forget(uid)
        for uid, pod in pods.items():
            node = nodes.get(pod["spec"]["nodeName"])
            if node is None or objects.annotations(node).get(NODE_OFF):
                if uid in self.runs:
                    self.runs[uid].kill()
                continue
            self.advance(store, pod, node, settings, now)

    def advance(self, store: Store, pod: Json, node: Json, settings: Json, now: float) -> None:
        uid = objects.uid(pod)
        if uid not in self.runs:
            if objects.finished(pod):
                self.remove_deleted(store, pod)
                return
            self.runs[uid] = PodRun(self.root, self.network, pod)
        run = self.runs[uid]
        if objects.deleting(pod):
            run.stop(now, grace(pod, settings))
        elif notice := objects.annotations(node).get(SHUTDOWN):
            run.shut_down(now, min(POD_SHARE * float(notice), grace(pod, settings)))
        run.advance(store, pod, node, settings, now)
        text = json.dumps(run.status(pod))
        if self.written.get(uid) != text or run.events:
            self.written[uid] = text
            pod = run.write(store, pod, now) or pod
        if run.ended:
            self.remove_deleted(store, pod)

    def remove_deleted(self, store: Store, pod: Json) -> None:
        if objects.deleting(pod) and not pod["metadata"].get("finalizers"):
            objects.delete(store, "pods", pod, grace_s=0)

    def forget(self, uid: str) -> None:
        """The pod is gone from the API: so are its processes, files and logs."""
        run = self.runs.pop(uid)
        self.written.pop(uid, None)
        run.kill()
        run.wait()
        for folder in (run.folder, run.log_folder):
            shutil.rmtree(folder, ignore_errors=True)

    def has_process(self, pod: Json, container: str) -> bool:
        """Whether the first process of a container has a number: it gets one a moment after the container runs."""
        path = self.runs[objects.uid(pod)].folder / f"{container}.pid"
        return path.exists() and bool(path.read_text())

    def exec_argv(self, pod: Json, container: str, command: list[str]) -> tuple[list[str], dict[str, str]]:
        """A command in the namespaces of a running container, with its variables."""
        run = self.runs[objects.uid(pod)]
        pid = (run.folder / f"{container}.pid").read_text()
        there = next(each for each in run.containers if each.name == container)
        inside = ["nsenter", f"--target={pid}", "--net", "--mount", "--uts", "--ipc", "--pid", "--root", "--wd=/", "--"]
        return [*inside, *command], there.environment

    def close(self) -> None:
        """Kill all pods."""
        for run in self.runs.values():
            run.kill()
        for uid in list(self.runs):
            self.forget(uid)
        self.network.close()


def grace(pod: Json, settings: Json) -> float:
    seconds = float(
        pod["metadata"].get("deletionGracePeriodSeconds", pod["spec"].get("terminationGracePeriodSeconds", 30))
    )
    return seconds if settings["grace_s"] is None else min(seconds, settings["grace_s"])
