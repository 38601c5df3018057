"""Whoever follows a run gets each record once, with the time left and the steps that were lost by a kill."""

import json
from pathlib import Path
from typing import Any

from podwright.rundir import RunDir
from podwright.watch.metrics import Progress, Tail

RECIPE = {"kind": "grpo", "training": {"max_steps": 10}, "warm_start": {"max_steps": 4}}


def write(path: Path, *records: dict[str, Any]) -> None:
    with path.open("a") as f:
        f.writelines(json.dumps(r) + "\n" for r in records)


def step(n: int, time: float, stage: str = "grpo", **figures: Any) -> dict[str, Any]:
    return {"stage": stage, "step": n, "time": time, "attempt": 1, **figures}


def test_a_tail_gives_each_whole_record_once(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    tail = Tail(path)
    assert tail.new() == []
    path.write_text('{"n": 1}\n{"n": ')
    assert tail.new() == [{"n": 1}]
    with path.open("a") as f:
        f.write('2}\nbroken\n{"n": 3}\n')
    assert tail.new() == [{"n": 2}, {"n": 3}]
    assert tail.new() == []


def test_time_left_is_the_median_of_recent_steps(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    progress = Progress(run, RECIPE)
    write(run.metrics, step(1, 0.0))
    progress.update()
    assert progress.eta_s is None
    write(run.metrics, step(2, 2.0), step(3, 4.0), step(4, 104.0), step(5, 106.0))  # one step held an evaluation
    progress.update()
    assert (progress.step, progress.max_steps, progress.eta_s) == (5, 10, 10.0)


def test_time_left_leaves_out_steps_that_compile(tmp_path: Path) -> None:
    """Such as the first ones with completions of another width, which may be most of a short run."""
    progress = Progress(RunDir(tmp_path), RECIPE)
    compiled = [step(n, 100.0 * n, compiled=True) for n in range(1, 5)]
    write(RunDir(tmp_path).metrics, *compiled)
    progress.update()
    assert progress.eta_s is None, "how long a step takes is not known yet"
    write(RunDir(tmp_path).metrics, step(5, 402.0))
    progress.update()
    assert progress.eta_s == 10.0


def test_stages_are_counted_apart(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    progress = Progress(run, RECIPE)
    write(run.metrics, step(4, 1.0, "warm_start"))
    progress.update()
    assert (progress.stage, progress.step, progress.max_steps, progress.step_of("grpo")) == ("warm_start", 4, 4, 0)
    write(run.metrics, step(1, 2.0))
    progress.update()
    assert (progress.stage, progress.step) == ("grpo", 1)


def test_the_main_stage_is_named_like_the_kind(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    progress = Progress(run, {"kind": "pretrain", "training": {"max_steps": 10}})
    write(run.metrics, *(step(n, float(n), "pretrain") for n in range(1, 8)))
    write(run.events, {"event": "resumed", "step": 5, "stage": "pretrain", "time": 10.0, "attempt": 2})
    progress.update()
    assert (progress.main, progress.stage, progress.step_of(progress.main), progress.max_steps) == (
        "pretrain",
        "pretrain",
        5,
        10,
    )


def test_steps_lost_by_a_kill_have_not_happened_until_they_are_run_again(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    write(run.metrics, *(step(n, float(n)) for n in range(1, 8)))
    write(run.events, {"event": "resumed", "step": 5, "time": 10.0, "attempt": 2})
    progress = Progress(run, RECIPE)
    progress.update()
    assert progress.step == 5
    write(run.metrics, step(6, 11.0, attempt=2, reward=2.0))
    progress.update()
    assert (progress.step, progress.latest["reward"]) == (6, 2.0)
    late = Progress(run, RECIPE)
    late.update()
    assert late.step == 6, "read at once or bit by bit, it is the same"


def test_records_that_come_late_undo_no_step_of_a_later_attempt(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    progress = Progress(run, RECIPE)
    write(run.metrics, *(step(n, float(n)) for n in range(1, 5)))
    write(run.metrics, *(step(n, 20.0 + n, attempt=2, reward=2.0) for n in (3, 4, 5)))
    progress.update()
    write(run.metrics, *(step(n, float(n), reward=1.0) for n in (5, 6)))  # the rest of the first log
    progress.update()
    assert (progress.step, progress.latest["reward"]) == (5, 2.0)
    write(run.events, {"event": "resumed", "step": 2, "time": 20.0, "attempt": 2})
    progress.update()
    assert progress.step == 5


def test_evaluations_and_notices_are_kept(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    progress = Progress(run, RECIPE)
    for n, (when, accuracy) in enumerate([("before", 0.25), ("during", 0.5), ("after", 0.75)]):
        write(
            run.events,
            {
                "event": "evaluation",
                "when": when,
                "step": n,
                "strict": {"accuracy": accuracy},
                "num": 4,
                "time": float(n),
            },
        )
    write(run.events, {"event": "notice", "message": "3 prompts left out", "time": 9.0})
    progress.update()
    assert [event["strict"]["accuracy"] for event in progress.evaluations] == [0.25, 0.5, 0.75]
    assert progress.notices == ["3 prompts left out"]


def test_records_without_what_progress_needs_are_passed_over(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    write(run.metrics, {"step": 1}, step(2, 1.0), {"stage": "grpo", "step": 3})
    write(run.events, {"event": "evaluation"}, {"time": 3.0})
    progress = Progress(run, RECIPE)
    progress.update()
    assert progress.step == 2 and not progress.evaluations
