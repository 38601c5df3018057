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
    known, words = tree.named_scripts(checkout), name.lower().replace("-", " ").split()
    exact = [path for path, its in known.items() if its == name]
    scripts = exact or [
        path for path in known if all(tree.has_word(path.relative_to(checkout), word) for word in words)
    ]
    if len(scripts) > 1:
        listed = ", ".join(sorted(tree.proposed(scripts, known))[:6])
        raise UserError(
            f"{len(scripts)} launch scripts in {checkout} have {name!r} in their path",
            f"name one of them: {listed}",
            "several-recipes",
        )
    return scripts[0] if scripts else None
