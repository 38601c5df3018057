"""Whole training states on disk: written whole or not at all, the newest few kept, a damaged one put aside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

KEPT = 2


def save(folder: Path, step: int, state: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / f"step-{step:08}.pt", state | {"step": step})
    for _, path in sorted(_stored(folder))[:-KEPT]:
        path.unlink()


def latest(folder: Path) -> tuple[dict[str, Any] | None, list[int]]:
    """The newest state that can be read, and the steps of those that could not."""
    damaged: list[int] = []
    for step, path in sorted(_stored(folder), reverse=True):
        try:
            return torch.load(path, map_location="cpu", weights_only=True), damaged
        except Exception:  # whatever a torn file makes of the reader
            path.rename(path.with_suffix(".damaged"))
            damaged.append(step)
    return None, damaged


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


def _stored(folder: Path) -> Iterator[tuple[int, Path]]:
    for path in folder.glob("step-*.pt"):
        yield int(path.stem.removeprefix("step-")), path
