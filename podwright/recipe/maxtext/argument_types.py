"""Which keys MaxText has, and what their values may be. A value is read as MaxText reads `key=value`: by YAML, then by pydantic.

Source: configs/types.py and common/common_types.py of MaxText e591f30 (2026-08-22), as lines `key type` of keys.txt. A type is bool, int,
float, list, dict or alternatives with | between them, int and float with their least value; ? behind it allows none. No type: a text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from podwright.errors import nearest

OLDER_KEYS = {
    "fsdp_shard_on_exp": "shard_exp_on_fsdp",
    "output_dir": "",
    **{f"{m}_tile_{pass_}_buffer_count": "" for m in ("wi", "wo") for pass_ in ("fwd", "dlhs", "drhs")},
}
"""keys of MaxText versions that public recipes ask for, with their name in e591f30; "" where it has none"""
_TRUE, _FALSE = ("true", "yes", "on", "y", "t", "1"), ("false", "no", "off", "n", "f", "0")
_NONE = frozenset({"", "none", "null", "~"})
_NUMBERS = {"int": "a whole number", "float": "a number"}
_ELEMENTS_ALONE = ("train_data_columns", "eval_data_columns", "trainable_parameters_mask", "adamw_mask")
"""lists of which MaxText takes a single element without brackets"""


@dataclass(frozen=True)
class WrongType:
    what: str
    """what is wrong with which value"""
    instead: str
    """to type in place of the value"""
    choices: tuple[str, ...] = ()
    """that e591f30 knows; () where the type allows any number, list or truth value"""


@functools.cache
def types() -> Mapping[str, str]:
    """Key -> its type, "" for a text."""
    lines = (Path(__file__).parent / "keys.txt").read_text().splitlines()
    return {key: type_ for key, _, type_ in (line.partition(" ") for line in lines)}


def unknown(arguments: Mapping[str, str]) -> list[str]:
    """Keys that neither MaxText e591f30 nor an older version that public recipes ask for has."""
    return [key for key in arguments if key not in types() and key not in OLDER_KEYS]


def wrong(key: str, value: str) -> WrongType | None:
    """What is wrong with a value by the type of its key; None where nothing is, or where the key has no type here."""
    type_ = types().get(key, "")
    allows_none = type_.endswith("?")
    base, _, least = type_.removesuffix("?").partition(">=")
    if base in ("", "dict") or "$" in value or (value.lower() in _NONE and allows_none):
        return None
    if "|" in base:
        choices = tuple(base.split("|"))
        if value in choices:
            return None
        typed = nearest(value, list(choices)) or next(filter(None, choices))
        return WrongType(f"{key}={value:.60} is no value of MaxText e591f30 (2026-08-22)", typed, choices)
    shown = f"{key}={value:.60}"
    if base == "bool":
        return None if truth(value) is not None else WrongType(f"{shown} is neither true nor false", "true or false")
    if base == "list":
        is_list = bool(re.fullmatch(r"\[.*\]", value.strip(), re.DOTALL)) or key in _ELEMENTS_ALONE
        return None if is_list else WrongType(f"{shown} is no list", f"[{value:.60}]")
    number_of = number(value)
    fits = number_of is not None and (base == "float" or number_of.is_integer())
    if number_of is not None and fits and (not least or number_of >= float(least)):
        return None
    bound = f" of at least {least}" if least else ""
    return WrongType(f"{shown} is not {_NUMBERS[base]}{bound}", "NUMBER")


def truth(value: str) -> bool | None:
    """As YAML and pydantic read it; None for what is neither true nor false."""
    word = value.lower()
    return word in _TRUE if word in _TRUE or word in _FALSE else None


def number(value: str) -> float | None:
    """As YAML reads it, 0x10 and 1e3 too; None for what is no number."""
    for read in (float, lambda text: float(int(text, 0))):
        try:
            return read(value)
        except (ValueError, OverflowError):
            continue
    return None
