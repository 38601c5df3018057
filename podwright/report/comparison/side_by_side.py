"""How a comparison looks: tables for a terminal, Markdown and HTML, and the curves of several runs in one plot."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podwright.report import kinds, page, prediction, timing
from podwright.report.comparison import compare
from podwright.report.comparison.comparable import CONDITIONS, Curve
from podwright.report.figures import style
from podwright.report.figures.drawing import Plot, points
from podwright.report.figures.series import Line, line, smooth
from podwright.report.records import Records, inner, number
from podwright.report.wording import DASH, duration, figure, setting, signed_percent, visible
from podwright.rundir import Record, RunDir, write_json

OTHER = "†"
WALL_TIME = "wall_time.total_s"  # shown in hours and minutes


@dataclasses.dataclass(frozen=True)
class Table:
    title: str
    rows: list[tuple[str, list[str]]]
    note: str = ""


def write(runs: Sequence[RunDir], folder: Path | None) -> Record:
    """The comparison of `runs` as a document; with `folder`, compare.md, compare.html, compare.json and the plots in it too."""
    loaded = compare.read(runs)
    document = compare.document(loaded)
    if folder is not None:
        drawn = curves(loaded)
        context = {
            "labels": [run["label"] for run in document["runs"]],
            "runs": document["runs"],
            "tables": tables(document),
            "apart": apart(document),
            "plots": drawn,
            "light": style.variables(0),
            "dark": style.variables(1),
        }
        page.save(folder, "compare", context, drawn)
        write_json(folder / "compare.json", document)
    return document


def tables(document: Record) -> list[Table]:
    runs = document["runs"]
    heads = [
        ("recipe", [run["recipe"] or DASH for run in runs]),
        (
            "hardware",
            [f"{figure(run['environment']['devices'])} × {run['environment']['device_kind'] or DASH}" for run in runs],
        ),
        ("steps", [f"{run['steps']} of {run['steps_planned'] or DASH}" for run in runs]),
        ("ended", [run["ending"] or "no record" for run in runs]),
    ]
    kinds_of = [run["kind"] for run in runs]
    if len(set(kinds_of)) > 1:
        heads.insert(0, ("kind", kinds_of))
    settings = []
    for row in document["settings"]:
        cells = [DASH if value is None else visible(setting(value)) for value in row["values"]]
        settings.append((row["key"], cells))
    figures = []
    for row in document["figures"]:
        cells = [_cell(row, i) for i in range(len(runs))]
        figures.append((_named(row), cells))
    marked = any(OTHER in cell for _, cells in figures for cell in cells)
    note = "In brackets: relative to the first run." + (
        f" {OTHER}: not comparable with it, see below." if marked else ""
    )
    listed = [Table("Runs", heads), Table("Settings that differ", settings), Table("Results", figures, note)]
    return [*(table for table in listed if table.rows), _predicted(document)]


def _predicted(document: Record) -> Table:
    """Without rows where no run has a prediction."""
    rows = [(f"{p['what']} ({p['unit']})", [_error(run) for run in p["runs"]]) for p in document["predicted"]]
    reasons = {run["label"]: run["not_predicted"] for run in document["runs"]}
    notes = [f"Predicted → measured (error). {prediction.NOTE}"] if rows else []
    notes += [prediction.NOTHING] if not rows and prediction.NOTHING in reasons.values() else []
    notes += [f"{label}: {reason}" for label, reason in reasons.items() if reason not in (None, prediction.NOTHING)]
    return Table("Predicted and measured", rows, " ".join(notes))


def _error(row: Record | None) -> str:
    """A cell of the table of predictions."""
    if row is None:
        return DASH
    if row["measured"] is None:
        return f"{figure(row['predicted'])} → {prediction.NOT_MEASURED}"
    return f"{figure(row['predicted'])} → {figure(row['measured'])} ({signed_percent(row['error'])})"


def apart(document: Record) -> list[str]:
    """What is not comparable, a sentence each."""
    return [
        _sentence(condition, [run["label"] for run in document["runs"]]) for condition in document["not_comparable"]
    ]


def text(document: Record) -> str:
    """For a terminal."""
    labels = [run["label"] for run in document["runs"]]
    lines: list[str] = []
    for table in tables(document):
        if not table.rows:
            lines += [f"{table.title}: {table.note}", ""]
            continue
        rows = [(table.title, labels), *table.rows]
        widths = [max(len(str(row[1][i])) for row in rows) for i in range(len(labels))]
        first = max(len(name) for name, _ in rows)
        for name, cells in rows:
            lines.append(
                f"{name:<{first}}  " + "  ".join(f"{cell:>{w}}" for cell, w in zip(cells, widths, strict=True))
            )
        lines += [table.note, ""] if table.note else [""]
    lines += [f"not comparable: {sentence}" for sentence in apart(document)]
    lines += [f"warning: {run['label']}: {warning}" for run in document["runs"] for warning in run["warnings"] or []]
    return "\n".join(lines).rstrip() + "\n"


def _named(row: Record) -> str:
    return row["words"] if row["figure"] == WALL_TIME else f"{row['words']} ({row['unit']})"


def _cell(row: Record, run: int) -> str:
    value, change = row["values"][run], row["changes"][run]
    if value is None:
        return DASH
    if row["figure"] == WALL_TIME:
        shown = duration(value)
    else:
        shown = figure(int(value) if value == int(value) else value)
    if not row["comparable"][run]:
        return f"{shown} {OTHER}"
    if change is None:
        return shown
    if row["change"] == "ratio":
        return f"{shown} ({figure(change)}×)"
    return f"{shown} ({'' if change <= 0 else '+'}{figure(change)})"


def _sentence(condition: Record, labels: list[str]) -> str:
    values = "; ".join(f"{label}: {_as_text(value)}" for label, value in zip(labels, condition["values"], strict=True))
    figures = (
        f" Not compared: {', '.join(condition['figures'])}." if condition["figures"] else " No results are compared."
    )
    return f"{condition['what']} ({values}): {condition['why']}.{figures}"


def _as_text(value: Any) -> str:
    if value is None:
        return "not known"
    return visible(value if isinstance(value, str) else setting(value))


def curves(loaded: compare.Read) -> list[Plot]:
    """Every curve that at least two comparable runs have."""
    conditions = {name: [c.of(records.raw, result) for records, result in loaded] for name, c in CONDITIONS.items()}
    with style.settings():
        drawn = [_curve(curve, loaded, conditions) for curve in kinds.of(loaded[0][1]).FACTS.curves]
    return [plot for plot in drawn if plot is not None]


def _curve(curve: Curve, loaded: compare.Read, conditions: dict[str, list[Any]]) -> Plot | None:
    labels = compare.labels(loaded)
    same = [i for i in range(len(loaded)) if compare.equal(conditions, curve.needs, i)]
    # Steps of different work are compared by the tokens that they have seen.
    is_one_work = len({conditions["work"][i] for i in same}) == 1
    by_tokens = not is_one_work and all(loaded[i][1].get("tokens") for i in same)
    lines = {i: _line(curve, loaded[i][0], by_tokens) for i in same}
    tests = {i: _tested(curve, loaded[i][1], by_tokens) for i in same}
    have = [i for i in same if lines[i] or tests[i]]
    if len(have) < 2:
        return None
    fig, (ax,) = style.figure(curve.unit, x="tokens seen" if by_tokens else "step")
    for i in have:
        color = style.SERIES[i % len(style.SERIES)]
        dashes = "-" if i < len(style.SERIES) else "--"
        if lines[i]:
            ax.plot(
                lines[i].steps,
                smooth(lines[i]).values,
                dashes,
                color=style.color(color),
                linewidth=1.6,
                label=labels[i],
            )
        if tests[i]:
            label, width = ("_", 0.0) if lines[i] else (labels[i], 1.6)
            points(ax, tests[i], color, label, 4, width, dashes)
    if curve.warm:
        ax.set_ylim(bottom=0)
    style.legend(fig, ax)
    left_out = [labels[i] for i in range(len(loaded)) if i not in have]
    caption = "Smoothed." if curve.figure else ""
    if any(tests[i] for i in have):
        caption += " Points: the evaluations."
    if left_out:
        caption += f" Not drawn, because it is not comparable or not measured: {', '.join(left_out)}."
    name = f"compare-{(curve.figure or curve.tested).replace('_', '-').replace('.', '-')}"
    return Plot(name, curve.title, caption.strip(), style.to_svg(fig, f"{curve.title} of {len(have)} runs"))


def _line(curve: Curve, records: Records, by_tokens: bool) -> Line:
    steps = timing.warm_steps(records) if curve.warm else records.steps()
    if by_tokens:
        steps = [s | {"step": tokens} for s in steps if (tokens := number(s.get("tokens"))) is not None]
    return line(steps, curve.figure)


def _tested(curve: Curve, result: Record, by_tokens: bool) -> list[tuple[float, float]]:
    if not curve.tested:
        return []
    per_step = result["tokens"] / result["steps"] if by_tokens else 1
    known = [(t["step"], number(inner(t, curve.tested))) for t in result["evaluations"]]
    return [(step * per_step, value) for step, value in known if isinstance(step, int) and value is not None]
