"""Whatever a launcher survives and whenever it dies, one attempt at a time is alive and the run can be brought to its end."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podwright.run.decide import START_GRACE_S, STOP_GRACE_S, Act, next_action
from podwright.run.journal import RunState, fold
from podwright.run.states import BUDGETS, ENDINGS, Budget, Phase
from podwright.rundir import Ending
from podwright.targets.base import Process

CREATED = {"event": "created", "time": 0.0, "recipe": "r", "target": "local", "cwd": "/"}


class World:
    """A journal, a clock and the processes that were started; a launcher that may die in the middle of an act."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = [CREATED]
        self.now = 0.0
        self.processes: dict[int, Process] = {}
        self.endings: dict[int, str] = {}

    def state(self) -> RunState:
        return fold(self.events)

    def process(self) -> Process:
        handle = self.state().handle
        return self.processes.get(handle["attempt"], Process.ABSENT) if handle else Process.ABSENT

    def write(self, event: str, **fields: Any) -> None:
        self.events.append({"event": event, "time": self.now, "attempt": self.state().attempt, **fields})

    def step(self, dies_after: int = 99) -> Act:
        """One step of a launcher that carries out at most `dies_after` parts of it."""
        state = self.state()
        act = next_action(state, self.process(), self.now)
        for part in self.parts(act, state)[:dies_after]:
            part()
        return act

    def parts(self, act: Act, state: RunState) -> list[Any]:
        number = state.attempt + 1
        handle = {"attempt": number}
        return {
            Act.SUBMIT: [
                lambda: self.write("submitting", attempt=number, handle=handle),
                lambda: self.start(number),
                lambda: self.write("submitted", attempt=number, handle=handle),
            ],
            Act.ADOPT: [lambda: self.write("submitted", handle=state.handle)],
            Act.SIGNAL: [lambda: self.end("STOPPED"), lambda: self.write("signalled")],
            Act.KILL: [lambda: self.end("STOPPED")],
            Act.END: [lambda: self.write("ended", ending=self.ending(state))],
            Act.RELEASE: [lambda: self.write("released")],
            Act.RETRY: [lambda: self.write("retrying")],
            Act.REPORT: [lambda: self.write("reported")],
        }.get(act, [])

    def start(self, number: int) -> None:
        assert Process.RUNNING not in self.processes.values(), "a second trainer beside a living one"
        self.processes[number] = Process.RUNNING

    def end(self, ending: str) -> None:
        for number, process in self.processes.items():
            if process is Process.RUNNING:
                self.processes[number] = Process.ENDED
                self.endings[number] = ending

    def ending(self, state: RunState) -> str:
        return self.endings.get(state.attempt, "UNKNOWN") if state.attempt > state.ended_attempt else "STOPPED"


happenings = st.one_of(
    st.tuples(st.just("step"), st.integers(0, 3)),
    st.tuples(st.just("end"), st.sampled_from([str(e) for e in Ending])),
    st.tuples(st.just("stop"), st.none()),
    st.tuples(st.just("resume"), st.none()),
    st.tuples(st.just("later"), st.sampled_from([1.0, START_GRACE_S + 1, STOP_GRACE_S + 1])),
)


def happen(world: World, what: str, how: Any) -> None:
    if what == "step":
        world.step(how)
    elif what == "end":
        world.end(how)
    elif what == "later":
        world.now += how
    else:
        world.write({"stop": "stopping", "resume": "resumed"}[what])


@settings(max_examples=400, deadline=None)
@given(st.lists(happenings, max_size=40))
def test_one_attempt_at_a_time_and_always_an_end(happened: list[tuple[str, Any]]) -> None:
    world = World()
    for what, how in happened:
        happen(world, what, how)  # `start` asserts that no other attempt lives
    for _ in range(400):
        if world.step() is Act.DONE:
            break
        world.now += 1.0
        if world.process() is Process.RUNNING:
            world.end("FINISHED")
    state = world.state()
    assert (state.phase, state.released, state.reported) == (Phase.ENDED, True, True)


@settings(max_examples=200, deadline=None)
@given(st.lists(happenings, max_size=30), st.data())
def test_any_prefix_of_a_journal_can_be_taken_up(happened: list[tuple[str, Any]], data: st.DataObject) -> None:
    world = World()
    for what, how in happened:
        happen(world, what, how)
    prefix = world.events[: data.draw(st.integers(1, len(world.events)))]
    state = fold(prefix)
    for process in Process:
        act = next_action(state, process, world.now)
        if process is Process.RUNNING:
            assert act in (Act.WAIT, Act.ADOPT, Act.SIGNAL, Act.KILL)
    assert fold([*prefix, prefix[-1]]).phase is state.phase, "what two launchers both write counts once"


def submitted(**changes: Any) -> RunState:
    return RunState(phase=Phase.RUNNING, attempt=1, handle={}, **changes)


def ended(ending: Ending, **changes: Any) -> RunState:
    return RunState(phase=Phase.ENDED, attempt=1, ended_attempt=1, handle={}, ending=ending, released=True, **changes)


def test_a_process_that_left_no_sign_is_waited_for_a_while() -> None:
    state = RunState(phase=Phase.SUBMITTING, since=100.0, attempt=1, handle={})
    assert next_action(state, Process.ABSENT, 100.0 + START_GRACE_S - 1) is Act.WAIT
    assert next_action(state, Process.ABSENT, 100.0 + START_GRACE_S + 1) is Act.END
    assert next_action(state, Process.ENDED, 100.0) is Act.END


def test_a_trainer_is_asked_to_stop_once_and_killed_only_after_the_grace() -> None:
    asked = RunState(phase=Phase.STOPPING, since=100.0, attempt=1, handle={}, stop_wanted=True)
    assert next_action(asked, Process.RUNNING, 100.0) is Act.SIGNAL
    told = RunState(phase=Phase.STOPPING, since=100.0, attempt=1, handle={}, stop_wanted=True, signalled=True)
    assert next_action(told, Process.RUNNING, 100.0 + STOP_GRACE_S - 1) is Act.WAIT
    assert next_action(told, Process.RUNNING, 100.0 + STOP_GRACE_S + 1) is Act.KILL


@pytest.mark.parametrize("ending", [e for e in Ending if ENDINGS[e].budget is not Budget.PREEMPTION])
def test_failures_are_not_retried(ending: Ending) -> None:
    state = ended(ending, retries={ENDINGS[ending].budget: 1})
    assert next_action(state, Process.ENDED, 0.0) is Act.REPORT


def test_preemptions_are_retried_within_their_budget_unless_a_stop_is_wanted() -> None:
    budget = BUDGETS[Budget.PREEMPTION]
    assert next_action(ended(Ending.PREEMPTED, retries={Budget.PREEMPTION: budget}), Process.ENDED, 0.0) is Act.RETRY
    assert (
        next_action(ended(Ending.PREEMPTED, retries={Budget.PREEMPTION: budget + 1}), Process.ENDED, 0.0) is Act.REPORT
    )
    wanted = ended(Ending.PREEMPTED, retries={Budget.PREEMPTION: 1}, stop_wanted=True)
    assert next_action(wanted, Process.ENDED, 0.0) is Act.REPORT


def test_the_machine_is_given_back_before_anything_else() -> None:
    state = RunState(
        phase=Phase.ENDED,
        attempt=1,
        ended_attempt=1,
        handle={},
        ending=Ending.PREEMPTED,
        retries={Budget.PREEMPTION: 1},
    )
    assert next_action(state, Process.ENDED, 0.0) is Act.RELEASE
