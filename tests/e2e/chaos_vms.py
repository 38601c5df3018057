"""Cloud TPU VMs in lives under disturbances: the simulated cloud as chaos.py sees it."""

import contextlib
import functools
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab import cloud, tpu_python
from lab.bucket import EmulatedBucket
from lab.gcloud import store
from lab.gcloud.control import Gcloud
from podwright.run.journal import RunState
from podwright.run.states import AllocationPhase
from podwright.rundir import RunDir
from tests.e2e import chaos_clouds, chaos_hazards, chaos_trainer
from tests.e2e.chaos import LIFE_LIMIT_S, RECIPE, Disturbed, Setting
from tests.e2e.chaos_attempts import EVERY
from tests.e2e.chaos_life import Life
from tests.e2e.chaos_phases import Disturbance, LifePhase, Observer, Reading, Row, SliceTime, facts_of_file
from tests.e2e.chaos_script import Script
from tests.e2e.fork_server import ForkServer
from tests.e2e.test_tpu_vm import ZONES, TpuBench

STEPS = 24
TRAINER = {"CHAOS_STEP_S": "0.3", "CHAOS_EVERY": str(EVERY), "CHAOS_SAVE_S": "0.5"}
GATHER_S = 1.0
"""between two looks at complete files on the hosts"""
LAUNCHER = {"REPAIR_S": "5", "SILENT_STOP_S": "15"}
HOSTS = 4
SIGNS = Path("/var/lib/podwright")


def clouds(stack: contextlib.ExitStack, folder: Path, with_bucket: bool) -> tuple[Gcloud, EmulatedBucket | None]:
    """A simulated cloud, and a bucket that its hosts reach; `folder` is hidden from them."""
    SIGNS.mkdir(exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    lab = stack.enter_context(cloud.Lab(folder, SIGNS))
    gcloud = stack.enter_context(Gcloud(lab))
    return gcloud, stack.enter_context(EmulatedBucket(host=lab.gateway)) if with_bucket else None


def has_slice(gcloud: Gcloud) -> bool:
    return any((row["kind"], row["state"]) == ("node", "READY") for row in gcloud.resources())


def on_hosts(root: Path, name: str, host: str = "*") -> list[Path]:
    """The directories of a run on the disks of the hosts whose names match, those of machines that are gone among them."""
    return sorted(root.glob("/".join(("disks", host, ".podwright", "*", "work", "runs", name))))


class VmCloud:
    """See chaos_phases.ChaosCloud."""

    target = "tpu"

    def __init__(self, gcloud: Gcloud) -> None:
        self._gcloud = gcloud
        self._state = Reading(lambda: store.read(gcloud.root), lambda: store.folder(gcloud.root) / "state.json")

    @property
    def environment(self) -> Mapping[str, str]:
        return self._gcloud.environment

    def existing(self) -> list[Row]:
        return [row | {"request": row["name"]} for row in self._gcloud.resources()]

    def slices(self) -> list[SliceTime]:
        rows = sorted(self._gcloud.ledger(), key=lambda row: row["ready_at"])
        return [SliceTime(row["name"], row["ready_at"], row["gone_at"]) for row in rows]

    def disturb(self, what: str, how: dict[str, Any]) -> Disturbance:
        kind, robbed = what, list[tuple[float, float]]()
        if what == "fault":
            self._gcloud.fault(**how)
            kind = f"reply {how.get('kind') or how.get('status') or 'late'}"
        elif what == "lag":
            self._gcloud.set(lag={"describe": how["seconds"], "list": how["seconds"]})
        elif what == "stockout":
            self._gcloud.fail_provisioning("There is no more capacity in the zone", code=8)
        elif what == "no capacity":
            for zone in ZONES:
                self._gcloud.capacity(zone, 0)
                self._gcloud.capacity(zone, None, how["seconds"])
        elif what == "preempt":
            for row in self._ready_nodes():
                self._gcloud.preempt(row["name"], **how)
                robbed.append((time.time(), how["notice_s"]))
            kind = f"preemption, {how['notice_s']:.0f} s notice"
        elif what == "maintenance":
            for row in self._ready_nodes():
                self._gcloud.maintain(row["name"], **how)
                robbed.append((time.time() + how["unhealthy_s"], 0.0))
            kind = f"{how['state']}{'' if how['away_s'] else ' for good'}"
        elif what == "unreachable":
            self._gcloud.unreachable("*", how["worker"], how["seconds"])
        else:
            return chaos_clouds.disturb(self._gcloud, what, how)
        return Disturbance(kind, tuple(robbed))

    def _ready_nodes(self) -> list[Row]:
        return [row for row in self._gcloud.resources() if (row["kind"], row["state"]) == ("node", "READY")]

    def killed(self) -> set[int]:
        return self._gcloud.killed()

    def before_an_attempt(self, state: RunState) -> LifePhase:
        record = state.allocation
        if state.capacity.refusals:
            return LifePhase.WAITING
        if record is None or record.phase is not AllocationPhase.REQUESTED:
            return LifePhase.REQUESTING if record is None or not record.hosts else LifePhase.SHIPPING
        rows = {row["kind"]: row["state"] for row in self._gcloud.resources() if row["name"] == record.request.name}
        if rows.get("queued-resource") == "WAITING_FOR_RESOURCES":
            return LifePhase.WAITING
        if rows.get("node") == "READY":
            return LifePhase.BOOTING
        return LifePhase.CREATING if rows else LifePhase.REQUESTING

    def has_lost(self, request: str) -> bool:
        nodes = self._state()["nodes"].values()
        own = [node for node in nodes if node["name"].endswith(f"/{request}")]
        return not any(node["state"] == "READY" and not node["preempt"] for node in own)

    def before_the_trainer(self, run: RunDir, attempt: int) -> LifePhase:
        folders = [there / "attempts" / str(attempt) for there in on_hosts(self._gcloud.root, run.name)]
        if any(any(folder.glob("host-?.json")) for folder in folders):
            return LifePhase.STARTING
        ready = sum((folder / "start.sh").exists() for folder in folders)
        return LifePhase.CHECKING if ready == HOSTS else LifePhase.SHIPPING

    def faults(self, run: RunDir, launchers: int) -> list[str]:
        return []


def live(seed: int, folder: Path, forks: ForkServer | None = None) -> Life:
    """One life with a stand-in trainer, in a cloud of its own."""
    return lived(Script.of(seed), folder, forks)


def live_briefly(number: int, folder: Path, forks: ForkServer | None = None) -> Life:
    """One of chaos_hazards.SHORT, in which all that it has must come."""
    life = lived(Script(number, True, (), tuple(chaos_hazards.short(number, chaos_hazards.TPU_VM))), folder, forks)
    life.faults += [f"did not come: {each}" for each in life.missed]
    return life


def lived(script: Script, folder: Path, forks: ForkServer | None = None) -> Life:
    life = Life(script, "stand-in")
    with contextlib.ExitStack() as stack:
        gcloud, bucket = clouds(stack, folder, script.bucket)
        facts = gcloud.root / "facts.jsonl"
        trainer = TRAINER | {"CHAOS_FACTS": str(facts)} | (bucket.environment if bucket else {})
        python = tpu_python.write(gcloud.root, Path(chaos_trainer.__file__))
        settings = {"storage": f"{bucket.url}/runs"} if bucket else {}
        bench = TpuBench(folder, python=str(python), setup=[], env=list(trainer), **settings)
        own = VmCloud(gcloud)
        observer = Observer(RunDir(bench.path()), own, facts_of_file(facts))
        environment = {**trainer, **LAUNCHER, "GATHER_S": str(GATHER_S)}
        may_disturb = functools.partial(has_slice, gcloud)
        setting = Setting(bench, RECIPE, STEPS, environment, bucket, observer, LIFE_LIMIT_S, may_disturb, own, forks)
        Disturbed(life, setting).run_with_stand_in()
    return life
