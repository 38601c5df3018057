"""tunix's configuration files as dotted keys: sections or dotted names, and the `key=value` words of its command line after them.

tunix reads a base_config.yaml and then what overrides it; defaults() has what is trained with where neither says a value.
The keys were read at google/tunix c7d8950f (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from podwright.errors import UserError
from podwright.recipe.yaml_file import Loader

ROLES = ("model_config", "actor_model_config", "reference_model_config", "rollout_model_config")
_SECTIONS = {*ROLES, "grpo_config", "rl_training_config", "rollout_config", "tokenizer_config", "reward_functions"}
OPTIMIZER = "rl_training_config.actor_optimizer_config"
_OF_ANY = {
    "batch_size": 16,
    "grpo_config.num_generations": 2,
    "grpo_config.num_iterations": 1,
    "grpo_config.beta": 0.08,
    "grpo_config.epsilon": 0.2,
    "rollout_config.total_generation_steps": 768,
    "rollout_config.max_prompt_length": 256,
    "rollout_config.temperature": 0.9,
    "rollout_config.top_p": 1.0,
    "rollout_config.top_k": 50,
}
_OF_BASE = {
    "rl_training_config.max_steps": 10,
    "rl_training_config.eval_every_n_steps": 2,
    "rl_training_config.checkpointing_options.save_interval_steps": 180,
    f"{OPTIMIZER}.peak_value": 3e-5,
    f"{OPTIMIZER}.warmup_steps": 5,
    f"{OPTIMIZER}.decay_steps": 10,
    f"{OPTIMIZER}.b1": 0.9,
    f"{OPTIMIZER}.b2": 0.99,
    f"{OPTIMIZER}.weight_decay": 0.1,
    f"{OPTIMIZER}.max_grad_norm": 0.1,
}
_OF_OPTAX = {
    f"{OPTIMIZER}.b1": 0.9,
    f"{OPTIMIZER}.b2": 0.999,
    f"{OPTIMIZER}.weight_decay": 1e-4,
    f"{OPTIMIZER}.max_grad_norm": None,
}
_WHERE = "; the file does not say it, and {} does"


def recognised(raw: dict[Any, Any]) -> bool:
    """Whether a file has a section of tunix, nested or dotted."""
    return any(str(key).partition(".")[0] in _SECTIONS for key in raw)


def settings(path: Path, raw: dict[Any, Any], overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Dotted key -> value, in the order of the file; an override takes the place of a key, as in tunix.

    UserError for a key that is there twice, once nested and once dotted.
    """
    values: dict[str, Any] = {}
    for key, value in _leaves(raw):
        _refuse_twice(key, values, f"{path} has")
        values[key] = value
    typed: dict[str, Any] = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UserError(f"{text!r} is not an override", "write key=value, such as grpo_config.num_generations=4")
        _refuse_twice(key, typed, "the command line has")
        try:
            typed[key] = yaml.load(value, Loader)
        except yaml.YAMLError as e:
            raise UserError(f"{key}={value} cannot be read as a value", "quote it") from e
    for key in typed:
        values = {name: value for name, value in values.items() if not f"{name}.".startswith(f"{key}.")}
    for key, value in _leaves(typed):
        values[key] = value
    return values


def _refuse_twice(key: str, values: dict[str, Any], where: str) -> None:
    for other in values:
        if f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}."):
            both = key if key == other else f"{other} and {key}"
            raise UserError(f"{where} the key {both} twice", "leave one of them out")


def _leaves(raw: dict[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Sections without a key are leaves: {}."""
    for key, value in raw.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{name}.")
        else:
            yield name, value


def defaults(settings: dict[str, Any]) -> dict[str, tuple[Any, str]]:
    """Key that is not in `settings` -> (its value, the end of its note).

    An override of any key of rl_training_config takes the place of that whole section, so that what is then missing has optax's defaults.
    """
    replaced = any(key.startswith("rl_training_config") for key in settings)
    base, optax = (_WHERE.format(name) for name in ("tunix's base_config.yaml", "optax.adamw"))
    known: dict[str, tuple[Any, str]] = {key: (value, base) for key, value in _OF_ANY.items()}
    known |= {key: (v, optax if replaced else base) for key, v in (_OF_OPTAX if replaced else _OF_BASE).items()}
    return {key: pair for key, pair in known.items() if key not in settings}
