"""The one exception that a user sees as a single line instead of a traceback."""

from __future__ import annotations

import contextlib
import errno
import re
import sys
from pathlib import Path


class UserError(Exception):
    """Something the user typed or supplied is wrong.

    `what` says what is wrong with the value; `fix` says what to type instead. `code` names the fault, whose words may change.
    """

    def __init__(self, what: str, fix: str, code: str = ""):
        super().__init__(f"{what}; {fix}")
        self.what = what
        self.fix = fix
        self.code = code


def message_of(error: BaseException, most: int = 160) -> str:
    """The first line of what it says, or so many characters of it."""
    return (str(error).splitlines() or [""])[0][:most]


def warn(sentence: str) -> None:
    """On standard error, beside what another program may read."""
    print(f"warning: {sentence}", file=sys.stderr)


def expanded(path: str | Path) -> Path:
    """With the home of ~ or ~USER; UserError where there is none."""
    try:
        return Path(path).expanduser()
    except RuntimeError as e:
        user = str(path).partition("/")[0]
        known = "has no home directory here" if user == "~" else "is no user of this machine"
        raise UserError(f"{path}: {user} {known}", "give the path from / on") from e


def typed_path(text: str | Path) -> Path:
    """Of an option or argument, with the home of ~ or ~USER; UserError for "", which would be the current directory."""
    if not str(text):
        raise UserError("'' names no file and no directory", "give a path; . is the current directory")
    return expanded(text)


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
    errno.ELOOP: ("its links lead in a circle", "fix them, or give another place"),
    errno.EINVAL: ("nothing can be read or written there", "give another place"),
    errno.ENXIO: ("nothing can be read or written there", "give another place"),
    **dict.fromkeys(
        (errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ENODEV),
        ("reading or writing it fails", "check that its disk is mounted, or give another place"),
    ),
}


# Names under which files are written before they get their own: .NAME.PID.part, NAME.PID.part, NAME.unfinished.
_UNFINISHED = re.compile(r"(?:(?<=/)|^)\.?([^/]+?)\.(?:\d+\.part|unfinished)(?=/|$)")
_ROOM = 1 << 20  # bytes, with less of which a disk counts as full


def from_os(error: OSError, at: object = "") -> UserError | None:
    """A fault of the user's disk as a UserError; None for one that a user cannot fix. `at`: the place, where the error does not say."""
    if error.errno not in _OS_ERRORS:
        return None
    what, fix = _OS_ERRORS[error.errno]
    place = _UNFINISHED.sub(r"\1", str(error.filename2 or error.filename or at))
    if not place and error.errno in (errno.ENOSPC, errno.EDQUOT):
        place = _full()
        fix = fix if place else "type df -h, which shows the one, and free space there"
    place = place if len(place) <= 255 else f"{place[:60]}..."
    return UserError(f"{place}: {what}" if place else what, fix)


def _full() -> str:
    """Of the places that every verb may write to, one whose disk has no room; "" where all have some."""
    import shutil

    for place in (Path("runs"), Path(), Path("~/.cache").expanduser(), Path("/tmp")):
        with contextlib.suppress(OSError):
            if shutil.disk_usage(place).free < _ROOM:
                return str(place.absolute())
    return ""


def visible(name: str) -> str:
    """A name as it stands in a message; in quotes where it begins or ends with a space, which nobody would see."""
    return name if name and name == name.strip() and name.isprintable() else repr(name)


def counted(number: int, noun: str) -> str:
    """`1 line`, `2,000 lines`: a noun whose plural ends with s."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def abbreviated(number: float) -> str:
    """Three significant digits and the power of ten: 1.72 B, 494 M, 17.4 M, 131 K; below 1,000 as it is."""
    for power, letter in ((9, "B"), (6, "M"), (3, "K")):
        if number >= 0.9995 * 10**power:
            scaled = number / 10**power
            return f"{scaled:,.{0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2}f} {letter}"
    return f"{number:,.0f}"


def nearest(name: str, known: list[str], cutoff: float = 0.5) -> str:
    """The `known` name closest to `name`, or "" when nothing is close. One that differs in upper and lower case alone is the closest."""
    import difflib

    if same := next((each for each in known if each.lower() == name.lower()), ""):
        return same
    matches = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return matches[0] if matches else ""
