"""The view of a run in a terminal: a bar with the time left, the latest figures, accuracy, last notices."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from podwright.watch.figures import duration, of_step, of_test
from podwright.watch.metrics import Progress


class LiveView:
    def __init__(self, name: str, progress: Progress, out: TextIO):
        self._name = name
        self._progress = progress
        self._messages: list[str] = []
        self._drawn = 0  # of them
        self._live = Live(console=Console(file=out), auto_refresh=False)
        self._live.start()

    def refresh(self, standing: str, attempt: int) -> None:
        self._progress.update()
        self._drawn = len(self._messages)
        self._live.update(self._picture(standing, attempt), refresh=True)

    def say(self, message: str) -> None:
        self._messages.append(message)

    def close(self) -> None:
        self._live.stop()
        for message in self._messages[self._drawn :]:
            self._live.console.print(Text(message, style="yellow"))

    def _picture(self, standing: str, attempt: int) -> RenderableType:
        p = self._progress
        rows: list[RenderableType] = [
            Text.assemble((self._name, "bold"), f"  {standing}  {p.phase}  attempt {attempt}")
        ]
        if p.stage:
            rows += [self._bar(), Text("  ".join(of_step(p.latest)))]
        if p.evaluations:
            first, latest = p.evaluations[0], p.evaluations[-1]
            rows += [Text(of_test(event)) for event in ([first] if first is latest else [first, latest])]
        rows += [Text(line, style="yellow") for line in (p.notices + self._messages)[-3:]]
        return Group(*rows)

    def _bar(self) -> Table:
        p = self._progress
        grid = Table.grid(padding=(0, 1))
        eta = f"ETA {duration(p.eta_s)}" if p.eta_s is not None else ""
        bar = ProgressBar(total=p.max_steps or 1, completed=p.step, width=40)
        grid.add_row(Text(p.stage), bar, Text(f"{p.step}/{p.max_steps}"), Text(eta))
        return grid
