"""A MaxText recipe with the values of a target: what stands in it as `${NAME}` is filled in, and what is missing is said. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from podwright.errors import UserError
from podwright.recipe.maxtext import secret_values, xpk
from podwright.recipe.maxtext.schema import VARIABLE, MaxTextRecipe, filled, of_several_lines
from podwright.targets.settings.gke import GkeSettings

NAME = "WORKLOAD_NAME"
"""variable that the script which submits fills in, with a name for each run"""
IMAGE = "WORKLOAD_IMAGE"
"""variable of an image that is built if it is missing"""
_OF_TARGET = {"BASE_OUTPUT_DIR": "bucket", IMAGE: "image"}
"""variable -> key of the target"""
_PLAIN = re.compile(r"[\w./:@=+,%-]*")
PROFILER = {"profiler": "xplane", "profiler_steps": "3", "skip_first_n_steps_for_profiler": "5"}
"""arguments of MaxText for a trace of steps 5 to 7"""
_LAST_TRACED = 8


def values(recipe: MaxTextRecipe, own: GkeSettings, target: str, typed: Mapping[str, str]) -> dict[str, str]:
    """Of every variable of the recipe but the name of the run; UserError, in one line, for all that are missing.

    `typed`: values of variables from the command line, which count before those of the target.
    """
    if NAME in typed:
        what = f"{NAME} names a run, and a folder is rendered for many"
        raise UserError(what, f"type {NAME}=... before bash submit_...sh", "name-decided")
    known = {
        "PROJECT_ID": own.project,
        "CLUSTER_NAME": own.cluster,
        "ZONE": own.zones[0],
        "BASE_OUTPUT_DIR": own.bucket,
        IMAGE: own.image,
        "ARTIFACT_DIR": f"{own.bucket}/${{{NAME}}}" if own.bucket else "",
        **typed,
    }
    for name, value in typed.items():
        if VARIABLE.search(value) or not value.isprintable():
            what = f"{name}={value!r} has a variable, or a character that cannot be printed"
            raise UserError(what, "write its value out", "wrong-value")
    missing = [name for name in recipe.variables if name != NAME and not known.get(name)]
    if missing:
        keys = [_OF_TARGET[name] for name in missing if name in _OF_TARGET]
        others = [f"{name}=VALUE" for name in missing if name not in _OF_TARGET]
        fixes = [f"set {' and '.join(keys)} in the file of target {target}"] if keys else []
        fixes += [f"type {' '.join(others)}"] if others else []
        raise UserError(f"the recipe has no value of {', '.join(missing)}", " and ".join(fixes), "missing-variable")
    unknown = [name for name in typed if name not in recipe.variables]
    if unknown:
        raise UserError(f"{recipe.name} has no variable {unknown[0]}", "leave it out", "unknown-variable")
    return {name: known[name] for name in recipe.variables if known.get(name)}


def resolved(recipe: MaxTextRecipe, given: Mapping[str, str]) -> MaxTextRecipe:
    """The recipe with the values filled in. UserError for a value that would be read as shell text where it would stand."""
    launch = recipe.launch
    for text in (launch.module, launch.base_config, *launch.setup, launch.after):
        for name in VARIABLE.findall(text):
            if name in given and not _PLAIN.fullmatch(VARIABLE.sub("", given[name])):
                what = f"{name}={given[name]} would be read by a shell in {text!r}"
                raise UserError(what, "write letters, digits and . / : @ = + , % - _ alone", "shell-text")
    table = dict(given)
    changes: dict[str, Any] = {
        "image": filled(recipe.image, table),
        "launch": launch.model_copy(
            update={
                "module": filled(launch.module, table),
                "base_config": filled(launch.base_config, table),
                "setup": tuple(filled(each, table) for each in launch.setup),
                "after": filled(launch.after, table),
            }
        ),
        "xla_flags": tuple(filled(each, table) for each in recipe.xla_flags),
        "arguments": {key: filled(value, table) for key, value in recipe.arguments.items()},
        "environment": {key: filled(value, table) for key, value in recipe.environment.items()},
        "xpk": {key: filled(value, table) for key, value in recipe.xpk.items()},
    }
    return recipe.model_copy(update=changes)


def require_own_options(recipe: MaxTextRecipe) -> None:
    """UserError for an option of xpk that is not the recipe's to decide, and for a secret. Of one whose variables have values."""
    secret_values.require_none(recipe)
    xpk.require_undecided(recipe.xpk)
    base = recipe.xpk.get("base-docker-image", recipe.image)
    if base != recipe.image:
        what = f"the recipe has xpk.base-docker-image={base}, and its image is {recipe.image}"
        raise UserError(what, f"type image={shlex.quote(base)}, or leave xpk.base-docker-image out", "two-images")


def profiled(recipe: MaxTextRecipe) -> tuple[MaxTextRecipe, dict[str, str]]:
    """With the arguments of a short trace where the recipe has none of a profiler and enough steps; and what was added."""
    steps = recipe.arguments.get("steps", "")
    if "profiler" in recipe.arguments or "maxtext" not in recipe.launch.module.lower():
        return recipe, {}  # MaxDiffusion, and scripts of a fork, have other arguments
    if steps.isdigit() and int(steps) <= _LAST_TRACED:
        return recipe, {}
    added = {key: value for key, value in PROFILER.items() if key not in recipe.arguments}
    return recipe.model_copy(update={"arguments": recipe.arguments | added}), added


def require_one_line(lines: list[str]) -> None:
    """UserError for a command that has a line break within: it is handed on as one line."""
    if broken := of_several_lines(lines):
        what = f"the container's command has a line break: {broken[0][:60]!r}"
        raise UserError(what, "write it on one line, with && or ; between commands", "line-break")
