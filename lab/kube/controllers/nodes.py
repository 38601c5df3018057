"""Nodes: ready after a while, their chips later; taken away with or without notice, and what becomes of the pods on them."""

import fnmatch
import json

from lab.kube.controllers import knobs, objects
from lab.kube.controllers.job import seconds
from lab.kube.controllers.kubelet import SHUTDOWN
from lab.kube.controllers.objects import Json
from lab.kube.store import Store
from lab.kube.streams import NODE_OFF

CHIPS = "lab/chips"  # annotation: google.com/tpu that the device plugin registers
UNREACHABLE = "node.kubernetes.io/unreachable"
IMPENDING = "cloud.google.com/impending-node-termination"  # [?]
COLLECTED = "PodGC: node no longer exists"
TAINTED = "Taint manager: deleting due to NoExecute taint"
LOST = ("NodeStatusUnknown", "Kubelet stopped posting node status.")


class NodeController:
    def __init__(self) -> None:
        self.struck: dict[
            tuple[str, str], tuple[float, str]
        ] = {}  # when a node met its event, and its uid, by event and name
        self.gone: dict[str, tuple[float, Json]] = {}  # nodes that come back, and when, by name
        self.orphans: dict[str, float] = {}  # pods of deleted nodes, by uid
        self.ready: dict[str, float] = {}

    def step(self, store: Store, now: float) -> None:
        settings = knobs.of(store)
        nodes = store.list("nodes")
        for node in nodes:
            self.register(store, node, settings, now)
            for row in settings["nodes"]:
                if fnmatch.fnmatch(objects.name(node), row["node"]):
                    self.strike(store, node, row, settings, now)
        self.bring_back(store, now)
        self.collect(store, {objects.name(node) for node in nodes}, settings, now)

    def register(self, store: Store, node: Json, settings: Json, now: float) -> None:
        """Readiness and chips of a node that was created without."""
        status, wanted = objects.status(node), objects.annotations(node).get(CHIPS)
        age = now - seconds(node["metadata"]["creationTimestamp"])
        if objects.condition(node, "Ready") is None and age >= settings["node_ready_s"]:
            text = "kubelet is posting ready status"
            objects.add_condition(store, "nodes", node, now, "Ready", True, "KubeletReady", text)
        since = self.ready.setdefault(objects.uid(node), now) if objects.is_true(node, "Ready") else now
        chips = wanted if objects.is_true(node, "Ready") and now >= since + settings["plugin_s"] else "0"
        if wanted is not None and (status.get("allocatable") or {}).get("google.com/tpu") != chips:
            amounts = {"google.com/tpu": chips}
            objects.patch_status(store, "nodes", node, {"capacity": amounts, "allocatable": amounts})

    def strike(self, store: Store, node: Json, row: Json, settings: Json, now: float) -> None:
        name = objects.name(node)
        since, uid = self.struck.setdefault((json.dumps(row), name), (now, objects.uid(node)))
        if uid != objects.uid(node):  # it has come back
            return
        if row["event"] == "unreachable":
            mark_lost(store, node, now)
            if now >= since + settings["unreachable_s"]:
                evict(store, node, now)
            return
        notice_s = row.get("notice_s", 0.0)
        if now < since + notice_s:
            announce(store, node, notice_s)
            return
        if row.get("back_s") is not None:
            self.gone[name] = (now + row["back_s"], fresh(node))
        objects.delete(store, "nodes", node)

    def bring_back(self, store: Store, now: float) -> None:
        """Machines that their group makes anew, under the same name."""
        for name, (due, node) in list(self.gone.items()):
            if now >= due:
                del self.gone[name]
                if not store.find("nodes", name):
                    store.create("nodes", node)

    def collect(self, store: Store, nodes: set[str], settings: Json, now: float) -> None:
        """Pods of nodes that no longer exist fail, then go."""
        for pod in store.list("pods"):
            node = objects.spec(pod).get("nodeName")
            if not node or node in nodes:
                continue
            if now < self.orphans.setdefault(objects.uid(pod), now) + settings["gc_s"]:
                continue
            if not objects.finished(pod):
                disrupt(store, pod, now, "DeletionByPodGC", COLLECTED, fails=True)
            objects.delete(store, "pods", pod, grace_s=0)


def fresh(node: Json) -> Json:
    """The node as it was created."""
    metadata = {"name": objects.name(node), "labels": objects.labels(node)}
    own = {key: text for key, text in objects.annotations(node).items() if key not in (NODE_OFF, SHUTDOWN)}
    taints = [each for each in objects.spec(node).get("taints") or [] if each["key"] not in (IMPENDING, UNREACHABLE)]
    return {**node, "metadata": metadata | {"annotations": own}, "spec": objects.spec(node) | {"taints": taints}}


def announce(store: Store, node: Json, notice_s: float) -> None:
    """A node that is taken away soon: its pods are ended, and it gets no new ones."""

    def function(copy: Json) -> None:
        copy["metadata"]["annotations"] = objects.annotations(copy) | {SHUTDOWN: str(notice_s)}
        add_taint(copy, IMPENDING, "NoSchedule")

    objects.change(store, "nodes", node, function)


def add_taint(copy: Json, key: str, effect: str) -> None:
    taints = copy.setdefault("spec", {}).setdefault("taints", [])
    if not any(each["key"] == key and each["effect"] == effect for each in taints):
        taints.append({"key": key, "effect": effect})


def mark_lost(store: Store, node: Json, now: float) -> None:
    def function(copy: Json) -> None:
        copy["metadata"]["annotations"] = objects.annotations(copy) | {NODE_OFF: "true"}
        objects.set_condition(copy, now, "Ready", "Unknown", *LOST)
        for effect in ("NoSchedule", "NoExecute"):
            add_taint(copy, UNREACHABLE, effect)

    objects.change(store, "nodes", node, function)
    for pod in store.list("pods", fields=f"spec.nodeName={objects.name(node)}"):
        if not objects.finished(pod):
            text = "Node is not ready"
            objects.add_condition(store, "pods", pod, now, "Ready", False, "NodeNotReady", text)


def evict(store: Store, node: Json, now: float) -> None:
    """Pods of a node that nobody hears from are deleted, and stay, as their kubelet does not answer, until the node goes."""
    for pod in store.list("pods", fields=f"spec.nodeName={objects.name(node)}"):
        if not objects.finished(pod) and not objects.deleting(pod):
            disrupt(store, pod, now, "DeletionByTaintManager", TAINTED, fails=False)
            objects.delete(store, "pods", pod)


def disrupt(store: Store, pod: Json, now: float, reason: str, message: str, fails: bool) -> None:
    def function(copy: Json) -> None:
        objects.set_condition(copy, now, "DisruptionTarget", True, reason, message)
        if fails:
            copy["status"]["phase"] = "Failed"

    objects.change(store, "pods", pod, function)
