"""The verb `podwright render`: readable scripts and a manifest for a cluster, to submit by hand."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from podwright.cli import show
from podwright.cli.options import Json, RecipeName, RunOverrides, variables
from podwright.errors import UserError, counted, typed_path

if TYPE_CHECKING:
    from podwright.recipe.kinds import Recipe
    from podwright.targets.settings.gke import GkeSettings


def render(
    recipe: RecipeName,
    overrides: RunOverrides = None,
    on: Annotated[str, typer.Option("--on", metavar="TARGET", help="one of your targets of kind=gke (required)")] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", parser=typed_path, metavar="DIR", help="write the files to this directory (required)"
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="render even if the plan refuses it")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="replace files in that directory that were edited")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write scripts and a manifest that run a recipe on a cluster of GKE.

    Nothing is asked of the cloud, and nothing is started. Rendering again changes nothing.
    A recipe is not rendered if its static plan is refused.
    """
    from podwright.cli.recipe_names import load_named
    from podwright.recipe import load
    from podwright.recipe.maxtext.schema import MaxTextRecipe
    from podwright.shell import Shell
    from podwright.targets import entries
    from podwright.targets.gke import folder, jobset, rendering
    from podwright.targets.settings.gke import GkeSettings

    if not on:
        raise UserError("--on is missing", "type --on TARGET; `podwright target list` shows yours", "missing-option")
    if out is None:
        raise UserError("-o is missing", "type -o DIR, a directory for the scripts", "missing-option")
    own = entries.require(on)
    if not isinstance(own, GkeSettings):
        what = f"target {on} is of kind {own.kind}, and scripts are rendered for kind=gke"
        raise UserError(
            what,
            f"type podwright run {shlex.quote(recipe)} --on {on} --dry-run, which shows what is submitted there",
            "wrong-kind",
        )
    typed, changes = variables(overrides)
    changed = load_named(recipe, changes)
    rendered = rendering.render(changed, own, on, typed)
    filled = changed
    if changed.kind == "maxtext":
        of_maxtext = rendering.filled(load.require(changed, MaxTextRecipe), own, on, typed)
        jobset.require_bash_syntax(of_maxtext, Shell().ask)
        filled = of_maxtext
    if not force:
        _require_sound(filled, own, on)
    states = folder.write(out, rendered.files, overwrite)
    if as_json:
        files = [{"name": name, "path": str(out / name), "state": state} for name, state in states.items()]
        submit = ["bash", str(out / rendered.submit)]
        show.document(
            {
                "recipe": changed.name,
                "target": on,
                "dir": str(out),
                "files": files,
                "submit": submit,
                "added": rendered.added,
                "differences": list(rendered.differences),
                "by_hand": list(rendered.by_hand),
            }
        )
        return
    for name, state in states.items():
        print(f"{state} {out / name}")
    if rendered.added:
        print(f"added to the arguments: {' '.join(f'{key}={value}' for key, value in rendered.added.items())}")
    for line in rendered.differences:
        print(f"warning: {line}")
    for line in rendered.by_hand:
        print(f"by hand: {line}")
    print(
        f"next: bash {shlex.quote(str(out / 'setup_training_env.sh'))}, then bash {shlex.quote(str(out / rendered.submit))}"
    )


def _require_sound(recipe: Recipe, own: GkeSettings, on: str) -> None:
    """UserError for the errors that a static plan finds in a recipe whose variables are filled in. No other machine is asked."""
    from podwright.plan import kinds, make
    from podwright.plan.checks import patience
    from podwright.plan.options import Destination, PlanOptions

    where = kinds.of(recipe).written_for(recipe) or own.devices()
    with patience.only_about(["mesh"]):
        planned = make.static(recipe, Destination(on, where), PlanOptions())
    errors = [finding for finding in planned.findings if finding.level == "error"]
    if errors:
        others = f" and {counted(len(errors) - 1, 'other error')}" if len(errors) > 1 else ""
        what = f"a plan of {recipe.name} is refused: {errors[0].message}{others}"
        fix = errors[0].fix.replace("type --fit", "type podwright plan with --fit")
        raise UserError(what, f"{fix}; --force renders it", "plan-refused")
