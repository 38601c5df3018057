"""Differences between two records of the equivalence corpus, and which of them are wanted."""

from __future__ import annotations

import difflib
import fnmatch
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_SHOWN = 160  # characters of a value


@dataclass(frozen=True)
class Difference:
    path: str
    what: str
    """vanished, added (to a list or a text), changed, or: became ok, of an input that was refused or inconclusive"""
    base: Any
    now: Any = None

    def __str__(self) -> str:
        values = f": {_short(self.base)}" + (f" -> {_short(self.now)}" if self.what != "vanished" else "")
        return f"{self.what}: {self.path}{values}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text):,} characters)"


def differences(base: Any, now: Any, path: str = "") -> Iterator[Difference]:
    """What `now` lacks or says differently. Keys that `base` lacks are no difference."""
    if isinstance(base, dict) and isinstance(now, dict):
        for key, value in base.items():
            place = f"{path}/{key}" if path else str(key)
            if key in now:
                yield from differences(value, now[key], place)
            else:
                yield Difference(place, "vanished", value)
    elif isinstance(base, list) and isinstance(now, list):
        if len(base) == len(now):
            for number, (before, after) in enumerate(zip(base, now, strict=True)):
                yield from differences(before, after, f"{path}/{number}")
        else:
            keys = ([json.dumps(item, sort_keys=True) for item in each] for each in (base, now))
            for part in _aligned(*keys):
                yield from _of_part(part, base, now, path + "/{}", first=0)
    elif isinstance(base, str) and isinstance(now, str) and "\n" in base + now:
        lines = base.splitlines(), now.splitlines()
        for part in _aligned(*lines):
            yield from _of_part(part, *lines, path + "/line {}", first=1)
    elif not _equal(base, now):
        became_ok = path.endswith("/verdict") and now == "ok"
        yield Difference(path, "became ok" if became_ok else "changed", base, now)


@dataclass(frozen=True)
class Part:
    """Items `begin` to `end` of the base that `now` has otherwise, as its items `begin_now` to `end_now`; each of the two may be empty."""

    begin: int
    end: int
    begin_now: int
    end_now: int


def _aligned(base: list[str], now: list[str]) -> list[Part]:
    """The parts in which two lists differ, where as much as possible of both is the same in the same order."""
    matcher = difflib.SequenceMatcher(None, base, now, autojunk=False)
    return [Part(*numbers) for tag, *numbers in matcher.get_opcodes() if tag != "equal"]


def _of_part(part: Part, base: list[Any], now: list[Any], place: str, first: int) -> Iterator[Difference]:
    """Every item of a part, by its number in the base (`first` is that of the first item); what was added stands behind a number with +."""
    old, new = base[part.begin : part.end], now[part.begin_now : part.end_now]
    for number, (before, after) in enumerate(zip(old, new, strict=False), part.begin + first):
        yield from differences(before, after, place.format(number))
    for number, item in enumerate(old[len(new) :], part.begin + len(new) + first):
        yield Difference(place.format(number), "vanished", item)
    for item in new[len(old) :]:
        yield Difference(place.format(f"{part.end + first - 1}+"), "added", None, item)


def _leaves(value: Any, path: str = "") -> Iterator[str]:
    """The paths of all single values and lines, as differences name them."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path}/{key}" if path else str(key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{path}/{number}")
    elif isinstance(value, str) and "\n" in value:
        yield from (f"{path}/line {number + 1}" for number in range(len(value.splitlines())))
    else:
        yield path


def _equal(base: Any, now: Any) -> bool:
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (base, now))
    return math.isclose(base, now, rel_tol=1e-9) if numeric else type(base) is type(now) and base == now


@dataclass
class Wanted:
    """The differences of differences.yaml: rows with `path` (* stands for anything), `reason`, and `may_become_ok: true`
    where inputs that were refused or inconclusive may be accepted."""

    rows: list[dict[str, Any]]
    subtracted: int = 0
    used: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, path: Path) -> Wanted:
        rows = yaml.safe_load(path.read_text()) or []
        for row in rows:
            if not row.get("path") or not row.get("reason") or set(row) - {"path", "reason", "may_become_ok"}:
                raise SystemExit(f"{path}: each row has path, reason and perhaps may_become_ok, unlike {row}")
        return cls(rows)

    def subtract(self, listed: Iterable[Difference]) -> list[Difference]:
        left = []
        for difference in listed:
            row = next((row for row in self.rows if self._covers(row, difference)), None)
            if row is None:
                left.append(difference)
            else:
                self.subtracted += 1
                self.used.add(row["path"])
        return left

    @staticmethod
    def _covers(row: dict[str, Any], difference: Difference) -> bool:
        if difference.what == "became ok" and not row.get("may_become_ok"):
            return False
        return fnmatch.fnmatchcase(difference.path, row["path"])

    def covered(self, base: Any) -> float:
        """The share of the leaves of an answer, or of several, that some row would let change."""
        paths = list(_leaves(base))
        rows = [re.compile(fnmatch.translate(row["path"])) for row in self.rows]
        return sum(any(row.match(path) for row in rows) for path in paths) / max(1, len(paths))

    def unused(self) -> list[str]:
        return [row["path"] for row in self.rows if row["path"] not in self.used]
