"""The view of a run where there is no terminal: a line for what is new, every so many steps."""

from __future__ import annotations

from typing import TextIO

from podwright.rundir import Record
from podwright.watch.figures import duration, of_step, of_test
from podwright.watch.metrics import Progress

_LINES_PER_STAGE = 20


class PlainView:
    def __init__(self, name: str, progress: Progress, out: TextIO):
        self._name = name
        self._progress = progress
        self._out = out
        self._shown: tuple[str, int] | None = None
        # Who comes to a run later is told how far it is, not all that was.
        progress.update()
        if progress.latest:
            self._step(progress.latest)

    def refresh(self, standing: str, attempt: int) -> None:
        metrics, events = self._progress.update()
        for record in sorted(metrics + events, key=lambda r: r["time"] or 0.0):
            if "event" in record:
                self._event(record)
            elif self._due(record):
                self._step(record)
        if self._shown != (standing, attempt):
            self._shown = (standing, attempt)
            self._line(f"{standing}, attempt {attempt}" if attempt else standing)

    def say(self, message: str) -> None:
        self._line(message)

    def close(self) -> None:
        pass

    def _due(self, record: Record) -> bool:
        total = self._progress.total(record["stage"])
        every = max(1, total // _LINES_PER_STAGE)
        done = self._progress.count(record)
        return done in (1, total) or done % every == 0

    def _step(self, record: Record) -> None:
        total = self._progress.total(record["stage"])
        eta = self._progress.eta_s
        left = [f"ETA {duration(eta)}"] if eta is not None and record is self._progress.latest else []
        self._line("  ".join([f"{record['stage']} {self._progress.count(record)}/{total}", *of_step(record), *left]))

    def _event(self, event: Record) -> None:
        if event["event"] == "phase":
            self._line(event["phase"])
        elif event["event"] == "notice":
            self._line(f"notice: {event['message']}")
        elif event["event"] == "evaluation":
            self._line(of_test(event))
        elif event["event"] == "resumed":
            self._line(f"resumes from step {event['step']}")

    def _line(self, text: str) -> None:
        print(f"{self._name}: {text}", file=self._out, flush=True)
