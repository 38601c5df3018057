"""A cloud that loses replies, lags, runs out of machines and takes them away; with a trainer on it, a journal, and launchers that die.

Real are the journal's fold, next_action, Driver and Carrier; simulated are time, the cloud, the target and the trainer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from podwright import targets
from podwright.run import act, drive, journal
from podwright.run.decide import Act
from podwright.run.journal import RunState
from podwright.run.states import AllocationPhase, Phase
from podwright.rundir import Ending, RunDir, write_json
from podwright.storage.base import Cause, StorageFailure
from podwright.targets import base, machines, polling
from podwright.targets.base import Job, Polled, Process, Released, Stopped, Traits
from podwright.targets.machines import AllocationState, HostAddress
from podwright.watch.diagnose import AttemptOutcome
from tests.unit.run.cloud_promises import RunPromises

ZONES = ("east-a", "east-b", "west-a")
TRAITS = Traits(poll_s=0.0, zones=ZONES, lag_s=30.0, grace_s=180.0, patience_s=6 * 3600.0)
START_DELAY_S = 4.0  # within which a trainer appears whose launcher has died
SAVE_S = 100.0  # a trainer saves within this after a stop
SILENT_S = 600.0  # machines are not deleted before their hosts have been silent for as long
NOTICE_S = 25.0  # and within this after its machines were taken
IDENTITY = {"target": "cloud", "kind": "simulated", "settings": {}}


class Killed(BaseException):
    """The launcher dies here."""


@dataclass
class Machine:
    zone: str
    history: list[tuple[float, AllocationState]]
    delete_at: float | None = None
    vanished: bool = False
    """whether somebody else has them deleted"""

    @property
    def state(self) -> AllocationState:
        return self.history[-1][1]


@dataclass
class Trainer:
    machine: str
    number: int
    ends_at: float | None = None
    ending: Ending | None = None
    over: bool = False
    deaf: bool = False
    unreached_since: float | None = None
    """when the first of the stops was sent that have not reached it, with none that has in between"""
    given_up: bool = False
    """whether its machines were deleted after such stops"""
    vanished: bool = False
    """whether its machines are gone without a word, so that no host can say that it is over"""
    moved: int = 0
    """how often its handle has changed"""

    def silent(self, now: float) -> bool:
        return self.given_up or (self.unreached_since is not None and now - self.unreached_since >= SILENT_S)


@dataclass
class World:
    """All that a launcher's death does not touch."""

    folder: Path
    time: float = 1e6
    clock_offset: float = 0.0
    state: RunState = field(default_factory=RunState)
    events: list[dict[str, Any]] = field(default_factory=list)
    machines: dict[str, Machine] = field(default_factory=dict)
    late_creates: list[tuple[float, str, str]] = field(default_factory=list)
    late_starts: dict[int, tuple[float, str]] = field(default_factory=dict)
    """by attempt, when and on which machines a trainer appears whose launcher died while submitting it"""
    trainers: dict[int, Trainer] = field(default_factory=dict)
    stockouts: set[str] = field(default_factory=set)
    refuses_at_once: bool = False
    refuses_for_good: bool = False
    answers: bool = True
    loses_replies_only: bool = False
    """whether a create that is not answered has arrived all the same, and takes effect late"""
    hosts_answer: bool = True
    storage_answers: bool = True
    deletes_work: bool = True
    delete_s: float = 5.0
    create_s: float = 60.0
    create_delay_s: float = 0.0
    lag_s: float = 0.0
    dies_in: int = 0
    stops_in: int = 0
    """operations of launchers until a person stops the run; 0: nobody does"""
    descriptions: int = 0
    calls: list[float] = field(default_factory=list)
    excused: int = 0
    """calls that a death or a person may have added"""
    violations: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.promises = RunPromises(self)

    # time

    def monotonic(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time + self.clock_offset

    def advance(self, seconds: float) -> None:
        """In pieces, so that what happens meanwhile happens in order."""
        end = self.time + seconds
        while self.time < end:
            self.time = min(end, self.time + 5.0)
            self._happen()

    def jump(self, seconds: float) -> None:
        """Set the clock. What is being started has started by then: no wait by a clock holds while it is set."""
        self._start_late(self.time + START_DELAY_S)
        self.clock_offset += seconds

    def _start_late(self, until: float) -> None:
        for number, (when, name) in list(self.late_starts.items()):
            if when <= until:
                del self.late_starts[number]
                self._start(number, name)

    def _start(self, number: int, name: str) -> None:
        if name in self.existing():
            self.trainers[number] = trainer = Trainer(name, number)
            machine = self.machines[name]
            if machine.state is AllocationState.LOST:  # taken while the attempt was being submitted
                trainer.ends_at, trainer.ending = machine.history[-1][0] + NOTICE_S, Ending.PREEMPTED
            if machine.vanished:
                trainer.over, trainer.vanished, trainer.ending = True, True, Ending.NODE_LOST

    def _happen(self) -> None:
        self._start_late(self.time)
        for when, name, zone in [c for c in self.late_creates if c[0] <= self.time]:
            self.late_creates.remove((when, name, zone))
            self._exist(name, zone)
        for name, machine in self.machines.items():
            born = machine.history[0][0]
            if machine.state is AllocationState.WAITING and self.time - born >= self.create_s:
                stocked = machine.zone not in self.stockouts
                self._become(name, AllocationState.READY if stocked else AllocationState.REFUSED)
            if machine.delete_at is not None and self.time >= machine.delete_at and self.deletes_work:
                self._become(name, AllocationState.GONE)
        for trainer in self.trainers.values():
            if not trainer.over and trainer.ends_at is not None and self.time >= trainer.ends_at:
                trainer.over = True

    def _exist(self, name: str, zone: str) -> None:
        self.promises.exists(name)
        if name not in self.machines or self.machines[name].state is AllocationState.GONE:
            before = self.machines[name].history if name in self.machines else []
            self.machines[name] = Machine(zone, [*before, (self.time, AllocationState.WAITING)])
            if len(self.existing()) > 1:
                self.violations.append(f"two allocations at once: {self.existing()}")

    def _become(self, name: str, state: AllocationState) -> None:
        machine = self.machines[name]
        if machine.state is state or machine.state is AllocationState.GONE:
            return
        machine.history.append((self.time, state))
        if state is AllocationState.GONE:
            machine.delete_at = None
            for trainer in self.trainers.values():
                if trainer.machine == name and not trainer.over:
                    if not trainer.deaf and not trainer.given_up:
                        self.violations.append(f"attempt {trainer.number} had not saved when {name} was deleted")
                    trainer.over, trainer.ending = True, trainer.ending or Ending.NODE_LOST

    def existing(self) -> list[str]:
        return [name for name, machine in self.machines.items() if machine.state is not AllocationState.GONE]

    def running(self) -> list[Trainer]:
        return [trainer for trainer in self.trainers.values() if not trainer.over]

    # what may go wrong

    def move_trainers(self) -> None:
        for trainer in self.running():
            trainer.moved += 1

    def vanish(self, state: AllocationState) -> None:
        """Machines go without a word, or somebody else deletes them."""
        for name, machine in self.machines.items():
            if machine.state is AllocationState.READY:
                for trainer in self.running():
                    trainer.over, trainer.vanished, trainer.ending = True, True, Ending.NODE_LOST
                self._become(name, state)
                machine.vanished = True
                machine.delete_at = self.time + self.delete_s if state is AllocationState.DELETING else None

    def preempt(self) -> None:
        for name, machine in self.machines.items():
            if machine.state is AllocationState.READY:
                self._become(name, AllocationState.LOST)
                for trainer in self.running():
                    trainer.ends_at, trainer.ending = self.time + NOTICE_S, Ending.PREEMPTED

    def end_trainer(self, ending: Ending) -> None:
        for trainer in self.running():
            trainer.over, trainer.ending = True, ending

    # the launcher's side

    def operation(self) -> None:
        """A moment at which a launcher may die, or a person may stop the run."""
        if self.stops_in:
            self.stops_in -= 1
            if not self.stops_in and not self.state.stop_wanted:
                self._fold("stopping")
        if self.dies_in:
            self.dies_in -= 1
            if not self.dies_in:
                raise Killed

    def call(self) -> bool:
        """Count a call to the cloud or a host; whether it arrives."""
        self.calls.append(self.time)
        self.operation()
        return self.answers

    def append(self, run: RunDir, event: str, **fields: Any) -> None:
        self.operation()
        self._fold(event, **fields)
        self.operation()

    def _fold(self, event: str, **fields: Any) -> None:
        self.events.append({"event": event, "time": self.wall(), **fields})
        before, self.state = self.state, journal.fold_into(self.state, self.events[-1])
        self.promises.written(before, self.state, self.events[-1])

    # Provisioner

    def describe_request(self, run_dir: Path, created: float, number: int, avoid: Sequence[str]) -> machines.Request:
        zone = next(zone for zone in ZONES if not any(zone.startswith(scope) for scope in avoid))
        return machines.Request(f"pw-r-{number}", zone, ("create", f"pw-r-{number}", zone))

    def create(self, request: machines.Request) -> machines.Allocation:
        if not self.call():
            if self.loses_replies_only:
                self.late_creates.append((self.time + 10.0, request.name, request.zone))
            return machines.unknown("Timeout: no reply")
        if self.refuses_for_good:
            return machines.refused("", "Quota: none for this kind", Ending.BAD_INPUT)
        if self.refuses_at_once and request.zone in self.stockouts:
            return machines.refused(request.zone, "Stockout: no capacity")
        if self.create_delay_s:
            self.late_creates.append((self.time + self.create_delay_s, request.name, request.zone))
        else:
            self._exist(request.name, request.zone)
        self.operation()
        return machines.waiting("Creating: it was just requested")

    def describe(self, request: machines.Request, ready_since: float | None = None) -> machines.Allocation:
        answer = self._described(request)
        self.promises.described[request.name] = answer.state
        return answer

    def _described(self, request: machines.Request) -> machines.Allocation:
        if not self.answers:
            return machines.unknown("Timeout: no reply")
        machine = self.machines.get(request.name)
        self.descriptions += 1  # each answer comes from another replica of the cloud
        lag_s = self.lag_s * (self.descriptions % 3) / 2
        seen = [s for at, s in (machine.history if machine else []) if at <= self.time - lag_s]
        state = seen[-1] if seen else AllocationState.GONE
        return {
            AllocationState.WAITING: machines.waiting("Waiting: for resources"),
            AllocationState.READY: machines.ready((HostAddress("h", "10.0.0.1"),)),
            AllocationState.REFUSED: machines.refused(request.zone, "Stockout: no capacity"),
            AllocationState.LOST: machines.lost(Ending.PREEMPTED, "Preempted: the spot machine was taken"),
            AllocationState.DELETING: machines.deleting(),
            AllocationState.GONE: machines.GONE,
        }[state]

    def delete(self, request: machines.Request) -> None:
        if self.call() and (machine := self.machines.get(request.name)) and machine.state is not AllocationState.GONE:
            for trainer in self.running():
                trainer.given_up = trainer.silent(self.time)
                if trainer.machine == request.name and not trainer.deaf and not trainer.given_up:
                    self.violations.append(f"{request.name} was deleted under attempt {trainer.number}")
            if self.deletes_work and machine.delete_at is None:
                self._become(request.name, AllocationState.DELETING)
                machine.delete_at = self.time + self.delete_s
        self.operation()

    def list_owned(self) -> list[machines.Owned]:
        raise NotImplementedError

    # Target

    @property
    def traits(self) -> Traits:
        return TRAITS

    @property
    def identity(self) -> dict[str, Any]:
        return IDENTITY

    @property
    def provisioner(self) -> World:
        return self

    def render(self, job: Job, hosts: machines.Hosts | None = None) -> base.Rendered:
        assert hosts, "an attempt needs hosts"
        if not self.storage_answers:
            raise StorageFailure("storage gs://b/r failed (network: no reply)", "check it", Cause.NETWORK)
        return base.Rendered(("train",), Path("/"), {"attempt": job.attempt, **IDENTITY})

    def submit(self, rendered: base.Rendered) -> base.Handle:
        if self.call() and self.hosts_answer:
            number = rendered.handle["attempt"]
            if self.running():
                self.violations.append(f"attempt {number} was started beside a living one")
            ready = [n for n, machine in self.machines.items() if machine.state is AllocationState.READY]
            if ready:
                self.late_starts[number] = self.time + START_DELAY_S, ready[0]
        self.operation()
        self._start_late(self.time + START_DELAY_S)
        return rendered.handle

    def poll(self, handle: base.Handle) -> Polled:
        self.promises.polls()
        trainer = self.trainers.get(handle["attempt"])
        if trainer is None:
            return Polled(Process.ABSENT)
        if trainer.vanished or (not self.hosts_answer and not trainer.over):
            return Polled(Process.RUNNING, waiting="Unreachable: no host answers")
        if trainer.over:
            return Polled(Process.ENDED)
        return Polled(Process.RUNNING, handle={**handle, "moved": trainer.moved} if trainer.moved else None)

    def stop(self, handle: base.Handle, *, force: bool = False) -> Stopped:
        if not force:
            self.promises.calls_hosts("stop")
        trainer = self.trainers.get(handle["attempt"])
        if not self.call() or not self.hosts_answer or (trainer and trainer.vanished):
            if trainer and trainer.unreached_since is None:
                trainer.unreached_since = self.time
            return Stopped(False, "no host answers")
        if trainer:
            trainer.unreached_since = None
        if trainer and not trainer.over:
            if force:
                if not trainer.deaf:
                    self.violations.append(f"attempt {trainer.number} was killed before it had saved")
                trainer.over, trainer.ending = True, Ending.STOPPED
            elif not trainer.deaf and trainer.ends_at is None:
                trainer.ends_at, trainer.ending = self.time + SAVE_S, Ending.STOPPED
        self.operation()
        return Stopped(True)

    def release(self, handle: base.Handle) -> Released:
        self.promises.calls_hosts("release")
        trainer = self.trainers.get(handle["attempt"])
        arrives = self.call() and self.hosts_answer and not (trainer and trainer.vanished)
        return Released(arrives, "" if arrives else "no host answers")

    # of watch.diagnose

    def outcome(self, run: RunDir, attempt: int, polled: Polled, stop_wanted: bool) -> AttemptOutcome:
        trainer = self.trainers.get(attempt)
        ending = (trainer.ending if trainer else None) or polled.ending or Ending.UNKNOWN
        return AttemptOutcome(ending, "as simulated")


class Unmirrored:
    """In place of finish.Mirror, for a run without storage and trackers."""

    def __init__(self, run: RunDir, warn: Callable[[str], None]):
        pass

    def __call__(self, last: bool = False) -> None:
        pass

    def publish(self) -> None:
        pass

    def bring_ended(self, attempt: int) -> None:
        pass


class Simulation:
    """The world with two launchers at work on the run; one that is killed comes back at its next step."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, cwd: str = "/"):
        self.world = world = World(folder)
        clock = SimpleNamespace(monotonic=world.monotonic, sleep=lambda _: None, time=world.wall)
        patch.setattr(journal, "now", world.wall)
        patch.setattr(journal, "uptime", lambda: ("", 0.0))
        patch.setattr(journal, "append", world.append)
        patch.setattr(journal, "read", lambda _: world.state)
        patch.setattr(drive, "time", clock)
        patch.setattr(polling, "time", clock)
        patch.setattr(drive, "Mirror", Unmirrored)
        patch.setattr(act, "outcome", world.outcome)
        patch.setattr(act, "write_report", lambda _: None)
        patch.setattr(targets, "of_handle", lambda _: world)
        patch.setattr(targets, "current", lambda *_: IDENTITY)
        self.run = RunDir(folder)
        self.run.journal.touch()
        write_json(self.run.recipe, {"kind": "grpo", "training": {"max_steps": 1}})
        world.append(self.run, "created", recipe="r", target="cloud", cwd=cwd, retries=2)
        self.drivers: list[drive.Driver | None] = [None, None]

    def step(self, launcher: int = 0, dies_in: int = 0) -> Act | None:
        """One step of a launcher, which dies at its `dies_in`-th operation (0: lives); None if it died."""
        world, driver = self.world, self.drivers[launcher]
        if driver is None:
            driver = self.drivers[launcher] = drive.Driver(self.run, lambda *_: None, lambda _: None)
        world.dies_in = dies_in
        try:
            done = driver.step()
        except Killed:
            self.drivers[launcher] = None
            world.excused += 2
            return None
        finally:
            world.dies_in = 0
        if done is Act.WAIT and not world.running() and not driver._waiting:
            world.violations.append(f"a wait without a reason: {world.state}")
        if done is Act.WAIT:
            world.promises.waited()
        if done is Act.DONE:
            world.promises.done()
        return done

    def want_stop(self, after: int = 0) -> None:
        """Now, or in the middle of what launchers do: at their `after`-th operation from now."""
        if after:
            self.world.stops_in = after
        else:
            drive.ask_to_stop(self.run)

    def submit_and_die(self, dies_in: int) -> None:
        """A launcher that dies at its `dies_in`-th operation of submitting, if it gets there soon; the other one looks at once."""
        for _ in range(20):
            state = self.world.state
            ready = (
                state.allocation and state.allocation.phase is AllocationPhase.READY and not state.allocation.at_fault
            )
            if state.phase is Phase.READY and ready:
                self.step(0, dies_in)
                break
            self.step(0)
            self.world.advance(5.0)
        for _ in range(8):
            self.step(1)
            self.world.advance(1.0)

    def hurry(self, create_delay_s: float, crashes: bool) -> None:
        """All within the lag of the cloud: attempts that crash at once, or a stop while machines are being requested."""
        world = self.world
        world.lag_s, world.create_delay_s, world.create_s = 15.0, create_delay_s, 1.0
        for _ in range(30):
            done = self.step()
            if crashes:
                world.end_trainer(Ending.CRASHED)
            elif done in (Act.REQUEST, Act.CREATE):
                self.want_stop()
            world.advance(1.0 if done is Act.WAIT else 0.0)

    def find_no_machines(self) -> None:
        """Refused everywhere at once, until every zone is to be left alone for a while."""
        self.world.stockouts, self.world.refuses_at_once = set(ZONES), True
        for _ in range(90):
            self.step()
            self.world.advance(10.0)

    def queue_for_hours(self) -> None:
        """Neither refused nor ready for longer than the run is patient."""
        self.world.create_s = 1e6
        for pause in (5.0, 5.0, 40.0, 40.0, 40.0, 22500.0, 5.0, 5.0, 5.0):
            self.step()
            self.world.advance(pause)
        self.world.create_s = 60.0

    def lose_stop(self, pause: float, answers: bool) -> None:
        """A stop that does not arrive for long, at a trainer that would not hear it."""
        for trainer in self.world.running():
            trainer.deaf = True
        self.world.hosts_answer, self.world.answers = False, answers
        self.want_stop()
        for _ in range(14):
            self.step()
            self.world.advance(pause)

    def resume(self) -> None:
        if self.world.state.phase is Phase.ENDED and drive.settled(self.world.state) and not self.world.running():
            self.world.append(self.run, "resumed")
            self.world.excused += 20

    def drain(self, rng: random.Random) -> None:
        """All that was broken works again: the run must come to its end, with nothing left, stopped or not."""
        world = self.world
        world.answers = world.hosts_answer = world.storage_answers = world.deletes_work = True
        world.stops_in = 0
        world.refuses_for_good = False
        world.stockouts, world.lag_s, world.create_delay_s = set(), 0.0, 0.0
        world.jump(-world.clock_offset)
        stopped = rng.random() < 0.5
        if stopped:
            self.want_stop()
        for _ in range(600):
            if not stopped and rng.random() < 0.2:
                world.end_trainer(Ending.FINISHED)
            done = self.step(rng.randrange(2))
            if done is Act.DONE and world.state.phase is Phase.ENDED:
                return
            if done is Act.WAIT:
                world.advance(20.0)
        world.violations.append(f"the run did not come to its end: {world.state}")

    def check(self) -> None:
        world = self.world
        world.promises.settles()
        if world.violations:
            raise AssertionError("; ".join(world.violations) + "\n" + "\n".join(map(str, world.events[-30:])))
        recent = [at for at in world.calls if at > world.time - 3600.0]
        assert len(recent) <= 150 + world.excused, f"{len(recent)} calls in an hour"


def random_life(folder: Path, seed: int, operations: int = 30) -> None:
    """One seeded life with as many operations; AssertionError if it breaks a promise."""
    rng = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        simulation = Simulation(folder, patch)
        world = simulation.world
        world.create_delay_s, world.lag_s = rng.choice([0.0, 10.0]), rng.choice([0.0, 15.0])
        world.create_s = rng.choice([1.0, 60.0])
        for _ in range(operations):
            _operate(simulation, rng)
            simulation.check()
        simulation.drain(rng)
        world.advance(120.0)
        simulation.check()


def _operate(simulation: Simulation, rng: random.Random) -> None:
    world = simulation.world
    if rng.random() < 0.5:
        launcher, pause = rng.randrange(2), rng.choice([0.0, 2.0, 5.0, 30.0])
        for _ in range(rng.randint(1, 10)):
            simulation.step(launcher)
            world.advance(pause)
        return
    if rng.random() < 0.2:
        for _ in range(rng.randint(1, 10)):
            simulation.step(rng.randrange(2), rng.randint(1, 8))
            world.advance(rng.choice([0.0, 0.0, 1.0]))
        return
    endings = [Ending.FINISHED, Ending.CRASHED, Ending.CRASHED, Ending.NODE_LOST, Ending.BAD_INPUT]
    broken: list[Callable[[], object]] = [
        lambda: simulation.step(rng.randrange(2), rng.randint(1, 6)),
        lambda: simulation.step(rng.randrange(2), rng.randint(1, 6)),
        lambda: world.advance(rng.choice([40.0, 200.0, 4000.0, 30000.0])),
        lambda: world.jump(rng.choice([-7200.0, -3.0, 3.0, 7200.0])),
        lambda: world.stockouts.update(rng.sample(ZONES, rng.randint(1, 3))),
        lambda: setattr(world, "refuses_at_once", rng.random() < 0.5),
        world.stockouts.clear,
        world.preempt,
        world.preempt,
        lambda: setattr(world, "answers", rng.random() < 0.5),
        lambda: setattr(world, "loses_replies_only", rng.random() < 0.5),
        lambda: setattr(world, "refuses_for_good", rng.random() < 0.3),
        world.move_trainers,
        lambda: setattr(world, "hosts_answer", rng.random() < 0.5),
        lambda: setattr(world, "storage_answers", rng.random() < 0.7),
        lambda: setattr(world, "answers", True),
        lambda: setattr(world, "hosts_answer", True),
        lambda: setattr(world, "lag_s", rng.choice([0.0, 5.0, 15.0])),
        lambda: setattr(world, "create_delay_s", rng.choice([0.0, 10.0])),
        lambda: setattr(world, "create_s", rng.choice([1.0, 60.0, 2000.0])),
        lambda: setattr(world, "deletes_work", rng.random() < 0.6),
        lambda: setattr(world, "delete_s", rng.choice([1.0, 60.0, 600.0])),
        lambda: world.end_trainer(rng.choice(endings)),
        lambda: world.end_trainer(rng.choice(endings)),
        lambda: world.vanish(rng.choice([AllocationState.GONE, AllocationState.DELETING])),
        lambda: [setattr(trainer, "deaf", True) for trainer in world.running()] if rng.random() < 0.3 else None,
        lambda: simulation.lose_stop(rng.choice([2.0, 300.0]), rng.random() < 0.7) if rng.random() < 0.6 else None,
        lambda: simulation.submit_and_die(rng.randint(3, 6)),
        lambda: simulation.submit_and_die(rng.randint(3, 6)),
        lambda: simulation.hurry(rng.choice([0.0, 10.0]), rng.random() < 0.7),
        lambda: simulation.hurry(rng.choice([0.0, 10.0]), rng.random() < 0.7),
        simulation.find_no_machines if rng.random() < 0.5 else simulation.queue_for_hours,
        lambda: simulation.want_stop(rng.randint(0, 12)) if rng.random() < 0.3 else None,
        lambda: simulation.want_stop(rng.randint(0, 4)) if rng.random() < 0.3 else None,
        simulation.resume,
        simulation.resume,
    ]
    rng.choice(broken)()
