from __future__ import annotations

import sqlite3
from pathlib import Path

import made_runs
import pytest

pytest.importorskip("mlflow")

from podwright import track
from podwright.report import page
from podwright.run import journal


def test_one_run_on_sqlite_over_a_resume_with_parameters_figures_and_the_report(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    made = made_runs.Made(tmp_path / "made").start().warm_start(3).grpo(1, 5, 40)
    journal.append(made.run, "created", recipe="r", target="local", cwd=".")
    journal.append(made.run, "submitting", attempt=1, handle={})
    assert track.mirror(made.run, ["mlflow"]) == []
    assert track.mirror(made.run, ["mlflow"]) == []
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    (experiment,) = [e for e in client.search_experiments() if e.name == made.model.name]
    assert [r.info.status for r in client.search_runs([experiment.experiment_id])] == ["RUNNING"]

    made.resume(4).grpo(5, 8, 40).evaluation("after", 8, 250)
    journal.append(made.run, "ended", attempt=1, ending="FINISHED")
    page.write(made.run)
    assert track.mirror(made.run, ["mlflow"]) == []
    (found,) = client.search_runs([experiment.experiment_id])
    assert (found.info.run_name, found.info.status) == ("made", "FINISHED")
    assert found.data.params["grpo.num_generations"] == "8"
    assert found.data.params["model.name"] == "qwen3-tiny"
    assert found.data.tags["podwright.ending"] == "FINISHED"
    history = client.get_metric_history(found.info.run_id, "grpo/reward/check_answer")
    assert [m.step for m in history] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert len(client.get_metric_history(found.info.run_id, "warm_start/loss")) == 3
    assert found.data.metrics["evaluation/strict/accuracy"] == 0.5
    assert "report/report.html" in [a.path for a in client.list_artifacts(found.info.run_id, "report")]
    assert (tmp_path / "mlflow-artifacts" / made.model.name).is_dir()
    assert not (tmp_path / "mlruns").exists()
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        assert database.execute("select count(*) from runs").fetchone() == (1,)


def test_a_batch_that_was_sent_but_not_noted_is_not_doubled(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    made = made_runs.Made(tmp_path / "made").start().grpo(1, 5, 40)
    track.mirror(made.run, ["mlflow"])
    cursor = made.run.trackers / "mlflow.json"
    import json

    state = json.loads(cursor.read_text())
    cursor.write_text(json.dumps(state | {"sent": {}}))
    assert track.mirror(made.run, ["mlflow"]) == []
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert len(client.get_metric_history(state["state"]["run_id"], "grpo/kl")) == 5


def test_names_and_figures_that_mlflow_would_refuse(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made", overrides=(f"data.instruction={'long ' * 2000!r}",)).start()
    made.metric("grpo", 1, 1.0, **{"reward/../my rewards.py:f(x)": 1.0, "loss": float("nan"), "kl": float("inf")})
    assert track.mirror(made.run, ["mlflow"]) == []
