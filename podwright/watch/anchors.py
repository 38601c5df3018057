"""Literal texts that a log line must have before a pattern can match it, derived from the pattern: a search for them is fast.

Every match of a pattern contains at least one of its anchors. Patterns ignore no case and have no anchor in an ordinary log.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_MOST = 32  # literals of one pattern
_CLASS = 4  # characters of a class that is written out
_PROBE = 5  # bytes of an anchor, at least, that are searched for
ORDINARY = (
    "INFO:absl:[process=0] step 1200/3000 loss 0.3141 grad_norm 0.27 gradients lr 3e-06 tokens/s 10567.9 reward 1.5 kl 0.02\n"
    "2026-11-21 10:15:00,123 WARNING worker error: Error: Traceback (most recent call last): File RuntimeError raise\n"
    "I1121 10:15:00.123456 4242 checkpointer.py:100] Finished saving checkpoint 100, time taken 1.234 s, memory is 12.1 GiB\n"
    "completed step: 7, seconds: 3.14, TFLOP/s/device: 310.1, Tokens/s/device: 8101.2, total_weights: 16384, loss: 6.543\n"
)
"""what logs of healthy runs are full of; anchors are not in it, and its bytes say which are common"""
_COUNTS = Counter(ORDINARY.encode())


def anchors(pattern: re.Pattern[str]) -> frozenset[str]:
    """Literals of which every match of `pattern` contains at least one; ValueError where there are none."""
    if pattern.flags & re.IGNORECASE:
        raise ValueError(f"{pattern.pattern!r} ignores case: write the classes out")
    _, best = _of_sequence(parser.parse(pattern.pattern))
    if not _score(best):
        raise ValueError(f"{pattern.pattern!r} has no literal text that every match contains and ordinary logs lack")
    return best


def probes(literals: Iterable[str]) -> dict[bytes, frozenset[str]]:
    """Parts of the literals that are fast to search for, each with the literals that a text with this part may have. They begin with
    rare bytes, there are few such first bytes, and none is the beginning of another."""
    texts = sorted(literals)
    firsts = _first_bytes([set(data[_starts(data)]) for data in map(str.encode, texts)])
    parts: dict[bytes, set[str]] = {}
    for text in texts:
        data = text.encode()
        start = min(
            (i for i in range(len(data))[_starts(data)] if data[i] in firsts), key=lambda i: (_COUNTS[data[i]], i)
        )
        parts.setdefault(data[start:], set()).add(text)
    shortest: dict[bytes, frozenset[str]] = {}
    for part in sorted(parts):
        begun = next((other for other in shortest if part.startswith(other)), part)
        shortest[begun] = shortest.get(begun, frozenset()) | parts[part]
    return shortest


def _starts(data: bytes) -> slice:
    """Where a part of a literal may begin that is long enough."""
    return slice(max(1, len(data) - _PROBE + 1))


def _first_bytes(choices: Sequence[set[int]]) -> set[int]:
    """Few and rare bytes, of which each of `choices` has one."""
    chosen = {byte for choice in choices if len(choice) == 1 for byte in choice}
    left = [choice for choice in choices if not choice & chosen]
    while left:
        covered = Counter(byte for choice in left for byte in choice)
        best = min(sorted(covered), key=lambda byte: (_COUNTS[byte] + 1) / covered[byte])
        chosen.add(best)
        left = [choice for choice in left if best not in choice]
    return chosen


def prefilter(parts: Iterable[bytes]) -> re.Pattern[bytes]:
    """A fast search for any of `parts`."""
    rests: dict[bytes, list[bytes]] = {}
    for part in sorted(parts):
        rests.setdefault(part[:1], []).append(re.escape(part[1:]))
    branches = [re.escape(first) + b"(?:" + b"|".join(ends) + b")" for first, ends in rests.items()]
    return re.compile(b"|".join(branches) or rb"(?!)")


def _score(literals: frozenset[str]) -> int:
    """0: of no use. Long literals are rare ones."""
    return min((0 if text in ORDINARY else len(text) for text in literals), default=0)


_Exact = frozenset[str] | None


def _of_sequence(items: Sequence[tuple[Any, Any]]) -> tuple[_Exact, frozenset[str]]:
    """All texts that the items can match, None where these are many; and the literals of which a match contains one."""
    texts: _Exact = frozenset({""})
    current, candidates = frozenset({""}), list[frozenset[str]]()
    for code, argument in items:
        exact, required = _of_item(code, argument)
        candidates.append(required)
        joined = _product(current, exact)
        texts = None if exact is None else texts and _product(texts, exact)
        if joined is None:
            candidates.append(current)
        current = joined if joined is not None else exact if exact is not None else frozenset({""})
    return texts, max((*candidates, current), key=_score)


def _product(left: frozenset[str], right: _Exact) -> _Exact:
    if right is None or len(left) * len(right) > _MOST:
        return None
    return frozenset(a + b for a, b in itertools.product(left, right))


def _of_item(code: Any, argument: Any) -> tuple[_Exact, frozenset[str]]:
    nothing: frozenset[str] = frozenset()
    if code is op.LITERAL:
        return frozenset({chr(argument)}), nothing
    if code is op.IN:
        return _of_class(argument), nothing
    if code in (op.AT, op.ASSERT, op.ASSERT_NOT):
        return frozenset({""}), nothing
    if code is op.SUBPATTERN:
        return _of_sequence(argument[3])
    if code is op.BRANCH:
        return _of_branches([_of_sequence(items) for items in argument[1]])
    if code in (op.MAX_REPEAT, op.MIN_REPEAT):
        least, most, items = argument
        exact, required = _of_sequence(items)
        if (least, most) == (0, 1) and exact is not None:
            return exact | {""}, nothing
        return None, max(required, exact or nothing, key=_score) if least else nothing
    return None, nothing


def _of_branches(branches: list[tuple[_Exact, frozenset[str]]]) -> tuple[_Exact, frozenset[str]]:
    exact = [texts for texts, _ in branches]
    if all(texts is not None for texts in exact):
        union = frozenset().union(*(texts for texts in exact if texts is not None))
        return (union if len(union) <= _MOST else None), union
    best = [max(required, texts or frozenset(), key=_score) for texts, required in branches]
    return None, frozenset().union(*best) if all(best) else frozenset()


def _of_class(members: Sequence[tuple[Any, Any]]) -> _Exact:
    texts: set[str] = set()
    for code, argument in members:
        if code is op.LITERAL:
            texts.add(chr(argument))
        elif code is op.RANGE and argument[1] - argument[0] < _CLASS:
            texts |= {chr(c) for c in range(argument[0], argument[1] + 1)}
        else:
            return None
    return frozenset(texts) if len(texts) <= _CLASS else None
