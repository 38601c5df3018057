"""One question to the compute half: a process of its own, progress on stderr, one JSON document on stdout."""

from __future__ import annotations

import sys

import typer

from podwright.cli import show
from podwright.cli.exit_codes import of_check
from podwright.cli.show import Row
from podwright.errors import UserError


def answer(arguments: list[str]) -> tuple[int, Row]:
    """The exit code of `python -m podwright.train ARGUMENTS` and what it said; UserError when that was one."""
    from podwright.shell import Shell

    code, out = Shell().output([sys.executable, "-m", "podwright.train", *arguments])
    document = show.parsed(out)
    if "error" in document:
        raise UserError(document["error"], document["fix"])
    return code, document


def ask(arguments: list[str], as_json: bool) -> None:
    code, document = answer(arguments)
    if document:
        show.document(document) if as_json else show.values(document)
    raise typer.Exit(of_check(code == 0))
