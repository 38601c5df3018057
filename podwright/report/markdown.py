"""Text made inert for Markdown: nothing that a model, a file or a user wrote becomes markup, a table cell or a link.

Templates pass every value through `escape`; only what comes from `code` and `fence` is taken as it is.
"""

from __future__ import annotations

import re
from typing import Any

from podwright.report.wording import visible

_RANK = r"(?<=\w@)\d+(?:\.?(?:\s|$)|[,;:)])"
"""what follows the @ of recall@1, which starts neither an address nor a mention"""


class Safe(str):
    """Markdown that needs no escaping."""

    __slots__ = ()


def escape(value: Any) -> str:
    """One line of plain text."""
    if isinstance(value, Safe):
        return value
    return _escaped(" ".join(visible(value).split()))


def code_spans(value: Any) -> Safe:
    """One line of text with what stands in backticks as code, as advice is written."""
    parts = re.split("`([^`]+)`", " ".join(visible(value).split()))
    return Safe("".join(code(part) if number % 2 else _escaped(part) for number, part in enumerate(parts)))


def _escaped(text: str) -> str:
    text = re.sub(rf"([\\`*_\[\]<>|~&$]|@(?!{_RANK}))", r"\\\1", text)
    return re.sub(
        r"^(?:[#+=-](?!\d)|\d+(?=[.)](?:\s|$)))|(?<=\w):(?=//)|(?<=www)(?=\.)", lambda m: _backslash(m.group()), text
    )


def code(value: Any) -> Safe:
    """One line of code, fit for a table cell."""
    text = " ".join(visible(value).split()).replace("|", "\\|")
    if not text:
        return Safe("")
    ticks = "`" * (_longest_run("`", text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return Safe(f"{ticks}{pad}{text}{pad}{ticks}")


def fence(value: Any, language: str = "text") -> Safe:
    """A block of text that ends where it should, whatever is in it."""
    text = visible(value)
    ticks = "`" * max(3, _longest_run("`", text) + 1)
    return Safe(f"{ticks}{language}\n{text}\n{ticks}")


def _longest_run(character: str, text: str) -> int:
    return max((len(run) for run in re.findall(f"{character}+", text)), default=0)


def _backslash(character: str) -> str:
    """`character` so that it starts no list, heading or link: '1' followed by a dot becomes '1\\' and then the dot."""
    return f"{character}\\" if character.isdigit() else f"\\{character}"
