"""Which recipe a word on the command line stands for: a shipped one, a file, or a launch script in the checkout of tpu-recipes that a target
of kind gke names as `recipes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from podwright.errors import UserError
from podwright.recipe import load
from podwright.recipe.kinds import Recipe
from podwright.recipe.maxtext import tree
from podwright.shell import targets_file


def load_named(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """With `key.path=value` overrides applied. UserError for a name that nothing has, or several launch scripts."""
    if load.exists(name):
        return load.load(name, overrides)
    if path := _script(name):
        from podwright.cli import imports

        return load.override(imports.recipe_of(path), overrides)
    try:
        return load.load(name, overrides)
    except UserError as e:
        raise UserError(e.what, f"{e.fix}{_of_checkouts(name)}") from e


def _of_checkouts(name: str) -> str:
    """Why `name` is not that of a launch script, and what to set; "" where no target can name a checkout, or it is a path."""
    from podwright.cli import imports

    named = imports.checkouts()
    if not named or "/" in name or Path(name).suffix in (".yaml", ".yml"):
        return ""
    given = sorted({each for each in named.values() if each})
    if not given:
        return f"; for a recipe of tpu-recipes, set recipes of target {next(iter(named))} to a checkout of it, in {targets_file()}"
    if len(given) > 1:
        return f"; targets have {' and '.join(given)} as recipes, and none is looked in: let all have one in {targets_file()}"
    return f"; {given[0]}, which targets have as recipes, has no such launch script"


def _script(name: str) -> Path | None:
    from podwright.cli import imports

    checkout = imports.tree_of_target()
    if checkout is None or "/" in name or not name.strip():
        return None
    names, scripts = tree.matching(name, checkout)
    scripts = scripts or tree.matching(name.replace("-", " "), checkout)[1]
    if len(scripts) > 1:
        listed = ", ".join(sorted(names[path] for path in scripts)[:3])
        what = f"{len(scripts)} launch scripts in {checkout} have {name!r} in their path"
        raise UserError(what, f"name one of them: {listed}", "several-recipes")
    return scripts[0] if scripts else None
