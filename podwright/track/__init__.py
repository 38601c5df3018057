"""Mirrors of metrics.jsonl in trackers. A tracker is somebody else's code: whatever it does, the run goes on.

What is sent is decided in `batch.py`; one file for each tracker says how.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from podwright import extras
from podwright.errors import UserError, message_of
from podwright.rundir import RunDir, recipe_of
from podwright.track import batch, mlflow_server

# A tracker is named as its package, its extra and its file here.
TRACKERS = ("tensorboard", "mlflow", "wandb")
_AGAIN_S = 60.0  # after a failure


def check(trackers: Sequence[str]) -> list[UserError]:
    """Why the run would not be mirrored, before it starts; imports no tracker."""
    return [fault for name in trackers if (fault := _fault(name)) is not None]


def mirror(run: RunDir, trackers: Sequence[str]) -> list[str]:
    """Send what is new since the last call; what went wrong, one line a tracker. Raises nothing and may be called at any time.

    A step is sent once: one that is run again after a resume repeats the same figures.
    """
    return [warning for name in trackers if (warning := _mirror(run, name)) is not None]


def ui_argv(runs: Path) -> list[str]:
    """The command that opens MLflow's page on the runs in `runs` (or beside the run `runs`) until Ctrl-C."""
    folder = runs.resolve().parent if (runs / "recipe.json").is_file() else runs.resolve()
    database = batch.mlflow_database(folder)
    uri = mlflow_server.uri()
    if (fault := _fault("mlflow")) is not None:
        raise fault
    if uri.startswith(("http:", "https:")):
        raise UserError(
            f"runs are mirrored to the MLflow server {mlflow_server.public(uri)} ({mlflow_server.URI})",
            "open it in a browser",
            "opens-in-browser",
        )
    if not uri and not database.is_file():
        raise UserError(
            f"no run in {runs} was mirrored to MLflow", "start one with trackers=[mlflow]", "no-tracked-run"
        )
    place = uri or f"sqlite:///{database}"
    return [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", place, "--host", "127.0.0.1"]


def tensorboard_argv(run: RunDir) -> list[str]:
    """The command that opens TensorBoard on the metrics of `run` and the traces of its steps until Ctrl-C. Of a run that has not named
    this tracker, what there is until now is mirrored first."""
    if (fault := _fault("tensorboard")) is not None:
        raise fault
    if "tensorboard" not in recipe_of(run).get("trackers", []):
        wrong = mirror(run, ["tensorboard"])
        if wrong:
            raise UserError(wrong[0], "try again", "tracker-behind")
    return [sys.executable, "-m", "tensorboard.main", "--logdir", str(run.path.resolve()), "--host", "127.0.0.1"]


def _mirror(run: RunDir, name: str) -> str | None:
    if (fault := _fault(name)) is not None:
        return str(fault)
    mark = mlflow_server.mark() if name == "mlflow" else ""
    cursor = f"{name}-{mark}" if mark else name
    try:
        pending = batch.pending(run, cursor)
        if pending.empty:
            return None
        if pending.failure and not pending.ending_is_new and 0 <= time.time() - pending.failed_at < _AGAIN_S:
            return pending.failure  # a server that does not answer takes seconds of a launcher each time
        tracker = importlib.import_module(f"podwright.track.{name}")
        if not tracker.due(pending):
            return None
        warning: str | None = tracker.send(run, pending)
        batch.done(run, pending)
    except UserError as e:
        return f"{name} is behind: {e}"
    except Exception as e:
        what = mlflow_server.public(message_of(e))
        behind = f"{name} is behind ({type(e).__name__}: {what}); nothing is lost, a later look tries again"
        with contextlib.suppress(OSError, UserError):
            batch.failed(run, cursor, behind)
        return behind
    return warning


def _fault(name: str) -> UserError | None:
    if name not in TRACKERS:
        return UserError(f"there is no tracker {name!r}", f"type one of {', '.join(TRACKERS)}", "unknown-tracker")
    if importlib.util.find_spec(name) is None:
        return UserError(f"the tracker {name} is not installed", extras.install(name), "missing-package")
    return None
