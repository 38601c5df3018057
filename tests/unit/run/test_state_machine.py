"""Whatever the cloud does and whenever launchers die, a run never has two allocations, loses no step and leaves nothing behind."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from podwright.run.decide import Act
from podwright.rundir import Ending
from podwright.targets.machines import AllocationState
from tests.unit.run.cloud_simulation import ZONES, Simulation

EXAMPLES = int(os.environ.get("PODWRIGHT_EXAMPLES", "8000"))
ENDINGS = [Ending.FINISHED, Ending.CRASHED, Ending.OUT_OF_MEMORY, Ending.NODE_LOST, Ending.BAD_INPUT]


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._patch = pytest.MonkeyPatch()
        self._folder = tempfile.TemporaryDirectory()
        self.simulation = Simulation(Path(self._folder.name), self._patch)
        self.world = self.simulation.world

    @initialize(
        lag_s=st.sampled_from([0.0, 15.0]),
        create_delay_s=st.sampled_from([0.0, 10.0]),
        create_s=st.sampled_from([1.0, 60.0]),
    )
    def the_cloud_is_so(self, lag_s: float, create_delay_s: float, create_s: float) -> None:
        self.world.lag_s, self.world.create_delay_s, self.world.create_s = lag_s, create_delay_s, create_s

    def _work(self, launcher: int, count: int, pause: float) -> None:
        for _ in range(count):
            self.simulation.step(launcher)
            self.world.advance(pause)

    @rule(launcher=st.integers(0, 1), count=st.integers(1, 12), pause=st.sampled_from([0.0, 5.0]))
    def a_launcher_works(self, launcher: int, count: int, pause: float) -> None:
        self._work(launcher, count, pause)

    @rule(launcher=st.integers(0, 1), count=st.integers(2, 8))
    def a_launcher_works_for_minutes(self, launcher: int, count: int) -> None:
        self._work(launcher, count, 30.0)

    @rule(count=st.integers(1, 6))
    def two_launchers_work(self, count: int) -> None:
        for launcher in (0, 1) * count:
            self._work(launcher, 1, 2.0)

    @rule(launcher=st.integers(0, 1), dies_in=st.integers(1, 6))
    def a_launcher_dies(self, launcher: int, dies_in: int) -> None:
        self.simulation.step(launcher, dies_in)

    @rule(seconds=st.sampled_from([1.0, 10.0, 40.0, 200.0, 4000.0, 30000.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule(seconds=st.sampled_from([-7200.0, -3.0, 3.0, 7200.0]))
    def the_clock_jumps(self, seconds: float) -> None:
        self.world.jump(seconds)

    @rule(zone=st.sampled_from(ZONES), at_once=st.booleans())
    def a_zone_runs_out(self, zone: str, at_once: bool) -> None:
        self.world.stockouts.add(zone)
        self.world.refuses_at_once = at_once

    @rule()
    def capacity_comes_back(self) -> None:
        self.world.stockouts.clear()

    @rule()
    def machines_are_taken(self) -> None:
        self.world.preempt()

    @rule(state=st.sampled_from([AllocationState.GONE, AllocationState.DELETING]))
    def machines_vanish(self, state: AllocationState) -> None:
        self.world.vanish(state)

    @rule(launcher=st.integers(0, 1), deaths=st.lists(st.integers(1, 8), min_size=1, max_size=8))
    def launchers_die_again_and_again(self, launcher: int, deaths: list[int]) -> None:
        for dies_in in deaths:
            self.simulation.step(launcher, dies_in)

    @rule(often=st.integers(0, 5), pause=st.sampled_from([2.0, 300.0]), answers=st.booleans())
    def a_stop_is_lost(self, often: int, pause: float, answers: bool) -> None:
        if not often:
            self.simulation.lose_stop(pause, answers)

    @rule(create_delay_s=st.sampled_from([0.0, 10.0]), crashes=st.booleans())
    def all_happens_within_the_lag(self, create_delay_s: float, crashes: bool) -> None:
        self.simulation.hurry(create_delay_s, crashes)

    @rule(queued=st.booleans(), often=st.integers(0, 2))
    def there_are_no_machines(self, queued: bool, often: int) -> None:
        if not often:
            self.simulation.queue_for_hours() if queued else self.simulation.find_no_machines()

    @rule(dies_in=st.integers(3, 6))
    def a_launcher_dies_while_it_submits(self, dies_in: int) -> None:
        self.simulation.submit_and_die(dies_in)

    @rule(for_good=st.booleans(), replies_only=st.booleans())
    def the_cloud_refuses_for_good_or_loses_replies(self, for_good: bool, replies_only: bool) -> None:
        self.world.refuses_for_good, self.world.loses_replies_only = for_good, replies_only

    @rule()
    def the_handle_changes(self) -> None:
        self.world.move_trainers()

    @rule(answers=st.booleans(), hosts_answer=st.booleans(), count=st.integers(0, 6))
    def replies_are_lost_for_a_while(self, answers: bool, hosts_answer: bool, count: int) -> None:
        self.world.answers, self.world.hosts_answer = answers, hosts_answer
        self._work(0, count, 10.0)
        self.world.answers = self.world.hosts_answer = True

    @rule(answers=st.booleans())
    def the_storage_answers_or_does_not(self, answers: bool) -> None:
        self.world.storage_answers = answers

    @rule()
    def everything_breaks(self) -> None:
        self.world.answers = self.world.hosts_answer = False

    @rule()
    def everything_answers(self) -> None:
        self.world.answers = self.world.hosts_answer = self.world.deletes_work = True

    @rule(lag_s=st.sampled_from([0.0, 5.0, 15.0]), create_delay_s=st.sampled_from([0.0, 10.0]))
    def the_cloud_lags(self, lag_s: float, create_delay_s: float) -> None:
        self.world.lag_s, self.world.create_delay_s = lag_s, create_delay_s

    @rule(work=st.booleans(), seconds=st.sampled_from([1.0, 60.0, 600.0]))
    def deletes_are_slow_or_fail(self, work: bool, seconds: float) -> None:
        self.world.deletes_work, self.world.delete_s = work, seconds

    @rule(ending=st.sampled_from(ENDINGS))
    def the_trainer_ends(self, ending: Ending) -> None:
        self.world.end_trainer(ending)

    @rule()
    def the_trainer_ignores_stops(self) -> None:
        for trainer in self.world.running():
            trainer.deaf = True

    @rule(often=st.integers(0, 5))
    def a_person_stops_it(self, often: int) -> None:
        if not often:
            self.simulation.want_stop()

    @rule(often=st.integers(0, 5), after=st.integers(1, 6))
    def a_person_stops_it_in_the_middle_of_a_step(self, often: int, after: int) -> None:
        if not often:
            self.simulation.want_stop(after)

    @rule(count=st.integers(1, 6))
    def a_person_resumes_it(self, count: int) -> None:
        self.simulation.resume()
        self._work(1, count, 10.0)

    @invariant()
    def nothing_is_violated(self) -> None:
        self.simulation.check()

    def teardown(self) -> None:
        try:
            self.simulation.drain(random.Random(0))
            self.simulation.check()
        finally:
            self._patch.undo()
            self._folder.cleanup()


def lives(examples: int, *, derandomize: bool = False, shrink: bool = True) -> None:
    phases = [Phase.generate, *([Phase.shrink] if shrink else [])]
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=examples,
            stateful_step_count=60,
            deadline=None,
            derandomize=derandomize,
            database=None,
            phases=phases,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_no_life_of_a_run_breaks_a_promise() -> None:
    lives(120, derandomize=True)


@pytest.mark.long
@pytest.mark.parametrize("quarter", range(4))
def test_no_life_of_a_run_breaks_a_promise_in_many_examples(quarter: int) -> None:
    """In quarters, which several processes can run at a time; each draws examples of its own."""
    lives(EXAMPLES // 4)


def test_a_stop_that_comes_after_the_decision_to_submit_breaks_no_promise() -> None:
    """The pause after short attempts was over when the launcher decided; the stop is written down before its decision."""
    life = Life()
    life.the_cloud_is_so(lag_s=0.0, create_delay_s=0.0, create_s=1.0)
    life.a_launcher_works(count=1, launcher=0, pause=0.0)
    life.a_launcher_works_for_minutes(count=3, launcher=0)
    life.machines_are_taken()
    life.a_launcher_works(count=11, launcher=0, pause=5.0)
    life.all_happens_within_the_lag(crashes=True, create_delay_s=0.0)
    life.a_person_stops_it_in_the_middle_of_a_step(after=3, often=0)
    life.a_launcher_dies_while_it_submits(dies_in=3)
    life.nothing_is_violated()
    life.teardown()


def test_a_stop_that_comes_after_the_decision_to_delete_machines_at_fault_breaks_no_promise() -> None:
    """No attempt was on them when the launcher decided; the stop is written down before its decision."""
    life = Life()
    life.the_cloud_is_so(lag_s=0.0, create_delay_s=0.0, create_s=1.0)
    life.a_launcher_dies_while_it_submits(dies_in=4)
    life.the_trainer_ends(ending=Ending.NODE_LOST)
    life.a_launcher_dies(dies_in=2, launcher=0)
    life.a_person_stops_it_in_the_middle_of_a_step(after=6, often=0)
    life.a_launcher_dies_while_it_submits(dies_in=3)
    life.nothing_is_violated()
    life.teardown()


@pytest.mark.parametrize("stopped", [False, True])
def test_hosts_that_never_answer_again_do_not_keep_their_machines(tmp_path: Path, stopped: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        simulation = Simulation(tmp_path, patch)
        while not simulation.world.running():
            simulation.step()
            simulation.world.advance(5.0)
        simulation.world.hosts_answer = False
        if stopped:
            simulation.want_stop()
        else:
            simulation.world.end_trainer(Ending.FINISHED)
        begun = simulation.world.time
        while simulation.step() is not Act.DONE:
            simulation.world.advance(5.0)
            assert simulation.world.time < begun + 3600.0, "machines are paid for and nobody uses them"
        assert not simulation.world.existing()
        simulation.check()


def test_a_storage_that_cannot_be_reached_when_machines_are_ready_ends_the_run_and_deletes_them(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        simulation = Simulation(tmp_path, patch)
        simulation.world.storage_answers = False
        while simulation.step() is not Act.DONE:
            simulation.world.advance(5.0)
        simulation.check()
        state = simulation.world.state
        assert state.ending is Ending.STORAGE_UNREACHABLE and "gs://b/r failed (network: no reply)" in state.detail
        assert simulation.world.machines and not simulation.world.existing() and state.attempt == 0


def test_nothing_is_requested_for_an_attempt_that_cannot_be_prepared(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        simulation = Simulation(tmp_path, patch, cwd=str(tmp_path / "gone"))
        while simulation.step() is not Act.DONE:
            simulation.world.advance(5.0)
        assert simulation.world.state.ending is Ending.BAD_INPUT and not simulation.world.machines


def test_a_loss_that_another_launcher_saw_gives_the_trainer_time_to_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = Simulation(tmp_path, monkeypatch)
    world = simulation.world
    while simulation.step(0) is not Act.WAIT or not world.running():
        world.advance(5.0)
    world.advance(500.0)
    assert simulation.step(0) is Act.WAIT
    world.preempt()
    assert simulation.step(1) is Act.LOST
    world.lag_s = 5.0  # the first launcher is told that the machines are still ready, as it was all the time
    assert simulation.step(0) is Act.WAIT and world.running()


def test_an_attempt_that_is_submitted_to_machines_just_taken_ends_with_them() -> None:
    life = Life()
    life.the_cloud_is_so(lag_s=0.0, create_delay_s=0.0, create_s=1.0)
    life.a_person_resumes_it(count=1)
    life.launchers_die_again_and_again(deaths=[2, 4], launcher=0)
    life.machines_are_taken()
    life.replies_are_lost_for_a_while(answers=True, count=3, hosts_answer=False)
    life.time_passes(seconds=200.0)
    life.all_happens_within_the_lag(crashes=False, create_delay_s=0.0)
    life.nothing_is_violated()
    life.teardown()
