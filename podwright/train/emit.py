"""The writer of metrics.jsonl, events.jsonl and samples.jsonl. Only the first process of a run writes."""

from __future__ import annotations

import math
import time
from typing import Any

import jax

from podwright.rundir import RunDir, append_jsonl


class Emitter:
    def __init__(self, run: RunDir, attempt: int):
        self._run = run
        self._attempt = attempt
        self.mine = jax.process_index() == 0

    def metrics(self, stage: str, step: int, figures: dict[str, Any]) -> None:
        if self.mine:
            known = {name: _plain(value) for name, value in figures.items()}
            append_jsonl(self._run.metrics, {"stage": stage, "step": step, "time": time.time(), "attempt": self._attempt} | known)

    def event(self, event: str, **fields: Any) -> None:
        if self.mine:
            append_jsonl(self._run.events, {"event": event, "time": time.time(), "attempt": self._attempt} | fields)

    def samples(self, records: list[dict[str, Any]]) -> None:
        if self.mine:
            for record in records:
                append_jsonl(self._run.samples, record)


def _plain(value: Any) -> float | int | None:
    """JSON has no NaN: a figure that is not finite is not known."""
    if value is None or isinstance(value, int):
        return value
    number = float(value)
    return number if math.isfinite(number) else None
