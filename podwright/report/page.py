"""The report of a run as files: report.md, report.html, result.json and the plots, and on request a section in a README.

The figures are those of `result.py`; the templates decide only what stands where.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podwright.errors import counted
from podwright.report import kinds, markdown, prediction, readme, records, reproduce, wording
from podwright.report.figures import style
from podwright.report.figures.drawing import Plot
from podwright.report.records import Result
from podwright.report.result import of_records
from podwright.report.words import Words
from podwright.run import mirror
from podwright.rundir import Record, RunDir, replace_file, write_json

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"
MOST_SAMPLES = 8
LOG_ROWS = 8
FIRST_ROWS, LAST_ROWS = 20, 10


def write(run: RunDir, readme_file: Path | None = None, language: str = "en") -> Result:
    """Write the report of `run` into its directory and return result.json; with `readme_file`, extend that README too."""
    mirror.look(run)  # what is here is reported if the storage cannot be read
    read = records.read(run)
    t = Words(language)
    result = of_records(run, read)
    text = kinds.page_text(result, t)
    drawn = kinds.plots(read, result)
    context = _context(read, result, text, drawn) | {"t": t}
    save(run.report, "report", context, drawn)
    for path in run.report.glob("*.svg"):
        if path.stem not in {plot.name for plot in drawn}:
            path.unlink()
    write_json(run.report / "result.json", result)
    if readme_file is not None:
        link = Path(os.path.relpath(run.report / "report.md", readme_file.resolve().parent)).as_posix()
        section, table = (
            markdown_templates().get_template(f"{name}.md.j2").render(context, link=link)
            for name in ("section", "table")
        )
        title = t("title", model=markdown.escape(result.get("model") or _title(read)))
        readme.put(readme_file, result.get("mark", read.name), section, title, table)
    return result


def save(folder: Path, name: str, context: Record, drawn: list[Plot]) -> None:
    """Write the plots, and the pages NAME.md and NAME.html, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for plot in drawn:
        replace_file(folder / f"{plot.name}.svg", style.standalone(plot.svg).encode())
    for page, templates in ((f"{name}.md", markdown_templates()), (f"{name}.html", html_templates())):
        replace_file(folder / page, templates.get_template(f"{page}.j2").render(context).encode())


def summary(result: Result, language: str = "en") -> list[str]:
    """The first screen of the report as lines of text: results, warnings, how the run ended, speed, expected and measured."""
    t = Words(language)
    text = kinds.page_text(result, t)
    lines = [text.headline, wording.capitalize_first(text.details)]
    lines += [f"warning: {warning}" for warning in text.warnings]
    lines += [text.ended]
    lines += [f"{t('To do')}: {text.fix}"] if text.fix else []
    lines += [*text.notes, text.expected]
    if result["notices"]:
        lines += [f"{counted(len(result['notices']), 'notice')} of the trainer in the report."]
    return [wording.visible(" ".join(line.split())) for line in lines if line]


def _context(read: records.Records, result: Result, text: kinds.PageText, drawn: list[Plot]) -> Record:
    settings = reproduce.settings(read.recipe)
    kind = kinds.of(result)
    steps = read.steps()
    breakdown = result["wall_time"][f"inside_{read.main}_s"]
    medians = result["steady_state"]
    named = kind.FACTS.steady.items()
    speeds = [(words, medians[name], unit) for name, (words, unit) in named if medians[name] is not None]
    first_and_last = steps
    if len(steps) > FIRST_ROWS + LAST_ROWS:
        first_and_last = steps[:FIRST_ROWS] + steps[-LAST_ROWS:]
    return {
        "r": result,
        "kind": result["kind"],
        "step": kind.FACTS.step,
        "text": text,
        "plots": drawn,
        "changed": [s for s in settings if s.changed],
        "defaults": [s for s in settings if not s.changed],
        "samples": pairs(read.samples)[:MOST_SAMPLES],
        "num_samples": len(pairs(read.samples)),
        "phases": _shares(result["wall_time"]["phases_s"]),
        "parts": _shares({k: v for k, v in breakdown.items() if v}),
        "speeds": speeds,
        "log": _log(steps),
        "first_and_last": first_and_last,
        "light": style.variables(0),
        "dark": style.variables(1),
    }


def pairs(samples: list[Record]) -> list[Record]:
    """Samples by question, in the order of the file: {question, answer, before, after}."""
    by_question: dict[str, Record] = {}
    for sample in samples:
        question = str(sample["question"])
        pair = by_question.setdefault(
            question, {"question": question, "answer": sample.get("answer"), "before": None, "after": None}
        )
        if sample["when"] in ("before", "after"):
            pair[sample["when"]] = sample
    return list(by_question.values())


def _shares(seconds: dict[str, float]) -> list[tuple[str, float, float]]:
    total = sum(seconds.values()) or 1.0
    return [(name.replace("_", " "), value, value / total) for name, value in seconds.items()]


def _log(steps: list[Record]) -> list[Record]:
    """A few steps from the first to the last, evenly apart."""
    if len(steps) <= LOG_ROWS:
        return steps
    return [steps[round(i * (len(steps) - 1) / (LOG_ROWS - 1))] for i in range(LOG_ROWS)]


def _title(read: records.Records) -> str:
    return str(records.inner(read.raw, "model.name") or read.raw.get("name") or read.name)


def html_templates() -> Environment:
    environment = _environment(autoescape=True)
    environment.filters["code_spans"] = _code_spans
    return environment


def _code_spans(text: Any) -> str:
    """HTML of `text` with what stands in backticks as code, as advice is written."""
    from markupsafe import Markup, escape

    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(wording.visible(text)))))


def markdown_templates() -> Environment:
    environment = _environment(finalize=markdown.escape, keep_trailing_newline=True)
    environment.filters |= {"code": markdown.code, "code_spans": markdown.code_spans, "fence": markdown.fence}
    return environment


def _environment(**options: Any) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, **options
    )
    words = (
        wording.percent, wording.interval, wording.points, wording.figure, wording.duration, wording.date, wording.setting,
        wording.visible, wording.parameters, wording.chance, wording.signed_percent,
        wording.capitalize_first, wording.decimals, wording.times,
    )  # fmt: skip
    environment.filters |= {w.__name__: w for w in words}
    environment.globals |= {
        "DASH": wording.DASH,
        "PREDICTION_NOTE": prediction.NOTE,
        "NOT_MEASURED": prediction.NOT_MEASURED,
    }
    return environment
