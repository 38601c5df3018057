"""MLflow on sqlite gets every step once over a resume, and a silent server holds nothing up."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import made_runs
import pytest

pytest.importorskip("mlflow")

from podwright import track
from podwright.errors import UserError
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


def served(folder: Path) -> Iterator[str]:
    """The address of a real server of MLflow on sqlite in `folder`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = ["--backend-store-uri", f"sqlite:///{folder}/server.db", "--artifacts-destination", f"{folder}/artifacts"]
    argv = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        *store,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
    ]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
    try:
        address, until = f"http://127.0.0.1:{port}", time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=2):
                break
            assert time.monotonic() < until and server.poll() is None, (folder / "log").read_text()
            time.sleep(0.2)
        yield address
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from served(tmp_path_factory.mktemp("server"))


def test_a_server_and_an_experiment_of_the_environment_are_used(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    made = made_runs.Made(tmp_path / "made").start().grpo(1, 3, 40)
    assert track.mirror(made.run, ["mlflow"]) == [] and (tmp_path / "mlflow.db").exists()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "ours")
    assert track.mirror(made.run, ["mlflow"]) == [], "all is sent to the server too"
    made.grpo(4, 5, 40)
    journal.append(made.run, "created", recipe="r", target="local", cwd=".")
    journal.append(made.run, "submitting", attempt=1, handle={})
    journal.append(made.run, "ended", attempt=1, ending="FINISHED")
    page.write(made.run)
    assert track.mirror(made.run, ["mlflow"]) == []
    client = MlflowClient(tracking_uri=server)
    experiment = client.get_experiment_by_name("ours")
    assert experiment
    (found,) = client.search_runs([experiment.experiment_id])
    assert (found.info.run_name, found.info.status) == ("made", "FINISHED")
    history = client.get_metric_history(found.info.run_id, "grpo/reward/check_answer")
    assert [m.step for m in history] == [1, 2, 3, 4, 5]
    assert "report/report.html" in [a.path for a in client.list_artifacts(found.info.run_id, "report")]
    with pytest.raises(UserError, match=f"mirrored to the MLflow server {server} "):
        track.ui_argv(tmp_path)


@pytest.mark.parametrize("kind", ["dead", "silent"])
def test_a_server_that_does_not_answer_holds_nothing_up_and_shows_no_password(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = made_runs.Made(tmp_path / "made").start().grpo(1, 3, 40)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        if kind == "silent":
            listening.listen()
        else:
            listening.close()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:secret@127.0.0.1:{port}")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        (warning,) = track.mirror(made.run, ["mlflow"])
        assert "mlflow is behind" in warning and "secret" not in warning
        assert "secret" not in "".join(path.read_text() for path in made.run.path.rglob("*.json"))
        with monkeypatch.context() as nobody:
            nobody.setattr("podwright.track.mlflow.send", lambda *_: pytest.fail("asked again so soon"))
            assert track.mirror(made.run, ["mlflow"]) == [warning]
        monkeypatch.setattr(track, "_AGAIN_S", 0.0)
        monkeypatch.delenv("MLFLOW_TRACKING_URI")
        assert track.mirror(made.run, ["mlflow"]) == []
