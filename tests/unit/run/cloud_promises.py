"""What a run promises about its machines and its calls, held against each line of the journal, each call and each wait of a simulated life.

Guards of decide.py that no promise depends on can be removed unnoticed, so each of these is stated without asking decide.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from podwright.run.allocations import AllocationRecord
from podwright.run.decide import settled
from podwright.run.journal import RunState
from podwright.run.states import AllocationPhase, Phase
from podwright.rundir import Ending
from podwright.targets.machines import AllocationState

if TYPE_CHECKING:
    from tests.unit.run.cloud_simulation import World

PATIENCE_S = 6 * 3600.0
MARGIN_S = 600.0  # the longest pause between two attempts: a run gives up at most this long after its patience is over
LAG_S = 30.0
START_S = 5.0
UNANSWERED = 10
FAILURES = {Ending.CRASHED, Ending.OUT_OF_MEMORY, Ending.UNKNOWN, Ending.STORAGE_UNREACHABLE}
BY_MACHINES = {Ending.PREEMPTED, Ending.NODE_LOST}
AWAY = (AllocationPhase.REFUSED, AllocationPhase.LOST, AllocationPhase.DELETING, AllocationPhase.GONE)
UNDER_WAY = (Phase.SUBMITTING, Phase.RUNNING, Phase.STOPPING)


class RunPromises:
    def __init__(self, world: World):
        self._world = world
        self._faulty: set[int] = set()
        self._written_off: set[str] = set()
        self._stopped: float | None = None
        """when a person last stopped the run: what a launcher decided at that moment it may still write down"""
        self._stopped_phase_since = 0.0
        """when the phase began that this stop ended"""
        self._stopped_phase: Phase | None = None
        """that phase"""
        self.described: dict[str, AllocationState] = {}
        """by name, what the cloud answered last"""

    def _break(self, what: str) -> None:
        self._world.violations.append(what)

    def _early(self, count: int, last: float, first_s: float = 2.0, most_s: float = 300.0) -> bool:
        """Whether the call after the `count`-th one comes before its pause is over, by the clock of the journal."""
        return count > 0 and 0 <= self._world.wall() - last < min(most_s, first_s * 2.0 ** min(count - 1, 20))

    def _just_stopped(self) -> bool:
        return self._stopped == self._world.time

    def _impatient(self, state: RunState, margin_s: float = 0.0) -> bool:
        since = state.capacity.since
        return since is not None and self._world.wall() - since > PATIENCE_S + margin_s

    # the journal

    def written(self, before: RunState, after: RunState, event: dict[str, Any]) -> None:
        name = event["event"]
        if name == "stopping":
            self._stopped, self._stopped_phase_since = self._world.time, before.since
            self._stopped_phase = before.phase
        elif after == before and not self._just_stopped():
            self._break(f"{name} changes nothing")
        if name.startswith("allocation ") and after.allocation:
            self._of_machines(name.removeprefix("allocation "), before, after.allocation)
        elif check := getattr(self, f"_{name}", None):
            check(before, event)

    def _of_machines(self, name: str, before: RunState, record: AllocationRecord) -> None:
        request = record.request
        if name == "requested":
            self._requested(before, record)
        elif name == "deleting":
            self._deleting(before, request.name)
        elif name == "lost":
            machine = self._world.machines.get(request.name)
            if machine and machine.state in (AllocationState.WAITING, AllocationState.READY):
                self._break(f"{request.name} was written off as lost and is {machine.state}")
        elif name == "gone":
            self._written_off.add(request.name)
            if request.name in self._world.existing() or any(c[1] == request.name for c in self._world.late_creates):
                self._break(f"{request.name} was written off as gone and is there, or will be")

    def exists(self, name: str) -> None:
        if name in self._written_off:
            self._break(f"{name} appeared after it was written off as gone")

    def _requested(self, before: RunState, record: AllocationRecord) -> None:
        request, old = record.request, before.allocation
        if (before.stop_wanted and not self._just_stopped()) or before.capacity.final or self._impatient(before):
            self._break(f"{request.name} was requested after the run was stopped, refused for good or out of patience")
        if old and old.number == record.number:
            if self.described.get(request.name) is not AllocationState.GONE:
                self._break(f"{request.name} was requested again and may be there")
            if self._early(old.calls, old.called, LAG_S):
                self._break(f"{request.name} was requested again too early")
            return
        refusals = before.capacity.refusals.get(request.zone)
        if refusals and self._early(refusals.count, refusals.last, 30.0, 600.0):
            self._break(f"{request.zone} was asked again too early")

    def _deleting(self, before: RunState, name: str) -> None:
        old = before.allocation
        assert old
        said = self.described.get(name)
        if old.phase is AllocationPhase.DELETING:
            if said in (AllocationState.GONE, AllocationState.DELETING) or self._early(old.calls, old.called):
                self._break(f"{name} was deleted again needlessly or too early")
            return
        if before.phase is Phase.READY and not old.at_fault and old.phase not in AWAY:
            self._break(f"{name} was deleted although an attempt could start on it")
        if before.phase in (Phase.SUBMITTING, Phase.RUNNING) and not self._just_stopped():
            self._break(f"{name} was deleted while the run is {before.phase}")
        used = before.attempt > 0 and before.attempt_allocation == old.number and old.phase not in AWAY
        decided_before = self._just_stopped() and self._stopped_phase is Phase.READY  # when no attempt was on them
        holds = before.phase is Phase.STOPPING and not decided_before
        holds |= before.phase is Phase.ENDED and not before.released
        if used and holds and not (before.calls >= UNANSWERED and said is AllocationState.READY):
            self._break(f"{name} was deleted before its hosts had been silent for long on ready machines")

    def _submitting(self, before: RunState, event: dict[str, Any]) -> None:
        number = event["on_allocation"]
        if number in self._faulty:
            self._break(f"attempt {event['attempt']} uses the machines of {number}, which were at fault")
        since = self._stopped_phase_since if before.phase is Phase.STOPPING else before.since
        if self._early(before.short_attempts - 1, since, most_s=600.0):
            self._break(f"attempt {event['attempt']} follows {before.short_attempts} short ones without a pause")

    def _abandoned(self, before: RunState, event: dict[str, Any]) -> None:
        if event["ending"] is Ending.NO_CAPACITY and not before.capacity.final and not self._impatient(before):
            self._break("the run gave up before its patience was over")

    def _ended(self, before: RunState, event: dict[str, Any]) -> None:
        world = self._world
        if before.attempt == before.ended_attempt:
            return
        if event["ending"] in BY_MACHINES:
            self._faulty.add(before.attempt_allocation)
        if before.attempt in world.late_starts:
            self._break(f"attempt {before.attempt} was written off before it appeared")
        trainer = world.trainers.get(before.attempt)
        if trainer and not trainer.over and not trainer.deaf and not trainer.silent(world.time):
            self._break(f"attempt {before.attempt} was written off and is alive")

    def _reported(self, before: RunState, _: dict[str, Any]) -> None:
        record = before.allocation
        if record and record.phase not in (AllocationPhase.DELETING, AllocationPhase.GONE):
            self._break(f"the run was reported before the deletion of {record.request.name} was asked for")

    def _retrying(self, before: RunState, _: dict[str, Any]) -> None:
        if not self._retries(before) and not self._just_stopped():
            self._break(f"the run was retried after {before.ending}")
        if not self._left(before):
            self._break("the run was retried before its attempt was released")

    def _resumed(self, before: RunState, _: dict[str, Any]) -> None:
        if before.attempt and not self._left(before):
            self._break("the run could be resumed before its attempt was released")

    def _killing(self, before: RunState, _: dict[str, Any]) -> None:
        if self._early(before.calls, before.called):
            self._break("an attempt was killed again too early")

    @staticmethod
    def _retries(state: RunState) -> bool:
        if state.stop_wanted or state.ending is None:
            return False
        kinds = [(BY_MACHINES, 100), (FAILURES, 2)]
        return any(
            state.ending in endings and sum(state.retries.get(k, 0) for k in state.retries if k == name) <= most
            for (endings, most), name in zip(kinds, ("preemption", "failure"), strict=True)
        )

    @staticmethod
    def _left(state: RunState) -> bool:
        """Whether the newest attempt holds nothing: it was released, or its machines are away."""
        record = state.allocation
        mine = record is not None and record.number == state.attempt_allocation
        return state.released or not mine or (record is not None and record.phase in AWAY)

    # calls

    def calls_hosts(self, what: str) -> None:
        state = self._world.state
        if self._early(state.calls, state.called):
            self._break(f"hosts were asked to {what} again too early")
        if what == "stop" and not state.stop_wanted:
            self._break("an attempt was stopped that nobody wanted to stop")
        if what == "release" and self._left(state) and state.attempt_allocation:
            self._break("an attempt was released that holds nothing")

    def polls(self) -> None:
        state = self._world.state
        if state.attempt == state.ended_attempt and self._left(state):
            self._break(f"attempt {state.attempt} was asked for although it has ended and holds nothing")

    def settles(self) -> None:
        state = self._world.state
        open_ended = state.attempt > 0 and not self._left(state)
        past = state.phase is Phase.READY or (state.phase is Phase.ENDED and not open_ended)
        if (settled(state) and not past) or (state.phase is Phase.READY and not settled(state)):
            self._break(f"the run is settled: {settled(state)}, in {state.phase}")

    # waits

    def waited(self) -> None:
        state = self._world.state
        if news := self._unwritten(state):
            why = news
        elif state.phase is Phase.READY:
            why = self._unstarted(state)
        elif state.phase is Phase.ENDED:
            why = self._unfinished(state)
        else:
            why = self._unattended(state)
        if why:
            self._break(f"a wait although {why}")

    def _unwritten(self, state: RunState) -> str:
        record = state.allocation
        said = self.described.get(record.request.name) if record else None
        if record is None or record.phase not in (AllocationPhase.REQUESTED, AllocationPhase.READY):
            return ""
        if said in (AllocationState.LOST, AllocationState.DELETING):
            return "its machines were lost"
        if record.phase is AllocationPhase.REQUESTED and said in (AllocationState.READY, AllocationState.REFUSED):
            return f"its machines are {said}"
        calling = self._early(state.calls, state.called) and record.number == state.attempt_allocation
        silent = calling and state.calls >= UNANSWERED and said is AllocationState.READY
        return "its hosts have been silent for long" if silent else ""

    def _unstarted(self, state: RunState) -> str:
        record = state.allocation
        if self._early(state.short_attempts - 1, state.since, most_s=600.0):
            return ""
        if record and record.phase in (AllocationPhase.REFUSED, AllocationPhase.LOST, AllocationPhase.DELETING):
            return self._undeleted(record)
        if self._impatient(state, MARGIN_S):
            return "the patience of the run is over"
        if record is None or record.phase is AllocationPhase.GONE:
            return "it was refused for good" if state.capacity.final else ""
        if record.phase is AllocationPhase.READY:
            return "its machines are ready or at fault"
        nothing = self.described.get(record.request.name) is AllocationState.GONE
        return "nothing was created" if nothing and not self._early(record.calls, record.called, LAG_S) else ""

    def _unfinished(self, state: RunState) -> str:
        record = state.allocation
        if not self._left(state) or (not state.attempt_allocation and not state.released and record is None):
            return "" if self._early(state.calls, state.called) else "its attempt was not released"
        if not state.reported and (state.released or not state.attempt or self._left(state)):
            return "" if self._early(state.calls, state.called) and not state.released else "it was not reported"
        return self._undeleted(record) if record else "nothing is left"

    def _undeleted(self, record: AllocationRecord) -> str:
        if record.phase is not AllocationPhase.DELETING:
            return f"the deletion of {record.request.name} was never asked for"
        said = self.described.get(record.request.name)
        going = said in (AllocationState.GONE, AllocationState.DELETING)
        return "" if going or self._early(record.calls, record.called) else f"{record.request.name} was not deleted"

    def _unattended(self, state: RunState) -> str:
        world, trainer = self._world, self._world.trainers.get(state.attempt)
        if trainer is None or state.attempt == state.ended_attempt:
            starting = state.phase is not Phase.RUNNING and 0 <= world.wall() - state.submitted < START_S
            return "" if starting else "there is no attempt"
        record = state.allocation
        if record and record.phase in (AllocationPhase.DELETING, AllocationPhase.GONE):
            return "its machines are deleted"
        if trainer.over and not trainer.vanished:
            return "its attempt is over"
        if state.phase is Phase.SUBMITTING:
            return "its attempt is running"
        if world.hosts_answer and not trainer.vanished and (state.handle or {}).get("moved", 0) != trainer.moved:
            return "the handle of its attempt has changed"
        unsent = state.phase is Phase.STOPPING and not state.signalled and not self._early(state.calls, state.called)
        return "the stop has not arrived" if unsent else ""

    def done(self) -> None:
        state, world = self._world.state, self._world
        if left := [*world.existing(), *world.late_creates, *world.running()]:
            self._break(f"left when done: {left}")
        reports = [n for n, event in enumerate(world.events) if event["event"] == "reported"]
        gone = [n for n, event in enumerate(world.events) if event["event"] == "allocation gone"]
        if gone and (not reports or reports[-1] < gone[-1]):
            self._break("the newest report is from before the machines were gone")
        if not state.reported or not settled(state) or self._retries(state):
            self._break(f"done although it was not reported or goes on: {state}")
