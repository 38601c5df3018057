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


def load_named(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """With `key.path=value` overrides applied. UserError for a name that nothing has, or several launch scripts."""
    path = None if load.exists(name) else _script(name)
    if path is None:
        return load.load(name, overrides)
    from podwright.cli import imports

    return load.override(imports.recipe_of(path), overrides)


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
