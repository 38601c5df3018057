"""The reason why pydantic refuses a value, as the end of a sentence that begins with the value."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


_PLAIN = {
    r"^\w+ should ": "must ",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "a valid integer.*": "a whole number",
    "a valid number.*": "a number",
    "a valid boolean.*": "true or false",
    "a valid string.*": "text",
    "a valid (tuple|list).*": "a list, written [first, second]",
    "a valid dictionary.*": "keys with values, written {key: value}",
}
"""words of pydantic -> those of this project"""


def in_words(error: ErrorDetails) -> str:
    """One of pydantic's `ValidationError.errors()` as the end of a sentence that begins with the value."""
    return of_message(error["msg"])


def of_message(message: str) -> str:
    """A message of pydantic as the end of such a sentence, as "must be at least 0"."""
    words = message.removeprefix("Value error, ")
    for pattern, plain in _PLAIN.items():
        words = re.sub(pattern, plain, words)
    return words


def shown(value: Any) -> str:
    """A value as it would be typed in YAML; text without quotes unless it is empty or has control characters."""
    if isinstance(value, str) and value:
        return value if value.isprintable() else repr(value)
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):  # ValueError: a list that holds itself, by an anchor of YAML
        return str(value)
