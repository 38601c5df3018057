"""Whole training states on disk: written whole or not at all, the newest few kept, a damaged one put aside."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from podwright.train import saved_states
from podwright.train.run_storage import RunStorage
from podwright.train.saved_states import Newest

KEPT = 2


def save(storage: RunStorage, step: int, state: dict[str, Any]) -> None:
    storage.run.checkpoints.mkdir(parents=True, exist_ok=True)
    write(_path(storage, step), state | {"step": step})
    for old in _steps(storage)[KEPT:]:
        _path(storage, old).unlink()


def latest(storage: RunStorage) -> Newest[dict[str, Any]] | None:
    """The newest state that can be read, None before the first. Damaged newer ones are put aside as NAME.damaged."""
    newest = saved_states.newest(
        storage,
        _steps(storage),
        _name,
        lambda step: load(storage, step),
    )
    for step in newest.damaged if newest else ():
        path = _path(storage, step)
        path.rename(path.with_suffix(".damaged"))
    return newest


def load(storage: RunStorage, step: int) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(_path(storage, step), map_location="cpu", weights_only=True)
    return state


def stamp(storage: RunStorage, step: int) -> tuple[int, int] | None:
    """Size and time of the file of a step, by which processes know that they see the same one; None where there is none."""
    try:
        about = _path(storage, step).stat()
    except OSError:
        return None
    return about.st_size, about.st_mtime_ns


def newest_step(storage: RunStorage) -> int:
    """That a resume begins with; 0 before the first."""
    return next(iter(_steps(storage)), 0)


def write(path: Path, value: Any) -> None:
    part = path.with_name(f"{path.name}.unfinished")
    try:
        with part.open("wb") as f:
            torch.save(value, f)
            f.flush()
            os.fsync(f.fileno())
        part.replace(path)
    except BaseException:  # on a full disk what is left of it would keep the ending from being written down
        part.unlink(missing_ok=True)
        raise


def _path(storage: RunStorage, step: int) -> Path:
    return storage.run.path / _name(step)


def _name(step: int) -> str:
    return f"checkpoints/step-{step:08}.pt"


def _steps(storage: RunStorage) -> list[int]:
    """The newest first."""
    return storage.steps_in_folder(_name)[::-1]
