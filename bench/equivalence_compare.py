"""Differences between two records of the equivalence corpus, and which of them are wanted."""

from __future__ import annotations

import fnmatch
import math
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
    """vanished, changed, or: became ok, of an input that was refused or inconclusive"""
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
        if len(base) != len(now):
            yield _difference_of_lists(base, now, path)
            return
        for number, (before, after) in enumerate(zip(base, now, strict=True)):
            yield from differences(before, after, f"{path}/{number}")
    elif isinstance(base, str) and isinstance(now, str) and "\n" in base + now:
        yield from _difference_of_texts(base, now, path)
    elif not _equal(base, now):
        became_ok = path.endswith("/verdict") and now == "ok"
        yield Difference(path, "became ok" if became_ok else "changed", base, now)


def _difference_of_lists(base: list[Any], now: list[Any], path: str) -> Difference:
    """Shown from the first item that differs."""
    first = next((n for n, (a, b) in enumerate(zip(base, now, strict=False)) if a != b), min(len(base), len(now)))
    return Difference(f"{path}/{first}", "changed", base[first:], now[first:])


def _difference_of_texts(base: str, now: str, path: str) -> Iterator[Difference]:
    """The first line that differs."""
    if base != now:
        lines = base.splitlines(), now.splitlines()
        pairs = zip(*lines, strict=False)
        first = next((n for n, (a, b) in enumerate(pairs) if a != b), min(map(len, lines)))
        yield Difference(f"{path}/line {first + 1}", "changed", *("\n".join(each[first : first + 1]) for each in lines))


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

    def unused(self) -> list[str]:
        return [row["path"] for row in self.rows if row["path"] not in self.used]
