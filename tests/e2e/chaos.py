"""Lives of a run on the simulated cloud under disturbances that a seed decides: launchers killed, the cloud and its hosts failing.

A life ends when `podwright` says that the run is finished and no command is wanted any more. What must hold then is `Life.faults`.
"""

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from podwright.run import journal
from podwright.run.states import AllocationPhase, Phase
from podwright.rundir import RunDir, read_jsonl, read_metrics
from tests.bucket import EmulatedBucket
from tests.e2e import chaos_trainer
from tests.e2e.chaos_phases import CLOUDY, LifePhase, Observer
from tests.e2e.conftest import LAUNCH
from tests.e2e.test_tpu_vm import ZONES, TpuBench
from tests.lab import cloud, machine, tpu_python
from tests.lab.gcloud.control import Gcloud

STEPS, EVERY = 24, 4
TRAINER = {"CHAOS_STEP_S": "0.3", "CHAOS_EVERY": str(EVERY), "CHAOS_SAVE_S": "0.5"}
GATHER_S, GATHERED_WITHIN_S = 1.0, 6.0
"""between two looks at complete files on the hosts; a launcher that lives for so long after a save has brought it"""
NOTICE_S = 5.0
"""of a preemption, in which what was trained is saved in the bucket"""
LIFE_LIMIT_S = 300.0
MOST_LAUNCHERS = 15
SIGNS = Path("/var/lib/podwright")
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
CALM = tuple(phase for phase in LifePhase if phase not in CLOUDY)


@dataclass(frozen=True)
class Kill:
    """SIGKILL for a launcher `delay_s` seconds after the run has entered a phase, or when it leaves it; with `phase` "" `delay_s` seconds
    after the start of the life. For its process group too with `group`."""

    phase: str
    delay_s: float
    group: bool
    pause_s: float
    """until the next launcher starts"""
    following: str
    """the verb that is typed next; `resume` follows `stop` and `clean`"""


@dataclass(frozen=True)
class Script:
    """Of one life, all of it drawn from the seed."""

    seed: int
    bucket: bool
    """whether checkpoints and records are kept in a bucket"""
    kills: tuple[Kill, ...]
    cloud: tuple[tuple[str, float, dict[str, Any]], ...]
    """(what, when in seconds from the start of the life or 0 for before it, how)"""

    @classmethod
    def of(cls, seed: int) -> "Script":
        """Seeds go through the phases in turn; odd ones have faults of the cloud, and every second pair a bucket."""
        draw, with_cloud = random.Random(seed), seed % 2 == 1
        phases = tuple(LifePhase) if with_cloud else CALM
        wanted = [phases[seed // 2 % len(phases)], *draw.choices(phases, k=draw.choice((1, 2, 2, 3)))]
        kills = [_kill(draw, phase, draw.choice((0.0, draw.uniform(0.0, 1.5)))) for phase in wanted]
        kills.append(_kill(draw, "", draw.uniform(0.0, 25.0)))
        disturbances = list(_disturbances(draw, wanted)) if with_cloud else []
        return cls(seed, seed % 4 >= 2, tuple(_reached(kills, draw)), tuple(disturbances))


def _kill(draw: random.Random, phase: str, delay_s: float) -> Kill:
    following = draw.choices(("resume", "stop", "clean"), (6, 1, 1))[0]
    return Kill(phase, delay_s, draw.random() < 0.5, draw.choice((0.0, draw.uniform(0.0, 3.0))), following)


def _reached(kills: list[Kill], draw: random.Random) -> Iterator[Kill]:
    """With the verbs typed in which `kills` are to come, before them."""
    for phase, verb in ((LifePhase.STOPPING, "stop"), (LifePhase.CLEANING, "clean")):
        if any(kill.phase == phase for kill in kills) and not any(kill.following == verb for kill in kills):
            before = draw.choice((LifePhase.TRAINING, LifePhase.SAVING, LifePhase.STARTING))
            before = (
                before if verb == "stop" else draw.choice((LifePhase.CREATING, LifePhase.BOOTING, LifePhase.RELEASING))
            )
            yield Kill(before, 0.3, draw.random() < 0.5, 0.5, verb)
    yield from kills


def _disturbances(draw: random.Random, wanted: list[LifePhase]) -> Iterator[tuple[str, float, dict[str, Any]]]:
    for _ in range(draw.randint(1, 4)):
        verb, calls = draw.choice(VERBS), draw.choice((1, 1, 2, 5))
        yield "fault", 0.0, {"verb": verb, "calls": calls, **draw.choice(FAULTS)}
    if draw.random() < 0.3:
        yield "lag", 0.0, {"seconds": draw.uniform(0.1, 0.8)}
    if draw.random() < 0.3:
        yield "stockout", 0.0, {}
    if LifePhase.WAITING in wanted or draw.random() < 0.1:
        yield "no capacity", 0.0, {"seconds": draw.uniform(4.0, 12.0)}
    robbed = bool({LifePhase.PREEMPTED, LifePhase.REPLACING} & set(wanted))
    for _ in range(max(draw.choice((0, 0, 1, 1, 2)), robbed)):
        yield "preempt", draw.uniform(2.0, 20.0), {"notice_s": draw.choice((0.0, 1.0, NOTICE_S))}
    if draw.random() < 0.3:
        yield "unreachable", draw.uniform(2.0, 15.0), {"worker": draw.randrange(4), "seconds": draw.uniform(1.0, 6.0)}
    if draw.random() < 0.3:
        yield "bucket", draw.uniform(0.0, 15.0), {"status": draw.choice((429, 503)), "count": draw.randint(1, 5)}


@dataclass
class Life:
    """What came of one: `faults` is empty when it was as it must be."""

    script: Script
    seconds: float = 0.0
    launchers: int = 0
    kills: list[str] = field(default_factory=list)
    """the phase of each"""
    verbs: list[str] = field(default_factory=list)
    """typed besides run and resume"""
    disturbances: list[str] = field(default_factory=list)
    """faults of the cloud that took place"""
    attempts: int = 0
    slices: int = 0
    recomputed: int = 0
    explained: int = 0
    """steps that may be computed again: those after the newest checkpoint of each attempt that was interrupted"""
    endings: list[str] = field(default_factory=list)
    """the last line of launchers that did not finish the run"""
    faults: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        own = asdict(self)
        script = own.pop("script")
        return {
            "seed": script["seed"],
            "trainer": "stand-in",
            "bucket": script["bucket"],
            **own,
            "seconds": round(self.seconds, 1),
        }


def live(seed: int, folder: Path) -> Life:
    """One life, in a cloud of its own."""
    script, began = Script.of(seed), time.monotonic()
    life = Life(script)
    SIGNS.mkdir(exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(cloud.Lab(folder, SIGNS))
        gcloud = stack.enter_context(Gcloud(lab))
        bucket = stack.enter_context(EmulatedBucket(host=lab.gateway)) if script.bucket else None
        stored = bucket.environment if bucket else {}
        trainer = TRAINER | {"CHAOS_FACTS": str(lab.root / "facts.jsonl")} | stored
        python = tpu_python.write(lab.root, Path(chaos_trainer.__file__))
        settings = {"storage": f"{bucket.url}/runs"} if bucket else {}
        bench = TpuBench(folder, python=str(python), setup=[], env=list(trainer), **settings)
        own = {**gcloud.environment, **trainer}
        own |= {"PODWRIGHT_TARGETS": str(folder / "targets.yaml"), "GATHER_S": str(GATHER_S)}
        try:
            _Disturbed(life, bench, gcloud, bucket, own).run()
        finally:
            for process in bench.started:
                if process.poll() is None:
                    process.kill()
                    process.communicate()
    life.seconds = time.monotonic() - began
    return life


@dataclass
class _Launcher:
    process: "subprocess.Popen[str]"
    verb: str
    began: float
    """Unix seconds"""
    ended: float = 0.0


class _Disturbed:
    def __init__(
        self, life: Life, bench: TpuBench, gcloud: Gcloud, bucket: EmulatedBucket | None, environment: dict[str, str]
    ) -> None:
        self._life = life
        self._bench = bench
        self._gcloud = gcloud
        self._bucket = bucket
        self._environment = environment
        self._run = RunDir(bench.path())
        self._observer = Observer(self._run, gcloud, Path(environment["CHAOS_FACTS"]))
        self._kills = list(life.script.kills)
        self._later = sorted((when, what, how) for what, when, how in life.script.cloud if when)
        self._began = time.monotonic()
        self._verb = "run"
        self._launchers: list[_Launcher] = []
        self._stops: list[float] = []
        """when they were typed, in Unix seconds"""
        self._preemptions: list[tuple[float, float]] = []
        """when their notices came, and the seconds until the machines were off"""

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
        verb, self._verb = (self._verb if self._begun() else "run"), "resume"
        launcher = self._start(verb)
        armed: dict[int, tuple[float, str]] = {}  # by number of a kill: when it comes, and in which phase at the latest
        while launcher.process.poll() is None:
            phase, now = self._observer.phase(verb), time.monotonic()
            for number, kill in enumerate(self._kills):
                if kill.phase in ("", phase):
                    armed.setdefault(number, (kill.delay_s + (now if kill.phase else self._began), kill.phase))
            due = [number for number, (at, of) in armed.items() if now >= at or of not in ("", phase)]
            if due:
                return self._kill(launcher, self._kills.pop(due[0]), phase)
            self._disturb_when_due(now - self._began)
            if now - self._began > LIFE_LIMIT_S:
                launcher.process.kill()
                self._life.faults.append(f"stuck in {phase}: {self._output(launcher)[-600:]}")
                return False
            time.sleep(0.03)
        return self._after(launcher)

    def _after(self, launcher: _Launcher) -> bool:
        """A launcher has ended by itself; whether another one is wanted."""
        code, out = launcher.process.returncode, self._output(launcher)
        if "Traceback" in out:
            self._life.faults.append(f"traceback: {out[-1500:]}")
        if code not in (0, 1, 2):
            self._life.faults.append(f"podwright {launcher.verb} had exit code {code}: {out[-300:]}")
        if launcher.verb == "clean":
            self._require_clean(out)
            return True
        if launcher.verb == "stop":
            return True
        if code:
            self._life.endings.append((out.strip() or "no output").splitlines()[-1][:300])
        return code != 0

    def _require_clean(self, out: str) -> None:
        """`clean --yes` has ended: nothing is left but what a run uses."""
        state = self._observer.state()
        live = state is not None and state.attempt > state.ended_attempt
        if (left := self._gcloud.resources()) and not live:
            self._life.faults.append(f"clean left {left}: {out[-300:]}")

    def _start(self, verb: str) -> _Launcher:
        argv = ["clean", "tpu", "--yes"] if verb == "clean" else [verb, "r"]
        if verb == "run":
            recipe = ("qwen3-tiny-arithmetic-grpo", "data.num_train=64", "model.name=qwen3-micro", "mesh.fsdp=16")
            argv = ["run", *recipe, f"training.max_steps={STEPS}", "--on", "tpu", "--name", "r", "--force"]
        if verb in ("stop", "clean"):
            self._life.verbs.append(verb)
        if verb == "stop":
            self._stops.append(time.time())
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
        self._launchers.append(_Launcher(process, verb, time.time()))
        return self._launchers[-1]

    def _output(self, launcher: _Launcher) -> str:
        launcher.process.wait()
        launcher.ended = time.time()
        return (self._bench.folder / f"launcher-{len(self._launchers)}.txt").read_text()

    def _kill(self, launcher: _Launcher, kill: Kill, phase: LifePhase) -> bool:
        if kill.group:
            os.killpg(launcher.process.pid, signal.SIGKILL)
        else:
            launcher.process.kill()
        launcher.process.wait()
        launcher.ended = time.time()
        self._life.kills.append(str(phase))
        self._verb = kill.following
        time.sleep(kill.pause_s)
        return True

    def _begun(self) -> bool:
        return self._run.journal.exists() and self._run.journal.read_bytes().count(b"\n") > 0

    def _disturb_when_due(self, age_s: float) -> None:
        """What takes machines away waits until there are some."""
        if not self._later or age_s < self._later[0][0]:
            return
        if any((row["kind"], row["state"]) == ("node", "READY") for row in self._gcloud.resources()):
            _, what, how = self._later.pop(0)
            self._disturb(what, how)

    def _disturb(self, what: str, how: dict[str, Any]) -> None:
        kind = what
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
            for row in self._gcloud.resources():
                if row["kind"] == "node" and row["state"] == "READY":
                    self._gcloud.preempt(row["name"], **how)
                    self._preemptions.append((time.time(), how["notice_s"]))
            kind = f"preemption, {how['notice_s']:.0f} s notice"
        elif what == "bucket":
            if self._bucket is None:
                return
            self._bucket.faults.status, self._bucket.faults.count = how["status"], how["count"]
            kind = f"bucket {how['status']}"
        else:
            self._gcloud.unreachable("*", how["worker"], how["seconds"])
        self._life.disturbances.append(kind)

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
        chains = {r["step"]: r["chain"] for r in read_jsonl(self._run.events) if r["event"] == "chain"}
        if chains.get(STEPS) != chaos_trainer.chain_after(STEPS):
            faults.append(f"the last state is {chains.get(STEPS)}, not {chaos_trainer.chain_after(STEPS)}")
        self._judge_attempts()

    def _judge_attempts(self) -> None:
        """An attempt follows another one only after a stop or a preemption, and computes again what could not be saved before that."""
        facts = self._observer.facts()
        by_attempt = {n: [f for f in facts if f["attempt"] == n] for n in sorted({f["attempt"] for f in facts})}
        taken = [f["step"] for f in facts if f["what"] == "step"]
        self._life.recomputed = len(taken) - len(set(taken))
        saved: list[dict[str, Any]] = []
        for (n, before), (m, after) in itertools.pairwise(by_attempt.items()):
            saved += [f for f in before if f["what"] == "saved"]
            if before[0]["what"] != "started" or after[0]["what"] != "started":
                self._life.faults.append(f"attempts {n} and {m} began with {before[0]} and {after[0]}")
                continue
            done = max(f["step"] for f in before if f["what"] in ("started", "step"))
            kept = self._kept(n, before[-1], saved, after[0]["time"], done)
            if not kept <= after[0]["step"] <= done:
                self._life.faults.append(
                    f"attempt {m} began at step {after[0]['step']}; {n} had come to {done} and saved {kept}"
                )
            self._life.explained += done - kept
        if self._life.recomputed > self._life.explained:
            self._life.faults.append(f"{self._life.recomputed} steps were recomputed, and {self._life.explained} lost")

    def _kept(self, attempt: int, last: dict[str, Any], saved: list[dict[str, Any]], until: float, done: int) -> int:
        """The step that must be left of `attempt`, whose last fact is `last`, at the time `until`: of all that was saved so far the newest in a
        bucket; without one the newest that a launcher had time to bring before the machines went."""
        submitted = [r["time"] for r in read_jsonl(self._run.journal) if r["event"] == "submitting"][attempt - 1]
        robbed = [(at, notice_s) for at, notice_s in self._preemptions if submitted - 5 < at < until]
        stopped = any(submitted - 5 < at < until for at in self._stops)
        orderly = last["what"] == "ended"
        newest = max((f["step"] for f in saved), default=0)
        if not robbed and not stopped:
            self._life.faults.append(f"an attempt followed although nothing interrupted attempt {attempt}")
        if not robbed and not orderly:
            self._life.faults.append(f"attempt {attempt} was stopped and did not save: {last}")
        if self._bucket and robbed and min(robbed)[1] >= NOTICE_S and not orderly:
            self._life.faults.append(
                f"attempt {attempt} came to step {done} and saved {newest} on a notice of {NOTICE_S} s"
            )
        if self._bucket or not robbed:
            return newest
        end = sum(min(robbed))
        return max((f["step"] for f in saved if self._could_bring(f["time"], end)), default=0)

    def _could_bring(self, since: float, until: float) -> bool:
        """Whether a launcher lived for long enough between the two."""
        return any(
            min(each.ended or time.time(), until) - max(each.began, since) > GATHERED_WITHIN_S
            for each in self._launchers
            if each.verb != "clean"
        )
