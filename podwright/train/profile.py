"""Traces of chosen steps by jax's profiler. Which steps, says the run directory; a trace for each step goes there too."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import jax

from podwright.rundir import RunDir
from podwright.train.mesh import from_first


@dataclasses.dataclass(frozen=True)
class Profile:
    folder: Path
    steps: frozenset[int]

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[dict[str, bool]]:
        """Around step `number`; gives what the record of the step says of it. A traced step takes longer."""
        if number not in self.steps:
            yield {}
            return
        with (
            jax.profiler.trace(self.folder / f"step-{number}"),
            jax.profiler.StepTraceAnnotation("step", step_num=number),
        ):
            yield {"profiled": True}


def of(run: RunDir) -> Profile:
    """Every process must call it: each traces its own devices."""
    return Profile(run.profile, frozenset(from_first(lambda: _steps(run.profiled))))


def _steps(file: Path) -> list[int]:
    """The steps that `podwright run --profile` wrote down."""
    if not file.exists():
        return []
    return [int(step) for step in json.loads(file.read_text())]
