"""Nodes of pools on the API server of the test: they come and go by its own HTTP interface, at the address in ROOT/kube/url."""

import contextlib
import http.client
import json
import socket
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from lab import machine
from lab.gcloud import catalog, pools, store
from lab.kube.control_socket import short_path

Json = dict[str, Any]
TICK_S = 0.05
NODES = "/api/v1/nodes"
SHUTDOWN = "lab/shutdown"  # annotation: the seconds that the pods of a node have before it goes
EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}


class KubeNodes:
    """Keeps the API server's nodes as the pools have them, in a thread of its own: the server may be slow, or not there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.registered: dict[str, int] = {}  # node: the TPU chips that it shows
        self.warned: set[str] = set()  # nodes that are known to go soon
        self.url = ""

    def run(self) -> None:
        while not machine.owner_is_gone(self.root):
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                self.step()
            time.sleep(TICK_S)

    def step(self) -> None:
        """One look at both sides. A server with another address is another server, which has no node yet."""
        url = (self.root / "kube" / "url").read_text().strip()
        if url != self.url:
            self.url, self.registered, self.warned = url, {}, set()
        state = store.read(self.root)
        now, after_s = time.time(), state["knobs"]["times"]["tpu_registration"]
        on = {node["name"]: (pool, node) for pool in state["pools"].values() for node in pool["nodes"] if node["on"]}
        for name in [name for name in self.registered if name not in on]:
            self.send("DELETE", f"{NODES}/{name}", None, 404)
            del self.registered[name]
        for name, (pool, node) in on.items():
            chips = pool["chips"] if now >= node["ready_at"] + after_s else 0
            if name not in self.registered:
                self.send("POST", NODES, node_object(pool, node), 409)
            if self.registered.get(name) != chips:
                self.send("PATCH", f"{NODES}/{name}/status", {"status": node_status(pool, node, chips)}, 404)
                self.registered[name] = chips
            if node["notice_s"] and name not in self.warned:
                annotations = {SHUTDOWN: str(node["notice_s"])}
                self.send("PATCH", f"{NODES}/{name}", {"metadata": {"annotations": annotations}}, 404)
                self.warned.add(name)
        if any(pool["autoscaled"] and pool["state"] == "RUNNING" for pool in state["pools"].values()):
            self.autoscale()
        for pool in state["pools"].values():
            if pool["state"] == "STOPPING" and not pool["drained"]:
                self.drain(pool)

    def autoscale(self) -> None:
        """A pool without nodes gets all of them when a pod waits that only its nodes can take, and the zone has the capacity; its nodes
        go when no pod has used one for `times.scale_down` seconds."""
        pods = self.send("GET", "/api/v1/pods", None).get("items", [])
        specs = [pod["spec"] for pod in pods if pod.get("status", {}).get("phase", "Pending") in ("Pending", "Running")]
        used = {spec["nodeName"] for spec in specs if spec.get("nodeName")}
        selectors = [spec["nodeSelector"] for spec in specs if not spec.get("nodeName") and spec.get("nodeSelector")]
        with store.opened(self.root) as state:
            for pool in state["pools"].values():
                if pool["autoscaled"] and pool["state"] == "RUNNING":
                    scale(state, pool, selectors, used)

    def drain(self, pool: Json) -> None:
        """Say so when no pod runs on the nodes of a pool that is deleted."""
        names = {node["name"] for node in pool["nodes"] if node["on"]}
        pods = [
            pod
            for pod in self.send("GET", "/api/v1/pods", None).get("items", [])
            if pod["spec"].get("nodeName") in names
        ]
        if all(pod.get("status", {}).get("phase") in ("Succeeded", "Failed") for pod in pods):
            with store.opened(self.root) as state:
                state["pools"][pool["name"]]["drained"] = True

    def send(self, method: str, path: str, body: Json | None, fine: int = 0) -> Json:
        """One request; a status of `fine` is no error. By the server's control socket where it has one, which knows no faults."""
        connection = Connection(urlsplit(self.url), self.root / "kube" / "control.sock")
        headers = {
            "Content-Type": f"application/{'merge-patch+' if method == 'PATCH' else ''}json",
            "User-Agent": "lab-gcloud",
        }
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            reply = connection.getresponse()
            answer: Json = json.loads(reply.read() or b"{}")
        finally:
            connection.close()
        if reply.status >= 400 and reply.status != fine:
            text = f"{method} {path}: {reply.status} {answer.get('message', '')}"
            if reply.status < 500 and reply.status != 429:
                print(text, file=sys.stderr, flush=True)
            raise OSError(text)
        return answer


class Connection(http.client.HTTPConnection):
    def __init__(self, url: SplitResult, control: Path) -> None:
        super().__init__(url.hostname or "", url.port, timeout=5)
        self.control = control

    def connect(self) -> None:
        if not self.control.exists():
            return super().connect()
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(5)
        with short_path(self.control.parent) as folder:
            self.sock.connect(f"{folder}/{self.control.name}")


def scale(state: store.State, pool: Json, selectors: list[Json], used: set[str]) -> None:
    now, offered = time.time(), labels(pool, "")
    if not pool["nodes"]:
        waited = any(all(offered.get(key) == value for key, value in wanted.items()) for wanted in selectors)
        if waited and pools.has_capacity(state, pool):
            pools.start_nodes(state, pool, now)
            pool["used_at"] = now
    elif used & {node["name"] for node in pool["nodes"]}:
        pool["used_at"] = now
    elif now > pool["used_at"] + state["knobs"]["times"]["scale_down"]:
        pools.remove_nodes(state, pool)


def labels(pool: Json, name: str) -> dict[str, str]:
    """Those that GKE puts on a node, and those of --node-labels."""
    zone, config, short = pool["zone"], pool["body"]["config"], pool["name"].split("/")[-1]
    shown = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": pool["machine_type"],
        "topology.kubernetes.io/zone": zone,
        "topology.kubernetes.io/region": catalog.region(zone),
        "cloud.google.com/gke-nodepool": short,
        "cloud.google.com/machine-family": pools.family(pool["machine_type"]),
    }
    if pool["chips"]:
        shown["cloud.google.com/gke-tpu-accelerator"] = pools.FAMILIES[pools.family(pool["machine_type"])]
        shown["cloud.google.com/gke-tpu-topology"] = pool["topology"]
        shown["cloud.google.com/gke-accelerator-count"] = str(pool["chips"])
    if pool["policy"]:
        shown["cloud.google.com/placement-policy-name"] = pool["policy"]
    if pool["reservation"]:
        shown["cloud.google.com/reservation-name"] = pool["reservation"].split("/reservationBlocks/")[0].split("/")[-1]
    for field, label in (("spot", "gke-spot"), ("flexStart", "gke-flex-start")):
        if config.get(field):
            shown[f"cloud.google.com/{label}"] = "true"
    return shown | config.get("labels", {})


def resources(pool: Json, chips: int) -> dict[str, str]:
    pods = str(pool["body"].get("maxPodsConstraint", {}).get("maxPodsPerNode", 110))
    shown = {"cpu": "224" if pool["chips"] else "4", "memory": "900Gi" if pool["chips"] else "16Gi", "pods": pods}
    return shown | ({"google.com/tpu": str(chips)} if pool["chips"] else {})


def node_object(pool: Json, node: Json) -> Json:
    taints = [
        {"key": t["key"], "value": t.get("value", ""), "effect": EFFECTS[t["effect"]]}
        for t in pool["body"]["config"].get("taints", [])
    ]
    place = f"{pool['name'].split('/')[1]}/{pool['zone']}/{node['name']}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node["name"], "labels": labels(pool, node["name"])},
        "spec": {"providerID": f"gce://{place}", "taints": taints},
    }


def node_status(pool: Json, node: Json, chips: int) -> Json:
    """`chips`: those whose device plugin has registered."""
    ready = store.timestamp(node["ready_at"])[:19] + "Z"
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": ready}
    capacity = resources(pool, chips)
    addresses = {"InternalIP": "127.0.0.1", "Hostname": node["name"]}
    return {
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": [condition | {"message": "kubelet is posting ready status"}],
        "addresses": [{"type": kind, "address": address} for kind, address in addresses.items()],
        "nodeInfo": {"kubeletVersion": f"v{pool['body'].get('version', '')}"},
    }
