"""Lives of a run on the simulated cloud under disturbances that a seed decides: launchers killed, the cloud and its hosts failing.

A life ends when `podwright` says that the run is finished and no command is wanted any more. What must hold then is `Life.faults`.
"""

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from podwright.run import journal
from podwright.run.states import AllocationPhase, Phase
from podwright.rundir import RunDir, read_jsonl, read_metrics
from tests.e2e.conftest import LAUNCH
from tests.e2e.test_tpu_vm import TpuBench
from tests.lab import cloud, machine, tpu_python
from tests.lab.gcloud.control import Gcloud

STEPS = 20
STEP_S = "0.15"
LIFE_LIMIT_S = 240.0
MOST_LAUNCHERS = 12
SIGNS = Path("/var/lib/podwright")

# When a launcher is killed: some seconds after its start, or after it has written one of these to the journal.
MOMENTS = (
    "start",
    "created",
    "allocation requested",
    "allocation ready",
    "allocation refused",
    "allocation lost",
    "submitting",
    "submitted",
    "steps",
    "ended",
    "released",
    "retrying",
    "allocation deleting",
    "allocation gone",
    "reported",
)
VERBS = (
    "queued-resources create",
    "queued-resources describe",
    "queued-resources delete",
    "tpu-vm describe",
    "tpu-vm get-guest-attributes",
)
FAULTS: tuple[dict[str, Any], ...] = (
    {"kind": "cut", "keep": 0},
    {"kind": "cut"},
    {"kind": "killed"},
    {"kind": "timeout"},
    {"status": 429},
    {"status": 500, "before": False},
    {"status": 503},
    {"status": 503, "kind": "http"},
    {"delay_s": 1.5},
    {"delay_s": 3.0, "kind": "killed"},
)


@dataclass(frozen=True)
class Kill:
    """SIGKILL for the launcher `after_s` seconds after a moment of its own life, or, where that has been before it was started, after
    `late_s` seconds; for its process group too with `group`."""

    moment: str
    after_s: float
    late_s: float
    group: bool
    pause_s: float
    """until the next launcher starts"""
    following: str
    """the verb that is typed next; `resume` follows `stop` and `clean`"""


@dataclass(frozen=True)
class Script:
    """Of one life, all of it drawn from the seed."""

    seed: int
    kills: tuple[Kill, ...]
    cloud: tuple[tuple[str, float, dict[str, Any]], ...]
    """(what, when in seconds from the start of the life or 0 for before it, how)"""

    @classmethod
    def of(cls, seed: int) -> "Script":
        draw = random.Random(seed)
        with_cloud = seed % 2 == 1
        kills = tuple(_kill(draw) for _ in range(draw.randint(1, 4)))
        return cls(seed, kills, tuple(_disturbances(draw)) if with_cloud else ())


def _kill(draw: random.Random) -> Kill:
    moment = draw.choice(MOMENTS)
    after_s = draw.uniform(0.0, 12.0) if moment == "start" else draw.choice((0.0, draw.uniform(0.0, 1.5)))
    pause_s = draw.choice((0.0, draw.uniform(0.0, 3.0)))
    following = draw.choices(("resume", "stop", "clean"), (6, 1, 1))[0]
    return Kill(moment, after_s, draw.uniform(0.0, 8.0), draw.random() < 0.5, pause_s, following)


def _disturbances(draw: random.Random) -> Iterator[tuple[str, float, dict[str, Any]]]:
    for _ in range(draw.randint(1, 4)):
        verb, calls = draw.choice(VERBS), draw.choice((1, 1, 2, 5))
        yield "fault", 0.0, {"verb": verb, "calls": calls, **draw.choice(FAULTS)}
    if draw.random() < 0.3:
        yield "lag", 0.0, {"seconds": draw.uniform(0.1, 0.8)}
    if draw.random() < 0.4:
        yield "stockout", 0.0, {}
    for _ in range(draw.choice((0, 0, 1, 1, 2))):
        yield "preempt", draw.uniform(2.0, 20.0), {"notice_s": draw.choice((0.0, 1.0, 5.0))}
    if draw.random() < 0.3:
        yield "unreachable", draw.uniform(2.0, 15.0), {"worker": draw.randrange(4), "seconds": draw.uniform(1.0, 6.0)}


@dataclass
class Life:
    """What came of one: `faults` is empty when it was as it must be."""

    script: Script
    seconds: float = 0.0
    launchers: int = 0
    killed: int = 0
    attempts: int = 0
    slices: int = 0
    recomputed: int = 0
    endings: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def row(self) -> str:
        """Of the table of lives."""
        cells = (self.script.seed, f"{self.seconds:.0f}", len(self.script.cloud), self.killed, self.launchers)
        cells += (self.attempts, self.slices, self.recomputed, "; ".join(self.faults) or "none")
        return "| " + " | ".join(map(str, cells)) + " |"


TABLE = (
    "| seed | seconds | faults of the cloud | kills | launchers | attempts | slices | recomputed steps | what was wrong |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


def live(seed: int, folder: Path) -> Life:
    """One life, in a cloud of its own."""
    script, began = Script.of(seed), time.monotonic()
    life = Life(script)
    SIGNS.mkdir(exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    with cloud.Lab(folder, SIGNS) as lab, Gcloud(lab) as gcloud:
        python = tpu_python.write(lab.root, LAUNCH.with_name("standin.py"))
        own = {**gcloud.environment, "PODWRIGHT_TARGETS": str(folder / "targets.yaml"), "STANDIN_STEP_S": STEP_S}
        bench = TpuBench(folder, python=str(python), setup=[])
        try:
            _Disturbed(life, bench, gcloud, own).run()
        finally:
            for process in bench.started:
                if process.poll() is None:
                    process.kill()
                    process.communicate()
    life.seconds = time.monotonic() - began
    return life


class _Disturbed:
    def __init__(self, life: Life, bench: TpuBench, gcloud: Gcloud, environment: dict[str, str]) -> None:
        self._life = life
        self._bench = bench
        self._gcloud = gcloud
        self._environment = environment
        self._run = RunDir(bench.path())
        self._kills = list(life.script.kills)
        self._later = sorted((when, what, how) for what, when, how in life.script.cloud if when)
        self._began = time.monotonic()
        self._verb = "resume"

    def run(self) -> None:
        for what, when, how in self._life.script.cloud:
            if not when:
                self._disturb(what, how)
        while self._one_launcher():
            if self._life.launchers >= MOST_LAUNCHERS:
                self._life.faults.append(f"{MOST_LAUNCHERS} launchers did not finish the run")
                break
            if time.monotonic() - self._began > LIFE_LIMIT_S:
                break
        self._judge()

    def _one_launcher(self) -> bool:
        """Start one and see it end or kill it; whether another one is wanted."""
        self._life.launchers += 1
        verb, self._verb = self._verb if self._begun() else "run", "resume"
        if verb != "run":
            argv = ["clean", "tpu", "--yes"] if verb == "clean" else [verb, "r"]
        else:
            recipe = ("qwen3-tiny-arithmetic-grpo", "data.num_train=64", "model.name=qwen3-micro", "mesh.fsdp=16")
            argv = ["run", *recipe, f"training.max_steps={STEPS}", "--on", "tpu", "--name", "r", "--force"]
        launcher = self._start(argv)
        kill = self._kills.pop(0) if self._kills else None
        known = self._known()
        at = None
        if kill and (kill.moment == "start" or known.get(kill.moment)):
            at = time.monotonic() + (kill.after_s if kill.moment == "start" else kill.late_s)
        while launcher.poll() is None:
            now = time.monotonic()
            if kill and at is None and self._happened(kill.moment, known):
                at = now + kill.after_s
            if kill and at is not None and now >= at:
                return self._kill(launcher, kill)
            self._disturb_when_due(now - self._began)
            if now - self._began > LIFE_LIMIT_S:
                launcher.kill()
                out, err = self._output(launcher)
                self._life.faults.append(f"stuck: {out[-300:]} {err[-300:]}")
                return False
            time.sleep(0.02)
        out, err = self._output(launcher)
        if "Traceback" in out + err:
            self._life.faults.append(f"traceback: {(out + err)[-1500:]}")
        if verb in ("stop", "clean"):
            return True
        if launcher.returncode not in (0, 1, 2):
            self._life.faults.append(f"exit code {launcher.returncode}: {(out + err)[-300:]}")
        if launcher.returncode:
            self._life.endings.append((err.strip() or out.strip() or "nothing was said").splitlines()[-1][:300])
        if launcher.returncode == 0:
            self._kills.clear()  # the run is done: nothing is left to be disturbed
            return False
        return True

    def _start(self, argv: list[str]) -> "subprocess.Popen[str]":
        out = (self._bench.folder / f"launcher-{self._life.launchers}.txt").open("w")
        process = subprocess.Popen(
            [sys.executable, str(self._bench.launch), *argv],
            cwd=self._bench.folder,
            env={**os.environ, "PYTHONPATH": str(LAUNCH.parents[1]), **self._environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=machine.end_with_parent,
        )
        out.close()
        self._bench.started.append(process)
        return process

    def _output(self, launcher: "subprocess.Popen[str]") -> tuple[str, str]:
        launcher.wait()
        return (self._bench.folder / f"launcher-{self._life.launchers}.txt").read_text(), ""

    def _kill(self, launcher: "subprocess.Popen[str]", kill: Kill) -> bool:
        if kill.group:
            os.killpg(launcher.pid, signal.SIGKILL)
        else:
            launcher.kill()
        launcher.wait()
        self._life.killed += 1
        self._verb = kill.following
        time.sleep(kill.pause_s)
        return True

    def _begun(self) -> bool:
        return self._run.journal.exists() and self._run.journal.read_bytes().count(b"\n") > 0

    def _known(self) -> dict[str, int]:
        """How often each event is in the journal, and how many steps in the record."""
        counts: dict[str, int] = {"steps": len(self._bench.steps())}
        for line in self._run.journal.read_bytes().splitlines() if self._run.journal.exists() else []:
            event = line.partition(b'"event": "')[2].partition(b'"')[0].decode()
            counts[event] = counts.get(event, 0) + 1
        return counts

    def _happened(self, moment: str, before: dict[str, int]) -> bool:
        return self._known().get(moment, 0) > before.get(moment, 0)

    def _disturb_when_due(self, age_s: float) -> None:
        """What takes machines away waits until there are some."""
        if not self._later or age_s < self._later[0][0]:
            return
        if any((row["kind"], row["state"]) == ("node", "READY") for row in self._gcloud.resources()):
            _, what, how = self._later.pop(0)
            self._disturb(what, how)

    def _disturb(self, what: str, how: dict[str, Any]) -> None:
        if what == "fault":
            self._gcloud.fault(**how)
        elif what == "lag":
            self._gcloud.set(lag={"describe": how["seconds"], "list": how["seconds"]})
        elif what == "stockout":
            self._gcloud.fail_provisioning("There is no more capacity in the zone", code=8)
        elif what == "preempt":
            for row in self._gcloud.resources():
                if row["kind"] == "node" and row["state"] == "READY":
                    self._gcloud.preempt(row["name"], **how)
        else:
            self._gcloud.unreachable("*", how["worker"], how["seconds"])

    def _judge(self) -> None:
        life, faults = self._life, self._life.faults
        if left := self._gcloud.resources():
            faults.append(f"left in the cloud: {left}")
        ledger = sorted(self._gcloud.ledger(), key=lambda row: row["ready_at"])
        life.slices = len(ledger)
        for first, second in itertools.pairwise(ledger):
            if first["gone_at"] is None or second["ready_at"] < first["gone_at"]:
                faults.append(f"{first['name']} and {second['name']} were ready at the same time")
        try:
            state = journal.read(self._run)
        except Exception as e:
            faults.append(f"the journal does not fold: {e}")
            return
        life.attempts = state.attempt
        if (state.phase, state.ending and str(state.ending), state.reported) != (Phase.ENDED, "FINISHED", True):
            faults.append(f"the run is {state.phase}, {state.ending}, {state.detail}, reported {state.reported}")
        if state.allocation and state.allocation.phase is not AllocationPhase.GONE:
            faults.append(f"the journal has {state.allocation.request.name} {state.allocation.phase}")
        steps = [record["step"] for record in read_metrics(self._run.metrics).get("grpo", [])]
        if steps != list(range(1, STEPS + 1)):
            faults.append(f"the final record has steps {steps}")
        raw = [record["step"] for record in read_jsonl(self._run.metrics)]
        life.recomputed = len(raw) - len(set(raw))
        if life.recomputed > max(0, life.attempts - 1) * STEPS:
            faults.append(f"{life.recomputed} steps were computed again in {life.attempts} attempts")
