"""The run directory that `podwright report --log` makes of a log: its attempt is the log, and its recipe.json names what was typed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from podwright.errors import UserError
from podwright.recipe.kinds import Recipe
from podwright.report import records as reading
from podwright.report.maxtext import logged
from podwright.rundir import Record, RunDir, read_json, write_json
from podwright.watch import maxtext_log

_PARTS = ("attempts", "metrics.jsonl", "events.jsonl", "recipe.json")


def source_of(recipe: dict[str, Any]) -> Record:
    """What a recipe.json says of the log that its run was made of: {file, slice, recipe, typed, profile}; {} of another run."""
    source = recipe.get("log")
    return source if isinstance(source, dict) else {}


def is_log_run(folder: Path) -> bool:
    """Whether `podwright report --log` made this directory."""
    return bool(source_of(read_json(folder / "recipe.json")))


def create(folder: Path, blocks: Iterable[bytes], log: str, recipe: Recipe | None, on: str, typed: str = "") -> RunDir:
    """The run of a log in `folder`, in the place of the one that was there. `log`: - stands for standard input. `typed`: how the recipe was named.

    UserError for a log without a step, and for a folder in which other files would be replaced; what is there stays then.
    """
    taken = next((name for name in ("journal.jsonl", *_PARTS) if (folder / name).exists()), "")
    if taken and not is_log_run(folder):
        raise UserError(
            f"{folder / taken} is there, and not of a log", "name another directory with -o", "exists-already"
        )
    source = {"file": log, "slice": on, "recipe": recipe.model_dump(mode="json") if recipe else None}
    source |= {"typed": typed, "profile": None}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as staging:
        run = RunDir(Path(staging))
        run.attempt(1).mkdir(parents=True)
        with run.log(1).open("wb") as f:
            f.writelines(blocks)
        write_json(run.recipe, {"kind": maxtext_log.STAGE, "arguments": {}, "log": source})
        log_read = logged.of(reading.read(run))
        if log_read is None or not log_read.records:
            raise UserError(*logged.not_a_log(log_read, log), code="no-steps")
        _replace(folder, run.path)
    return RunDir(folder)


def note_profile(run: RunDir, profile: Record) -> None:
    """Keep what became of the profile that was typed."""
    recipe = read_json(run.recipe)
    recipe["log"]["profile"] = profile
    write_json(run.recipe, recipe)


def _replace(folder: Path, staging: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in _PARTS:
        old = folder / name
        if old.is_dir():
            shutil.rmtree(old)
        else:
            old.unlink(missing_ok=True)
        if (staging / name).exists():
            (staging / name).rename(old)
