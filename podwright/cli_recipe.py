"""The verbs of `podwright recipe`: settings that were made for another program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from podwright import show
from podwright.cli_options import Json
from podwright.errors import UserError

verbs = typer.Typer(
    help="Take over settings that were made for another program.", no_args_is_help=True, rich_markup_mode=None
)


@verbs.callback()
def group() -> None:
    """A callback keeps a single verb from being taken for the group."""


@verbs.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="PurrSight's phase2_cluster.yaml, as it is")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="write the recipe there; default: beside it, by its name"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a recipe that does what a file of PurrSight's says, and tell what became of each key."""
    from podwright.recipe import load, purrsight

    found = purrsight.imported(file)
    place = out or file.with_name(f"{found.recipe['name']}.recipe.yaml")
    if place.exists():
        raise UserError(f"{place} is there already", "name another with --out")
    place.write_text(load.written(found.recipe))
    argv = ["podwright", "run", str(place)]
    if as_json:
        show.document(
            {"recipe": found.recipe, "out": str(place), "argv": argv, "target": found.target, "notes": found.notes}
        )
        return
    for key, note in found.notes.items():
        print(f"{key}: {note}")
    print(f"wrote {place}; type: {' '.join(argv)}")
    if found.target:
        print(f"for its cluster, type: {' '.join(found.target)}")
