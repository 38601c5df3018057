"""Event files hold every step once over calls, resumes and kills, without torch and tensorflow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import made_runs
import pytest

pytest.importorskip("tensorboard")

from podwright import track
from podwright.rundir import RunDir


def read(run: RunDir) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.trackers / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(s.step, s.value) for s in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_every_step_once_over_many_calls_and_a_resume(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made").start().warm_start(3).evaluation("before", 0, 100).grpo(1, 5, 40)
    assert track.mirror(made.run, ["tensorboard"]) == []
    assert track.mirror(made.run, ["tensorboard"]) == []
    made.resume(4).grpo(5, 7, 40)
    assert track.mirror(made.run, ["tensorboard"]) == []
    got = read(made.run)
    assert [s for s, _ in got["grpo/reward/check_answer"]] == [1, 2, 3, 4, 5, 6, 7]
    assert [s for s, _ in got["warm_start/loss"]] == [1, 2, 3]
    assert got["evaluation/strict/accuracy"] == [(0, pytest.approx(0.2))]
    assert "grpo/mfu" not in got


def test_what_a_kill_cut_short_is_written_again(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made").start().grpo(1, 3, 40)
    track.mirror(made.run, ["tensorboard"])
    (file,) = (made.run.trackers / "tensorboard").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole + b"half a record")
    made.grpo(4, 5, 40)
    assert track.mirror(made.run, ["tensorboard"]) == []
    assert [s for s, _ in read(made.run)["grpo/kl"]] == [1, 2, 3, 4, 5]


def test_figures_that_are_not_finite_are_passed_on(tmp_path: Path) -> None:
    run = made_runs.not_finite(tmp_path / "made")
    assert track.mirror(run, ["tensorboard"]) == []
    step, value = read(run)["grpo/loss"][-1]
    assert step == 21 and value != value


def test_it_needs_neither_torch_nor_tensorflow(tmp_path: Path) -> None:
    run = made_runs.warm_only(tmp_path / "made")
    program = (
        "import sys; sys.modules |= dict.fromkeys(['torch', 'tensorflow', 'jax']);"
        "from pathlib import Path; from podwright.rundir import RunDir; from podwright import track;"
        f"assert track.mirror(RunDir(Path({str(run.path)!r})), ['tensorboard']) == []"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(track.__file__).parents[2])
    assert len(read(run)["warm_start/loss"]) == 40
