"""Searches a log of any size for lines that rules know, in one pass over its bytes and in little memory.

Lines end with a newline, a carriage return (progress bars) or a NUL byte. Of a line that is longer than `_LINE` bytes, the text around
a literal that a rule looks for counts. A block is searched for the rules' literals first; patterns see only lines that have one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from podwright.watch import timestamps
from podwright.watch.anchors import anchors, prefilter, probes
from podwright.watch.rules import RULES, Rule

BLOCK = 1 << 20  # bytes that are read at a time
_LINE = 2_000  # bytes before and after a literal, of one line
_CONTEXT = 16_384  # bytes before and after a line in which its time may stand
_NEAR = 1_024  # of these, bytes that are looked at first
_SHOWN = 300  # characters of a line that are evidence
_ENDS = (b"\n", b"\r", b"\0")
_ANCHORS = {rule.name: anchors(rule.pattern) for rule in RULES}
_LITERALS = [(text, number) for number, rule in enumerate(RULES) for text in sorted(_ANCHORS[rule.name])]
_PREFIX = re.compile(rf"^{timestamps.KUBECTL_PREFIX}")
_ANOTHER_TRY = re.compile(r"Retrying|\b[Rr]etry in \d|will (be )?retr(y|ied)|[Bb]acking off|\bretrying (in|after) ")
_PROGRESS = re.compile(
    r"\b(step|iter|iteration|epoch)\W{1,3}\d+.{0,80}\b(loss|seconds)\b|'loss': \d|\d(it/s|s/it)[,\]]"
    r"|[Ff]inished (async_)?sav|[Ss]aved checkpoint|Created tpu \[|^done\.$"
)
_PROGRESS_WORDS = (
    "step",
    "iter",
    "epoch",
    "'loss': ",
    "it/s",
    "s/it",
    "inished ",
    "aved checkpoint",
    "Created tpu",
    "done.",
)


@dataclass(frozen=True)
class LogMatch:
    """The first line of a log that a rule knows."""

    rule: Rule
    evidence: str
    """the line, or a part of it, without what ends it"""
    values: dict[str, str]
    """of the pattern's named groups"""
    offset: int
    """bytes before the evidence"""
    time: float | None
    """seconds since 1970, of the line or the nearest one before it that has a time, else after it; None where there is none nearby.
    A time without a zone counts as UTC, one without a year as the latest such day."""


def scan(blocks: Iterable[bytes]) -> list[LogMatch]:
    """The first match of each rule, in the order of the lines."""
    matches: dict[str, LogMatch] = {}
    buffer, base, begin = (
        b"",
        0,
        0,
    )  # `base`: offset of the buffer in the log; `begin`: what is before it in the buffer was searched
    for block in blocks:
        buffer += block
        end, overlap = max(buffer.rfind(mark, begin) for mark in _ENDS) + 1, 0
        if not end and len(buffer) - begin > 2 * BLOCK:  # a long line is searched in parts that overlap
            end, overlap = len(buffer) - _LINE, _LINE
        if end > begin:
            _search(buffer, begin, end, base, matches)
            cut = max(0, end - _CONTEXT)
            buffer, base, begin = buffer[cut:], base + cut, end - cut - overlap
    _search(buffer, begin, len(buffer), base, matches)
    return sorted(matches.values(), key=lambda match: match.offset)


def _search(buffer: bytes, begin: int, end: int, base: int, matches: dict[str, LogMatch]) -> None:
    """Adds what the lines of buffer[begin:end] say to `matches`, and removes what has passed."""
    position, wanted = begin, _wanted(matches)
    while hit := wanted.pattern.search(buffer, position, end):
        first, last, line = _line_at(buffer, hit.start(), hit.end())
        text = _PREFIX.sub("", line, count=1)
        if not any(pattern.search(text) for pattern in wanted.rules[hit[0]]):
            position = hit.start() + 1
            continue
        position = max(last, hit.end())
        rule, values = _rule_of(text)
        if rule is not None and rule.name not in matches and not (rule.passing and _ANOTHER_TRY.search(text)):
            evidence = text.strip()[:_SHOWN]
            matches[rule.name] = LogMatch(rule, evidence, values, base + first, _time_at(buffer, first, last))
        elif rule is None:
            for name in [name for name, match in matches.items() if match.rule.passing]:
                del matches[name]
        wanted = _wanted(matches)


@dataclass(frozen=True)
class _Wanted:
    """A search for lines that may change what a log's matches are."""

    pattern: re.Pattern[bytes]
    rules: dict[bytes, tuple[re.Pattern[str], ...]]
    """by what the pattern matched: the patterns of which a line with this may match one"""


def _wanted(matches: dict[str, LogMatch]) -> _Wanted:
    """For rules that have not matched yet, and for progress where a match may pass."""
    return _wanted_beside(frozenset(matches), any(match.rule.passing for match in matches.values()))


@functools.lru_cache(maxsize=256)
def _wanted_beside(matched: frozenset[str], passing: bool) -> _Wanted:
    patterns: dict[str, list[re.Pattern[str]]] = {}
    for text, number in _LITERALS:
        if RULES[number].name not in matched:
            patterns.setdefault(text, []).append(RULES[number].pattern)
    for word in _PROGRESS_WORDS if passing else ():
        patterns.setdefault(word, []).append(_PROGRESS)
    parts = probes(patterns)
    rules = {part: tuple(dict.fromkeys(p for text in texts for p in patterns[text])) for part, texts in parts.items()}
    return _Wanted(prefilter(parts), rules)


def _rule_of(text: str) -> tuple[Rule | None, dict[str, str]]:
    """The first rule that knows a line, and the values of its groups."""
    for number in sorted({number for literal, number in _LITERALS if literal in text}):
        if match := RULES[number].pattern.search(text):
            return RULES[number], {name: value for name, value in match.groupdict().items() if value}
    return None, {}


def _line_at(buffer: bytes, start: int, stop: int) -> tuple[int, int, str]:
    """Where the line around buffer[start:stop] begins and ends, and its text; `…` in place of what is cut off a long one."""
    low, high = max(0, start - _LINE), min(len(buffer), stop + _LINE)
    first = max(buffer.rfind(mark, low, start) for mark in _ENDS) + 1
    ends = [i for mark in _ENDS if (i := buffer.find(mark, stop, high)) >= 0]
    before = "" if first or not low else "…"
    after = "" if ends or high == len(buffer) else "…"
    first, last = first or low, min(ends, default=high)
    return first, last, before + buffer[first:last].decode(errors="replace") + after


def _time_at(buffer: bytes, first: int, last: int) -> float | None:
    """Of the last stamp before `last`; most are in the line itself or near, and a search of the whole context takes milliseconds."""
    start = max(0, first - _CONTEXT)
    near = buffer.find(b"\n", max(start, first - _NEAR), first) + 1
    for begin in (first, near or first, start):
        if before := list(timestamps.STAMP.finditer(buffer, begin, last)):
            return timestamps.seconds(before[-1])
    stamp = timestamps.STAMP.search(buffer, last, last + _CONTEXT)
    return timestamps.seconds(stamp) if stamp else None


def text_blocks(lines: Iterable[str]) -> Iterator[bytes]:
    for line in lines:
        yield line.rstrip("\n").encode(errors="replace") + b"\n"
