"""The bytes of a log on disk or from a pipe, and what is said of a file that is no plain text."""

from __future__ import annotations

import math
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from podwright.errors import UserError
from podwright.failures.scan import BLOCK

READERS = {
    b"\x1f\x8b": ("compressed (gzip)", "gunzip -c"),
    b"\x28\xb5\x2f\xfd": ("compressed (zstd)", "zstd -dc"),
    b"\xfd7zXZ": ("compressed (xz)", "xz -dc"),
    b"BZh": ("compressed (bzip2)", "bzip2 -dc"),
    b"\xff\xfe": ("UTF-16 text", "iconv -f UTF-16 -t UTF-8"),
}
"""by the first bytes of a file: what it is, and the command that writes its text to standard output"""


def blocks(path: Path, command: str) -> Iterator[bytes]:
    """The bytes that a log has now; what a process appends meanwhile is left out. A pipe is read to its end.

    UserError where it is compressed; `command`: what is typed to have the log from standard input.
    """
    with path.open("rb") as f:
        status = os.fstat(f.fileno())
        left: float = status.st_size if stat.S_ISREG(status.st_mode) else math.inf
        head = True
        while left > 0 and (block := f.read(int(min(BLOCK, left)))):
            if head:
                _require_text(path, block, command)
            yield block
            head, left = False, left - len(block)


def _require_text(path: Path, head: bytes, command: str) -> None:
    for magic, (what, reader) in READERS.items():
        if head.startswith(magic):
            fix = f"type {reader} {shlex.quote(str(path))} | {command}"
            raise UserError(f"{path} is {what}, and only plain text is searched", fix, "not-text")
