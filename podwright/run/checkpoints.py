"""The checkpoints of a run, wherever it is kept: which there are, and a copy of one of them here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from podwright.errors import UserError
from podwright.rundir import RunDir, is_below, part_of
from podwright.storage import open_storage
from podwright.storage.base import COMMITTED, StoredObject

_FOLDER = "checkpoints"
_PATIENCE_S = 60.0
_NAME = re.compile(r"(0|[1-9][0-9]*)/.*[^/]|step-([0-9]{8}|[1-9][0-9]{8,})\.pt")
"""below checkpoints/: the tree of a JAX run, the file of one in PyTorch; neither is what was put aside, is unfinished or was put there by others"""


@dataclass(frozen=True)
class StoredCheckpoint:
    step: int
    time: float
    """Unix seconds when it was complete"""
    size_bytes: int
    objects: tuple[StoredObject, ...]

    @property
    def files(self) -> dict[str, StoredObject]:
        """By their paths below the checkpoint."""
        return {each.name.split("/", 2)[-1]: each for each in self.objects}


def url_of(run: RunDir) -> str:
    """Where its checkpoints are kept."""
    return run.storage_url or str(run.path.resolve())


def listed(run: RunDir) -> list[StoredCheckpoint]:
    """Those that are complete, by step. StorageFailure where the storage does not answer."""
    url = url_of(run)
    by_step: dict[int, list[StoredObject]] = {}
    for each in open_storage(url, _PATIENCE_S).objects(f"{_FOLDER}/"):
        if not is_below(each.name):
            continue
        match = _NAME.fullmatch(each.name.removeprefix(f"{_FOLDER}/"))
        if match:
            by_step.setdefault(int(match[1] or match[2]), []).append(each)
    return [_checkpoint(step, objects) for step, objects in sorted(by_step.items()) if _complete(url, objects)]


def _complete(url: str, objects: Sequence[StoredObject]) -> bool:
    """A folder appears under its name when all is in it."""
    return "://" not in url or any(each.name.endswith(f"/{COMMITTED}") for each in objects)


def _checkpoint(step: int, objects: Sequence[StoredObject]) -> StoredCheckpoint:
    newest = max(each.time for each in objects)
    return StoredCheckpoint(step, newest, sum(each.size_bytes for each in objects), tuple(objects))


def fetch(run: RunDir, step: int, out: Path) -> StoredCheckpoint:
    """Copy the checkpoint of `step` into the new directory `out`, which appears when all of it is there."""
    checkpoints = {each.step: each for each in listed(run)}
    if step not in checkpoints:
        there = ", ".join(map(str, checkpoints))
        fix = f"type one of {there}" if there else "wait until one is saved"
        raise UserError(f"run {run.name} has no checkpoint of step {step} in {url_of(run)}", fix, "no-such-checkpoint")
    if out.exists():
        raise UserError(f"--out {out} exists already", "name a new directory", "exists-already")
    checkpoint = checkpoints[step]
    storage = open_storage(url_of(run), _PATIENCE_S)
    try:
        with part_of(out.absolute(), f".{out.name}") as part:
            for path, each in checkpoint.files.items():
                storage.download(each.name, part / path)
    except FileNotFoundError as e:
        what = f"the checkpoint of step {step} was removed while it was copied: a run keeps only the newest"
        raise UserError(
            what, f"`podwright checkpoints {run.typed}` shows which there are now", "no-such-checkpoint"
        ) from e
    return checkpoint
