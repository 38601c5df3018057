"""`podwright report --log`: the write-up of a training log of MaxText, from a file or from standard input."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from podwright.cli import show
from podwright.errors import UserError, expanded, warn
from podwright.rundir import RunDir

LogFile = Annotated[str, typer.Option("--log", metavar="FILE", help="write up this log of MaxText; -: standard input")]
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
COMMAND = "podwright report --log -"


def refuse_without_log(recipe: str, on: str, profile: str, language: str) -> None:
    """UserError for an option that needs --log."""
    given = {"--recipe": recipe, "--on": on, "--profile": profile, "--lang": "" if language == "en" else language}
    if name := next((name for name, value in given.items() if value), ""):
        raise UserError(f"{name} works only with --log", f"add --log FILE, or leave {name} out")


def of_log(name: str) -> RunDir | None:
    """The directory that `podwright report --log` wrote; None of another one."""
    from podwright.report.maxtext import reload

    place = expanded(name)
    return RunDir(place) if reload.is_report(place) else None


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
    """Read the log, write its files, print a summary or the document."""
    from podwright.cli.recipe_names import load_named
    from podwright.report.maxtext import facts, pages, profile_files
    from podwright.report.maxtext.words import LANGUAGES, Words
    from podwright.watch import log_files

    if override := next((name for name in names if "=" in name), ""):
        what = f"--log takes no {override}: its recipe is the one that was run"
        raise UserError(what, f"leave {override} out")
    if names and re.fullmatch(r"\d+x", on):
        raise UserError(f"--on {on} {names[0]} is two words", f"type --on {on}{names[0]}")
    if names or compare:
        what = f"the run {names[0]}" if names else "--compare"
        raise UserError(f"--log {log} and {what} exclude each other", "type podwright report once for each of them")
    if language not in LANGUAGES:
        raise UserError(
            f"--lang {language} is no language of a write-up", f"type --lang {' or --lang '.join(LANGUAGES)}"
        )
    resolved = load_named(recipe) if recipe else None
    if resolved is not None:
        facts.require_maxtext(resolved)
    blocks = (
        iter(lambda: sys.stdin.buffer.read(1 << 20), b"") if log == "-" else log_files.blocks(expanded(log), COMMAND)
    )
    written = pages.read(blocks, log, resolved, on)
    folder = out or Path(f"{'log' if log == '-' else Path(log).stem}-report")
    if profile:
        written.result["profile"] = profile_files.fetched(profile, folder)
    kept = pages.write(written, folder, readme, language)
    for text in kept:
        warn(text)
    if as_json:
        show.document(written.result)
        return
    for text in pages.summary(written.result, Words(language)):
        print(text)
    show.log_report(folder, readme, written.result["profile"])
