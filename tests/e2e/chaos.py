"""Lives of a run on a simulated cloud under disturbances that a seed decides: launchers killed, the cloud and its machines failing.

A life ends when `podwright` says that the run is finished and no command is wanted any more. What must hold then is `Life.faults`.
"""

import itertools
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lab.bucket import EmulatedBucket
from podwright.counted_steps import read_steps
from podwright.run import journal
from podwright.run.states import AllocationPhase, Phase
from podwright.rundir import RunDir, read_jsonl
from tests.e2e import chaos_disturbing, chaos_trainer
from tests.e2e.chaos_attempts import Circumstances, judge
from tests.e2e.chaos_hazards import HAZARDS, LIMITS
from tests.e2e.chaos_launchers import Launcher, Launchers
from tests.e2e.chaos_life import Life
from tests.e2e.chaos_phases import ChaosCloud, Disturbance, LifePhase, Observer, Row
from tests.e2e.chaos_script import Kill
from tests.e2e.chaos_second_run import SecondRun
from tests.e2e.conftest import RECIPE as TINY
from tests.e2e.conftest import Bench
from tests.e2e.fork_server import ForkServer

RECIPE = (*TINY, "mesh.fsdp=16")
GATHERED_WITHIN_S = 6.0
"""a launcher that lives for so long after a save has brought it from the hosts"""
MOST_LAUNCHERS = 40
JUST_KILLED_S = 4.0
"""for so long a gcloud may outlive the launcher that had it request a slice"""
LIFE_LIMIT_S = 900.0
RUN = "r"
USAGE = 2
"""the exit code of a verb that says what to type"""
TYPING_S = 1.5
"""until somebody has done that"""
WHEN = ("after_step", "phase", "wait_s", "environment")
"""keys that say when a disturbance comes, and what launchers get for it"""


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


class Disturbed:
    """One life as it goes on."""

    def __init__(self, life: Life, setting: Setting) -> None:
        self._life, self._setting, self._cloud = life, setting, setting.cloud
        self.bucket, self.observer = setting.bucket, setting.observer
        self.clock = setting.bench.folder / "clock"
        environment = {**setting.environment, **setting.cloud.environment, "LAUNCH_CLOCK": str(self.clock)}
        environment["LAUNCH_LIMITS"] = json.dumps(LIMITS)
        for _, _, how in life.script.cloud:
            environment |= how.get("environment", {})
        self.environment = environment
        steps = f"training.max_steps={setting.steps}"
        self.words = (*setting.recipe, "--on", setting.cloud.target)
        words = (*self.words, steps)
        self.launchers = Launchers(
            setting.bench, setting.cloud.target, words, environment, setting.forks, setting.cloud.killed
        )
        self._kills = list(life.script.kills)
        later = ((when, what, how) for what, when, how in life.script.cloud if when)
        self._later = sorted(later, key=lambda disturbance: disturbance[0])
        self._ends: list[tuple[float, str, Callable[[], int]]] = []
        """of disturbances that last: when, which, and how each is ended"""
        self._armed: dict[int, float] = {}
        """by number of a disturbance that comes in a phase: when it comes"""
        self._began = time.monotonic()
        self._verb = "run"
        self._killed = 0.0
        """when a launcher was killed last, in Unix seconds"""
        self._ended_left: list[Launcher] = []
        """those of the launchers that nobody waits for"""
        self._lag_s = 0.0
        self.stops: list[float] = []
        """when they were typed, in Unix seconds"""
        self.breaks: list[float] = []
        """when the trainer was killed, or kept from its storage: an attempt may end without anybody's stop"""
        self._preemptions: list[tuple[float, float]] = []
        """when their notices came, and the seconds until the machines were off"""
        self.second: SecondRun | None = None

    @property
    def may_disturb(self) -> Callable[[], bool]:
        return self._setting.may_disturb

    @property
    def _run(self) -> RunDir:
        return self.launchers.run

    def run(self) -> None:
        """Until the run is finished, or is found to be stuck; then say what is wrong."""
        life = self._life
        life.drawn = [what for what, _, _ in life.script.cloud]
        try:
            for what, when, how in life.script.cloud:
                if not when:
                    self._disturb(what, how, None)
            while self._one_launcher():
                if life.launchers >= MOST_LAUNCHERS:
                    life.faults.append(f"{MOST_LAUNCHERS} launchers did not finish the run")
                    break
                if time.monotonic() - self._began > self._setting.limit_s:
                    break
            self._end_disturbances(late=True)
            life.faults += self.launchers.faults_of_left()
            self._note_deaths_of_left()
            life.faults += self.second.faults() if self.second else []
            self._judge()
        finally:
            self.launchers.end()
            if self.second:
                self.second.end()
            life.machines = self.launchers.machines
            life.seconds = time.monotonic() - self._began
            life.missed = [each.event or each.phase or f"{each.delay_s:.1f} s" for each in self._kills]
            life.missed += [what for _, what, _ in self._later]

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
            phase, now = self.observer.phase(launcher.verb), time.monotonic()
            for number, kill in enumerate(self._kills):
                if kill.phase in ("", phase) and not kill.event:
                    armed.setdefault(number, (kill.delay_s + (now if kill.phase else self._began), kill.phase))
            due = [number for number, (at, of) in armed.items() if now >= at or of not in ("", phase)]
            if due:
                return self._kill(launcher, self._kills.pop(due[0]), phase)
            self._end_disturbances()
            self._note_deaths_of_left()
            if self._disturb_when_due(now - self._began, phase, launcher):
                return True
            if now - self._began > self._setting.limit_s:
                launcher.kill(group=False)
                self._life.faults.append(f"stuck in {phase}: {launcher.output()[-600:]}")
                return False
            time.sleep(0.05)
        if moment := self.launchers.death(launcher):
            return self.over(launcher, self._kill_at(moment), moment)
        return self._after(launcher)

    def _kill_at(self, moment: str) -> Kill:
        """What the script has for this moment, which comes once."""
        kill = next((kill for kill in self._kills if kill.event == moment), None)
        if kill is None:
            return Kill("", 0.0, False, 0.0, "resume")
        self._kills.remove(kill)
        return kill

    def _note_deaths_of_left(self) -> None:
        """Launchers that nobody waits for die at the moments of the script like any other; the one that is alive goes on."""
        for launcher in self.launchers.left:
            if launcher not in self._ended_left and launcher.process.poll() is not None:
                self._ended_left.append(launcher)
                launcher.ended = launcher.ended or time.time()
                if moment := self.launchers.death(launcher):
                    self._kill_at(moment)
                    self._killed = launcher.ended
                    self._life.kills.append(moment)

    def _after(self, launcher: Launcher) -> bool:
        """A launcher has ended by itself; whether another one is wanted."""
        code, out = launcher.process.returncode, launcher.output()
        if fault := self.launchers.fault(launcher):
            self._life.faults.append(fault)
        if launcher.verb == "clean":
            if not launcher.interrupted and code != USAGE:
                self._require_clean(launcher, out)
            return True
        if launcher.verb == "stop":
            if code == 0 and (left := self._existing(RUN)):
                self._leave(f"stop left {left}: {out[-300:]}", len(left))
            return True
        if code:
            self._life.endings.append((out.strip() or "no output").splitlines()[-1][:300])
        if code == USAGE:
            time.sleep(TYPING_S)
        return code != 0

    def _require_clean(self, launcher: Launcher, out: str) -> None:
        """`clean --yes` has ended: nothing is left but what it names as in use, and what was still being requested when it looked."""
        for row in self._cloud.existing():
            kept = any(row["request"] in line and "keep: run " in line for line in out.splitlines())
            recent = launcher.began - self._killed < JUST_KILLED_S + self._lag_s
            at_work = self.second or any(each.process.poll() is None for each in self.launchers.left)
            if not kept and not (row["request"] not in out and (recent or at_work)):
                self._leave(f"clean left {row}: {out[-300:]}", 1)

    def _leave(self, fault: str, count: int) -> None:
        self._life.faults.append(fault)
        self._life.left += count

    def _start(self, verb: str, deadly: list[str]) -> Launcher:
        """`deadly`: lines of the journal around which it dies, as Kill.event."""
        launcher = self.launchers.start(verb, deadly)
        if launcher.verb in ("stop", "clean"):
            self._life.verbs.append(launcher.verb)
        if launcher.verb == "stop":
            self.stops.append(time.time())
        return launcher

    def _kill(self, launcher: Launcher, kill: Kill, phase: LifePhase) -> bool:
        launcher.kill(group=kill.group)
        return self.over(launcher, kill, str(phase))

    def over(self, launcher: Launcher, kill: Kill, when: str) -> bool:
        launcher.ended = self._killed = time.time()
        self._life.kills.append(when)
        self._verb = kill.following
        time.sleep(kill.pause_s)
        return True

    def _begun(self) -> bool:
        return self.launchers.machines > 1 or (self._run.journal.exists() and b"\n" in self._run.journal.read_bytes())

    def _disturb_when_due(self, age_s: float, phase: LifePhase, launcher: Launcher) -> bool:
        """Whether the launcher is over by it. What takes machines away waits until there are some, or until they have trained for long enough."""
        if self.second:
            self.second.tend()
        if not self._later or age_s < self._later[0][0]:
            return False
        newest = max((fact["step"] for fact in self.observer.facts() if fact["what"] == "step"), default=0)
        for number, (when, what, how) in enumerate(self._later):
            if age_s < when or how.get("after_step", 0) > newest or not self._in_phase(how, phase):
                continue
            needs_machines = "phase" not in how and what not in HAZARDS
            if (needs_machines and not self._setting.may_disturb()) or not chaos_disturbing.possible(
                self, what, launcher
            ):
                continue
            del self._later[number]
            self._armed.pop(id(how), None)
            return self._disturb(what, how, launcher)
        return False

    def _in_phase(self, how: dict[str, Any], phase: LifePhase) -> bool:
        """Whether its phase, if it has one, began as long ago as it says, or is over."""
        if "phase" not in how:
            return True
        if how["phase"] == phase:
            self._armed.setdefault(id(how), time.monotonic() + how["wait_s"])
        elif id(how) in self._armed:
            return True
        return time.monotonic() >= self._armed.get(id(how), math.inf)

    def _disturb(self, what: str, how: dict[str, Any], launcher: Launcher | None) -> bool:
        """Whether the launcher is over by it."""
        self._life.came.append(what)
        how = {key: value for key, value in how.items() if key not in WHEN}
        if act := chaos_disturbing.ACTS.get(what):
            assert launcher, f"{what} comes before the life"
            return act(self, launcher, how)
        self._lag_s = how["list"] if what == "long lag" else self._lag_s
        self.note(self._cloud.disturb(what, how), what)
        return False

    def fault(self, what: str) -> None:
        self._life.faults.append(what)

    def is_published(self) -> bool:
        """Whether the run can be taken over."""
        url = self._run.storage_url
        if not self.bucket or not url:
            return False
        return self.bucket.content(f"{url.removeprefix(f'{self.bucket.url}/')}/run/journal.jsonl") is not None

    def move(self) -> None:
        """Go on from another machine."""
        self.launchers.move()
        self.observer.follow(self._run)

    def note(self, disturbance: Disturbance, what: str) -> None:
        self._preemptions += disturbance.preemptions
        self._life.disturbances.append(disturbance.kind)
        if disturbance.undo:
            self._ends.append((time.monotonic() + disturbance.lasts_s, what, disturbance.undo))

    def _end_disturbances(self, *, late: bool = False) -> None:
        """Those whose time is over; all of them with `late`."""
        over = [each for each in self._ends if late or time.monotonic() >= each[0]]
        self._ends = [each for each in self._ends if each not in over]
        for _, what, undo in over:
            self._life.refused_calls[what] = self._life.refused_calls.get(what, 0) + undo()

    def _judge(self) -> None:
        life, faults = self._life, self._life.faults
        if left := self._cloud.existing():
            self._leave(f"left in the cloud: {left}", len(left))
        slices = [each for each in self._cloud.slices() if run_of(each.name) == RUN]
        life.slices = len(slices)
        late = any("taken over" in what for what in life.came)  # what was under way then is deleted when it has come
        for first, second in itertools.pairwise(slices):
            if (first.gone_at is None or second.ready_at < first.gone_at) and not late:
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
        steps = [record["step"] for record in read_steps(self._run, "grpo")]
        if steps != list(range(1, self._setting.steps + 1)):
            faults.append(f"the final record has steps {steps}")
        life.lost, life.doubled = self._setting.steps - len(set(steps)), len(steps) - len(set(steps))
        wrong = self._cloud.faults(self._run, len(self.launchers.all))
        life.left += sum(fault.startswith("left in the cloud") for fault in wrong)
        life.foreign += sum(fault.startswith("of somebody else") for fault in wrong)
        faults += wrong

    def _judge_attempts(self) -> None:
        """With the stand-in trainer: each step was taken once and in order for the last state, and what was computed again had to be."""
        chains = {r["step"]: r["chain"] for r in read_jsonl(self._run.events) if r["event"] == "chain"}
        last, expected = chains.get(self._setting.steps), chaos_trainer.chain_after(self._setting.steps)
        if last != expected:
            self._life.faults.append(f"the last state is {last}, not {expected}")
        submitted = [r for r in read_jsonl(self._run.journal) if r["event"] == "submitting"]
        boot_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)  # the clock of launchers may have been set
        circumstances = Circumstances(
            self.bucket is not None,
            [boot_s + record["uptime"] for record in submitted],
            self.stops,
            self._preemptions,
            self._could_bring,
            self.breaks,
        )
        verdict = judge(self.observer.facts(), circumstances)
        self._life.recomputed, self._life.explained = verdict.recomputed, verdict.explained
        self._life.lost += max(0, verdict.recomputed - verdict.explained)
        self._life.faults += verdict.faults

    def _could_bring(self, since: float, until: float) -> bool:
        """Whether a launcher lived for long enough between the two."""
        return any(
            min(each.ended or time.time(), until) - max(each.began, since) > GATHERED_WITHIN_S
            for each in self.launchers.all
            if each.verb != "clean"
        )

    def _existing(self, run: str) -> list[Row]:
        return [row for row in self._cloud.existing() if run_of(row["request"]) == run]


def run_of(request: str) -> str:
    """Its name: that of a request is pw-RUN-TAG-NUMBER."""
    return request.split("-")[1]
