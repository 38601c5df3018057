"""`podwright report --log`: the write-up of a training log of MaxText, from a file or from standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from podwright.cli import show
from podwright.errors import UserError, expanded
from podwright.rundir import RunDir

LogFile = Annotated[
    str, typer.Option("--log", metavar="FILE", help="make a run of this log of MaxText; -: standard input")
]
LogRecipe = Annotated[str, typer.Option("--recipe", metavar="RECIPE", help="with --log: the recipe that was run")]
LogSlice = Annotated[
    str, typer.Option("--on", metavar="SLICE", help="with --log: the slice that it ran on, if the recipe names none")
]
LogProfile = Annotated[
    str,
    typer.Option(
        "--profile", metavar="URL", help="with --log: also download the newest profile below this bucket or folder"
    ),
]
Language = Annotated[str, typer.Option("--lang", metavar="en|zh", help="with --log: language of the write-up")]


def refuse_without_log(recipe: str, on: str, profile: str, language: str) -> None:
    """UserError for an option that needs --log."""
    given = {"--recipe": recipe, "--on": on, "--profile": profile, "--lang": "" if language == "en" else language}
    for name, value in given.items():
        if value:
            what = f"{name} works only with --log"
            raise UserError(what, f"add --log FILE, or leave {name} out", "option-needs-other")


def of_log(name: str) -> RunDir | None:
    """The run that `podwright report --log` made of a log; None for another name."""
    from podwright.report.maxtext import log_run

    place = expanded(name)
    return RunDir(place) if log_run.is_log_run(place) else None


def write(
    log: str,
    names: list[str],
    recipe: str,
    on: str,
    profile: str,
    language: str,
    out: Path | None,
    readme: Path | None,
    compare: bool,
    as_json: bool,
) -> None:
    """Make a run of the log, write its report, print a summary or the document."""
    from podwright.cli.recipe_names import load_named
    from podwright.report import page
    from podwright.report.maxtext import facts, log_run, profile_files
    from podwright.report.words import LANGUAGES
    from podwright.watch import log_files

    if names or compare:
        other = names[0] if names else "--compare"
        raise UserError(f"--log {log} and {other} exclude each other", f"leave {other} out", "options-exclude")
    if language not in LANGUAGES:
        raise UserError(
            f"--lang {language} is no language of a write-up",
            f"type --lang {' or --lang '.join(LANGUAGES)}",
            "unknown-language",
        )
    resolved = load_named(recipe) if recipe else None
    if resolved is not None:
        facts.require_maxtext(resolved)
    if on:
        facts.ran_on(on)
    if log == "-":
        blocks: Iterable[bytes] = iter(lambda: sys.stdin.buffer.read(1 << 20), b"")
        folder = Path("log-report")
    else:
        blocks = log_files.blocks(expanded(log))
        folder = Path(f"{Path(log).stem}-report")
    run = log_run.create(out or folder, blocks, log, resolved, on, recipe)
    if profile:
        log_run.note_profile(run, profile_files.fetched(profile, run.path))
    result = page.write(run, readme, language)
    if as_json:
        show.document(result)
        return
    show.report(page.summary(result, language), run.report, readme, result["profile"])
