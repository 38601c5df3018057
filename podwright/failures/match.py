"""This module reads the table of failures and matches a text against it.

The rows are in the YAML files of this folder. Of the rows for the place where a text is seen, the first whose pattern matches counts:
specific rows stand before general ones.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from podwright.rundir import Ending

FILES: dict[str, str] = yaml.safe_load(Path(__file__).with_name("places.yaml").read_text())
"""where a text is seen -> the file of its rows; a file is read when one of its rows is needed"""


class Role(enum.IntEnum):
    """How much a line of a log explains of a failure; the least explains most."""

    CAUSE = 0
    SYMPTOM = 1
    """a failure in itself, but a cause in any log explains more"""
    CONSEQUENCE = 2
    """what others see of a failure elsewhere; it never decides how an attempt ended when the process that failed first is known"""


@dataclass(frozen=True)
class FailureRow:
    """A row of the table. Values in braces in its texts are named groups of the pattern or fields of who asks."""

    name: str
    seen_in: tuple[str, ...]
    pattern: str = ""
    """"": the text equals the name. Of groups NAME, NAME2 and NAME3 the one that took part is the value of NAME."""
    search: str = ""
    """of a log: a wider pattern for re2, where it does not have what the pattern needs"""
    example: str = ""
    """a text that the row matches"""
    ending: Ending | None = None
    """None where nothing has ended, or others decide"""
    status: str = ""
    """of a run with this ending"""
    retry: str = ""
    """of a reply: a `Consequence` of targets/google/replies.py; of an ending: a `Budget` of run/states.py"""
    role: Role = Role.CAUSE
    also: str = ""
    """of a log: the row that must match another line of it; without that one this row counts for nothing, with it in place of both"""
    seen_as: tuple[str, ...] = ()
    """of a log: places whose rows, which runs use, know more of such a line: their cause counts, and their remedy if they have one"""
    passing: bool = False
    """of a log: a line that announces another try, or that progress follows, is no failure"""
    pulls: bool = False
    """of a container: it is about an image, which may yet be pulled"""
    cause: str = ""
    remedy: str = ""
    zh: Mapping[str, str] = field(default_factory=dict)
    """cause and remedy in Chinese"""

    @functools.cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self.pattern or rf"\A{re.escape(self.name)}\Z")

    @property
    def values(self) -> dict[str, str]:
        """The names of values that the pattern takes from a text, each with the word that stands for it where there is no text."""
        return {_value_name(group): _value_name(group).upper() for group in self.regex.groupindex}


class _Words(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return name.upper()


@dataclass(frozen=True)
class Failure:
    """A row, and the values of the text that it matches."""

    row: FailureRow
    values: dict[str, str]
    line: str = ""
    """the line in which the match ends"""

    def cause(self, fields: Mapping[str, str]) -> str:
        return self.filled(self.row.cause, fields)

    def remedy(self, fields: Mapping[str, str]) -> str:
        return self.filled(self.row.remedy, fields)

    def filled(self, text: str, fields: Mapping[str, str]) -> str:
        """Returns `text` with values in place of the names in braces; one that the matched text has counts before one of `fields`. A name
        without a value stands in capitals: a log does not say it."""
        present = {name: value for name, value in self.values.items() if value}
        return text.format_map(_Words({**self.values, "line": self.line, "message": self.line, **fields, **present}))


def match(text: str, *seen_in: str) -> Failure | None:
    """Returns the failure of the first row that matches `text`, in the order of `seen_in`; None where none does."""
    for each in seen_in:
        for row in rows(each):
            if failure := match_row(row, text):
                return failure
    return None


def match_row(row: FailureRow, text: str) -> Failure | None:
    hit = row.regex.search(text)
    if hit is None:
        return None
    values = dict.fromkeys(row.values, "")
    for group, value in hit.groupdict().items():
        name = _value_name(group)
        values[name] = values[name] or (value or "").strip()
    known = match(text, *row.seen_as)
    if known:
        row = replace(row, cause=known.row.cause, remedy=known.row.remedy or row.remedy)
        values |= known.values
    end = hit.end()
    return Failure(row, values, last_line(text[:end] + text[end:].partition("\n")[0]))


@functools.cache
def rows(seen_in: str) -> tuple[FailureRow, ...]:
    return tuple(row for row in _rows_of_file(FILES[seen_in]) if seen_in in row.seen_in)


def last_line(text: str) -> str:
    """Returns the last line that is not empty; "" for none."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


@functools.cache
def _rows_of_file(name: str) -> tuple[FailureRow, ...]:
    text = Path(__file__).with_name(f"{name}.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, where it is installed, is ten times faster
    return tuple(_row(record) for record in yaml.load(text, loader))


def _row(record: dict[str, Any]) -> FailureRow:
    typed: dict[str, Any] = {"seen_in": tuple(record["seen_in"])}
    for key in ("pattern", "search"):
        value = record.get(key, "")
        typed[key] = value if isinstance(value, str) else "|".join(value)  # a list has the alternatives
    if "ending" in record:
        typed["ending"] = Ending(record["ending"])
    if "role" in record:
        typed["role"] = Role[record["role"].upper()]
    return FailureRow(**(record | typed))


def _value_name(group: str) -> str:
    return group.rstrip("23")
