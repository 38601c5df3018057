"""The writer of metrics.jsonl, events.jsonl and samples.jsonl, and what a trainer says in the end. Only the first process writes."""

from __future__ import annotations

import dataclasses
import math
import os
import shlex
import time
from collections.abc import Callable
from typing import Any

from podwright.counted_steps import read_steps
from podwright.errors import UserError
from podwright.recipe.advice import BEGINS_AGAIN, saved_step
from podwright.rundir import Ending, RunDir, append_jsonl, read_events
from podwright.train.run_storage import RunStorage


@dataclasses.dataclass(frozen=True)
class TrainingOutcome:
    """How a trainer ended that ended by itself."""

    ending: Ending
    step: int
    detail: str = ""
    fix: str = ""


class Emitter:
    def __init__(
        self,
        run: RunDir,
        attempt: int,
        mine: bool,
        storage: RunStorage | None = None,
        programs: Callable[[], str] | None = None,
    ):
        """`mine`: whether this is the first process. `storage`: where the run's states go; default: its own directory. `programs`:
        whether those since the last call were compiled or cached, where the trainer has a cache of them."""
        self.run = run
        self.storage = storage or RunStorage(run)
        self.attempt = attempt
        self.mine = mine
        self._programs = programs
        self._begun: set[str] = set()
        self.trained = False
        """whether a step has ended whose weights are the run's"""

    def metrics(self, stage: str, step: int, figures: dict[str, Any]) -> None:
        self.trained = self.trained or stage != "warm_start"
        if self.mine:
            known = {name: _plain(value) for name, value in figures.items()}
            append_jsonl(
                self.run.metrics, {"stage": stage, "step": step, "time": time.time(), "attempt": self.attempt} | known
            )
            if self._programs and stage not in self._begun:
                self._begun.add(stage)
                fields = {"step": step, "seconds": known["step_s"], "programs": self._programs()}
                self.event("first_step", stage=stage, **fields)

    def event(self, event: str, **fields: Any) -> None:
        if self.mine:
            append_jsonl(self.run.events, {"event": event, "time": time.time(), "attempt": self.attempt} | fields)

    def notice(self, *messages: str) -> None:
        for message in messages:
            self.event("notice", message=message)

    def samples(self, records: list[dict[str, Any]]) -> None:
        if self.mine:
            for record in records:
                append_jsonl(self.run.samples, record)

    def begins_again(self, stage: str) -> None:
        """A notice where steps of `stage` were trained, and saved, by an earlier attempt, and no checkpoint of them is left. UserError where
        their folder is there and empty, as that of a disk which is not mounted."""
        saved = saved_step(read_events(self.run.events))
        last = max((r["step"] for r in read_steps(self.run, stage)), default=0)
        if saved and last:
            folder = f"{self.storage.root}/checkpoints"
            gone = f"no checkpoint is left in {folder}, where that of step {saved} was"
            if os.path.isdir(folder) and not os.listdir(folder):
                begin = f"rmdir {shlex.quote(folder)} && podwright resume {self.run.typed}"
                raise UserError(
                    f"{gone}: it is empty", f"mount its disk, or train from step 0: type {begin}", "no-checkpoint"
                )
            self.notice(f"{gone}: {BEGINS_AGAIN}, after {last} steps")


def evaluations(run: RunDir) -> set[tuple[str, int]]:
    """(when, step) of every evaluation that is written down: a resume comes to the same figures and repeats none."""
    return {(e["when"], e["step"]) for e in read_events(run.events, "evaluation")}


def evaluated(run: RunDir) -> set[tuple[str, int]]:
    """The same in every process of jax, which is not there where PyTorch trains."""
    from podwright.train.mesh import from_first

    return {(when, step) for when, step in from_first(lambda: sorted(evaluations(run)))}


def _plain(value: Any) -> float | int | None:
    """JSON has no NaN: a figure that is not finite is not known."""
    if value is None or isinstance(value, int):
        return value
    number = float(value)
    return number if math.isfinite(number) else None
