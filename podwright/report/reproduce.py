"""The command that runs a recipe again, and which of its settings are not the defaults of the schema."""

from __future__ import annotations

import dataclasses
import json
import shlex
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from podwright.recipe.kinds import Recipe
from podwright.recipe.load import fields, load, shipped
from podwright.report.records import Records
from podwright.rundir import RunDir, flat

NOT_SETTINGS = ("kind", "name", "description", "expect")


@dataclasses.dataclass(frozen=True)
class RecipeValue:
    key: str
    value: Any
    default: Any
    """what the schema has; None where a recipe must say"""
    changed: bool
    meaning: str


def command(run: RunDir, records: Records) -> str:
    """One line that starts the same run again."""
    words = ["podwright", "run", *_recipe_words(run, records), "--on", _target(records)]
    return shlex.join(words)


def settings(recipe: Recipe | None) -> list[RecipeValue]:
    """Every setting of `recipe`, those that differ from the schema's defaults first."""
    if recipe is None:
        return []
    meanings = fields(type(recipe))
    defaults = _defaults(type(recipe))
    values = flat(recipe.model_dump(mode="json"), meanings)
    listed = []
    for key, value in values.items():
        if key.split(".")[0] not in NOT_SETTINGS:
            default = defaults.get(key)
            listed.append(
                RecipeValue(key, value, default, key not in defaults or value != default, meanings.get(key, ""))
            )
    return sorted(listed, key=lambda s: not s.changed)


def _recipe_words(run: RunDir, records: Records) -> list[str]:
    """The shipped name plus overrides where that says it all, else the run's own resolved recipe."""
    recipe = records.recipe
    if recipe is None or recipe.name not in shipped():
        return [str(run.recipe)]
    keys = set(fields(type(recipe)))
    was, now = (flat(r.model_dump(mode="json"), keys) for r in (load(recipe.name), recipe))
    changed = [f"{key}={_word(value)}" for key, value in now.items() if key not in was or value != was[key]]
    return [recipe.name, *changed]


def _word(value: Any) -> str:
    return value if isinstance(value, str) and value.isidentifier() else json.dumps(value, ensure_ascii=False)


def _target(records: Records) -> str:
    """The target that the journal names last."""
    named = [r["target"] for r in records.journal if isinstance(r.get("target"), str)]
    return named[-1] if named else "local"


def _defaults(model: type[BaseModel], prefix: str = "") -> dict[str, Any]:
    defaults: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            defaults |= _defaults(section, f"{prefix}{name}.")
        elif field.default is not PydanticUndefined:
            default = field.default
            defaults[prefix + name] = list(default) if isinstance(default, tuple) else default
    return defaults
