"""The KEY=VALUE that a user types at an import: each must change something, in the script or in its recipe."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence

from podwright.errors import UserError, nearest
from podwright.recipe.maxtext import xpk
from podwright.recipe.maxtext.imported import ImportedScript
from podwright.recipe.maxtext.schema import FROM_TARGET, MaxTextRecipe
from podwright.recipe.script_text import BARE, NESTED, contexts, with_placeholders

_USED = re.compile(r"\$\{?[#!]?([A-Za-z_]\w*)")
_ASSIGNMENT = r"([A-Za-z_]\w*)\+?=(?:\"[^\"]*\"|'[^']*'|[^\s;&|\"'])*"
# Where a command begins: words behind a program's name are its arguments, whatever they look like.
_BEGIN = r"(?:^|[;&|({]|\b(?:export|local|declare|readonly|typeset|then|do|else)\b)"
_SETTING = re.compile(rf"{_BEGIN}[ \t]*((?:(?:-\w+|{_ASSIGNMENT})[ \t]*)+)", re.M)
_SET = re.compile(_ASSIGNMENT)
_OF_BASH = re.compile(r"S?RANDOM|SECONDS|EPOCH\w+|LINENO|E?UID|PPID|BASH\w*|IFS")
_ENVIRONMENT = ("USER", "HOME")


def overrides(pairs: Sequence[str]) -> list[str]:
    """Those for the recipe, such as arguments.steps=3; the others are values of the script."""
    return [pair for pair in pairs if "." in pair.partition("=")[0]]


def require_options(pairs: Sequence[str], version: str) -> None:
    """UserError for an option of xpk that a recipe cannot set: one that its xpk does not have, or that a run, a target or another key decides."""
    for key in (pair.partition("=")[0] for pair in overrides(pairs)):
        if key.startswith("xpk."):
            xpk.require_undecided([key.removeprefix("xpk.")])
            xpk.require_option(key.removeprefix("xpk."), version)


def require_settable(name: str) -> None:
    """UserError for a variable that bash sets itself, whatever its environment has."""
    if _OF_BASH.fullmatch(name):
        raise UserError(
            f"{name} is set by bash itself", f"write a value in place of ${name} in a copy of the script", "set-by-bash"
        )


def unused(texts: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Names that are neither a variable nor a placeholder of the first text, nor a variable of the files beside it."""
    used = {*_USED.findall("\n".join(texts)), *_ENVIRONMENT}
    for text in texts:
        kinds = contexts(text)
        joined = text.replace("\\\n", "  ")  # as long as before
        for match in _SETTING.finditer(joined):
            if kinds[match.start(1)] in (BARE, NESTED):
                used |= {*_SET.findall(match[1])}
    rest = [name for name in values if name not in used]
    plain = with_placeholders(texts[0])[0]
    return [name for name in rest if with_placeholders(texts[0], {name: "\0"})[0] == plain]


def left_to_target(values: Mapping[str, str], imported: ImportedScript) -> dict[str, str]:
    """A note for each typed value that is not in the recipe, because a target or its run fills it in."""
    text = str(imported.recipe)
    names = [name for name in FROM_TARGET if values.get(name) and (f"${{{name}}}" in text or values[name] not in text)]
    return {name: f"{values[name]} is not in the recipe: a target or its run fills it in" for name in names}


def refuse(place: object, given: Mapping[str, str], texts: Sequence[str], arguments: Collection[str]) -> None:
    """UserError for the first name of `given`, which nothing in the script is called, with what its user may have meant."""
    for name, value in given.items():
        what, fix = f"there is no variable or placeholder {name} in {place}", "leave it out"
        variables = {*_USED.findall("\n".join(texts)), *with_placeholders(texts[0])[1]} - {"USER", "HOME"}
        if name in arguments:
            fix = f"type {shlex.quote(f'arguments.{name}={value}')}"
        elif name in MaxTextRecipe.model_fields:
            fix = f"import without it, and type podwright plan RECIPE {shlex.quote(f'{name}={value}')}"
        elif guess := nearest(name, sorted(variables)):
            fix = f"did you mean {guess}?"
        raise UserError(what, fix, "unknown-variable")
