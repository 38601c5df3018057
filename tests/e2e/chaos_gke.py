"""GKE in lives under disturbances: node pools of the run, pods that are processes, and what others have in the same project and cluster."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from lab.bucket import EmulatedBucket
from lab.gcloud import store
from lab.gcloud.control import Folder, Gcloud
from lab.kube import samples
from lab.kube.control import Kube
from podwright.run import cost, journal
from podwright.run.journal import RunState
from podwright.run.states import AllocationPhase
from podwright.rundir import RunDir, read_jsonl
from podwright.targets.base import RUN_LABEL
from podwright.targets.gke import submit
from podwright.targets.gke.attempt import ATTEMPT_LABEL
from podwright.targets.google.labels import BY_LABEL, EXPIRES_LABEL, RUN_DIR_KEY, quoted_run_dir
from tests.e2e import chaos_clouds, chaos_trainer
from tests.e2e.chaos import RECIPE, RUN, Disturbed, Setting
from tests.e2e.chaos_attempts import EVERY
from tests.e2e.chaos_gke_script import STEPS, of_gke, of_gke_briefly
from tests.e2e.chaos_life import Life
from tests.e2e.chaos_phases import Disturbance, LifePhase, Observer, Reading, Row, SliceTime, facts_of_file
from tests.e2e.chaos_script import NOTICE_S, Script
from tests.e2e.chaos_second_run import NAME as SECOND
from tests.e2e.conftest import Bench, wait_for
from tests.e2e.fork_server import ForkServer
from tests.e2e.trainer import ROOT

A, B, C = ZONES = ("us-central1-a", "us-central1-b", "us-central1-c")
CLUSTER = {"project": "my-project", "cluster": "my-cluster"}
RESERVATIONS = ("r-1", "r-2")
TRAINER = {"CHAOS_STEP_S": "0.2", "CHAOS_EVERY": str(EVERY), "CHAOS_SAVE_S": "0.3"}
LAUNCHER = {"POLL_S": "0.5", "LAG_S": "0.6", "REST_S": "2", "REPAIR_S": "4", "FILLING_S": "30", "TICK_S": "0.1"}
SECOND_SLICE = ("mesh.data=2", "batch_size=32", "warm_start.batch_size=32", "evaluation.batch_size=32", "data.num_test=32")  # fmt: skip
TIMES = {"pool": 0.5, "node_apart": 0.1, "pool_deleting": 1.2}
"""of the simulated GKE, in seconds"""
LIFE_LIMIT_S = 900.0
KINDS = (
    "jobsets",
    "jobs",
    "pods",
    "services",
    "workloads",
    "configmaps",
    "secrets",
    "localqueues",
    "clusterqueues",
    "resourceflavors",
    "nodes",
    "priorityclasses",
)
CHANGING = ("resourceVersion", "managedFields", "generation")
"""fields of metadata that change with the status"""
ANOTHER_RUN = {RUN_LABEL: "0badcafe", BY_LABEL: "somebody-else", EXPIRES_LABEL: "1900000000"}
LINGER_S = 60.0
"""for so long a process that a killed launcher had started may outlive the run"""
LATE_S = 10.0
"""of machines, from when they are gone until a launcher that lives sees it, on a machine that is shared"""
RESTART_S = 15.0
"""from the death of a launcher until the next one has looked"""
PYTHON = f"""#!/bin/sh
[ "$1" = -m ] || exit 1
shift 2
if [ "${{JAX_PROCESS_ID:-0}}" = 0 ]; then
  PYTHONPATH={ROOT} exec {sys.executable} {chaos_trainer.__file__} "$@"
fi
trap 'exit 143' TERM
until grep -qs "\\"attempt\\": $3, \\"what\\": \\"\\(ended\\|crashed\\)\\"" "$CHAOS_FACTS"; do sleep 0.2; done
"""
"""of pods: the first one trains, and the others wait for the end of the attempt"""


class GkeBench(Bench):
    """A bench whose target `pod` is the simulated cluster, for which runs create node pools."""

    launch = ROOT / "lab" / "launch_gke.py"

    def __init__(self, folder: Path, script: Script, bucket: EmulatedBucket, variables: list[str]) -> None:
        super().__init__(folder)
        reserved = {"reservations": list(RESERVATIONS)} if script.capacity == "reserved" else {}
        entry = {
            "kind": "gke",
            **CLUSTER,
            "zones": list(ZONES[: script.zones]),
            "provisioning": script.capacity,
            **reserved,
        }
        entry |= {"bucket": f"{bucket.url}/runs", "topology": script.shape, "env": variables, "price": 2.0}
        (folder / "targets.yaml").write_text(yaml.safe_dump({"pod": entry}))
        (folder / "image").mkdir()
        for name, text in {"python": PYTHON, "pip": "#!/bin/sh\n"}.items():
            (folder / "image" / name).write_text(text)
            (folder / "image" / name).chmod(0o755)
        (folder / "runs").mkdir()


class GkeCloud:
    """See chaos_phases.ChaosCloud."""

    target = "pod"

    def __init__(self, gcloud: Gcloud, kube: Kube, folder: Path, capacity: str) -> None:
        self._gcloud, self._kube, self._folder, self._capacity = gcloud, kube, folder, capacity
        self._state = Reading(lambda: store.read(gcloud.root), lambda: store.folder(gcloud.root) / "state.json")
        gcloud.times(**TIMES)
        gcloud.cluster("my-cluster", "us-central1", project="my-project", zones=ZONES)
        for zone in ZONES:
            for name in RESERVATIONS:
                gcloud.reservation(name, zone, 8, project="my-project")
        kube.set(path=[str(folder / "image")], hidden=[str(folder / "runs")])
        for each in samples.priority_classes():
            kube.create(each)
        self._add_what_others_have()
        self._others = self._snapshot()

    def _add_what_others_have(self) -> None:
        """Pools, policies, queues and JobSets that train, of a team and of somebody else's run of the same name, whose directory is not on this
        machine, as far as a folder that has other runs can tell."""
        (self._folder / "others" / "runs" / "another").mkdir(parents=True)
        marked = {RUN_DIR_KEY: quoted_run_dir(str(self._folder / "others" / "runs" / "r"))}
        own: Row = {"project": "my-project", "topology": "2x2x2"}
        self._gcloud.foreign_pool("my-cluster", "team", 2, zone=A, labels={"team": "a"}, **own)
        own |= {"labels": ANOTHER_RUN, "node_labels": ANOTHER_RUN, "metadata": marked}
        self._gcloud.foreign_pool("my-cluster", "pw-r-0badcafe-1-0", 2, zone=B, policy="pw-r-0badcafe-1", **own)
        self._gcloud.foreign_pool("my-cluster", "pw-r-0badcafe-2-0", 2, zone=C, status="ERROR", **own)
        texts = {"team": "of a team", "pw-r-0badcafe-1": " ".join(f"{key}={text}" for key, text in ANOTHER_RUN.items())}
        for name, text in texts.items():
            flags = ("--type=HIGH_THROUGHPUT", "--accelerator-topology=2x2x2", f"--description={text}")
            place = ("--region=us-central1", "--project=my-project", "--quiet", "--format=json")
            words = ("compute", "resource-policies", "create", "workload-policy", name)
            done = self._gcloud.call(*words, *flags, *place)
            assert done.returncode == 0, done.stderr
        queues = samples.queues(8, "team-queue", "team", "2x2x2")
        for each in queues:
            named = each["metadata"] | {"name": "pw-r-0badcafe-1", "labels": ANOTHER_RUN}
            self._kube.create(each)
            self._kube.create(each | {"metadata": named})
        attempt = {"labels": ANOTHER_RUN | {ATTEMPT_LABEL: "1"}, "annotations": marked}
        for name, of_run in (("team", Row()), ("pw-r-0badcafe-a1", attempt)):
            metadata = {"name": name, "namespace": "default", **of_run}
            for kind in ("ConfigMap", "Secret"):
                self._kube.create({"apiVersion": "v1", "kind": kind, "metadata": metadata})
            trains = samples.jobset(name, "sleep", "1000", hosts=1, queue="team-queue", topology="2x2x2")
            for key, texts in of_run.items():
                trains["metadata"][key] |= texts
            self._kube.create(trains)
        wait_for(lambda: [pod.get("status", {}).get("phase") for pod in self._kube.objects("pods")] == ["Running"] * 2)  # fmt: skip
        wait_for(lambda: len(self._kube.objects("nodes")) == 5)  # one without a TPU

    def _snapshot(self) -> dict[str, str]:
        """Everything that exists, without its status, by its kind and its identity."""
        state = store.read(self._gcloud.root)
        shown: dict[str, Any] = {}
        for name, pool in state["pools"].items():
            if pool["state"] != "GONE":
                nodes = [(node["name"], node["on"]) for node in pool["nodes"]]
                shown[f"pool {name}"] = [pool["state"], pool["body"], nodes]
        for name, policy in state["policies"].items():
            if policy["state"] != "GONE":
                shown[f"policy {name}"] = policy["body"]
        for kind in KINDS:
            for each in self._kube.objects(kind):
                metadata = {key: value for key, value in each["metadata"].items() if key not in CHANGING}
                rest = {key: value for key, value in each.items() if key != "status"}
                shown[f"{kind} {metadata['name']} {metadata['uid']}"] = rest | {"metadata": metadata}
        return {name: json.dumps(value, sort_keys=True) for name, value in shown.items()}

    @property
    def environment(self) -> Mapping[str, str]:
        return self._kube.environment | self._gcloud.environment | {"HOME": str(self._folder)}

    def existing(self) -> list[Row]:
        """Of the cloud and of Kueue, as they belong to a request; `faults` looks at everything else."""
        rows = [row | {"request": row["name"]} for row in self._gcloud.resources() if row["kind"] == "workload-policy"]
        rows += [
            {"kind": "node-pool", "name": name, "state": pool["status"], "request": name.rpartition("-")[0]}
            for pool in self._gcloud.pools()
            if (name := pool["name"])
        ]
        for kind in ("localqueues", "clusterqueues", "resourceflavors"):
            names = [each["metadata"]["name"] for each in self._kube.objects(kind)]
            rows += [{"kind": kind, "name": name, "state": "", "request": name} for name in names]
        return [row for row in rows if _is_of_run(row["request"])]

    def slices(self) -> list[SliceTime]:
        requests: dict[str, list[Row]] = {}
        for row in self._gcloud.ledger():
            requests.setdefault(row["pool"].rpartition("-")[0], []).append(row)
        times = []
        for name, rows in requests.items():
            gone = [row["gone_at"] for row in rows]
            last = None if None in gone else max(gone)
            times.append(SliceTime(name, min(row["ready_at"] for row in rows), last))
        return sorted(times, key=lambda each: each.ready_at)

    def disturb(self, what: str, how: dict[str, Any]) -> Disturbance:
        match what:
            case "fault":
                self._gcloud.fault(**how)
                return Disturbance(f"gcloud {how.get('kind') or how.get('status') or 'late'}")
            case "request":
                self._kube.fault(**how)
                return Disturbance(f"API server {how.get('status') or how['kind']}")
            case "lag":
                self._gcloud.set(lag={"describe": how["seconds"], "list": how["seconds"]})
                return Disturbance(what)
            case "refusal":
                self._gcloud.pool_outcome(how["kind"], pool="pw-*-0", fill_after_s=how.get("fill_after_s"))
                filled = ", which fills itself" if "fill_after_s" in how else ""
                return Disturbance(f"pool refused: {how['kind']}{filled}")
            case "exhausted":
                if self._capacity == "reserved":
                    self._gcloud.reservation(RESERVATIONS[0], A, 8, in_use=8, project="my-project")
                else:
                    self._gcloud.capacity(A, 0)
                return Disturbance("place exhausted")
            case "busy":
                self._gcloud.busy("my-cluster", how["seconds"])
                return Disturbance("cluster busy")
            case "unreachable":
                self._kube.unreachable(how["seconds"])
                return Disturbance("API server unreachable")
            case "evicted":
                return self._evict()
            case "nodes lost":
                return self._lose_nodes(**how)
            case "pool deleted":
                return self._delete_pool()
        if status := how.get("api_status"):
            self._kube.fault("http", status=status, seconds=how["seconds"])
        return chaos_clouds.disturb(self._gcloud, what, how)

    def _evict(self) -> Disturbance:
        names = [each["metadata"]["name"] for each in self._kube.objects("jobsets")]
        self._kube.set(evict=[{"jobset": name, "displaced_s": 60.0} for name in names if _is_of_run(name)])
        return Disturbance("evicted by Kueue", ((time.time(), NOTICE_S),))

    def _lose_nodes(self, notice_s: float, all: bool = True, back_s: float | None = None) -> Disturbance:
        pools = [pool["name"] for pool in self._gcloud.pools() if not pool["foreign"] and pool["nodes"]]
        for name in pools:
            self._gcloud.lose_node(name, None if all else 0, notice_s, back_s)
        kind = f"{'nodes' if all else 'a node'} lost, {notice_s:.0f} s notice{', and back' if back_s else ''}"
        return Disturbance(kind, ((time.time(), notice_s),))

    def _delete_pool(self) -> Disturbance:
        """As somebody does it by hand."""
        name = next(pool["name"] for pool in self._gcloud.pools() if not pool["foreign"] and pool["nodes"])
        place = ("--cluster=my-cluster", "--location=us-central1", "--project=my-project")
        self._gcloud.call("container", "node-pools", "delete", name, *place, "--quiet", "--async", "--format=json")
        return Disturbance("pool deleted by somebody", ((time.time(), NOTICE_S),))

    def has_nodes(self) -> bool:
        return any(pool["nodes"] for pool in self._gcloud.pools() if not pool["foreign"])

    def killed(self) -> set[int]:
        return self._gcloud.killed()

    def before_an_attempt(self, state: RunState) -> LifePhase:
        record = state.allocation
        if record is None or record.phase is AllocationPhase.GONE:
            return LifePhase.WAITING if state.capacity.refusals else LifePhase.REQUESTING
        if record.phase is AllocationPhase.READY:
            return LifePhase.SUBMITTING
        if record.phase is not AllocationPhase.REQUESTED:
            return LifePhase.DISCARDING
        states = [row["state"] for row in self.existing() if row["request"] == record.request.name]
        if not states:
            return LifePhase.REQUESTING
        return LifePhase.BOOTING if "RUNNING" in states else LifePhase.CREATING

    def has_lost(self, request: str) -> bool:
        pools = self._state()["pools"].values()
        own = [pool for pool in pools if pool["name"].split("/")[-1].startswith(f"{request}-")]
        return any(node["lost_at"] or node["gone_at"] for pool in own for node in pool["nodes"])

    def before_the_trainer(self, run: RunDir, attempt: int) -> LifePhase:
        sent = (run.attempt(attempt) / submit.RESULT).exists()
        return LifePhase.STARTING if sent else LifePhase.SUBMITTING

    def faults(self, run: RunDir, launchers: int) -> list[str]:
        """What is left or changed in the cluster, processes that outlive the run, and machines that are counted wrongly."""
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not self._processes(run), LINGER_S)
        wrong = [f"left running: {each}" for each in self._processes(run)]
        locks = [path.name for path in (run.path.parents[1] / "gke").glob("*")]  # of the machine that has deleted all
        wrong += [f"lock left: {name}" for name in locks]
        now = self._snapshot()
        wrong += [f"left in the cloud: {name}" for name in now if name not in self._others]
        for name, text in self._others.items():
            if now.get(name) != text:
                wrong.append(f"of somebody else and changed: {name}: {text} is now {now.get(name, 'gone')}")
        return wrong + self._miscounted(run, launchers)

    def _processes(self, run: RunDir) -> list[str]:
        """Command lines of what launchers have started and is still alive."""
        mark, own = f"KUBECONFIG={self._kube.folder}/config".encode(), os.getpid()
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if int(path.name) != own and mark in (path / "environ").read_bytes().split(b"\0"):
                    found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200])
        return found

    def _miscounted(self, run: RunDir, launchers: int) -> list[str]:
        """Chip-seconds of the requests that were ready, by the journal against the ledger: never less, and more by no more than the time
        in which no launcher looked."""
        events = [journal.dated(event) for event in read_jsonl(run.journal)]
        names = {e["allocation"]: e["request"]["name"] for e in events if e["event"] == "allocation requested"}
        ready = {names[e["allocation"]] for e in events if e["event"] == "allocation ready"}
        used = cost.usage(events, time.time())
        rows = [row for row in self._gcloud.ledger() if row["pool"].rpartition("-")[0] in ready]
        if used is None or used.open or any(row["gone_at"] is None for row in rows):
            return [f"machines are still counted: {used}"]
        paid = sum(row["chips"] * (row["gone_at"] - row["ready_at"]) for row in rows)
        chips = sum(row["chips"] for row in rows)
        counted, most = used.chip_hours * 3600, paid + chips * (LATE_S + RESTART_S * launchers)
        if not paid - 2.0 * chips <= counted <= most:
            return [f"the run counts {counted:.0f} chip-seconds, and the cloud {paid:.0f}, at most {most:.0f} expected"]
        return []


def _is_of_run(name: str) -> bool:
    """Of a run of the life, by the name of a request or an attempt."""
    return name.startswith((f"pw-{RUN}-", f"pw-{SECOND}-")) and ANOTHER_RUN[RUN_LABEL] not in name


def live(seed: int, folder: Path, forks: ForkServer | None = None) -> Life:
    """One life with a stand-in trainer, in a cloud and a cluster of its own."""
    return lived(of_gke(seed), folder, forks=forks)


def live_briefly(number: int, folder: Path, forks: ForkServer) -> Life:
    """One of chaos_gke_script.BRIEF, in which all that it has must come."""
    life = lived(of_gke_briefly(number), folder, STEPS, {"CHAOS_STEP_S": "0.15", "CHAOS_SAVE_S": "0.2"}, forks)
    life.faults += [f"did not come: {each}" for each in life.missed]
    return life


def lived(
    script: Script,
    folder: Path,
    steps: int = STEPS,
    pace: Mapping[str, str] = MappingProxyType({}),
    forks: ForkServer | None = None,
) -> Life:
    life = Life(script, "stand-in", "gke")
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        root = stack.enter_context(Folder(folder))
        gcloud = stack.enter_context(Gcloud(root))
        kube = stack.enter_context(Kube(folder, controllers=True, **CLUSTER))
        bucket = stack.enter_context(EmulatedBucket())
        facts = folder / "facts.jsonl"
        trainer = TRAINER | pace | {"CHAOS_FACTS": str(facts)} | bucket.environment
        bench = GkeBench(folder, script, bucket, list(trainer))
        own = GkeCloud(gcloud, kube, folder, script.capacity)
        observer = Observer(RunDir(bench.path()), own, facts_of_file(facts))
        recipe = RECIPE + (SECOND_SLICE if script.shape.startswith("2x ") else ())
        environment = {**trainer, **LAUNCHER}
        setting = Setting(bench, recipe, steps, environment, bucket, observer, LIFE_LIMIT_S, own.has_nodes, own, forks)
        Disturbed(life, setting).run_with_stand_in()
    return life
