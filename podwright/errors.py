"""The one exception that a user sees as a single line instead of a traceback."""

from __future__ import annotations

import errno
import os
import re
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path


class UserError(Exception):
    """Something the user typed or supplied is wrong.

    `what` says what is wrong with the value; `fix` says what to type instead. `code` names the fault, whose words may change.
    """

    def __init__(self, what: str, fix: str, code: str):
        # Without Exception.__init__ the arguments stay those of the call, and the error comes whole out of a pickle.
        self.what = what
        self.fix = fix
        self.code = code

    def __str__(self) -> str:
        return f"{self.what}; {self.fix}"

    def document(self) -> dict[str, str]:
        """What `--json` prints of it."""
        return {"error": self.what, "fix": self.fix, "code": self.code}


def message_of(error: BaseException, most: int = 80) -> str:
    """The first line of what it says without colours, or so many characters of its ends."""
    return both_ends(re.sub(r"\x1b\[[\d;]*m", "", (str(error).splitlines() or [""])[0]), most)


def warn(sentence: str) -> None:
    """On standard error, beside what another program may read."""
    print(f"warning: {sentence}", file=sys.stderr)


def expanded(path: str | Path) -> Path:
    """With the home of ~ or ~USER; UserError where there is none."""
    try:
        return Path(path).expanduser()
    except RuntimeError as e:
        user = str(path).partition("/")[0]
        raise UserError(f"{path}: {user} is no user of this machine", "give the path from / on", "unknown-user") from e


def typed_path(text: str | Path) -> Path:
    """Of an option or argument, with the home of ~ or ~USER; UserError for "", which would be the current directory."""
    if not str(text):
        raise UserError("'' names no file and no directory", "give a path; . is the current directory", "empty-path")
    return expanded(text)


# Names under which files are written before they get their own: .NAME.PID.part, NAME.PID.part, NAME.unfinished.
_UNFINISHED = re.compile(r"(?:(?<=/)|^)\.?([^/]+?)\.(?:\d+\.part|unfinished)(?=/|$)")


def from_os(error: OSError, at: object = "") -> UserError | None:
    """A fault of the user's files or disk in the words of the system; None for one of something else. `at`: the path, where the error has none."""
    path = _UNFINISHED.sub(r"\1", str(error.filename2 or error.filename or at))
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    if error.errno is None or not (path or is_full):
        return None
    what = f"{both_ends(path, 255)}: {os.strerror(error.errno)}".removeprefix(": ")
    fix = (
        "free some space there: `df -h` shows how much each disk has"
        if is_full
        else "check that path, or give another one"
    )
    return UserError(what, fix, "full-disk" if is_full else "unusable-path")


def visible(name: str) -> str:
    """A name as it stands in a message; in quotes where it begins or ends with a space, which nobody would see."""
    is_plain = name == name.strip() and name.isprintable()
    return name if name and is_plain else repr(name)


def counted(number: int, noun: str) -> str:
    """`1 line`, `2,000 lines`: a noun whose plural ends with s."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Iterable[str], most: int = 80) -> str:
    """Those with commas between them that fit into so many characters, and a sign that there are more."""
    return textwrap.shorten(", ".join(names), most, placeholder=" ...")


def both_ends(text: str, most: int = 80) -> str:
    """A text without its middle where it is long."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}...{text[-half:]}"


def abbreviated(number: float) -> str:
    """Three significant digits and the power of ten: 1.72 B, 494 M, 17.4 M, 131 K; below 1,000 as it is."""
    for power, letter in ((9, "B"), (6, "M"), (3, "K")):
        if number >= 0.9995 * 10**power:
            scaled = number / 10**power
            places = sum(scaled < bound for bound in (99.95, 9.995))
            return f"{scaled:,.{places}f} {letter}"
    return f"{number:,.0f}"


def nearest(name: str, known: list[str], cutoff: float = 0.5) -> str:
    """The `known` name closest to `name`, or "" when nothing is close. One that differs in upper and lower case alone is the closest."""
    import difflib

    for each in known:
        if each and each.lower() == name.lower():
            return each
    matches = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return matches[0] if matches else ""
