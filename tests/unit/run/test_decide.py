"""Whatever a launcher survives and whenever it dies, one attempt at a time is alive and the run can be brought to its end."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podwright.run.allocations import AllocationRecord, back_off
from podwright.run.decide import MOST_UNANSWERED, Act, Observed, next_action
from podwright.run.journal import RunState, fold
from podwright.run.states import BUDGETS, ENDINGS, AllocationPhase, Budget, Phase
from podwright.rundir import Ending
from podwright.targets.base import Process, Traits
from podwright.targets.machines import Request, unknown

TRAITS = Traits()
START_GRACE_S, STOP_GRACE_S = TRAITS.start_grace_s, TRAITS.grace_s

CREATED = {"event": "created", "time": 0.0, "recipe": "r", "target": "local", "cwd": "/"}


def act_of(state: RunState, process: Process, now: float, stopping_s: float = 0.0) -> Act:
    return next_action(state, Observed(process, stopping_s=stopping_s), TRAITS, now)


class World:
    """A journal, a clock and the processes that were started; a launcher that may die in the middle of an act."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = [CREATED]
        self.now = 0.0
        self.acknowledged = 0.0
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
        if not state.signalled:
            self.acknowledged = self.now
        seen = Observed(self.process(), stopping_s=self.now - self.acknowledged)
        act = next_action(state, seen, TRAITS, self.now)
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
            Act.KILL: [lambda: self.write("killing"), lambda: self.end("STOPPED")],
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
        act = act_of(state, process, world.now)
        if process is Process.RUNNING:
            assert act in (Act.WAIT, Act.ADOPT, Act.SIGNAL, Act.KILL)
    assert fold([*prefix, prefix[-1]]).phase is state.phase, "what two launchers both write counts once"


def submitted(**changes: Any) -> RunState:
    return RunState(phase=Phase.RUNNING, attempt=1, handle={}, **changes)


def ended(ending: Ending, **changes: Any) -> RunState:
    return RunState(phase=Phase.ENDED, attempt=1, ended_attempt=1, handle={}, ending=ending, released=True, **changes)


def test_a_process_that_left_no_sign_is_waited_for_a_while() -> None:
    state = RunState(phase=Phase.SUBMITTING, submitted=100.0, attempt=1, handle={})
    assert act_of(state, Process.ABSENT, 100.0 + START_GRACE_S - 1) is Act.WAIT
    assert act_of(state, Process.ABSENT, 100.0 + START_GRACE_S + 1) is Act.END
    assert act_of(state, Process.ENDED, 100.0) is Act.END


def stopping(**changes: Any) -> RunState:
    return RunState(phase=Phase.STOPPING, since=100.0, attempt=1, handle={}, stop_wanted=True, **changes)


def test_a_trainer_is_killed_only_after_it_has_had_the_grace_since_it_acknowledged() -> None:
    assert act_of(stopping(), Process.RUNNING, 1e6) is Act.SIGNAL
    acknowledged = stopping(signalled=True)
    assert act_of(acknowledged, Process.RUNNING, 1e6, STOP_GRACE_S - 1) is Act.WAIT
    assert act_of(acknowledged, Process.RUNNING, 1e6, STOP_GRACE_S + 1) is Act.KILL


def test_an_unanswered_stop_is_repeated_after_longer_and_longer_and_never_becomes_a_kill() -> None:
    pauses, state, now = [], stopping(), 100.0
    for count in range(1, 12):
        assert act_of(state, Process.RUNNING, now, STOP_GRACE_S + 1) is Act.SIGNAL
        state, last = stopping(calls=count, called=now), now
        while act_of(state, Process.RUNNING, now, STOP_GRACE_S + 1) is Act.WAIT:
            now += 1.0
        pauses.append(now - last)
    assert pauses == sorted(pauses) and pauses[0] == 2.0 and pauses[-1] == 300.0


def test_a_kill_and_a_release_are_repeated_with_pauses_too() -> None:
    killed = stopping(signalled=True, calls=3, called=100.0)
    assert act_of(killed, Process.RUNNING, 101.0, STOP_GRACE_S + 1) is Act.WAIT
    assert act_of(killed, Process.RUNNING, 110.0, STOP_GRACE_S + 1) is Act.KILL
    held = replace(ended(Ending.FINISHED), released=False, calls=3, called=100.0)
    assert act_of(held, Process.ENDED, 101.0) is Act.WAIT
    assert act_of(held, Process.ENDED, 110.0) is Act.RELEASE


@pytest.mark.parametrize("ending", [e for e in Ending if ENDINGS[e].budget is not Budget.PREEMPTION])
def test_failures_are_not_retried(ending: Ending) -> None:
    state = ended(ending, retries={ENDINGS[ending].budget: 1})
    assert act_of(state, Process.ENDED, 0.0) is Act.REPORT


def test_preemptions_are_retried_within_their_budget_unless_a_stop_is_wanted() -> None:
    budget = BUDGETS[Budget.PREEMPTION]
    assert act_of(ended(Ending.PREEMPTED, retries={Budget.PREEMPTION: budget}), Process.ENDED, 0.0) is Act.RETRY
    assert act_of(ended(Ending.PREEMPTED, retries={Budget.PREEMPTION: budget + 1}), Process.ENDED, 0.0) is Act.REPORT
    wanted = ended(Ending.PREEMPTED, retries={Budget.PREEMPTION: 1}, stop_wanted=True)
    assert act_of(wanted, Process.ENDED, 0.0) is Act.REPORT


def test_the_machine_is_given_back_before_anything_else() -> None:
    state = RunState(
        phase=Phase.ENDED,
        attempt=1,
        ended_attempt=1,
        handle={},
        ending=Ending.PREEMPTED,
        retries={Budget.PREEMPTION: 1},
    )
    assert act_of(state, Process.ENDED, 0.0) is Act.RELEASE


def test_crashes_are_retried_as_often_as_the_run_was_started_with() -> None:
    crashed = ended(Ending.CRASHED, retries={Budget.FAILURE: 2}, max_failures=2)
    assert act_of(crashed, Process.ENDED, 0.0) is Act.RETRY
    assert act_of(replace(crashed, max_failures=1), Process.ENDED, 0.0) is Act.REPORT


def test_hosts_that_could_not_start_an_attempt_use_up_retries_of_their_own() -> None:
    state = ended(Ending.CRASHED, retries={Budget.BOOTSTRAP: 2}, bootstrap=True)
    assert act_of(state, Process.ENDED, 0.0) is Act.RETRY
    assert act_of(replace(state, retries={Budget.BOOTSTRAP: 3}), Process.ENDED, 0.0) is Act.REPORT


def test_after_several_short_attempts_the_next_one_waits() -> None:
    ready = RunState(phase=Phase.READY, since=100.0, attempt=3, ended_attempt=3, handle={}, short_attempts=3)
    assert act_of(ready, Process.ENDED, 101.0) is Act.WAIT
    assert act_of(ready, Process.ENDED, 105.0) is Act.SUBMIT
    assert act_of(replace(ready, short_attempts=1), Process.ENDED, 100.0) is Act.SUBMIT


def test_the_wait_after_short_attempts_grows_to_ten_minutes() -> None:
    ready = RunState(phase=Phase.READY, since=100.0, attempt=30, ended_attempt=30, handle={}, short_attempts=30)
    assert act_of(ready, Process.ENDED, 100.0 + 599.0) is Act.WAIT
    assert act_of(ready, Process.ENDED, 100.0 + 600.0) is Act.SUBMIT


def test_limits_of_time_are_met_at_the_second_itself() -> None:
    """A grace is over after it, an absent attempt has its whole grace, and the cloud its whole lag."""
    acknowledged = stopping(signalled=True)
    assert act_of(acknowledged, Process.RUNNING, 1e6, STOP_GRACE_S) is Act.WAIT
    begun = RunState(phase=Phase.SUBMITTING, submitted=100.0, attempt=1, handle={})
    assert act_of(begun, Process.ABSENT, 100.0) is Act.WAIT
    assert act_of(begun, Process.ABSENT, 100.0 + START_GRACE_S) is Act.END


def test_a_launcher_that_has_just_begun_has_waited_for_nothing() -> None:
    seen = Observed(Process.RUNNING)
    assert (seen.stopping_s, seen.unchanged_s, seen.handle_changed) == (0.0, 0.0, False)


def test_hosts_are_given_up_after_about_a_quarter_of_an_hour() -> None:
    """The pauses between as many calls as may go unanswered, one after the other."""
    assert 840 < sum(back_off(count, 2.0, 300.0) for count in range(1, MOST_UNANSWERED + 1)) < 1200


def test_machines_whose_cluster_does_not_answer_are_deleted_by_a_stop_and_after_the_end() -> None:
    """The cloud tells that they exist, and not in what state; a launcher without a network sees neither."""
    record = AllocationRecord(1, AllocationPhase.READY, 0.0, Request("pw-1", "a", chip="v6e", num_chips=16), {})
    stopping = RunState(phase=Phase.STOPPING, attempt=1, attempt_allocation=1, allocation=record, stop_wanted=True)
    stopping = replace(stopping, calls=2, called=100.0)
    seen = Observed(Process.RUNNING, replace(unknown("Unreachable: x"), exists=True), silent_s=70.0, unheard_s=70.0)
    assert next_action(stopping, seen, TRAITS, 100.0) is Act.DELETE
    for other in (replace(seen, unheard_s=50.0), replace(seen, allocation=unknown("no network"))):
        assert next_action(stopping, other, TRAITS, 100.0) is Act.WAIT
    over = replace(stopping, phase=Phase.ENDED, ended_attempt=1, stop_wanted=False, calls=MOST_UNANSWERED)
    assert next_action(over, replace(seen, process=Process.ENDED), TRAITS, 100.0) is Act.DELETE
    assert next_action(replace(over, calls=2), replace(seen, process=Process.ENDED), TRAITS, 100.0) is Act.WAIT
