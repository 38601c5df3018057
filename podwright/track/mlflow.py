"""MLflow, on sqlite beside the run directories or at MLFLOW_TRACKING_URI: one MLflow run for each of ours, with parameters, figures and the
report.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podwright.rundir import RunDir, flat
from podwright.track import mlflow_server
from podwright.track.batch import MetricBatch, mlflow_database, remember

if TYPE_CHECKING:
    from mlflow import MlflowClient

MOST_METRICS, MOST_PARAMS, LONGEST_PARAM = 1000, 100, 6000  # limits of MLflow's log_batch
STATUS = {None: "RUNNING", "FINISHED": "FINISHED", "STOPPED": "KILLED", "PREEMPTED": "KILLED", "NODE_LOST": "KILLED"}


def due(batch: MetricBatch) -> bool:
    return True


def send(run: RunDir, batch: MetricBatch) -> str | None:
    client = _client(run)
    run_id = batch.state.get("run_id")
    if run_id is None:
        run_id = batch.state["run_id"] = _create(client, run, batch.recipe)
        remember(run, batch)
    _metrics(client, run_id, batch)
    if batch.report is not None:
        client.log_artifacts(run_id, str(batch.report), "report")
    status = STATUS.get(batch.ending, "FAILED")
    if batch.ending is None:
        client.update_run(run_id, status=status)
    else:
        client.set_terminated(run_id, status=status)
        client.set_tag(run_id, "podwright.ending", batch.ending)
    return None


def _client(run: RunDir) -> MlflowClient:
    mlflow_server.have_little_patience()
    from mlflow import MlflowClient

    for name in ("alembic", "mlflow.store.db.utils"):  # they tell each table that they create
        logging.getLogger(name).setLevel(logging.WARNING)
    return MlflowClient(tracking_uri=mlflow_server.uri() or f"sqlite:///{mlflow_database(_runs(run))}")


def _create(client: MlflowClient, run: RunDir, recipe: dict[str, Any]) -> str:
    """A new MLflow run with the recipe as its parameters, in the experiment of that recipe."""
    from mlflow.entities import Param

    name = mlflow_server.experiment() or str(recipe.get("name") or "podwright")
    experiment = client.get_experiment_by_name(name)
    # A server knows itself where artifacts go.
    where = None if mlflow_server.uri() else (_runs(run) / "mlflow-artifacts" / name).as_uri()
    number = experiment.experiment_id if experiment else client.create_experiment(name, artifact_location=where)
    tags = {"podwright.run": run.path.resolve().name, "podwright.path": str(run.path.resolve())}
    run_id: str = client.create_run(number, run_name=run.path.resolve().name, tags=tags).info.run_id
    params = [Param(_key(k), _text(v)[:LONGEST_PARAM]) for k, v in flat(recipe).items()]
    for start in range(0, len(params), MOST_PARAMS):
        client.log_batch(run_id, params=params[start : start + MOST_PARAMS])
    return run_id


def _metrics(client: MlflowClient, run_id: str, batch: MetricBatch) -> None:
    """MLflow passes over a figure that it has already with the same step and time, so that a batch may be sent twice."""
    from mlflow.entities import Metric

    metrics = [
        Metric(_key(f"{row.stage}/{name}"), value, int(row.time * 1000), row.step)
        for row in batch.rows
        for name, value in row.figures.items()
    ]
    for start in range(0, len(metrics), MOST_METRICS):
        client.log_batch(run_id, metrics=metrics[start : start + MOST_METRICS])


def _key(name: str) -> str:
    """`name` with what MLflow takes in names; it also refuses what looks like a path with empty or dotted parts."""
    parts = [re.sub(r"[^\w. :-]", "_", part).lstrip(".") or "_" for part in name.split("/")]
    return "/".join(parts)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _runs(run: RunDir) -> Path:
    return run.path.resolve().parent
