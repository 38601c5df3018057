"""A run's own section in a README that belongs to someone else: found by its markers, replaced whole, all else kept byte for byte."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

from podwright.errors import UserError
from podwright.rundir import replace_file


def put(path: Path, run: str, section: str, title: str) -> None:
    """Create `path` with `title`, or add `section` at its end, or replace the section that `run` has there already."""
    replace_file(path, with_section(content(path, f"# {title}\n"), run, section, path))


def content(path: Path, beginning: str) -> bytes:
    """Of a README, or the `beginning` of one that is to be created. UserError for what cannot be one."""
    if path.is_dir():
        raise UserError(f"{path} is a directory", f"name a file in it, for example {path / 'README.md'}")
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is no regular file", "name a file, which is created where there is none")
    if not path.resolve().parent.is_dir():
        raise UserError(f"there is no directory {path.parent}", f"create it: mkdir -p {path.parent}")
    return path.read_bytes() if path.exists() else beginning.encode()


def with_section(old: bytes, run: str, section: str, path: Path) -> bytes:
    """`old` with the section of `run`; `path` is only named in errors."""
    begin, end = (f"<!-- podwright:{quote(run)} {edge} -->" for edge in ("begin", "end"))
    newline = b"\r\n" if b"\r\n" in old else b"\n"
    new = f"{begin}\n{section.strip()}\n{end}".encode().replace(b"\n", newline)
    starts, ends = _lines(old, begin), _lines(old, end)
    if not starts and not ends:
        return old + _gap(old, newline) + new + newline
    if len(starts) != 1 or len(ends) != 1 or starts[0].start() > ends[0].start():
        raise UserError(
            f"{path} does not hold '{begin}' and '{end}' once each and in this order", "restore the pair or delete both"
        )
    return old[: starts[0].start()] + new + old[ends[0].end() :]


def _lines(text: bytes, marker: str) -> list[re.Match[bytes]]:
    """Where `marker` stands alone on a line."""
    return list(re.finditer(rb"(?m)^" + re.escape(marker.encode()) + rb"(?=[ \t]*\r?$)", text))


def _gap(old: bytes, newline: bytes) -> bytes:
    """What makes the section start after an empty line."""
    if not old or old.endswith(newline * 2):
        return b""
    return newline if old.endswith(b"\n") else newline * 2
