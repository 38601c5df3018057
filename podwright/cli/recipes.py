"""The verbs of `podwright recipes` (the shipped ones) and `podwright recipe` (configuration imported from another framework)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from podwright.cli import show
from podwright.cli.options import Json, Overrides, RecipeName
from podwright.errors import UserError, expanded

shipped = typer.Typer(help="List recipes, or show one with the meaning of its values.", rich_markup_mode=None)
importers = typer.Typer(
    help="Import configuration from another framework.", no_args_is_help=True, rich_markup_mode=None
)


@shipped.callback(invoke_without_command=True)
def recipes_default(context: typer.Context, as_json: Json = False) -> None:
    if context.invoked_subcommand is None:
        recipes_list(as_json)


@shipped.command("list")
def recipes_list(as_json: Json = False) -> None:
    """List the shipped recipes with their hardware and run time."""
    from podwright.recipe import load

    loaded = [load.load(name) for name in load.shipped()]
    rows = [{"name": r.name, "description": r.description, **r.expect.model_dump()} for r in loaded]
    show.document(rows) if as_json else show.recipes(rows)


@shipped.command("show")
def recipes_show(recipe: RecipeName, overrides: Overrides = None, as_json: Json = False) -> None:
    """Show every value of a recipe with its meaning."""
    from podwright.recipe import load

    resolved = load.load(recipe, overrides or [])
    values = resolved.model_dump(mode="json")
    show.document(values) if as_json else show.settings(values, load.fields(type(resolved)))


@importers.callback()
def group() -> None:
    """A callback keeps a single verb from being taken for the group."""


@importers.command("import")
def import_(
    file: Annotated[
        Path,
        typer.Argument(
            parser=expanded,
            metavar="FILE",
            help="an override file of tunix, or PurrSight's phase2_cluster.yaml, phase2_example.yaml or train_config.yaml, as it is",
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...", help="of tunix, as its command line takes them: rl_training_config.max_steps=100"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", parser=expanded, metavar="FILE", help="write the recipe there; default: beside it, by its name"
        ),
    ] = None,
    phase: Annotated[
        int | None,
        typer.Option(
            "--phase",
            metavar="N",
            min=1,
            max=2,
            help="of a file of PurrSight with both: 1 (the aligner) or 2; default: 2",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Convert a configuration file of tunix or PurrSight to a recipe, and print what became of each key."""
    from podwright.recipe import imports, load

    imported = imports.imported(file, phase, overrides or [])
    place = out or file.with_name(f"{imported.recipe['name']}.recipe.yaml")
    if place.exists():
        raise UserError(f"{place} exists already", "name another file with --out")
    place.write_text(load.written(imported.recipe))
    argv = ["podwright", "run", str(place)]
    if as_json:
        show.document(
            {
                "recipe": imported.recipe,
                "out": str(place),
                "argv": argv,
                "target": imported.target,
                "notes": imported.notes,
            }
        )
        return
    for key, note in imported.notes.items():
        print(f"{key}: {note}")
    print(f"wrote {place}; type: {' '.join(argv)}")
    if imported.target:
        print(f"for its cluster, type: {' '.join(imported.target)}")
