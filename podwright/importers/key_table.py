"""The keys of another program as a table in YAML: their key in a recipe, the values that are implemented, or why nothing has to be done."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from podwright.errors import UserError
from podwright.recipe.load import Raw
from podwright.recipe.yaml_file import facts

Settings = dict[str, Any]
"""values of a file by dotted key"""
NOTHING = "nothing to do: "


class Conversion(BaseModel):
    """Values that a recipe writes in another way."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str
    values: dict[Any, Any]
    others: bool = False
    """whether a value that is not listed stays as it is; it is refused otherwise"""


class KeyTable(BaseModel):
    """Rows by key. A row of `nothing` counts for all keys below it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    same: dict[str, str]
    conversions: dict[str, Conversion]
    remarks: dict[str, str]
    only: dict[str, list[Any]]
    to_type: dict[str, str]
    nothing: dict[str, str]
    target: dict[str, str] = {}
    sections: dict[str, dict[str, str]] = {}
    defaults: dict[str, dict[str, Any]] = {}

    def names(self) -> Iterator[str]:
        for rows in (self.same, self.conversions, self.only, self.to_type, self.nothing, self.target):
            yield from rows

    def note(self, key: str, value: Any, raw: Raw, written: str = "") -> str | None:
        """What became of a key, whose value is in `raw` then if it has a counterpart; None for a key without a row.

        `written`: the key as the file has it. UserError for a value that has no counterpart.
        """
        remark = self.remarks.get(key, "")
        if key in self.same:
            return assign(raw, self.same[key], value) + remark
        if key in self.conversions:
            conversion = self.conversions[key]
            return assign(raw, conversion.key, _converted(conversion, value, written or key)) + remark
        if key in self.only:
            return _implemented(self.only[key], value, written or key)
        if key in self.to_type:
            text = self.to_type[key].format(value=shlex.quote(str(value)))
            return text if value else f"{NOTHING}it is not set"
        if key in self.target:
            return f"{self.target[key]} of a target: type the line for the cluster below"
        above = [name for name in self.nothing if f"{key}.".startswith(f"{name}.")]
        return NOTHING + self.nothing[max(above, key=len)] if above else None


@functools.cache
def read(name: str) -> KeyTable:
    """The table of a program, by the name of its file in this folder."""
    return KeyTable.model_validate(facts(Path(__file__).with_name(name)))


def assign(raw: Raw, key: str, value: Any) -> str:
    section, _, last = key.rpartition(".")
    (raw[section] if section else raw)[last] = value
    return f"{key} is {'null' if value is None else value}"


def _converted(conversion: Conversion, value: Any, written: str) -> Any:
    for listed, ours in conversion.values.items():
        if _equal(listed, value):
            return ours
    if conversion.others:
        return value
    raise UserError(
        f"{written}={value!r:.40} has no counterpart",
        f"write {', '.join(map(str, conversion.values))}",
        "no-counterpart",
    )


def _implemented(values: list[Any], value: Any, written: str) -> str:
    if any(_equal(listed, value) for listed in values):
        return f"{NOTHING}it is so here"
    shown = "''" if values[0] == "" else str(values[0])
    fix = f"set it to {shown.lower() if isinstance(values[0], bool) else shown}, or leave it out"
    raise UserError(f"{written}={value!r:.40} is not implemented", fix, "no-counterpart")


def _equal(listed: Any, value: Any) -> bool:
    return bool(listed == value) and isinstance(listed, bool) == isinstance(value, bool)  # True == 1 in Python


def number(key: str, value: Any, least: float = 0, most: float = 2**31 - 1) -> Any:
    """`value`, where it is a number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise UserError(
            f"{key}={value!r:.40} must be a number from {least:g} to {most:.10g}", "change this value", "not-a-number"
        )
    return value


def count(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
        raise UserError(
            f"{key}={value!r:.40} must be a whole number from 1 to {2**31 - 1}", "change this value", "not-a-number"
        )
    return value
