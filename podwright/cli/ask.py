"""One question to the compute half: a process of its own, progress on stderr, one JSON document on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable

import typer

from podwright.cli import show
from podwright.cli.exit_codes import of_check
from podwright.cli.show import Row
from podwright.errors import UserError


def answer(verb: str, options: Row, words: Iterable[str] = ()) -> tuple[int, Row]:
    """The exit code of `python -m podwright.train VERB OPTIONS WORDS` and what it said; UserError when that was one."""
    from podwright.shell import Shell

    code, out = Shell().answer([sys.executable, "-m", "podwright.train"], [verb, json.dumps(options), *words])
    document = show.parsed(out)
    if "error" in document:
        raise UserError(document["error"], document["fix"], document.get("code", ""))
    return code, document


def ask(
    verb: str, options: Row, as_json: bool, lines: Callable[[Row], Iterable[str]], words: Iterable[str] = ()
) -> None:
    """Print what a verb answers, as JSON or as the `lines` of it."""
    code, document = answer(verb, options, words)
    if as_json and document:
        show.document(document)
    for line in lines(document) if document and not as_json else ():
        print(line)
    raise typer.Exit(of_check(code == 0 and bool(document)))
