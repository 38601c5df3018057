"""Nodes of pools on the API server of the test: they come and go by its own HTTP interface, at the address in ROOT/kube/url."""

import contextlib
import http.client
import json
import time
import traceback
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.lab import machine
from tests.lab.gcloud import catalog, pools, store

Json = dict[str, Any]
TICK_S = 0.05
TAINT = {"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}
EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}


class KubeNodes:
    """Keeps the API server's nodes as the pools have them, in a thread of its own: the server may be slow, or not there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.registered: dict[str, int] = {}  # node: the TPU chips that it shows
        self.url = ""

    def run(self) -> None:
        while not machine.owner_is_gone(self.root):
            with contextlib.suppress(OSError, http.client.HTTPException, FileNotFoundError, ValueError):
                self.step()
            time.sleep(TICK_S)

    def step(self) -> None:
        """One look at both sides. A server with another address is another server, which has no node yet."""
        url = (self.root / "kube" / "url").read_text().strip()
        if url != self.url:
            self.url, self.registered = url, {}
        state = store.read(self.root)
        now, after_s = time.time(), state["knobs"]["times"]["tpu_registration"]
        wanted: dict[str, tuple[Json, Json, int]] = {}
        for pool in state["pools"].values():
            for node in pool["nodes"]:
                if node["on"]:
                    wanted[node["name"]] = (pool, node, pool["chips"] if now >= node["ready_at"] + after_s else 0)
        for name in [name for name in self.registered if name not in wanted]:
            self.send("DELETE", f"/api/v1/nodes/{name}", None, 404)
            del self.registered[name]
        for name, (pool, node, chips) in wanted.items():
            if name not in self.registered:
                self.send("POST", "/api/v1/nodes", node_object(pool, node, chips), 409)
            elif self.registered[name] != chips:
                capacity = resources(pool, chips)
                body = {"status": {"capacity": capacity, "allocatable": capacity}}
                self.send("PATCH", f"/api/v1/nodes/{name}/status", body)
            self.registered[name] = chips
        if any(pool["autoscaled"] for pool in state["pools"].values()):
            self.autoscale()

    def autoscale(self) -> None:
        """A pool without nodes gets all of them when a pod waits that only its nodes can take, and the zone has the capacity."""
        pods = self.send("GET", "/api/v1/pods?fieldSelector=status.phase%3DPending", None).get("items", [])
        selectors = [pod["spec"].get("nodeSelector", {}) for pod in pods if not pod["spec"].get("nodeName")]
        if not selectors:
            return
        with store.opened(self.root) as state:
            for pool in state["pools"].values():
                if not pool["autoscaled"] or pool["nodes"] or pool["state"] != "RUNNING":
                    continue
                offered = labels(pool, "")
                wanted = any(
                    s and all(offered.get(key) == value for key, value in s.items() if key != "kubernetes.io/hostname")
                    for s in selectors
                )
                if wanted and pools.has_capacity(state, pool):
                    pools.start_nodes(state, pool, time.time())

    def send(self, method: str, path: str, body: Json | None, fine: int = 0) -> Json:
        """One request; a status of `fine` is no error."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Content-Type": kind, "Accept": "application/json", "User-Agent": "lab-node"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=5) as reply:
                answer: Json = json.loads(reply.read() or b"{}")
                return answer
        except urllib.error.HTTPError as error:
            if error.code == fine:
                return {}
            if error.code < 500 and error.code != 429:
                traceback.print_exc()
            raise


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
    """What a node offers; its chips only once their device plugin has registered."""
    pods = str(pool["body"].get("maxPodsConstraint", {}).get("maxPodsPerNode", 110))
    shown = {"cpu": "224" if pool["chips"] else "4", "memory": "900Gi" if pool["chips"] else "16Gi", "pods": pods}
    return shown | ({"google.com/tpu": str(chips)} if pool["chips"] else {})


def node_object(pool: Json, node: Json, chips: int) -> Json:
    taints = [
        {"key": t["key"], "value": t.get("value", ""), "effect": EFFECTS[t["effect"]]}
        for t in pool["body"]["config"].get("taints", [])
        if t["key"] != TAINT["key"]
    ]
    ready = store.timestamp(node["ready_at"])[:19] + "Z"
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": ready}
    zone, project = pool["zone"], pool["name"].split("/")[1]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node["name"], "labels": labels(pool, node["name"])},
        "spec": {
            "providerID": f"gce://{project}/{zone}/{node['name']}",
            "taints": ([TAINT] if pool["chips"] else []) + taints,
        },
        "status": {
            "capacity": resources(pool, chips),
            "allocatable": resources(pool, chips),
            "conditions": [condition | {"message": "kubelet is posting ready status"}],
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": node["name"]},
            ],
            "nodeInfo": {"kubeletVersion": f"v{pool['body'].get('version', '')}"},
        },
    }
