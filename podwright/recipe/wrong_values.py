"""What is wrong with a value that a user typed or wrote, in words of our own, by what pydantic says of it."""

from __future__ import annotations

import re
from typing import Any

_WORDS = {
    "int_parsing": "is not a whole number",
    "int_type": "is not a whole number",
    "int_from_float": "is not a whole number",
    "int_parsing_size": "has too many digits",
    "float_parsing": "is not a number",
    "float_type": "is not a number",
    "finite_number": "is not a finite number",
    "bool_parsing": "is neither true nor false",
    "bool_type": "is neither true nor false",
    "string_type": "is not text",
    "string_unicode": "holds half a character (a lone surrogate)",
    "greater_than": "is not more than {gt}",
    "greater_than_equal": "is less than {ge}",
    "less_than": "is not less than {lt}",
    "less_than_equal": "is more than {le}",
    "literal_error": "is not {expected}",
    "tuple_type": "is not a list",
    "list_type": "is not a list",
    "dict_type": "is not a section of keys",
    "model_type": "is not a section of keys",
    "model_attributes_type": "is not a section of keys",
    "too_short": "has too few entries, at least {min_length} is needed",
    "missing": "is missing",
    "string_pattern_mismatch": "does not match the pattern {pattern}",
}
"""by the type of an error; names in braces are of its context"""
_TYPED = (
    (r"greater than or equal to (\S+)", r"is less than \1"),
    (r"less than or equal to (\S+)", r"is more than \1"),
    (r"greater than (\S+)", r"is not more than \1"),
    (r"less than (\S+)", r"is not less than \1"),
    (r"a valid integer.*", "is not a whole number"),
    (r"a valid number.*", "is not a number"),
    (r"a valid boolean.*", "is neither true nor false"),
)


def problem(error: Any) -> str:
    """Of one of a ValidationError's errors(): what its value is, as `is not a whole number`, or what a check of ours says."""
    if (words := _WORDS.get(error["type"])) is not None:
        return words.format(**error.get("ctx", {}))
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{message[:1].lower()}{message[1:]}" if message.startswith("Input") else message


def of_option(message: str) -> str:
    """The same of an option of the command line, of which only the message is known."""
    for pattern, words in _TYPED:
        if match := re.fullmatch(rf"Input should be {pattern}", message):
            return match.expand(words)
    return message
