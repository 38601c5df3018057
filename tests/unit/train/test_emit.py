"""What a trainer says when it begins where an earlier attempt had come further."""

from pathlib import Path

import pytest

from podwright.rundir import RunDir, read_jsonl
from podwright.train.emit import Emitter


@pytest.mark.parametrize(
    ("saved", "steps", "mine", "says"),
    [
        ([4, 8], 9, True, "where that of step 8 was: training begins again at step 0, after 9 steps"),
        ([], 3, True, ""),
        ([], 0, True, ""),
        ([4], 9, False, ""),
    ],
)
def test_steps_without_a_checkpoint_are_trained_again_and_the_first_process_says_so(
    tmp_path: Path, saved: list[int], steps: int, mine: bool, says: str
) -> None:
    run = RunDir(tmp_path)
    first = Emitter(run, 1, mine=True)
    for step in range(1, steps + 1):
        first.metrics("warm_start", step + 100, {})
        first.metrics("grpo", step, {})
        if step in saved:
            first.event("checkpoint", step=step)
    Emitter(run, 2, mine=mine).begins_again("grpo")
    notices = [e["message"] for e in read_jsonl(run.events) if e["event"] == "notice"]
    assert len(notices) == bool(says) and all(
        n.startswith("no checkpoint is left in ") and n.endswith(says) for n in notices
    )
