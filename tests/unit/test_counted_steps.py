"""Which steps count after a resume, whoever reads the records and in whatever pieces."""

from __future__ import annotations

import random
from typing import Any

import pytest

from podwright.counted_steps import CountedSteps, counted

Steps = list[tuple[int, int]]
"""attempt and number"""


def records(*steps: tuple[int, int], stage: str = "grpo") -> list[dict[str, Any]]:
    return [{"stage": stage, "attempt": a, "step": n, "time": 10.0 * i} for i, (a, n) in enumerate(steps)]


def resumed(attempt: int, step: int, time: float, **stage: str) -> dict[str, Any]:
    return {"event": "resumed", "attempt": attempt, "step": step, "time": time, **stage}


FIRST = [(1, 1), (1, 2), (1, 3), (1, 4)]
CASES: dict[str, tuple[Steps, list[dict[str, Any]], Steps]] = {
    "one attempt": (FIRST, [], FIRST),
    "without a checkpoint": ([*FIRST, (2, 1)], [], [(2, 1)]),
    "behind a checkpoint": ([*FIRST, (2, 3), (2, 4)], [], [(1, 1), (1, 2), (2, 3), (2, 4)]),
    "a resume before its first step": (FIRST, [resumed(2, 2, 50.0)], [(1, 1), (1, 2)]),
    "back behind an earlier return": ([*FIRST, (2, 3), (3, 2)], [], [(1, 1), (3, 2)]),
    "a log that was brought late": ([*FIRST, (2, 3), (1, 5)], [], [(1, 1), (1, 2), (2, 3)]),
    "a process started a second time": ([*FIRST, (1, 3)], [], [(1, 1), (1, 2), (1, 3)]),
    "a job queued again, before its first step": (FIRST, [resumed(1, 2, 35.0)], [(1, 1), (1, 2)]),
    "a job queued again, which trains on": ([*FIRST, (1, 3)], [resumed(1, 2, 35.0)], [(1, 1), (1, 2), (1, 3)]),
    "a resume in the warm start": (FIRST, [resumed(2, 1, 50.0, stage="warm_start")], []),
}


@pytest.mark.parametrize(("steps", "events", "expected"), CASES.values(), ids=CASES)
def test_steps_behind_the_point_that_an_attempt_went_back_to_do_not_count(
    steps: Steps, events: list[dict[str, Any]], expected: Steps
) -> None:
    metrics = records(*steps)
    at_once = counted(metrics, events, "grpo").of("grpo")
    assert [(r["attempt"], r["step"]) for r in at_once] == expected
    for seed in range(5):  # metrics.jsonl and events.jsonl are read bit by bit, one ahead of the other
        rng, piecewise = random.Random(seed), CountedSteps("grpo")
        waiting, new = list(metrics), list(events)
        while waiting or new:
            if new and (not waiting or rng.random() < 0.5):
                piecewise.resume(new.pop(0))
            else:
                piecewise.add(waiting.pop(0))
        assert piecewise.of("grpo") == at_once, seed


def test_stages_are_counted_apart() -> None:
    steps = records((1, 1), (1, 2), stage="warm_start") + records((1, 1), (2, 2))
    both = counted(steps, [], "grpo")
    assert [len(both.of(stage)) for stage in ("warm_start", "grpo", "pretrain")] == [2, 2, 0]


def test_an_evaluation_counts_until_a_later_attempt_resumes_before_it() -> None:
    tests = [{"event": "evaluation", "attempt": 1, "step": step} for step in (2, 4)]
    steps = counted(records(*FIRST), [resumed(2, 3, 50.0)], "grpo")
    assert [steps.is_undone_test(test) for test in tests] == [False, True]
    assert not counted(records(*FIRST, (2, 1)), [], "grpo").is_undone_test(tests[1]), "nobody tests it anew"
