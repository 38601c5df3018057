"""What a test holds of the simulated cloud: its environment, its knobs, and its records."""

import fcntl
import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import machine
from lab.cloud import Lab
from lab.gcloud import certificates, store
from lab.gcloud.command import LAUNCHER
from lab.gcloud.control_gke import GkeKnobs

Row = dict[str, Any]
FOREVER = None
MOST_LATE_S = 30.0  # between two looks of a launcher, whose own pace is seconds


class Folder:
    """In place of a lab where no host is needed, as for GKE: `with Folder(tmp_path) as folder, Gcloud(folder) as cloud`, without root."""

    number = 0

    def __init__(self, root: Path) -> None:
        self.root = root

    def __enter__(self) -> "Folder":
        self._lock = os.open(self.root / "owner.lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        machine.write(self.root / "lab.json", {"number": 0, "hidden": []})
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)


class Gcloud(GkeKnobs):
    """A cloud over the lab's network, until the block ends: `with Lab() as lab, Gcloud(lab) as cloud`."""

    def __init__(self, lab: "Lab | Folder") -> None:
        self.lab, self.root = lab, lab.root

    def __enter__(self) -> "Gcloud":
        store.prepare(self.root)
        self.internal = f"10.213.{self.lab.number}.0/24"
        if self.lab.number:
            certificates.create(store.folder(self.root))
            machine.ip(f"route replace unreachable {self.internal}")
        self.folder = store.folder(self.root) / "bin"
        self.folder.mkdir()
        shim = self.folder / "gcloud"
        shim.write_text(
            f"#!{sys.executable} -IS\nimport sys\nsys.path.insert(0, {str(machine.REPOSITORY)!r})\n"
            f"from pathlib import Path\nfrom lab.gcloud.command import main\nsys.exit(main(Path({str(self.root)!r}), sys.argv[1:]))\n"
        )
        shim.chmod(0o755)
        with (self.root / "control-plane.txt").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "lab.gcloud.control_plane", str(self.root)],
                cwd=machine.REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=machine.end_with_parent,
            )
        return self

    def __exit__(self, *_: object) -> None:
        ended = self.process.poll() is not None
        self.process.kill()
        self.process.wait()
        if self.lab.number:
            machine.ip(f"route del unreachable {self.internal}")
        shutil.rmtree(store.folder(self.root))
        assert not ended, (self.root / "control-plane.txt").read_text()

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which `gcloud` is this cloud's."""
        return {"PATH": f"{self.folder}{os.pathsep}{os.environ['PATH']}", LAUNCHER: "1"}

    def call(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run `gcloud` with these arguments."""
        command = [str(self.folder / "gcloud"), *argv]
        return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)

    # records

    def resources(self) -> list[Row]:
        """Everything that exists: {"kind": "queued-resource" | "node" | "node-pool" | "workload-policy", "name", "zone", "state"}, husks and
        preempted nodes too, pools of others not."""
        state = store.read(self.root)
        kinds = {"queued-resource": state["requests"], "node": state["nodes"]}
        pools = [p for p in self.pools() if not p["foreign"]]
        of_gke = [{"kind": "node-pool", "name": p["name"], "zone": p["zone"], "state": p["status"]} for p in pools]
        of_gke += [
            {"kind": "workload-policy", "name": policy["name"], "zone": policy["region"], "state": "READY"}
            for policy in self.policies()
        ]
        return of_gke + [
            {"kind": kind, "name": name.split("/")[-1], "zone": record["zone"], "state": record["state"]}
            for kind, records in kinds.items()
            for name, record in records.items()
            if record["state"] != "GONE"
        ]

    def ledger(self) -> list[Row]:
        """One row for each TPU VM node, and each node of a pool, that was ready: {"name", "pool", "zone", "chips", "ready_at", "gone_at"}; times
        are Unix seconds, `gone_at` None while it lives."""
        keys = ("name", "zone", "chips", "ready_at", "gone_at")
        rows = store.read(self.root)["ledger"]
        return [{"pool": row.get("pool", "")} | {key: row[key] for key in keys} for row in rows]

    def chip_hours(self) -> float:
        """Of the ledger; what still lives counts until now."""
        now = time.time()
        return sum(row["chips"] * ((row["gone_at"] or now) - row["ready_at"]) for row in self.ledger()) / 3600

    def seen_late_s(self) -> float:
        """By how much a launcher may see machines late at each end: the longest time between two of its looks at the node pools, and once more until
        the further calls of such a look have ended, however busy this machine is; a second for a call and another one to which the cluster
        rounds times. AssertionError where it has looked away."""
        looks = [row["time"] for row in self.calls() if {"node-pools", "list"} <= set(row["argv"])]
        longest = max((later - look for look, later in itertools.pairwise(looks)), default=0.0)
        assert longest <= MOST_LATE_S, f"no look at the node pools for {longest:.0f} s"
        return 2 * longest + 2.0

    def calls(self) -> list[Row]:
        """Every call of gcloud and of the API: {"time", "argv", "rc", "seconds"}; rc is None for a call that was killed."""
        rows: dict[str, Row] = {}
        path = store.folder(self.root) / "calls.jsonl"
        for number, line in enumerate(path.read_text().splitlines() if path.exists() else []):
            row = store.decode(line)
            key = row.pop("id", f"rest-{number}")
            rows[key] = {"rc": None, "seconds": None} | rows.get(key, {}) | row
        return list(rows.values())

    def killed(self) -> set[int]:
        """The launchers that faults of the kind "orphaned" have killed, by their process numbers."""
        return {row["killed"] for row in self.calls() if "killed" in row}

    def hosts(self, node: str) -> list[Row]:
        """The workers of a node, by agent-worker-number: {"name", "address", "internal", "host_key"}."""
        return next(record["hosts"] for record in self._nodes() if record["name"].endswith(f"/{node}"))

    def _nodes(self) -> list[Row]:
        return [node for node in store.read(self.root)["nodes"].values() if node["state"] != "GONE"]

    # knobs

    def set(self, **knobs: Any) -> None:
        """Any knob of `store.KNOBS` by its name."""
        with store.opened(self.root) as state:
            for name, value in knobs.items():
                assert name in store.KNOBS, name
                state["knobs"][name] = value

    def times(self, **seconds: float) -> None:
        """How long creating, accepted, provisioning, suspending, deleting, stockout, ghost and operation take, at least."""
        assert set(seconds) <= set(store.KNOBS["times"]), seconds
        with store.opened(self.root) as state:
            state["knobs"]["times"] |= seconds

    def capacity(self, zone: str, chips: int | None, after_s: float = 0.0, model: str = "") -> None:
        """Chips of a zone, from `after_s` seconds from now on; None: no limit. `model`: spot, on-demand or reserved only."""
        with store.opened(self.root) as state:
            key = f"{zone}/{model}" if model else zone
            now = time.time()
            steps = state["knobs"]["capacity"].setdefault(key, [])
            if not after_s:
                steps.clear()
            steps.append([now + after_s if after_s else 0.0, chips])

    def quota(self, place: str, chips: int, generation: str = "v6e", preemptible: bool = True) -> None:
        """At most so many chips in a region or a zone."""
        scope = "zone" if place.count("-") == 2 else "region"
        row = {"scope": scope, "place": place, "chips": chips, "generation": generation, "preemptible": preemptible}
        with store.opened(self.root) as state:
            kept = [q for q in state["knobs"]["quota"] if {**q, "chips": chips} != row]
            state["knobs"]["quota"] = [*kept, row]

    def preempt(self, node: str, notice_s: float = 0.0) -> None:
        """Take a node away: its metadata says so, and `notice_s` later its hosts are off."""
        with store.opened(self.root) as state:
            for record in state["nodes"].values():
                if record["name"].endswith(f"/{node}") and record["state"] != "GONE":
                    record["preempt"] = {"at": time.time(), "notice_s": notice_s}

    def maintain(
        self, node: str, state: str = "RESTARTING", unhealthy_s: float = 0.0, away_s: float | None = FOREVER
    ) -> None:
        """Maintenance of a node: UNHEALTHY_MAINTENANCE for `unhealthy_s`, then for `away_s` RESTARTING, in which its hosts are off, or
        REPAIRING, in which no packet reaches them; then READY and healthy, after RESTARTING once the hosts have booted."""
        with store.opened(self.root) as kept:
            for record in kept["nodes"].values():
                if record["name"].endswith(f"/{node}") and record["state"] != "GONE":
                    record["maintenance"] = {
                        "at": time.time(),
                        "state": state,
                        "unhealthy_s": unhealthy_s,
                        "away_s": away_s,
                    }

    def fault(
        self,
        verb: str,
        kind: str = "",
        status: int = 0,
        message: str = "",
        calls: int | None = 1,
        probability: float = 1.0,
        before: bool = True,
        text: str = "",
        keep: int = 40,
        delay_s: float = 0.0,
    ) -> None:
        """Plan a fault for the next `calls` calls (None: all) of a verb such as "queued-resources create"; * matches any text.

        kind "cut": the call takes effect, `keep` characters of each stream arrive, exit status 1. "killed": it takes effect, then dies.
        "timeout": it takes effect, the client gives up waiting. "orphaned": the process that made it is killed, with before=False once it has
        taken effect, else before, and it goes on alone after `delay_s`. `status` 429, 500, 503, ...: refused so, or with before=False after
        it took effect; kind "http" with it shows it as older gclouds did. `text`: refused, with this in place of what gcloud would say.
        `delay_s`: the call takes longer.
        """
        row = {
            "verb": verb,
            "probability": probability,
            "calls": calls,
            "delay_s": delay_s,
            "keep": keep,
            "before": before,
            "text": text,
        }
        row |= {"kind": kind} if kind else {}
        row |= {"status": status, "message": message} if status else {}
        with store.opened(self.root) as state:
            state["knobs"]["faults"].append(row)

    def fail_provisioning(self, message: str, code: int = 13, request: str = "*", back: bool = False) -> None:
        """The next queued resource that is provisioned becomes FAILED with this error, or with `back` WAITING_FOR_RESOURCES again."""
        with store.opened(self.root) as state:
            row = {"request": request, "code": code, "message": message, "back": back}
            state["knobs"]["provisioning_errors"].append(row)

    def fail_deletions(self, count: int) -> None:
        """The next `count` deletions of a TPU VM, a queued resource or a node pool are accepted and fail later: it is there as before."""
        self.set(failing_deletions=count)

    def deny(self, *permissions: str) -> None:
        """Permissions that are missing: "tpu.nodes.list"; with "instance:" in front only for the instance's own token."""
        self.set(denied=list(permissions))

    def order_endpoints(self, workers: Sequence[int], node: str = "*") -> None:
        """networkEndpoints of nodes created from now on: worker numbers in their order."""
        with store.opened(self.root) as state:
            state["knobs"]["endpoint_order"].insert(0, [node, list(workers)])

    def unreachable(self, node: str, worker: int, seconds: float | None = FOREVER) -> None:
        """No packet gets to a worker or from it, for `seconds` from now on."""
        self._guest("unreachable", node, worker, seconds=seconds)

    def late_key(self, node: str, worker: int, seconds: float) -> None:
        """A worker does not know the ssh key for `seconds` after all workers of its node answer."""
        self._guest("late_key", node, worker, after_boot_s=seconds)

    def image(self, node: str, worker: int | None, runtime_version: str) -> None:
        """A worker has another image than was requested: instance/attributes/lab-image says which."""
        self._guest("lab-image", node, worker, value=runtime_version)

    def busy_device(self, node: str, worker: int | None, seconds: float | None = FOREVER) -> None:
        """instance/attributes/lab-device of a worker is "busy" and not "free"."""
        self._guest("lab-device", node, worker, value="busy", seconds=seconds)

    def _guest(
        self,
        what: str,
        node: str,
        worker: int | None,
        value: str = "",
        seconds: float | None = None,
        after_boot_s: float | None = None,
    ) -> None:
        until = None if seconds is None else time.time() + seconds
        row = {
            "what": what,
            "node": node,
            "worker": worker,
            "value": value,
            "until": until,
            "after_boot_s": after_boot_s,
        }
        with store.opened(self.root) as state:
            state["knobs"]["guests"].append(row)

    def clear_guests(self) -> None:
        """Take back all knobs for guests."""
        self.set(guests=[])
