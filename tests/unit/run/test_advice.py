"""What is said that `podwright resume` does, by what a run has left."""

from pathlib import Path
from typing import Any

import pytest

from podwright.recipe.advice import BEGINS_AGAIN, of_run
from podwright.run.states import advice
from podwright.rundir import Ending, RunDir, append_jsonl, write_json

PHASE = {"event": "phase", "phase": "loading"}
GONE = {
    "event": "notice",
    "message": f"no checkpoint is left in x, where that of step 20 was: {BEGINS_AGAIN}, after 25 steps",
}
SHORTER = {
    "event": "notice",
    "message": "3 prompts are longer than rollout.max_prompt_length=96 tokens and were left out",
}
NOTHING = "`podwright resume r` starts it: nothing was trained yet"
NONE_SAVED = "`podwright resume r` starts it again at step 0: no checkpoint was saved"
MAYBE = "`podwright resume r` resumes from the last checkpoint, or starts it again at step 0 if none was saved"


def saved(step: int) -> dict[str, Any]:
    return {"event": "checkpoint", "step": step}


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([], NOTHING),
        ([PHASE], NONE_SAVED),
        ([PHASE, saved(10), saved(20)], "`podwright resume r` resumes from the checkpoint of step 20"),
        (
            [saved(10), saved(20), PHASE, {"event": "resumed", "step": 10}],
            "`podwright resume r` resumes from the checkpoint of step 10",
        ),
        ([saved(20), PHASE, GONE], NONE_SAVED),
        ([saved(20), PHASE, SHORTER], "`podwright resume r` resumes from the checkpoint of step 20"),
        ([saved(20), PHASE, GONE, saved(5)], "`podwright resume r` resumes from the checkpoint of step 5"),
    ],
)
def test_of_a_trainer_that_writes_down_what_it_saves(tmp_path: Path, events: list[dict[str, Any]], said: str) -> None:
    run = RunDir(tmp_path)
    write_json(run.recipe, {"kind": "grpo"})
    for time, event in enumerate(events):
        append_jsonl(run.events, {"time": float(time), "attempt": 1, **event})
    run.attempt(1).mkdir(parents=True)
    unsure = advice(Ending.STOPPED, "", "r", of_run(run))
    assert said == NOTHING or unsure in (f"{said}, or from a newer one", MAYBE), "it may have saved since"
    write_json(run.exit(1), {"ending": "STOPPED", "detail": ""})
    assert advice(Ending.STOPPED, "", "r", of_run(run)) == said


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("maxtext", "starts it again: from its last checkpoint, or from step 0 if none was saved"),
        ("counting", "resumes from the last checkpoint, if one was saved"),
    ],
)
def test_of_a_program_that_writes_only_steps(tmp_path: Path, kind: str, said: str) -> None:
    run = RunDir(tmp_path)
    write_json(run.recipe, {"kind": kind})
    assert advice(Ending.STOPPED, "", "r", of_run(run)) == NOTHING
    append_jsonl(run.metrics, {"stage": kind, "step": 1, "time": 1.0})
    assert advice(Ending.STOPPED, "", "r", of_run(run)) == f"`podwright resume r` {said}"
