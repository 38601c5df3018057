"""`python -m lab.gcloud.control_plane ROOT`: lets time pass in the simulated cloud, and starts and ends the hosts of its nodes."""

import contextlib
import os
import queue
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from lab import machine
from lab.gcloud import history, kube_nodes, lifecycle, metadata, pools, store
from lab.machine import TICK_S, Machine

Json = dict[str, Any]


class ControlPlane:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.lab_number = machine.read(root / "lab.json")["number"]
        self.machines: dict[str, list[Machine]] = {}  # by the node's id
        self.written: dict[Path, dict[str, str]] = {}
        self.to_start: queue.Queue[Json] = queue.Queue()

    def run(self) -> None:
        threading.Thread(target=self.start_hosts, daemon=True).start()
        threading.Thread(target=kube_nodes.KubeNodes(self.root).run, daemon=True).start()
        while not machine.owner_is_gone(self.root):
            with store.opened(self.root) as state:
                lifecycle.advance(state)
                pools.advance(state, (self.root / "kube" / "url").exists())
                forget(state)
                wanted = [node for node in state["nodes"].values() if node["boot"] == "wanted"]
                for node in wanted:
                    self.prepare(state, node)
                nodes = list(state["nodes"].values())
                for node in nodes:
                    self.write_metadata(state, node)
                cut = {(n["body"]["id"], w) for n in nodes for w in range(n["num_hosts"]) if unreachable(state, n, w)}
            for node in wanted:
                self.to_start.put(node)
            on = {node["body"]["id"] for node in nodes if node["boot"] in ("booting", "on")}
            for key in [key for key in self.machines if key not in on]:
                machine.kill(self.machines.pop(key))
            for key, hosts in self.machines.items():
                for worker, host in enumerate(list(hosts)):
                    host.connect((key, worker) not in cut)
            time.sleep(TICK_S)

    def prepare(self, state: store.State, node: Json) -> None:
        """Addresses and names of the hosts to be; those of a restart are what they were."""
        numbers = [] if "planned" in node else free_numbers(state, node["num_hosts"])
        node["boot"], node["on_at"] = "booting", None
        self.machines[node["body"]["id"]] = []
        node["planned"] = node.get("planned") or [
            {
                "name": f"t1v-n-{node['hex']}-w-{worker}",
                "address": f"10.214.{self.lab_number}.{number}",
                "internal": f"10.213.{self.lab_number}.{number}",
                "host_key": "",
            }
            for worker, number in enumerate(numbers)
        ]

    def write_metadata(self, state: store.State, node: Json) -> None:
        if node["boot"] not in ("booting", "on"):
            return
        addresses = [host["internal"] for host in node["planned"]]
        for worker in range(node["num_hosts"]):
            values = metadata.of_worker(state, node, worker, addresses)
            path = self.metadata_file(node, worker)
            if self.written.get(path) != values:
                machine.write(path, values)
                self.written[path] = values

    def metadata_file(self, node: Json, worker: int) -> Path:
        return store.folder(self.root) / f"metadata-{node['hex']}-{worker}.json"

    def start_hosts(self) -> None:
        """Start the hosts of node after node; hosts end with the thread that started them, so this one does not end."""
        while True:
            node = self.to_start.get()
            started = self.machines.get(node["body"]["id"], [])
            try:
                for worker, host in enumerate(node["planned"]):
                    if self.machines.get(node["body"]["id"]) is not started:
                        break
                    order = {**host, "metadata": str(self.metadata_file(node, worker)), "guest": {}}
                    order_file = store.folder(self.root) / f"order-{node['hex']}-{worker}.json"
                    started.append(Machine(self.root, order_file, order))
            except Exception:
                traceback.print_exc()
                os._exit(1)  # the test is told when it leaves the cloud
            threading.Thread(target=self.wait_for_hosts, args=(node, started), daemon=True).start()

    def wait_for_hosts(self, node: Json, started: list[Machine]) -> None:
        """Until all hosts of a node answer; they may be taken away meanwhile."""
        key, hosts = node["body"]["id"], node["planned"]
        limit = time.monotonic() + machine.HOST_START_S
        waiting = list(hosts)
        while waiting and self.machines.get(key) is started and time.monotonic() < limit:
            waiting = [host for host in waiting if not machine.accepts_ssh(host["address"])]
            time.sleep(TICK_S)
        for host in hosts:
            with contextlib.suppress(FileNotFoundError):
                public = self.root / "disks" / host["name"] / "etc-ssh/ssh_host_ed25519_key.pub"
                host["host_key"] = public.read_text().split()[1]
        with store.opened(self.root) as state:
            kept = state["nodes"].get(node["name"])
            if kept and kept["body"]["id"] == key and kept["boot"] == "booting":
                kept["hosts"], kept["boot"], kept["on_at"] = hosts, "on", time.time()
        if self.machines.get(key) is not started:
            machine.kill(started)


def unreachable(state: store.State, node: Json, worker: int) -> bool:
    repaired = node["state"] == "REPAIRING"
    return node["boot"] == "on" and (repaired or bool(metadata.rules(state, node, worker, "unreachable")))


def free_numbers(state: store.State, count: int) -> list[int]:
    """Host numbers that no host has; those used longest ago come first, so that no old connection leads to a new host."""
    used = {
        int(host["address"].rpartition(".")[2])
        for node in state["nodes"].values()
        if node["boot"] in ("booting", "on")
        for host in node["planned"]
    }
    last = state.get("last_host", 1)
    order = [*range(last + 1, 255), *range(2, last + 1)]
    numbers = [number for number in order if number not in used][:count]
    assert len(numbers) == count, "the lab's address range is used up"
    state["last_host"] = numbers[-1]
    return numbers


def forget(state: store.State) -> None:
    """Drop what has been gone for so long that no lagging reader sees it any more."""
    now, kept_s = time.time(), max(history.HISTORY_S, state["knobs"]["name_taken_s"])
    for kind in ("requests", "nodes", "pools", "policies"):
        for name in [n for n, r in state[kind].items() if r["state"] == "GONE" and r["since"] < now - kept_s]:
            del state[kind][name]
    for name in [n for n, o in state["operations"].items() if (o["done_at"] or now) < now - kept_s]:
        del state["operations"][name]


if __name__ == "__main__":
    ControlPlane(Path(sys.argv[1])).run()
