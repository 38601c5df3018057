"""What to change in a recipe after a run of its kind has failed, with keys that the kind has. Plans, trainers and `diagnose` say the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from podwright import extras
from podwright.recipe.yaml_file import facts
from podwright.rundir import Record, RunDir, read_events, read_json

BEGINS_AGAIN = "training begins again at step 0"
"""of a notice of the trainer, where a checkpoint that it has saved is there no more"""


@dataclass(frozen=True)
class RecipeAdvice:
    device_memory: str
    """when a device's memory is full"""
    host_memory: str
    """when the memory of the machine is full"""
    not_finite: str = "a smaller optimizer.learning_rate"
    fewer_steps: str = "a smaller training.max_steps"
    resumes: str = "resumes from the last checkpoint, if one was saved"
    """what `podwright resume` does, where the run does not tell more"""
    compiler: str = "install g++ there"
    """when torch.compile finds no compiler"""
    packages: str = f"install it there, in the target's own environment: {extras.pip('jax')}, or torch in its place"
    """when a Python package is missing"""
    libtpu: str = "install them together, on all workers: pip install -U 'jax[tpu]'"
    """when versions of jax, jaxlib and libtpu do not belong together"""

    zh: RecipeAdvice | None = None
    """the same in Chinese, of kinds whose reports may be Chinese"""


def _read() -> dict[str, RecipeAdvice]:
    rows = facts(__file__)
    for row in rows.values():
        if "zh" in row:
            row["zh"] = RecipeAdvice(**row["zh"])
    return {kind: RecipeAdvice(**row) for kind, row in rows.items()}


ADVICE = _read()
"""by kind of recipe"""
GENERAL = ADVICE.pop("general")
"""where the kind is not known, as of a log that is no run's"""


def of_kind(kind: str) -> RecipeAdvice:
    return ADVICE.get(kind, GENERAL)


def of_run(run: RunDir) -> RecipeAdvice:
    """By its recipe.json, GENERAL where that cannot be read, and by what its trainer has written."""
    newest = max(run.attempts, default=0)
    complete = newest > 0 and run.exit(newest).exists()
    return with_records(kind_of(run.recipe), read_events(run.events), run.metrics.exists(), complete)


def with_records(kind: str, events: Iterable[Record], has_steps: bool, complete: bool) -> RecipeAdvice:
    """Of a run of `kind`, by the events of its trainer and whether it has written steps. `complete`: it has written its last record; else
    it may have saved since."""
    keys = of_kind(kind)
    listed = list(events)
    begun = bool(listed)
    checkpoint = saved_step(listed)
    if checkpoint is not None:
        newer = "" if complete else ", or from a newer one"
        return replace(keys, resumes=f"resumes from the checkpoint of step {checkpoint}{newer}")
    if begun and not complete:
        return replace(keys, resumes="resumes from the last checkpoint, or starts it again at step 0 if none was saved")
    if begun:
        return replace(keys, resumes="starts it again at step 0: no checkpoint was saved")
    return keys if has_steps else replace(keys, resumes="starts it: nothing was trained yet")


def saved_step(events: Iterable[Record]) -> int | None:
    """Of the checkpoint that a resume begins with, by a trainer's events; None where there is none. One that is being saved counts, and once
    a resume has begun with an older one it no longer does."""
    checkpoint = None
    for event in events:
        if event["event"] in ("checkpoint", "resumed"):
            checkpoint = event["step"]
        elif event["event"] == "notice" and BEGINS_AGAIN in str(event.get("message")):
            checkpoint = None
    return checkpoint


def kind_of(recipe: Path) -> str:
    """The kind that a run's recipe.json names; "" where that cannot be read."""
    return str(read_json(recipe).get("kind", ""))
