"""What the log of a MaxText attempt says while it runs and when it has ended: steps, once each, and the ending."""

import contextlib
import fcntl
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podwright import growing_file
from podwright.rundir import Ending, RunDir, read_events, read_jsonl, write_json
from podwright.targets.base import Polled, Process
from podwright.watch import maxtext_log
from podwright.watch.diagnose import outcome
from podwright.watch.metrics import Progress
from tests.unit.recipe.maxtext.example import example

NO_DATA = "StopIteration"


def made(folder: Path, steps: int = 10, **arguments: str) -> RunDir:
    run = RunDir(folder)
    recipe = example(arguments={"model_name": "toy", "steps": str(steps)} | arguments).model_dump(mode="json")
    write_json(run.recipe, recipe)
    run.attempt(1).mkdir(parents=True)
    return run


def step(number: int, loss: object = 3.0, minute: int = 0) -> str:
    stamp = f"2026-11-23T07:{minute:02}:{number % 60:02}.{number:09}Z "
    return (
        f"{stamp}completed step: {number}, seconds: 2.000, TFLOP/s/device: 100.000, Tokens/s/device: 4096.000, "
        f"total_weights: 131072, loss: {loss}\n"
    )


def log(run: RunDir, *lines: str, attempt: int = 1) -> RunDir:
    run.attempt(attempt).mkdir(parents=True, exist_ok=True)
    with run.log(attempt).open("a") as f:
        f.writelines(lines)
    return run


def steps_of(run: RunDir) -> list[tuple[int, int, Any]]:
    return [(r["attempt"], r["step"], r["loss"]) for r in read_jsonl(run.metrics)]


def test_a_step_is_a_record_with_the_time_of_its_line(tmp_path: Path) -> None:
    run = log(made(tmp_path), "2026-11-23T07:00:00.000000000Z Config param steps: 10\n", step(0), step(1, "nan"))
    maxtext_log.follow(run)
    first, second = read_jsonl(run.metrics)
    assert first == {
        "stage": "maxtext",
        "step": 0,
        "time": 1795417200.0,
        "attempt": 1,
        "step_s": 2.0,
        "tflops_per_device": 100.0,
        "tokens_per_s_per_device": 4096.0,
        "total_weights": 131072.0,
        "loss": 3.0,
    }
    assert second["loss"] is None
    (start,) = read_events(run.events)
    assert (start["event"], start["max_steps"], start["time"], start["attempt"]) == (
        "environment",
        10,
        first["time"],
        1,
    )


class Killed(Exception):
    pass


@pytest.mark.parametrize("seed", range(6))
def test_a_log_that_grows_gives_each_step_once_whoever_reads_and_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    run = made(tmp_path, 300)
    lines = ["2026-11-23T07:00:00.000000000Z Config param steps: 300\n"]
    lines += [step(n, 5 - n / 100, n // 60) for n in range(300)]
    lines.insert(100, f"{lines[99][:31]}Completed eval after train step 98, loss=2.5\n")
    text = "".join(lines).encode()

    appended = growing_file.append

    def append(path: Path, new: bytes, is_complete: Callable[[bytes], bool]) -> None:
        kill = rng.random() < 0.1
        appended(path, new[: rng.randrange(len(new))] if kill else new, is_complete)
        if kill:
            raise Killed

    def write_state(path: Path, value: Any) -> None:
        if rng.random() < 0.2:
            raise Killed
        write_json(path, value)

    monkeypatch.setattr(maxtext_log, "_BLOCK", 1500)
    at = 0
    while at < len(text):
        at = min(len(text), at + rng.randrange(6000))
        run.log(1).write_bytes(text[:at])
        with monkeypatch.context() as patched, contextlib.suppress(Killed):
            patched.setattr(maxtext_log.growing_file, "append", append)
            patched.setattr(maxtext_log, "write_json", write_state)
            maxtext_log.follow(run)
    run.log(1).write_bytes(text + step(300, 1.0, 5).encode())
    maxtext_log.follow(run)
    assert [s for _, s, _ in steps_of(run)] == list(range(301))
    assert [(e["event"], e.get("step")) for e in read_events(run.events)] == [("environment", None), ("evaluation", 98)]


def test_a_step_that_was_computed_again_counts_the_last_time(tmp_path: Path) -> None:
    run = log(made(tmp_path), step(0), step(1), step(1), step(2, 2.0), step(1, 2.5), step(2, 1.0))
    maxtext_log.follow(run)
    assert steps_of(run) == [(1, 0, 3.0), (1, 1, 3.0), (1, 2, 2.0), (1, 1, 2.5), (1, 2, 1.0)]


def test_the_steps_of_a_new_attempt_count_from_where_it_begins(tmp_path: Path) -> None:
    run = log(made(tmp_path), *(step(n) for n in range(6)))
    maxtext_log.follow(run)
    progress = Progress(run, json.loads(run.recipe.read_text()))
    progress.update()
    assert (progress.step, progress.max_steps) == (6, 10)
    log(run, step(0), step(1), attempt=2)
    maxtext_log.follow(run)
    progress.update()
    assert progress.step == 2


@pytest.mark.parametrize(
    ("steps", "last", "code", "ending", "says"),
    [
        (10, "EXIT_CODE=0", 0, Ending.FINISHED, ""),
        (10, "CommandException: No URLs matched: /logs/train-0.log\nEXIT_CODE=1", 1, Ending.FINISHED, "all 10 of 10"),
        (7, f"{NO_DATA}\nEXIT_CODE=1", 1, Ending.OUT_OF_DATA, "7 of 10 steps; then the training data ended"),
        (7, f"Training stopped: `load_next_batch()` failed with <class '{NO_DATA}'> exception: ().", 0, Ending.OUT_OF_DATA, "7 of 10 steps; then"),
        (5, "Aborting training due to NaN loss.", 1, Ending.NOT_FINITE, "NaN loss after 5 of 10 steps"),
        (5, "EXIT_CODE=0", 0, Ending.UNKNOWN, "5 of 10 steps, then exit code 0"),
        (3, "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Attempting to reserve 30.31G. Only 29.35G free.", 1, Ending.OUT_OF_MEMORY, "30.31G"),
        (3, "what\nEXIT_CODE=3", 3, Ending.CRASHED, "EXIT_CODE=3 (exit code 3)"),
        (0, "ModuleNotFoundError: No module named 'MaxText'", 1, Ending.BAD_INPUT, "MaxText"),
    ],
)  # fmt: skip
def test_how_an_attempt_ended(tmp_path: Path, steps: int, last: str, code: int, ending: Ending, says: str) -> None:
    run = log(made(tmp_path), *(step(n) for n in range(steps)))
    lines = [f"2026-11-23T08:00:00.{n:09}Z {text}\n" for n, text in enumerate(last.split("\n"))]
    seen = outcome(log(run, *lines), 1, Polled(Process.ENDED, code), False)
    assert (seen.ending, says in seen.detail) == (ending, True), seen


def test_an_ending_does_not_wait_for_another_process_that_brings_the_steps(tmp_path: Path) -> None:
    run = log(made(tmp_path), *(step(n) for n in range(10)))
    with (run.attempt(1) / "metrics.lock").open("w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        maxtext_log.follow(run)
        assert not run.metrics.exists() and outcome(run, 1, Polled(Process.ENDED, 0), False).ending is Ending.FINISHED
    maxtext_log.follow(run)
    assert [number for _, number, _ in steps_of(run)] == list(range(10))


def test_a_taken_node_counts_before_a_log_that_only_ends_and_not_before_the_end_of_the_training(tmp_path: Path) -> None:
    taken = Polled(Process.ENDED, 143, ending=Ending.PREEMPTED, detail="node n was taken")
    run = log(made(tmp_path), *(step(n) for n in range(5)))
    assert outcome(run, 1, taken, False).ending is Ending.PREEMPTED
    log(run, *(step(n) for n in range(5, 10)))
    assert outcome(run, 1, taken, False).ending is Ending.FINISHED


def test_a_stop_that_was_wanted_says_how_far_it_came(tmp_path: Path) -> None:
    run = log(made(tmp_path), *(step(n) for n in range(5)))
    seen = outcome(run, 1, Polled(Process.ENDED, -15), True)
    assert (seen.ending, seen.detail, seen.step) == (Ending.STOPPED, "stopped after 5 of 10 steps", 5)


def test_an_attempt_whose_last_loss_is_not_finite_has_not_finished(tmp_path: Path) -> None:
    run = log(made(tmp_path), *(step(n) for n in range(9)), step(9, "nan"))
    seen = outcome(run, 1, Polled(Process.ENDED, 0), False)
    what = "10 of 10 steps, and the loss of the last one is NaN or infinite, exit code 0"
    assert (seen.ending, seen.detail, seen.step) == (Ending.NOT_FINITE, what, 10) and "learning_rate" in seen.fix
