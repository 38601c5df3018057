"""Runs side by side: settings that differ, figures with their change against the first run, and what is not comparable.

A figure is held against the first run's only where all is equal that it depends on; `comparable.py` says what that is.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from podwright.errors import UserError
from podwright.report import kinds
from podwright.report import records as reading
from podwright.report.comparison.comparable import CONDITIONS, Figure
from podwright.report.records import Records, Result, inner, number
from podwright.report.reproduce import NOT_SETTINGS
from podwright.report.result import of_records
from podwright.rundir import Record, RunDir, flat

Read = list[tuple[Records, Result]]
MOST = 12
HEAD = (
    "name", "kind", "recipe", "fingerprint", "ending", "ending_detail", "steps", "steps_planned", "environment", "wall_time", "warnings",
    "not_predicted",
)  # fmt: skip


def read(runs: Sequence[RunDir]) -> Read:
    """Records and result of each run; UserError for what is nothing to compare."""
    if len(runs) < 2:
        raise UserError(
            "there is nothing to compare one run with",
            "name two or more: podwright report --compare RUN RUN",
            "too-few-runs",
        )
    if len(runs) > MOST:
        raise UserError(f"{len(runs)} runs do not fit side by side", f"name {MOST} at most", "too-many-runs")
    places = [run.path.resolve() for run in runs]
    if twice := next((p.name for p in places if places.count(p) > 1), None):
        raise UserError(f"{twice} is named twice", "name each run once", "named-twice")
    loaded = []
    for run in runs:
        records = reading.read(run)
        result = of_records(run, records)
        if settings := result.get("settings"):  # of a recipe that is not shaped as others are
            records = dataclasses.replace(records, raw=settings | {"name": result["name"]})
        loaded.append((records, result))
    return loaded


def document(loaded: Read) -> Record:
    """Everything that a comparison says, as plain JSON."""
    conditions = {name: [c.of(records.raw, result) for records, result in loaded] for name, c in CONDITIONS.items()}
    compared = {f.key: f for _, result in loaded for f in kinds.of(result).FACTS.compared}
    rows = [_figure(f, loaded, conditions) for f in compared.values()]
    figures = [row for row in rows if _measured(row, range(len(loaded)))]
    return {
        "runs": [_head(result, label) for (_, result), label in zip(loaded, labels(loaded), strict=True)],
        "settings": _settings(loaded),
        "figures": figures,
        "predicted": _predicted(loaded),
        "not_comparable": _not_comparable(figures, conditions),
    }


def labels(loaded: Read) -> list[str]:
    """The names of the runs, numbered where two have the same."""
    names = [result["name"] for _, result in loaded]
    return [name if names.count(name) == 1 else f"{name} ({n})" for n, name in enumerate(names, 1)]


def equal(conditions: dict[str, list[Any]], needs: Sequence[str], run: int) -> bool:
    """Whether `run` and the first have all that is needed in common; what is not known of either is not."""
    for name in ("kind", *needs):
        first = conditions[name][0]
        if first is None or conditions[name][run] != first:
            return False
    return True


def _head(result: Result, label: str) -> Result:
    return {name: result.get(name) for name in HEAD} | {"label": label, "said": kinds.of(result).say(result)}


def _figure(figure: Figure, loaded: Read, conditions: dict[str, list[Any]]) -> Record:
    values = [number(inner(result, figure.key)) for _, result in loaded]
    comparable = [equal(conditions, figure.needs, i) for i in range(len(loaded))]
    return {
        "figure": figure.key,
        "words": figure.words,
        "unit": figure.unit,
        "values": values,
        "change": figure.change,
        "changes": [
            None,
            *(
                _change(figure, values[0], v) if same else None
                for v, same in zip(values[1:], comparable[1:], strict=True)
            ),
        ],
        "comparable": comparable,
        "needs": ["kind", *figure.needs],
    }


def _predicted(loaded: Read) -> list[Record]:
    """{what, unit, runs: [a row of `predicted` in result.json, or None]}: what any of the runs had predicted, in the order of the first."""
    units = {row["what"]: row["unit"] for _, result in loaded for row in result["predicted"]}
    each = [{row["what"]: row for row in result["predicted"]} for _, result in loaded]
    predicted = []
    for what, unit in units.items():
        runs = [rows.get(what) for rows in each]
        predicted.append({"what": what, "unit": unit, "runs": runs})
    return predicted


def _change(figure: Figure, first: float | None, value: float | None) -> float | None:
    if first is None or value is None:
        return None
    if figure.change == "difference":
        return value - first
    return value / first if first else None


def _not_comparable(figures: list[Record], conditions: dict[str, list[Any]]) -> list[Record]:
    """Each condition that stands between figures that were measured, with the figures it stands between."""
    rows = []
    kinds_of = conditions["kind"]
    for name, values in conditions.items():
        # Of a run of another kind nothing else matters.
        runs = [i for i in range(1, len(values)) if name == "kind" or kinds_of[i] == kinds_of[0]]
        others = [i for i in runs if not equal(conditions, [name], i)]
        kept_apart = [
            f["words"] for f in figures if name in f["needs"] and f["values"][0] is not None and _measured(f, others)
        ]
        if kept_apart or (name == "kind" and others):
            condition = CONDITIONS[name]
            rows.append({"what": condition.words, "values": values, "why": condition.why, "figures": kept_apart})
    return rows


def _measured(figure: Record, runs: Sequence[int]) -> bool:
    return any(figure["values"][i] is not None for i in runs)


def _settings(loaded: Read) -> list[Record]:
    """Keys of the recipes and versions of the software that differ; between kinds, of the keys that they share."""
    recipes, versions = [], []
    for records, result in loaded:
        recipes.append(flat({key: value for key, value in records.raw.items() if key not in NOT_SETTINGS}))
        versions.append({f"version of {k}": v for k, v in result["environment"]["versions"].items()})
    is_one_kind = len({result["kind"] for _, result in loaded}) == 1
    of_recipes = _differing(recipes, shared_alone=not is_one_kind)
    return of_recipes + _differing(versions, shared_alone=False)


def _differing(settings: Sequence[Record], shared_alone: bool) -> list[Record]:
    """Rows of the keys whose values differ; `shared_alone`: of the keys that all have."""
    rows = []
    for key in dict.fromkeys(itertools.chain(*settings)):
        values = [each.get(key) for each in settings]
        is_shared = all(key in each for each in settings)
        if any(value != values[0] for value in values) and (is_shared or not shared_alone):
            rows.append({"key": key, "values": values})
    return rows
