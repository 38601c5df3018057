"""Lines of JSON, and what is wrong with them."""

from __future__ import annotations

import json
import shlex
from pathlib import PurePosixPath
from typing import Any

from podwright.errors import UserError

_POINTER = b"version https://git-lfs.github.com/"


class JsonFault(ValueError):
    """What is wrong with a line that should be JSON, as the end of a sentence."""


def pointer(file: str, head: bytes) -> UserError | None:
    """Of what git leaves in the place of a large file that it has not fetched; None of other files."""
    if not head.startswith(_POINTER):
        return None
    folder = shlex.quote(str(PurePosixPath(file).parent))
    return UserError(
        f"{file} is a pointer of git-lfs, and not the file itself", f"type git -C {folder} lfs pull", "git-lfs-pointer"
    )


def parse_json(line: bytes) -> Any:
    """The value of a line; UnicodeDecodeError, or JsonFault with the parser's reason. A byte order mark is passed over."""
    text = line.decode().removeprefix("\ufeff").rstrip("\r\n")
    try:
        return json.loads(text)
    except RecursionError as e:
        raise JsonFault("it is nested too deeply") from e
    except json.JSONDecodeError as e:
        raise JsonFault(f"{e.msg.removesuffix(' starting at')} at column {e.pos + 1:,}") from e
    except ValueError as e:  # Python reads no whole number of so many digits
        raise JsonFault("it holds a number with more than 4,300 digits") from e


_KINDS = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}


def json_kind(value: Any) -> str:
    """The kind of a value that was read from JSON, with its article."""
    if value is None:
        return "null"
    return _KINDS.get(type(value), "a value of another type")


def require_text(where: str, key: str, value: Any) -> str:
    """The text of a field; UserError with the kind of any other value."""
    if not isinstance(value, str):
        fix = f"write {key} as text in quotes, or remove the line"
        raise UserError(f"{where}: {key} is {json_kind(value)}, not text", fix, "not-text")
    if not is_encodable(value):
        what = f"{where}: {key} holds half a character (a lone surrogate)"
        raise UserError(what, "write the whole character", "half-character")
    return value


def is_encodable(text: str) -> bool:
    """Whether a text has no lone surrogate (half a character), so that it can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
