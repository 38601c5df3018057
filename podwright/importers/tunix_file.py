"""tunix's configuration files as dotted keys: sections or dotted names, and the `key=value` words of its command line after them.

tunix reads a base_config.yaml and then what overrides it; defaults() has what is trained with where neither says a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from podwright.errors import UserError
from podwright.importers import key_table
from podwright.importers.key_table import KeyTable, Settings
from podwright.recipe.load import value_of

ROLES = ("model_config", "actor_model_config", "reference_model_config", "rollout_model_config")
TRAINING = "rl_training_config"
OPTIMIZER = f"{TRAINING}.actor_optimizer_config"
_SECTIONS = {*ROLES, "grpo_config", TRAINING, "rollout_config", "tokenizer_config", "reward_functions"}


def table() -> KeyTable:
    return key_table.read("tunix")


def recognised(raw: dict[Any, Any]) -> bool:
    """Whether a file has a section of tunix, nested or dotted."""
    return any(str(key).partition(".")[0] in _SECTIONS for key in raw)


def settings(path: Path, raw: dict[Any, Any], overrides: Sequence[str] = ()) -> Settings:
    """Dotted key -> value, in the order of the file; an override takes the place of a key, as in tunix.

    UserError for a key that is there twice, once nested and once dotted.
    """
    values: Settings = {}
    for key, value in _leaves(raw):
        _refuse_twice(key, values, f"{path} has")
        values[key] = value
    typed: Settings = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UserError(
                f"{text!r} is not an override",
                "write key=value, such as grpo_config.num_generations=4",
                "not-an-override",
            )
        _refuse_twice(key, typed, "the command line has")
        typed[key] = value_of(key, value)
    for key in typed:
        values = {name: value for name, value in values.items() if not f"{name}.".startswith(f"{key}.")}
    return values | dict(_leaves(typed))


def _refuse_twice(key: str, values: Settings, where: str) -> None:
    for other in values:
        if f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}."):
            both = key if key == other else f"{other} and {key}"
            raise UserError(f"{where} the key {both} twice", "leave one of them out", "key-twice")


def _leaves(raw: dict[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Sections without a key are leaves: {}."""
    for key, value in raw.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{name}.")
        else:
            yield name, value


def defaults(settings: Settings) -> dict[str, tuple[Any, str]]:
    """Key that is not in `settings` -> (its value, who says it).

    An override of any key of rl_training_config takes the place of that whole section, so that what is then missing has optax's defaults.
    """
    replaced = any(key.startswith(TRAINING) for key in settings)
    section = "optax.adamw" if replaced else "base_config.yaml"
    known = {key: (value, "tunix's base_config.yaml") for key, value in table().defaults["any"].items()}
    where = section if replaced else f"tunix's {section}"
    known |= {key: (value, where) for key, value in table().defaults[section].items()}
    return {key: pair for key, pair in known.items() if key not in settings}
