"""The one exception that a user sees as a single line instead of a traceback."""

from __future__ import annotations

import errno
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


class UserError(Exception):
    """Something the user typed or supplied is wrong.

    `what` says what is wrong with the value; `fix` says what to type instead.
    """

    def __init__(self, what: str, fix: str):
        super().__init__(f"{what}; {fix}")
        self.what = what
        self.fix = fix


_OS_ERRORS = {
    errno.ENOSPC: ("the disk is full", "free space there, or give another place"),
    errno.EDQUOT: ("your quota of that disk is used up", "free space there, or give another place"),
    errno.EROFS: ("it is on a read-only disk", "give a place that can be written"),
    errno.EACCES: ("you may not read or write it", "change its permissions, or give another place"),
    errno.EPERM: ("you may not do that there", "change its permissions, or give another place"),
    errno.ENOTDIR: ("part of that path is a file", "give another place"),
    errno.ENOENT: ("there is no such file or directory", "check the path"),
    errno.EISDIR: ("that is a directory", "name a file"),
    errno.EEXIST: ("there is something of that name already", "give another place"),
    errno.ENOTEMPTY: ("that directory is not empty", "give another place"),
    errno.ENAMETOOLONG: ("no file can have a name as long as that", "give a shorter one"),
    errno.ELOOP: ("its links lead in a circle", "mend them, or give another place"),
    errno.EINVAL: ("nothing can be read or written there", "give another place"),
    errno.ENXIO: ("nothing can be read or written there", "give another place"),
    errno.EIO: ("reading or writing it fails", "look after that disk, or give another place"),
}


def from_os(error: OSError, at: object = "") -> UserError | None:
    """A fault of the user's disk as a UserError; None for one that a user cannot mend. `at`: the place, where the error does not say."""
    if error.errno not in _OS_ERRORS:
        return None
    what, fix = _OS_ERRORS[error.errno]
    place = str(error.filename2 or error.filename or at)
    place = place if len(place) <= 255 else f"{place[:60]}..."
    return UserError(f"{place}: {what}" if place else what, fix)


def nearest(name: str, known: list[str]) -> str:
    """The `known` name closest to `name`, or "" when nothing is close."""
    import difflib

    matches = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return matches[0] if matches else ""


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


def in_words(error: ErrorDetails) -> str:
    """One of pydantic's `ValidationError.errors()` as the end of a sentence that begins with the value."""
    kind = error["type"]
    words = _WORDS.get(kind) or _TYPES.get(kind.partition("_")[0]) or error["msg"].removeprefix("Value error, ")
    return words.format(**error.get("ctx", {})) if kind in _WORDS or words in _TYPES.values() else words


def shown(value: Any) -> str:
    """A value as it would be typed in YAML; text without quotes unless it is empty."""
    if isinstance(value, str) and value:
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError:
        return str(value)
