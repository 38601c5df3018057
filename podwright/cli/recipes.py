"""The verbs of `podwright recipes` (the shipped ones) and `podwright recipe` (configuration imported from another framework)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from podwright.cli import show
from podwright.cli.options import Json, Overrides, RecipeName
from podwright.errors import typed_path

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
    from podwright.cli.recipe_names import load_named
    from podwright.recipe import load

    resolved = load_named(recipe, overrides or [])
    values = resolved.model_dump(mode="json")
    show.document(values) if as_json else show.settings(values, load.fields(type(resolved)))


@importers.callback()
def group() -> None:
    """A callback keeps a single verb from being taken for the group."""


@importers.command("import")
def import_(
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|DIR|WORDS [KEY=VALUE]...",
            help="a file of tunix or PurrSight; a MaxText launch script, its directory, or words of its path such as "
            "'deepseek3 bf16 4x4x8'. KEY=VALUE sets a value: of tunix, such as rl_training_config.max_steps=100; of a script, such as "
            "BASE_OUTPUT_DIR=gs://bucket/runs or arguments.steps=50",
        ),
    ],
    tree: Annotated[
        Path | None,
        typer.Option(
            "--tree",
            parser=typed_path,
            metavar="DIR",
            help="a checkout of tpu-recipes, in which WORDS are looked up; default: `recipes` of your targets, else this directory",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            parser=typed_path,
            metavar="FILE|DIR",
            help="write the recipe there; default: NAME.recipe.yaml, next to a file of tunix or PurrSight, else in this directory",
        ),
    ] = None,
    phase: Annotated[
        int | None,
        typer.Option(
            "--phase",
            metavar="N",
            min=1,
            max=2,
            help="for a PurrSight file with both phases: 1 (the aligner) or 2; default: 2",
        ),
    ] = None,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="where no sandbox is possible, let a restricted bash run a launch script of MaxText without: it can write nothing, but read what you can read",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Convert configuration of tunix, PurrSight or MaxText to a recipe, and print what became of each part."""
    from podwright.cli import imports

    # The first word names the source, whatever is in it.
    words = [source[0], *(word for word in source[1:] if "=" not in word)]
    pairs = [word for word in source[1:] if "=" in word]
    imports.run(imports.ImportRequest(words, pairs, tree, out, phase, as_json, trust))
