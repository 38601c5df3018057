"""One run of W&B over a resume, offline without a key, and no secret in it."""

from __future__ import annotations

import json
from pathlib import Path

import made_runs
import pytest

pytest.importorskip("wandb")

from podwright import track
from podwright.run import journal
from podwright.rundir import RunDir


def folders(run: RunDir) -> list[Path]:
    return sorted((run.trackers / "wandb").glob("offline-run-*"))


def end(made: made_runs.Made, attempt: int, ending: str) -> None:
    if attempt == 1:
        journal.append(made.run, "created", recipe="r", target="local", cwd=".")
    journal.append(made.run, "submitting", attempt=attempt, handle={})
    journal.append(made.run, "ended", attempt=attempt, ending=ending)


def test_offline_with_one_id_over_a_resume_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "5ec2e7" * 7)
    made = made_runs.Made(tmp_path / "made").start().warm_start(3).grpo(1, 5, 40)
    assert track.mirror(made.run, ["wandb"]) == []
    assert folders(made.run) == []  # offline, a few rows of a run that goes on are kept until there are more
    end(made, 1, "STOPPED")
    assert track.mirror(made.run, ["wandb"]) == []
    run_id = json.loads((made.run.trackers / "wandb.json").read_text())["state"]["id"]
    journal.append(made.run, "resumed")
    made.resume(4).grpo(5, 8, 40)
    end(made, 2, "FINISHED")
    assert track.mirror(made.run, ["wandb"]) == []
    assert track.mirror(made.run, ["wandb"]) == []
    first, second = folders(made.run)
    assert run_id in first.name and run_id in second.name
    files = [p for p in (made.run.trackers / "wandb").rglob("*") if p.is_file()]
    assert any(p.suffix == ".wandb" for p in files)
    data = b"".join(p.read_bytes() for p in files)
    assert b"grpo/reward/check_answer" in data and b"warm_start/loss" in data
    assert b"5ec2e7" * 7 not in data


def test_without_a_key_it_is_offline_and_asks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    import wandb

    wandb.teardown()
    made = made_runs.Made(tmp_path / "made").start().grpo(1, 2, 40)
    end(made, 1, "CRASHED")
    assert track.mirror(made.run, ["wandb"]) == []
    assert len(folders(made.run)) == 1
