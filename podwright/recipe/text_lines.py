"""Lines of JSON and what is wrong with them, in words of our own."""

from __future__ import annotations

import json
import shlex
from pathlib import PurePosixPath
from typing import Any

from podwright.errors import UserError, counted

_POINTER = b"version https://git-lfs.github.com/"
_JSON_FAULTS = {
    "Expecting value": "a value is missing at column {}",
    "Expecting property name enclosed in double quotes": "a key in double quotes is missing at column {}",
    "Expecting ':' delimiter": "a colon is missing at column {}",
    "Expecting ',' delimiter": "a comma or a closing bracket is missing at column {}",
    "Unterminated string starting at": "the text that begins at column {} has no closing quote",
    "Invalid control character at": "a control character at column {} is not written as an escape such as \\n",
    "Invalid \\escape": "the backslash at column {} begins no escape; write \\\\ for a backslash",
    "Invalid \\uXXXX escape": "the \\u at column {} has no four hex digits",
    "Extra data": "something follows the value at column {}",
    "Illegal trailing comma before end of object": "there is a comma too many at column {}",
    "Illegal trailing comma before end of array": "there is a comma too many at column {}",
}


class JsonFault(ValueError):
    """What is wrong with a line that should be JSON, as the end of a sentence."""


def pointer(file: str, head: bytes) -> UserError | None:
    """Of what git leaves in the place of a large file that it has not fetched; None of other files."""
    if not head.startswith(_POINTER):
        return None
    folder = shlex.quote(str(PurePosixPath(file).parent))
    return UserError(f"{file} is a pointer of git-lfs, and not the file itself", f"type git -C {folder} lfs pull")


def parse_json(line: bytes) -> Any:
    """The value of a line; UnicodeDecodeError, or JsonFault in words. A byte order mark is passed over."""
    text = line.decode().removeprefix("\ufeff").rstrip("\r\n")
    try:
        return json.loads(text)
    except RecursionError as e:
        raise JsonFault("it is nested too deeply") from e
    except ValueError as e:
        raise JsonFault(json_fault(e, text)) from e


def json_fault(error: ValueError, text: str) -> str:
    """What a JSON parser says of a `text`, in words."""
    if "\0" in text:
        return f"it holds {counted(text.count(chr(0)), 'NUL byte')}, as a write that was cut off leaves them"
    if not isinstance(error, json.JSONDecodeError):
        return "it holds a number with more than 4,300 digits"
    if error.pos >= len(text.rstrip()):
        return "it ends too early"
    return _JSON_FAULTS.get(error.msg, "it breaks off at column {}").format(f"{error.pos + 1:,}")


def json_kind(value: Any) -> str:
    """What a value that was read from JSON is, with an article."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true" if value else "false"
    if isinstance(value, list):
        return f"a list of {counted(len(value), 'value')}"
    return {str: "text", int: "a number", float: "a number", dict: "an object"}.get(
        type(value), "a value of another type"
    )


def require_text(where: str, key: str, value: Any) -> str:
    """The text of a field; UserError naming what it is instead, and what to write."""
    if not isinstance(value, str):
        if value is None:
            fix = f"fill {key} in, or remove the line"
        elif isinstance(value, list | dict):
            fix = f'write {key} as one text: "{key}": "..."'
        elif isinstance(value, bool | int | float):
            fix = f'put {key} in quotes: "{key}": "{json.dumps(value)}"'
        else:
            fix = f"write {key} as text"
        raise UserError(f"{where}: {key} is {json_kind(value)}, not text", fix)
    if not is_encodable(value):
        raise UserError(f"{where}: {key} holds half a character (a lone surrogate)", "write the whole character")
    return value


def is_encodable(text: str) -> bool:
    """Whether a text has no lone surrogate (half a character), so that it can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
