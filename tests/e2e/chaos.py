"""Lives of a run on a simulated cloud under disturbances that a seed decides: launchers killed, the cloud and its machines failing.

A life ends when `podwright` says that the run is finished and no command is wanted any more. What must hold then is `Life.faults`.
"""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lab import machine
from lab.bucket import EmulatedBucket
from podwright.run import journal
from podwright.run.states import AllocationPhase, Phase
from podwright.rundir import RunDir, read_jsonl, read_metrics
from tests.e2e import chaos_trainer
from tests.e2e.chaos_attempts import Circumstances, judge
from tests.e2e.chaos_phases import ChaosCloud, LifePhase, Observer
from tests.e2e.chaos_script import Kill, Script
from tests.e2e.conftest import LAUNCH, Bench
from tests.e2e.conftest import RECIPE as TINY
from tests.e2e.fork_server import ForkedProcess, ForkServer

RECIPE = (*TINY, "mesh.fsdp=16")
GATHERED_WITHIN_S = 6.0
"""a launcher that lives for so long after a save has brought it from the hosts"""
MOST_LAUNCHERS = 20
JUST_KILLED_S = 4.0
"""for so long a gcloud may outlive the launcher that had it request a slice"""
LIFE_LIMIT_S = 300.0


@dataclass
class Life:
    """What came of one: `faults` is empty when it was as it must be."""

    script: Script
    trainer: str
    cloud: str = "tpu-vm"
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
    missed: list[str] = field(default_factory=list)
    """moments and faults of the script that did not come"""
    faults: list[str] = field(default_factory=list)

    def require_no_fault(self) -> None:
        assert not self.faults, f"seed {self.script.seed}: {self.faults} of {self.script}"

    def document(self) -> dict[str, Any]:
        own = asdict(self)
        script = own.pop("script")
        return {
            "seed": script["seed"],
            "cloud": self.cloud,
            "trainer": "stand-in",
            "bucket": script["bucket"],
            "capacity": script["capacity"],
            "shape": script["shape"],
            **own,
            "seconds": round(self.seconds, 1),
        }


@dataclass
class Setting:
    """What is trained in a life, and how it is observed."""

    bench: Bench
    recipe: tuple[str, ...]
    steps: int
    environment: dict[str, str]
    """of launchers"""
    bucket: EmulatedBucket | None
    observer: Observer
    limit_s: float
    """for the life"""
    may_disturb: Callable[[], bool]
    """whether there is what is to be disturbed: asked before machines are taken away or cut off"""
    cloud: ChaosCloud
    forks: ForkServer | None = None
    """starts the launchers; without one each imports all that it needs"""


@dataclass
class Launcher:
    process: "subprocess.Popen[bytes] | ForkedProcess"
    verb: str
    began: float
    """Unix seconds"""
    ended: float = 0.0


class Disturbed:
    """One life as it goes on."""

    def __init__(self, life: Life, setting: Setting) -> None:
        self._life = life
        self._setting = setting
        self._bench, self._bucket, self._observer = setting.bench, setting.bucket, setting.observer
        self._cloud = setting.cloud
        self._environment = {**setting.environment, **setting.cloud.environment}
        self._environment["PODWRIGHT_TARGETS"] = str(setting.bench.folder / "targets.yaml")
        self._run = RunDir(setting.bench.path())
        self._kills = list(life.script.kills)
        later = ((when, what, how) for what, when, how in life.script.cloud if when)
        self._later = sorted(later, key=lambda disturbance: disturbance[0])
        self._began = time.monotonic()
        self._verb = "run"
        self._launchers: list[Launcher] = []
        self._killed = 0.0
        """when a launcher was killed last, in Unix seconds"""
        self._stops: list[float] = []
        """when they were typed, in Unix seconds"""
        self._preemptions: list[tuple[float, float]] = []
        """when their notices came, and the seconds until the machines were off"""

    def run(self) -> None:
        """Until the run is finished, or is found to be stuck; then say what is wrong."""
        try:
            for what, when, how in self._life.script.cloud:
                if not when:
                    self._disturb(what, how)
            while self._one_launcher():
                if self._life.launchers >= MOST_LAUNCHERS:
                    self._life.faults.append(f"{MOST_LAUNCHERS} launchers did not finish the run")
                    break
                if time.monotonic() - self._began > self._setting.limit_s:
                    break
            self._judge()
        finally:
            for each in self._launchers:
                if each.process.poll() is None:
                    each.process.kill()
                    each.process.wait()
            self._life.seconds = time.monotonic() - self._began
            self._life.missed = [each.event or each.phase or f"{each.delay_s:.1f} s" for each in self._kills]
            self._life.missed += [what for _, what, _ in self._later]

    def run_with_stand_in(self) -> None:
        self.run()
        self._judge_attempts()

    def _one_launcher(self) -> bool:
        """Start one and see it end or kill it; whether another one is wanted."""
        self._life.launchers += 1
        verb, self._verb = (self._verb if self._begun() else "run"), "resume"
        launcher = self._start(verb, [kill.event for kill in self._kills if kill.event])
        armed: dict[int, tuple[float, str]] = {}  # by number of a kill: when it comes, and in which phase at the latest
        while launcher.process.poll() is None:
            phase, now = self._observer.phase(verb), time.monotonic()
            for number, kill in enumerate(self._kills):
                if kill.phase in ("", phase) and not kill.event:
                    armed.setdefault(number, (kill.delay_s + (now if kill.phase else self._began), kill.phase))
            due = [number for number, (at, of) in armed.items() if now >= at or of not in ("", phase)]
            if due:
                return self._kill(launcher, self._kills.pop(due[0]), phase)
            self._disturb_when_due(now - self._began)
            if now - self._began > self._setting.limit_s:
                launcher.process.kill()
                self._life.faults.append(f"stuck in {phase}: {self._output(launcher)[-600:]}")
                return False
            time.sleep(0.03)
        last = self._output(launcher).rpartition("dies ")[2].strip()
        if kill := next((kill for kill in self._kills if kill.event == last and kill.event), None):
            self._kills.remove(kill)
            return self._over(launcher, kill, kill.event)
        return self._after(launcher)

    def _after(self, launcher: Launcher) -> bool:
        """A launcher has ended by itself; whether another one is wanted."""
        code, out = launcher.process.returncode, self._output(launcher)
        if "Traceback" in out:
            self._life.faults.append(f"traceback: {out[-1500:]}")
        if code not in (0, 1, 2):
            self._life.faults.append(f"podwright {launcher.verb} had exit code {code}: {out[-300:]}")
        if launcher.verb == "clean":
            self._require_clean(launcher, out)
            return True
        if launcher.verb == "stop":
            if code == 0 and (left := self._cloud.existing()):
                self._life.faults.append(f"stop left {left}: {out[-300:]}")
            return True
        if code:
            self._life.endings.append((out.strip() or "no output").splitlines()[-1][:300])
        return code != 0

    def _require_clean(self, launcher: Launcher, out: str) -> None:
        """`clean --yes` has ended: nothing is left but what it names as in use, and what was still being requested when it looked."""
        for row in self._cloud.existing():
            kept = any(row["request"] in line and "keep: run r" in line for line in out.splitlines())
            requested = row["request"] not in out and launcher.began - self._killed < JUST_KILLED_S
            if not kept and not requested:
                self._life.faults.append(f"clean left {row}: {out[-300:]}")

    def _start(self, verb: str, deadly: list[str]) -> Launcher:
        """`deadly`: lines of the journal around which it dies, as Kill.event."""
        target = self._cloud.target
        argv = ["clean", target, "--yes"] if verb == "clean" else [verb, "r"]
        if verb == "run":
            steps = f"training.max_steps={self._setting.steps}"
            argv = ["run", *self._setting.recipe, steps, "--on", target, "--name", "r", "--force"]
        if verb in ("stop", "clean"):
            self._life.verbs.append(verb)
        if verb == "stop":
            self._stops.append(time.time())
        environment = {**os.environ, "PYTHONPATH": str(LAUNCH.parents[1]), **self._environment}
        environment["LAUNCH_DIES"] = ",".join(deadly)
        start = self._setting.forks.start if self._setting.forks else _started
        out = self._bench.folder / f"launcher-{self._life.launchers}.txt"
        process = start(self._bench.launch, argv, self._bench.folder, environment, out)
        self._launchers.append(Launcher(process, verb, time.time()))
        return self._launchers[-1]

    def _output(self, launcher: Launcher) -> str:
        launcher.process.wait()
        launcher.ended = time.time()
        return (self._bench.folder / f"launcher-{len(self._launchers)}.txt").read_text()

    def _kill(self, launcher: Launcher, kill: Kill, phase: LifePhase) -> bool:
        if kill.group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(launcher.process.pid, signal.SIGKILL)
        launcher.process.kill()
        launcher.process.wait()
        return self._over(launcher, kill, str(phase))

    def _over(self, launcher: Launcher, kill: Kill, when: str) -> bool:
        launcher.ended = self._killed = time.time()
        self._life.kills.append(when)
        self._verb = kill.following
        time.sleep(kill.pause_s)
        return True

    def _begun(self) -> bool:
        return self._run.journal.exists() and self._run.journal.read_bytes().count(b"\n") > 0

    def _disturb_when_due(self, age_s: float) -> None:
        """What takes machines away waits until there are some, or until they have trained for long enough."""
        if not self._later or age_s < self._later[0][0] or not self._setting.may_disturb():
            return
        newest = max((fact["step"] for fact in self._observer.facts() if fact["what"] == "step"), default=0)
        for number, (when, what, how) in enumerate(self._later):
            if age_s >= when and how.get("after_step", 0) <= newest:
                del self._later[number]
                self._disturb(what, {key: value for key, value in how.items() if key != "after_step"})
                return

    def _disturb(self, what: str, how: dict[str, Any]) -> None:
        if what == "bucket":
            if self._bucket is None:
                return
            self._bucket.faults.status, self._bucket.faults.count = how["status"], how["count"]
            self._life.disturbances.append(f"bucket {how['status']}")
            return
        disturbance = self._cloud.disturb(what, how)
        self._preemptions += disturbance.preemptions
        self._life.disturbances.append(disturbance.kind)

    def _judge(self) -> None:
        life, faults = self._life, self._life.faults
        if left := self._cloud.existing():
            faults.append(f"left in the cloud: {left}")
        slices = self._cloud.slices()
        life.slices = len(slices)
        for first, second in itertools.pairwise(slices):
            if first.gone_at is None or second.ready_at < first.gone_at:
                faults.append(f"{first.name} and {second.name} were ready at the same time")
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
        if steps != list(range(1, self._setting.steps + 1)):
            faults.append(f"the final record has steps {steps}")
        faults += self._cloud.faults(self._run, len(self._launchers))

    def _judge_attempts(self) -> None:
        """With the stand-in trainer: each step was taken once and in order for the last state, and what was computed again had to be."""
        chains = {r["step"]: r["chain"] for r in read_jsonl(self._run.events) if r["event"] == "chain"}
        last, expected = chains.get(self._setting.steps), chaos_trainer.chain_after(self._setting.steps)
        if last != expected:
            self._life.faults.append(f"the last state is {last}, not {expected}")
        submitted = [record["time"] for record in read_jsonl(self._run.journal) if record["event"] == "submitting"]
        circumstances = Circumstances(
            self._bucket is not None, submitted, self._stops, self._preemptions, self._could_bring
        )
        verdict = judge(self._observer.facts(), circumstances)
        self._life.recomputed, self._life.explained = verdict.recomputed, verdict.explained
        self._life.faults += verdict.faults

    def _could_bring(self, since: float, until: float) -> bool:
        """Whether a launcher lived for long enough between the two."""
        return any(
            min(each.ended or time.time(), until) - max(each.began, since) > GATHERED_WITHIN_S
            for each in self._launchers
            if each.verb != "clean"
        )


def _started(
    script: Path, argv: Sequence[str], cwd: Path, environment: Mapping[str, str], out: Path
) -> "subprocess.Popen[bytes]":
    with out.open("w") as f:
        return subprocess.Popen(
            [sys.executable, str(script), *argv],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=f,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=machine.end_with_parent,
        )
