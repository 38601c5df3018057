"""File-name patterns of bash (`*`, `?`, `[...]`), and what `${NAME#pattern}` and its kind make of a value."""

from __future__ import annotations

import re

_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \\t",
    "digit": "0-9",
    "lower": "a-z",
    "space": "\\s",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
_BRACKETS = re.compile(r"\[([!^]?)(\]?(?:\[:\w+:\]|[^\]])*)\]", re.DOTALL)


def to_regex(pattern: str) -> str:
    """A regular expression for text that is not quoted; KeyError for a class of characters that is not known."""
    expression, position = "", 0
    while position < len(pattern):
        char = pattern[position]
        brackets = _BRACKETS.match(pattern, position) if char == "[" else None
        if brackets:
            expression += _set(brackets[2], bool(brackets[1]))
            position = brackets.end()
            continue
        if char == "\\" and position + 1 < len(pattern):
            position += 1
            expression += re.escape(pattern[position])
        else:
            expression += {"*": ".*", "?": "."}.get(char, re.escape(char))
        position += 1
    return expression


def _set(content: str, negated: bool) -> str:
    escaped = re.sub(r"\[:(\w+):\]|([\\\[\]^&~|])", lambda m: _CLASSES[m[1]] if m[1] else "\\" + m[2], content)
    return f"[{'^' if negated else ''}{escaped}]"


def without_prefix(value: str, expression: str, longest: bool) -> str:
    """`value` without the shortest or longest beginning that matches."""
    lengths = range(len(value) + 1)
    compiled = re.compile(expression, re.DOTALL)
    for length in reversed(lengths) if longest else lengths:
        if compiled.fullmatch(value, 0, length):
            return value[length:]
    return value


def without_suffix(value: str, expression: str, longest: bool) -> str:
    """`value` without the shortest or longest end that matches."""
    starts = range(len(value) + 1)
    compiled = re.compile(expression, re.DOTALL)
    for start in starts if longest else reversed(starts):
        if compiled.fullmatch(value, start):
            return value[:start]
    return value


def replaced(value: str, expression: str, replacement: str, operator: str) -> str:
    """`operator`: `/` the first match, `//` every match, `/#` one at the beginning, `/%` one at the end."""
    if not expression:
        return replacement + value if operator == "/#" else value + replacement if operator == "/%" else value
    anchored = {"/#": rf"\A(?:{expression})", "/%": rf"(?:{expression})\Z"}.get(operator, expression)
    return re.sub(anchored, lambda _: replacement, value, count=0 if operator == "//" else 1, flags=re.DOTALL)
