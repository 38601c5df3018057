"""The report of a MaxText run as files: result.json, report.html, README.md and the plots."""

from __future__ import annotations

import dataclasses
import math
import zlib
from pathlib import Path

from podwright.errors import UserError, from_os
from podwright.recipe.kinds import Recipe
from podwright.report.figures import plots, style
from podwright.report.figures.drawing import Plot, raw_and_smooth
from podwright.report.figures.series import Line, line
from podwright.report.maxtext import checks, figures, log_readme, tables
from podwright.report.maxtext.facts import gathered, published_row
from podwright.report.maxtext.logged import LoggedRun
from podwright.report.maxtext.words import Words
from podwright.report.page import html_templates, markdown_templates
from podwright.report.records import Result
from podwright.rundir import Record, replace_file, write_json


@dataclasses.dataclass(frozen=True)
class LogReport:
    """What is written of a log."""

    result: Result
    steps: list[Record]
    mark: str
    """the same for a log and the same log grown longer; another one for another run"""


def of(log: LoggedRun, path: str, recipe: Recipe | None, on: str, name: str) -> LogReport:
    """The figures of a run that has steps. `path`: of its log; `name`: of the run, "" where its log says it."""
    facts = gathered(log.known, recipe, on)
    facts = dataclasses.replace(facts, name=name or facts.name)
    facts = facts.without_architecture() if checks.other_tokens(log, facts) else facts
    steps = figures.thinned(log, facts)
    r = figures.result(log, facts, steps, "log" if path == "-" else Path(path).stem, path, published_row(facts))
    first = (log.first["step"], *(_or_nan(log.first.get(figure)) for figure in ("step_s", "loss", "time")))
    return LogReport(r, steps, f"{zlib.crc32(repr((r['name'], r['model'], r['config'], first)).encode()):08x}")


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def write(report: LogReport, folder: Path, readme: Path | None, language: str) -> list[str]:
    """All files in `folder`, and its README.md and `readme` extended; sentences on what was kept there."""
    r, steps, t = report.result, report.steps, Words(language)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with style.settings():
            drawn = [plot for plot in (_step_time(r, steps, t), _loss(r, steps, t)) if plot]
        for name, text in plots.files(drawn):
            replace_file(folder / name, text.encode())
        page = html_templates().get_template("log.html.j2").render(context(r, t, steps), plots=drawn)
        replace_file(folder / "report.html", page.encode())
        write_json(folder / "result.json", r)
        kept = []
        for place in dict.fromkeys([folder / "README.md", *([readme] if readme else [])]):
            inside_folder = place.resolve().parent == folder.resolve()
            section = (
                markdown_templates()
                .get_template("log.md.j2")
                .render(context(r, t, steps), plots=drawn if inside_folder else [])
            )
            kept += log_readme.put(place, report.mark, r, t, section)
    except OSError as e:
        raise from_os(e) or UserError(f"{folder} cannot be written: {e}", "give another directory with -o") from e
    return list(dict.fromkeys(kept))


def context(r: Result, t: Words, steps: list[Record]) -> Record:
    return {
        "r": r,
        "t": t,
        "mark": tables.MARK,
        "overview": tables.overview(r, t),
        "columns": [t(key) for key in tables.COLUMNS],
        "row": [tables.run_row(r, t)[key] for key in tables.COLUMNS],
        "step_columns": [t(key) if key != "loss_final" else "Loss" for key in tables.STEP_COLUMNS],
        "steps": tables.steps(r, steps),
        "speed": tables.speed(r, t),
        "published": tables.published(r),
        "light": style.variables(0),
        "dark": style.variables(1),
    }


def summary(r: Result, t: Words) -> list[str]:
    """The first lines of the write-up, for a terminal."""
    lines = [f"{r['name']}: {t.ending(r)}", t.steady(r), t.loss(r), f"{t('hardware')}: {t.hardware(r)}"]
    if r["steps_recomputed"] or len(r["attempts"]) > 1:
        lines.append(t("restarts", attempts=len(r["attempts"]), recomputed=r["steps_recomputed"]))
    lines += [
        f"{t('published')}: {name} {theirs}, {t('measured')} {ours} ({off})"
        for name, ours, theirs, off in tables.published(r)
    ]
    lines += [f"warning: {t.check(c)}" for c in r["checks"] if c["verdict"] == "warning"]
    lines += [f"warning: {t.sentence(text)}" for text in r["warnings"]]
    lines += [t.check(c) for c in r["checks"] if c["verdict"] != "warning"]
    return [text for text in lines if text]


def _step_time(r: Result, steps: list[Record], t: Words) -> Plot | None:
    """The steps that count as a line, the others as points, which are cut off at 2.5 times the median."""
    median = r["steady_state"]["step_s"]
    left_out = {e["step"] for e in r["excluded"]}
    raw = line([s for s in steps if s["step"] not in left_out], "step_s")
    if not raw or not median:
        return None
    fig, (ax,) = style.figure("s", x="step")
    raw_and_smooth(ax, raw, "teal")
    points = [
        (s["step"], min(s["step_s"], 2.5 * median)) for s in steps if s["step"] in left_out and s["step_s"] is not None
    ]
    if points:
        ax.plot(*zip(*points, strict=True), linestyle="", marker="o", markersize=4, color=style.color("grey"))
    ax.set_ylim(bottom=0)
    caption = t("step_time_caption") + _note(raw, t)
    return Plot("step-time", t("step_time_title"), caption, style.to_svg(fig, t("step_time_label")))


def _loss(r: Result, steps: list[Record], t: Words) -> Plot | None:
    raw = line(steps, "loss")
    if not raw:
        return None
    fig, (ax,) = style.figure(t("nats"), x="step")
    raw_and_smooth(ax, raw, "blue")
    tests = [(test["step"], test["loss"]) for test in r["evaluations"] if test["loss"] is not None]
    if tests:
        ax.plot(*zip(*tests, strict=True), color=style.color("orange"), marker="o", markersize=4.5, linewidth=1.2)
    ax.set_ylim(bottom=0)
    caption = t("loss_caption_tests" if tests else "loss_caption") + _note(raw, t)
    return Plot("loss", t("loss_title"), caption, style.to_svg(fig, t("loss_label")))


def _note(raw: Line, t: Words) -> str:
    return t("per_point", n=raw.per_point) if raw.per_point > 1 else ""
