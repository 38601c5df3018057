"""What makes steps slower than others: traces of chosen ones by jax's profiler, and programs that are compiled when they are first met.

Which steps are traced, says the run directory; a trace for each goes there too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import jax

from podwright.rundir import RunDir
from podwright.train.mesh import from_first

COMPILED = "/jax/core/compile/backend_compile_duration"
"""jax's event for a program that was compiled, or read from the cache"""


@dataclasses.dataclass
class Profile:
    folder: Path
    steps: frozenset[int]
    num_programs: int = 0
    """that were compiled so far"""

    def count(self, event: str, duration_secs: float, **_: str | int) -> None:
        self.num_programs += event == COMPILED

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[dict[str, bool]]:
        """Around step `number`; gives what its record says of it. A step that is traced or compiles takes longer than others."""
        marks: dict[str, bool] = {}
        before = self.num_programs
        with contextlib.ExitStack() as tracing:
            if number in self.steps:
                tracing.enter_context(jax.profiler.trace(self.folder / f"step-{number}"))
                tracing.enter_context(jax.profiler.StepTraceAnnotation("step", step_num=number))
                marks["profiled"] = True
            yield marks
        if self.num_programs > before:
            marks["compiled"] = True


def of(run: RunDir) -> Profile:
    """Every process must call it: each traces its own devices."""
    profile = Profile(run.profile, frozenset(from_first(lambda: _steps(run.profiled))))
    jax.monitoring.register_event_duration_secs_listener(profile.count)
    return profile


def _steps(file: Path) -> list[int]:
    """The steps that `podwright run --profile` wrote down."""
    if not file.exists():
        return []
    return [int(step) for step in json.loads(file.read_text())]
