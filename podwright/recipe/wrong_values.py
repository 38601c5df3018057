"""What is wrong with a value that a user typed or wrote, in words of our own, by what pydantic says of it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_WORDS = {
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
    "literal_error": "must be {expected}",
    "too_short": "must have at least {min_length}",
    "too_long": "must have at most {max_length}",
    "string_too_short": "must not be empty",
    "int_parsing_size": "has too many digits",
    "string_unicode": "holds half a character (a lone surrogate)",
    "string_pattern_mismatch": "must match the pattern {pattern}",
}
_TYPES = {
    "int": "must be a whole number",
    "float": "must be a number",
    "bool": "must be true or false",
    "string": "must be text",
    "tuple": "must be a list, written [first, second]",
    "list": "must be a list, written [first, second]",
    "dict": "must be keys with values, written {{key: value}}",
    "model": "must be keys with values, written {{key: value}}",
}

_OF_OPTIONS = (
    (r"greater than or equal to (\S+)", r"must be at least \1"),
    (r"less than or equal to (\S+)", r"must be at most \1"),
    (r"greater than (\S+)", r"must be greater than \1"),
    (r"less than (\S+)", r"must be less than \1"),
    (r"a valid integer.*", "must be a whole number"),
    (r"a valid number.*", "must be a number"),
    (r"a valid boolean.*", "must be true or false"),
)


def in_words(error: ErrorDetails) -> str:
    """One of pydantic's `ValidationError.errors()` as the end of a sentence that begins with the value."""
    kind = error["type"]
    words = _WORDS.get(kind) or _TYPES.get(kind.partition("_")[0]) or error["msg"].removeprefix("Value error, ")
    bounds = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in error.get("ctx", {}).items()
    }
    return words.format(**bounds) if kind in _WORDS or words in _TYPES.values() else words


def of_option(message: str) -> str:
    """The same of an option of the command line, of which only the message is known."""
    for pattern, words in _OF_OPTIONS:
        if match := re.fullmatch(rf"Input should be {pattern}", message):
            return match.expand(words)
    return message


def shown(value: Any) -> str:
    """A value as it would be typed in YAML; text without quotes unless it is empty."""
    if isinstance(value, str) and value:
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):  # ValueError: a list that holds itself, by an anchor of YAML
        return str(value)
