"""What a trainer says when it begins where an earlier attempt had come further."""

from pathlib import Path

import pytest

from podwright.errors import UserError
from podwright.rundir import RunDir, read_jsonl
from podwright.train.emit import Emitter, evaluations


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


def test_an_empty_folder_where_checkpoints_were_is_a_disk_that_is_not_mounted(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    first = Emitter(run, 1, mine=True)
    first.metrics("grpo", 9, {})
    first.event("checkpoint", step=8)
    run.checkpoints.mkdir()
    with pytest.raises(
        UserError, match=r"where that of step 8 was: it is empty; mount its disk, or .* type rmdir "
    ) as refused:
        Emitter(run, 2, mine=True).begins_again("grpo")
    assert refused.value.fix.endswith(f"rmdir {run.checkpoints} && podwright resume {run.typed}")
    (run.checkpoints / "8.orbax-checkpoint-tmp").mkdir()  # of a first save that was killed
    Emitter(run, 2, mine=True).begins_again("grpo")


def test_records_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    first = Emitter(run, 1, mine=True)
    first.metrics("grpo", 4, {})
    first.event("checkpoint", step=4)
    first.event("evaluation", when="before", step=0)
    first.event("evaluation", when="during")
    first.event("checkpoint", step="x")
    for path in (run.metrics, run.events):
        path.write_text(path.read_text() + '[1]\n7\nnull\n{}\n{"stage": "grpo"}\n')
    assert evaluations(run) == {("before", 0)}
    Emitter(run, 2, mine=True).begins_again("grpo")
    notices = [e["message"] for e in read_jsonl(run.events) if e.get("event") == "notice"]
    assert len(notices) == 1 and "that of step 4" in notices[0] and "after 4 steps" in notices[0]
