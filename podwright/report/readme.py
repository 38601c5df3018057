"""A run's own section in a README that belongs to someone else, and its row in a table of runs there.

Both are found by markers. What stands outside of them is kept byte for byte, and so are the rows and sections of other runs.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

from podwright.errors import UserError
from podwright.rundir import replace_file

TABLE = "runs/results"
"""marks the table of runs; no run has a name with a slash"""


def put(path: Path, run: str, section: str, title: str, table: str = "") -> None:
    """Create `path` with `title`, or extend it by `section` and the last row of `table`, or replace those that `run` has there already."""
    text = content(path, f"# {title}\n")
    if table.strip():
        text = with_row(text, run, table.strip(), path)
    replace_file(path, with_section(text, run, section, path))


def content(path: Path, beginning: str) -> bytes:
    """Of a README, or the `beginning` of one that is to be created. UserError for what cannot be one."""
    if path.exists() and not path.is_file():
        raise UserError(
            f"{path} is no regular file", "name a file, which is created where there is none", "no-regular-file"
        )
    text = path.read_bytes() if path.exists() else beginning.encode()
    if b"\0" in text:
        raise UserError(f"{path} is a binary file", "name a README, or a file that does not exist yet", "not-text")
    return text


def with_row(old: bytes, run: str, table: str, path: Path) -> bytes:
    """`old` with the last row of `table` in the table of runs, or with `table` where there is none."""
    head, _, row = table.rpartition("\n")
    mark = f"<!-- podwright:{quote(run)} row -->"
    row = f"{row.rstrip(' |')} {mark} |"
    span = _span(old, TABLE, path)
    if span is None:
        return with_section(old, TABLE, f"{head}\n{row}", path)
    lines = old[slice(*span)].split(b"\n")
    at = next((i for i, line in enumerate(lines) if mark.encode() in line), None)
    if at is None:
        at = max(i for i, line in enumerate(lines) if line.startswith(b"|") or i == 0) + 1
        lines.insert(at, b"")
    lines[at] = row.encode() + b"\r" * (b"\r\n" in old)
    return old[: span[0]] + b"\n".join(lines) + old[span[1] :]


def with_section(old: bytes, run: str, section: str, path: Path) -> bytes:
    """`old` with the section of `run`; `path` is only named in errors."""
    begin, end = _edges(run)
    newline = b"\r\n" if b"\r\n" in old else b"\n"
    new = f"{begin}\n{section.strip()}\n{end}".encode().replace(b"\n", newline)
    span = _span(old, run, path)
    if span is None:
        return old + _gap(old, newline) + new + newline
    return old[: span[0]] + new + old[span[1] :]


def _edges(run: str) -> tuple[str, str]:
    return f"<!-- podwright:{quote(run)} begin -->", f"<!-- podwright:{quote(run)} end -->"


def _span(text: bytes, run: str, path: Path) -> tuple[int, int] | None:
    """Where the section of `run` begins and ends, with its markers; None where there is none. UserError for half a pair."""
    begin, end = _edges(run)
    starts, ends = _lines(text, begin), _lines(text, end)
    if not starts and not ends:
        return None
    if len(starts) != 1 or len(ends) != 1 or starts[0].start() > ends[0].start():
        raise UserError(
            f"{path} does not hold '{begin}' and '{end}' once each and in this order",
            "restore the pair or delete both",
            "broken-markers",
        )
    return starts[0].start(), ends[0].end()


def _lines(text: bytes, marker: str) -> list[re.Match[bytes]]:
    """Where `marker` stands alone on a line."""
    return list(re.finditer(rb"(?m)^" + re.escape(marker.encode()) + rb"(?=[ \t]*\r?$)", text))


def _gap(old: bytes, newline: bytes) -> bytes:
    """What makes the section start after an empty line."""
    if not old or old.endswith(newline * 2):
        return b""
    return newline if old.endswith(b"\n") else newline * 2
