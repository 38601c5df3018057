"""Searches a log of any size for failures, in one pass over its bytes and in little memory.

Lines end with a newline, a carriage return (progress bars) or a NUL byte. Of a line that is longer than `_LINE` bytes, the text around
a match counts. One automaton of all patterns (re2) reads the bytes; Python's `re` sees only the lines that it stops at.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import re2

from podwright.failures import timestamps
from podwright.failures.match import Failure, match_row, rows

BLOCK = 1 << 20  # bytes that are read at a time
_LINE = 2_000  # bytes before and after a match, of one line
_CONTEXT = 16_384  # bytes before and after a line in which its time may stand
_SHOWN = 300  # characters of a line that are evidence
_STATES_BYTES = 16 << 20  # that the states of an automaton may take
_PREFIX = re.compile(rf"^{timestamps.KUBECTL_PREFIX}")
_ANOTHER_TRY = re.compile(r"Retrying|\b[Rr]etry in \d|will (be )?retr(y|ied)|[Bb]acking off|\bretrying (in|after) ")
_PROGRESS = re.compile(
    r"\b(step|iter|iteration|epoch)\W{1,3}\d+.{0,80}\b(loss|seconds)\b|'loss': \d|\d(it/s|s/it)[,\]]"
    r"|[Ff]inished (async_)?sav|[Ss]aved checkpoint|Created tpu \[|^done\.$"
)
_PROGRESS_SEARCH = _PROGRESS.pattern.replace("^done", "done")  # kubectl may write a prefix before it


@dataclass(frozen=True)
class LogMatch:
    """The first line of a log that tells of a failure."""

    failure: Failure
    evidence: str
    """the line, or a part of it, without what ends it"""
    offset: int
    """bytes before the evidence"""
    time: float | None
    """seconds since 1970, of the line or the nearest one before it that has a time, else after it; None where there is none nearby.
    A time without a zone counts as UTC, one without a year as the latest such day."""


Matches = dict[str, LogMatch]
"""by the name of the row"""


def scan(blocks: Iterable[bytes]) -> list[LogMatch]:
    """Returns the first match of each row, in the order of the lines; without rows that need a second line of evidence and have none."""
    matches: Matches = {}
    buffer = b""
    base = 0  # offset of the buffer in the log
    begin = 0  # what is before it in the buffer was searched
    for block in blocks:
        buffer += block.replace(b"\r", b"\n").replace(b"\0", b"\n")
        end, overlap = buffer.rfind(b"\n", begin) + 1, 0
        if not end and len(buffer) - begin > 2 * BLOCK:  # a long line is searched in parts that overlap
            end, overlap = len(buffer) - _LINE, _LINE
        if end > begin:
            _search(buffer, begin, end, base, matches)
            cut = max(0, end - _CONTEXT)
            buffer, base, begin = buffer[cut:], base + cut, end - cut - overlap
    _search(buffer, begin, len(buffer), base, matches)
    # A row that needs a second line of evidence, and has it, takes the place of the row of that line and of the general row of its own line.
    proven = [match for match in matches.values() if match.failure.row.also in matches]
    replaced = {offset for match in proven for offset in (match.offset, matches[match.failure.row.also].offset)}
    alone = [match for match in matches.values() if not match.failure.row.also and match.offset not in replaced]
    return sorted(proven + alone, key=lambda match: match.offset)


def _search(buffer: bytes, begin: int, end: int, base: int, matches: Matches) -> None:
    """Adds what the lines of buffer[begin:end] tell to `matches`, and removes what has passed."""
    position = begin
    wanted = _wanted(matches)
    while wanted and (hit := wanted.search(buffer, position, end)):
        first, last, line = _line_at(buffer, hit.start())
        text = _PREFIX.sub("", line, count=1)
        failures = _failures_of(text)
        if not failures and not _PROGRESS.search(text):
            position = hit.start() + 1  # the search is wider than the patterns
            continue
        position = max(last, hit.end())
        if not failures:
            for name in [name for name, match in matches.items() if match.failure.row.passing]:
                del matches[name]
        for failure in failures:
            if failure.row.name not in matches and not (failure.row.passing and _ANOTHER_TRY.search(text)):
                evidence = text.strip()[:_SHOWN]
                matches[failure.row.name] = LogMatch(failure, evidence, base + first, _time_at(buffer, first, last))
        wanted = _wanted(matches)


def _wanted(matches: Matches) -> Any:
    """Returns a search for lines that may change what a log's matches are: of rows that have not matched yet, and progress where a match
    may pass. None where there is nothing left to search for."""
    return _automaton(frozenset(matches), any(match.failure.row.passing for match in matches.values()))


@functools.lru_cache(maxsize=16)
def _automaton(matched: frozenset[str], passing: bool) -> Any:
    patterns = [row.search or row.pattern for row in rows("log") if row.name not in matched]
    if passing:
        patterns.append(_PROGRESS_SEARCH)
    if not patterns:
        return None
    union = "|".join(f"(?:{_unnamed(pattern)})" for pattern in patterns)
    return re2.compile(f"(?m:{union})".encode(), _options())


@functools.cache
def _choice() -> Any:
    """Returns the set of patterns that tells which rows may match a line."""
    choice = re2.Set.SearchSet(_options())
    for row in rows("log"):
        choice.Add(_unnamed(row.search or row.pattern).encode())
    choice.Compile()
    return choice


def _options() -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # a log may have any bytes
    options.never_nl = True
    options.max_mem = _STATES_BYTES
    return options


def _unnamed(pattern: str) -> str:
    """Returns the pattern without the names of its groups: re2 takes each name once, and several rows have it."""
    return re.sub(r"\(\?P<\w+>", "(?:", pattern)


def _failures_of(line: str) -> list[Failure]:
    """Returns the failure of the first row that matches a line, after those of rows before it that need a second line of evidence."""
    failures = []
    for number in sorted(_choice().Match(line.encode()) or ()):
        failure = match_row(rows("log")[number], line)
        if failure:
            failures.append(failure)
            if not failure.row.also:
                break
    return failures


def _line_at(buffer: bytes, position: int) -> tuple[int, int, str]:
    """Returns where the line around buffer[position] begins and ends, and its text; `…` stands for what is cut off a long one."""
    low, high = max(0, position - _LINE), min(len(buffer), position + _LINE)
    first = buffer.rfind(b"\n", low, position) + 1
    last = buffer.find(b"\n", position, high)
    before = "" if first or not low else "…"
    after = "" if last >= 0 or high == len(buffer) else "…"
    first, last = first or low, last if last >= 0 else high
    return first, last, before + buffer[first:last].decode(errors="replace") + after


def _time_at(buffer: bytes, first: int, last: int) -> float | None:
    """Returns the time of the last stamp before `last`; most are in the line itself, and a search of the whole context takes milliseconds."""
    start = max(0, first - _CONTEXT)
    for begin in (first, start):
        if before := list(timestamps.STAMP.finditer(buffer, begin, last)):
            return timestamps.seconds(before[-1])
    stamp = timestamps.STAMP.search(buffer, last, last + _CONTEXT)
    return timestamps.seconds(stamp) if stamp else None
