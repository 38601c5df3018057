"""The call of xpk of a launch script whose recipe was changed at the import: its words follow the recipe."""

from __future__ import annotations

from podwright.recipe.maxtext.imported import ImportedScript
from podwright.recipe.maxtext.schema import MaxTextRecipe, command, filled


def argv(imported: ImportedScript, before: MaxTextRecipe, after: MaxTextRecipe) -> tuple[str, ...]:
    """Those of the script, with the options of xpk in which `after` differs from `before` behind the others; `()` where the script has no call."""
    if not imported.argv:
        return ()
    changes = {name: value for name, value in after.xpk.items() if before.xpk.get(name) != value}
    if command(after) != command(before):
        changes["command"] = command(after)
    kept, rest = list(imported.argv[:3]), list(imported.argv[3:])
    while rest:
        option = [rest.pop(0)]
        if "=" not in option[0] and rest and not rest[0].startswith("--"):
            option.append(rest.pop(0))
        if option[0].removeprefix("--").partition("=")[0] not in changes:
            kept += option
    values = {name: filled(value, imported.filled) for name, value in changes.items()}
    return (*kept, *(f"--{name}={value}" if value else f"--{name}" for name, value in values.items()))
