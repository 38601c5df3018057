"""What a verb shows of a run while it goes on: in a terminal a live view, else lines."""

from __future__ import annotations

from typing import Protocol, TextIO

from podwright.rundir import RunDir
from podwright.watch.metrics import Progress, recipe_if_readable
from podwright.watch.plain import PlainView


class View(Protocol):
    def refresh(self, standing: str, attempt: int) -> None:
        """`standing` is the phase of the run, or its ending."""
        ...

    def say(self, message: str) -> None: ...

    def close(self) -> None: ...


def view(run: RunDir, out: TextIO) -> View:
    progress = Progress(run, recipe_if_readable(run))
    if not out.isatty():
        return PlainView(run.name, progress, out)
    from podwright.watch.live import LiveView  # rich, for terminals alone

    return LiveView(run.name, progress, out)
