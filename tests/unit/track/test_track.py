"""A tracker that is missing, misspelt, broken or damaged stops no run, and sends nothing twice."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import made_runs
import pytest

from podwright import track
from podwright.errors import UserError
from podwright.rundir import RunDir
from podwright.track import batch, tensorboard


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == package else find(name, *a))


def test_check_names_what_is_missing_and_what_is_misspelt(monkeypatch: pytest.MonkeyPatch) -> None:
    assert track.check(track.TRACKERS) == []
    without(monkeypatch, "mlflow")
    faults = track.check(["tensorboard", "mlflow", "tensorbord"])
    assert [str(f) for f in faults] == [
        "the tracker mlflow is not installed; type pip install -e '.[mlflow]' in podwright's clone",
        "there is no tracker 'tensorbord'; type one of tensorboard, mlflow, wandb",
    ]


def test_a_tracker_that_is_not_installed_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "wandb")
    run = made_runs.finished(tmp_path / "made", steps=8)
    assert track.mirror(run, ["wandb"]) == [
        "the tracker wandb is not installed; type pip install -e '.[wandb]' in podwright's clone"
    ]


def test_a_tracker_that_raises_is_reported_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from podwright.track import mlflow

    def broken(run: RunDir, pending: batch.MetricBatch) -> str | None:
        raise ConnectionError("no route to host\nsecond line")

    monkeypatch.setattr(mlflow, "send", broken)
    run = made_runs.finished(tmp_path / "made", steps=8)
    warnings = track.mirror(run, ["mlflow", "tensorboard"])
    assert warnings == [
        "mlflow is behind (ConnectionError: no route to host); nothing is lost, a later look tries again"
    ]
    assert not batch.pending(run, "tensorboard").rows
    assert len(batch.pending(run, "mlflow").rows) == 8 + 8 + 4


def test_records_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    run = made_runs.finished(tmp_path / "made", steps=8)
    sent = len(batch.pending(run, "tensorboard").rows)
    odd = ("[1]", "7", "{}", '{"stage": "grpo", "step": "9", "time": 1}', '{"stage": "grpo", "step": 9}')
    for path in (run.metrics, run.events):
        path.write_text(path.read_text() + "\n".join((*odd, '{"event": "evaluation", "time": 1}')) + "\n")
    assert len(batch.pending(run, "tensorboard").rows) == sent
    assert track.mirror(run, ["tensorboard"]) == []


@pytest.mark.parametrize("content", ["", "{", "[1]", "7", '{"sent": 3}', '{"state": []}', "[" * 100_000], ids=range(7))
def test_a_damaged_note_of_what_was_sent_is_named_and_nothing_is_sent_twice(tmp_path: Path, content: str) -> None:
    run = made_runs.finished(tmp_path / "made", steps=8)
    note = run.trackers / "tensorboard.json"
    note.parent.mkdir(parents=True)
    note.write_text(content)
    (warning,) = track.mirror(run, ["tensorboard"])
    assert warning.startswith(f"tensorboard is behind: {note} is damaged; restore it from a copy, or delete it")
    assert note.read_text() == content and not (run.trackers / "tensorboard").exists()
    note.unlink()
    assert track.mirror(run, ["tensorboard"]) == []


def test_a_run_directory_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    run = made_runs.finished(tmp_path / "made", steps=8)
    run.trackers.write_text("a file where the directory should be")
    assert "tensorboard is behind" in track.mirror(run, ["tensorboard"])[0]


def test_nothing_is_imported_when_there_is_nothing_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = made_runs.empty(tmp_path / "made")
    monkeypatch.setattr(tensorboard, "send", lambda *a: pytest.fail("sent"))
    assert track.mirror(run, ["tensorboard", "mlflow", "wandb"]) == []
    assert not run.trackers.exists()


def test_rows_carry_the_last_figures_of_a_step_and_leave_out_what_is_not_known(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made")
    made.metric("grpo", 1, 1.0, reward=0.1, mfu=None)
    made.attempt = 2
    made.metric("grpo", 1, 1.0, reward=0.2, note="text").evaluation("before", 0, 100)
    grpo, test = batch.pending(made.run, "tensorboard").rows
    assert (grpo.stage, grpo.step, grpo.figures) == ("grpo", 1, {"step_s": 1.0, "reward": 0.2})
    assert (test.stage, test.step, test.figures["strict/accuracy"]) == ("evaluation", 0, 0.2)


def test_rows_of_a_pretraining_run(tmp_path: Path) -> None:
    run = made_runs.pretrained(tmp_path / "made", steps=8)
    rows = batch.pending(run, "tensorboard").rows
    steps = [row for row in rows if row.stage == "pretrain"]
    assert [row.step for row in steps] == list(range(1, 9))
    assert {"loss", "grad_norm", "expert_load_max", "tokens_per_s_per_device", "data_wait_s"} <= set(steps[0].figures)
    assert "mfu" not in steps[0].figures
    tests = [(row.step, row.figures["loss"]) for row in rows if row.stage == "evaluation"]
    assert tests == [(0, 5.58), (4, 1.41), (8, 1.18)]
    assert track.mirror(run, ["tensorboard", "mlflow"]) == []
    assert batch.pending(run, "mlflow").empty


def test_tensorboard_opens_on_a_run_that_has_not_named_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = made_runs.pretrained(tmp_path / "made", steps=8)
    argv = track.tensorboard_argv(run)
    assert argv[1:5] == ["-m", "tensorboard.main", "--logdir", str(run.path)]
    assert len(list(run.trackers.glob("tensorboard/events.*"))) == 1
    assert track.tensorboard_argv(run) == argv
    without(monkeypatch, "tensorboard")
    with pytest.raises(UserError, match="tensorboard is not installed"):
        track.tensorboard_argv(run)


def test_the_page_of_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"was mirrored to MLflow; start one with trackers=\[mlflow\]"):
        track.ui_argv(tmp_path)
    (tmp_path / "mlflow.db").touch()
    run = made_runs.empty(tmp_path / "made")
    assert track.ui_argv(tmp_path) == track.ui_argv(run.path)
    assert track.ui_argv(tmp_path)[1:6] == [
        "-m",
        "mlflow",
        "ui",
        "--backend-store-uri",
        f"sqlite:///{tmp_path}/mlflow.db",
    ]
    without(monkeypatch, "mlflow")
    with pytest.raises(UserError, match="is not installed"):
        track.ui_argv(tmp_path)
