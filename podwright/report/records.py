"""Everything a run left behind, read once and made safe: what is missing is empty, what is not a finite number is None.

What the figures mean is decided in `result.py`.
"""

from __future__ import annotations

import csv
import dataclasses
import math
from typing import Any

from podwright.counted_steps import WARM_START
from podwright.errors import UserError
from podwright.recipe.kinds import KINDS, Recipe, resolve
from podwright.recipe.load import stored
from podwright.rundir import (
    DEVICE_COLUMNS,
    Record,
    RunDir,
    main_stage,
    numbers,
    read_json,
    read_jsonl,
    recipe_of,
)
from podwright.watch.metrics import Progress, Tail, samples_of

Result = dict[str, Any]
"""what result.json holds"""
MOST_SAMPLES = 2000  # of a file of devices; a run of weeks has more, which say no more


@dataclasses.dataclass(frozen=True)
class Attempt:
    number: int
    exit: Record | None
    """exit.json; None when the trainer was killed or still runs"""
    start: float | None
    end: float | None


@dataclasses.dataclass(frozen=True)
class Records:
    run: RunDir
    name: str
    raw: dict[str, Any]
    """recipe.json as it was written"""
    recipe: Recipe | None
    """the same, typed; None when another version of Podwright wrote it"""
    stages: dict[str, list[Record]]
    events: list[Record]
    samples: list[Record]
    journal: list[Record]
    attempts: list[Attempt]
    devices: list[Record]
    """samples of devices-K.csv with their `attempt` and `process`"""
    metrics: list[Record]
    """the steps of all stages as they were written, with those that do not count"""
    readers: tuple[Progress, Tail]
    """of metrics and events, and of samples: they know which lines were no records"""

    @property
    def main(self) -> str:
        """The stage whose steps are the steps of the run."""
        return main_stage(self.raw)

    def steps(self, stage: str = "") -> list[Record]:
        """Of the main stage, if none is named."""
        return self.stages.get(stage or self.main, [])

    def named(self, event: str) -> list[Record]:
        return [e for e in self.events if e["event"] == event]

    def last(self, event: str) -> Record:
        return (self.named(event) or [{}])[-1]


def read(run: RunDir) -> Records:
    """What is new in the log of a trainer that is not ours is brought to the records first."""
    raw = recipe_of(run)
    main = main_stage(raw)
    if main in KINDS and (follow := KINDS[main].follow):
        resolve(follow)(run, to_end=True)
    progress, samples = Progress(run, raw), samples_of(run)
    metrics, events = progress.update()
    steps = progress.steps
    return Records(
        run=run,
        name=run.path.resolve().name,
        raw=raw,
        recipe=_typed(raw),
        stages={stage: steps.of(stage) for stage in (WARM_START, main)},
        events=[e for e in events if e["event"] != "evaluation" or not steps.is_undone_test(e)],
        samples=samples.new(),
        journal=list(read_jsonl(run.journal)),
        attempts=_attempts(run, metrics + events),
        devices=[
            sample for n in run.attempts for process in _processes(run, n) for sample in _samples(run, n, process)
        ],
        metrics=metrics,
        readers=(progress, samples),
    )


def number(value: Any) -> float | None:
    """`value` as a float, or None when it is no finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def inner(value: Any, path: str) -> Any:
    """What lies at a dotted path; None where nothing does."""
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def column(records: list[Record], figure: str) -> list[float | None]:
    return [number(r.get(figure)) for r in records]


def known(records: list[Record], figure: str) -> list[float]:
    return [v for v in column(records, figure) if v is not None]


def _typed(raw: dict[str, Any]) -> Recipe | None:
    try:
        return stored(raw)
    except UserError:
        return None


def _attempts(run: RunDir, timed: list[Record]) -> list[Attempt]:
    recorded = {r["attempt"] for r in timed if isinstance(r.get("attempt"), int)}
    return [_attempt(run, n, timed) for n in sorted(recorded.union(run.attempts))]


def _attempt(run: RunDir, n: int, timed: list[Record]) -> Attempt:
    own = [number(record.get("time")) for record in timed if record.get("attempt") == n]
    times = [time_s for time_s in own if time_s is not None]
    return Attempt(n, read_json(run.exit(n)) or None, min(times, default=None), max(times, default=None))


def _processes(run: RunDir, attempt: int) -> list[int]:
    """Returns the numbers of the processes whose devices were sampled."""
    paths = run.attempt(attempt).glob("devices-*.csv")
    return numbers({path.name for path in paths}, lambda process: run.devices(attempt, process).name)


def _samples(run: RunDir, attempt: int, process: int) -> list[Record]:
    """Of one process's device, evenly apart; what is no number is None."""
    try:
        with run.devices(attempt, process).open(newline="", errors="replace") as f:
            rows = [row for row in csv.DictReader(f) if None not in row.values()]  # the last may be cut short
    except (OSError, csv.Error):
        return []
    samples = []
    for row in rows[:: max(1, len(rows) // MOST_SAMPLES)]:
        measured = {name: _float(row.get(name, "")) for name in DEVICE_COLUMNS if name != "device"}
        samples.append({"attempt": attempt, "process": process, "device": row.get("device", ""), **measured})
    return samples


def _float(text: str) -> float | None:
    try:
        return number(float(text))
    except ValueError:
        return None


def difference(value: float | None, before: float | None) -> float | None:
    return None if value is None or before is None else value - before


def newest(tests: list[Record], when: str) -> Record:
    """The last evaluation of those before, during or after training; {} where there is none."""
    return next((t for t in reversed(tests) if t["when"] == when), {})
