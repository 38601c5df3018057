"""What is held against the attempts of a life under disturbances, on facts that are made up."""

from typing import Any

from tests.e2e.chaos_attempts import Circumstances, judge


def facts(
    attempt: int, begins: int, *steps: int, at: float, saved: int = 0, ended: bool = False
) -> list[dict[str, Any]]:
    """Of an attempt that started at the time `at`: a second for each step, then the save."""
    rows = [("started", begins), *(("step", step) for step in steps)]
    rows += [("saved", saved)] if saved else []
    rows += [("ended", steps[-1])] if ended else []
    return [{"attempt": attempt, "what": what, "step": step, "time": at + n} for n, (what, step) in enumerate(rows)]


def circumstances(**given: Any) -> Circumstances:
    usual = {
        "bucket": True,
        "submitted": [100.0, 200.0],
        "stops": [],
        "preemptions": [],
        "could_bring": lambda *_: True,
    }
    return Circumstances(**usual | given)


def test_an_attempt_that_nothing_interrupted_may_have_no_successor() -> None:
    lived = facts(1, 0, 1, 2, at=101, saved=2, ended=True) + facts(2, 2, 3, at=201)
    assert judge(lived, circumstances(stops=[103.0])).faults == []
    for stops in ([], [50.0], [250.0]):
        (fault,) = judge(lived, circumstances(stops=stops)).faults
        assert fault == "an attempt followed although nothing interrupted attempt 1"


def test_after_a_stop_no_step_is_taken_again() -> None:
    lived = facts(1, 0, 1, 2, 3, at=101, saved=2) + facts(2, 2, 3, at=201)
    (fault,) = judge(lived, circumstances(stops=[103.0])).faults
    assert fault.startswith("attempt 1 was stopped and did not save")


def test_after_a_preemption_training_continues_from_the_newest_checkpoint() -> None:
    robbed = circumstances(preemptions=[(105.0, 0.0)])
    lived = facts(1, 0, 1, 2, 3, 4, 5, at=101, saved=4)
    verdict = judge(lived + facts(2, 4, 5, 6, at=201), robbed)
    assert (verdict.faults, verdict.recomputed, verdict.explained) == ([], 1, 1)
    for begins, again in ((0, (1, 2, 3, 4, 5)), (6, (7,))):
        verdict = judge(lived + facts(2, begins, *again, at=201), robbed)
        assert f"attempt 2 began at step {begins}; 1 had come to 5 and must leave 4" in verdict.faults
    on_hosts = circumstances(preemptions=[(105.0, 0.0)], bucket=False, could_bring=lambda *_: False)
    assert judge(lived + facts(2, 0, 1, 2, 3, 4, 5, at=201), on_hosts).faults == []


def test_a_notice_that_is_long_enough_loses_nothing_in_a_bucket() -> None:
    lived = facts(1, 0, 1, 2, 3, 4, 5, at=101, saved=4) + facts(2, 4, 5, 6, at=201)
    (fault,) = judge(lived, circumstances(preemptions=[(105.0, 5.0)])).faults
    assert fault.startswith("attempt 1 did not save within a notice")
    lived = facts(1, 0, 1, 2, 3, 4, at=101, saved=4) + facts(2, 4, 5, 6, at=201)
    assert judge(lived, circumstances(preemptions=[(105.0, 5.0)])).faults == []


def test_a_checkpoint_that_went_with_its_hosts_is_not_there_for_the_attempt_after_the_next() -> None:
    lived = facts(1, 0, 1, 2, 3, 4, 5, at=101, saved=4) + facts(2, 0, 1, 2, at=201) + facts(3, 0, 1, 2, at=301)
    robbed = [(107.0, 0.0), (204.0, 0.0)]
    short = circumstances(
        bucket=False,
        submitted=[100.0, 200.0, 300.0],
        preemptions=robbed,
        could_bring=lambda since, until: until - since > 10,
    )
    assert judge(lived, short).faults == []


def test_a_trainer_that_crashes_or_cannot_write_loses_the_steps_since_its_checkpoint() -> None:
    lived = facts(1, 0, 1, 2, 3, 4, 5, at=101, saved=4) + facts(2, 4, 5, 6, at=201)
    crashed = [*lived[:7], {"attempt": 1, "what": "crashed", "step": 5, "time": 108.0}, *lived[7:]]
    assert judge(crashed, circumstances()).faults == judge(lived, circumstances(breaks=[103.0])).faults == []
    assert len(judge(lived, circumstances(breaks=[50.0])).faults) == 2


def test_an_attempt_whose_storage_refused_it_before_it_started_has_nothing_to_lose() -> None:
    refused = {"attempt": 1, "what": "ended", "step": 0, "time": 103.0, "ending": "STORAGE_UNREACHABLE"}
    lived = [refused, *facts(2, 0, 1, 2, at=201)]
    assert judge(lived, circumstances(breaks=[102.0])).faults == []
    for breaks in ([], [103.5]):
        assert len(judge(lived, circumstances(breaks=breaks)).faults) == 1
    assert len(judge([refused | {"ending": "CRASHED"}, *lived[1:]], circumstances(breaks=[102.0])).faults) == 1
