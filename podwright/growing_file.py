"""Files that grow by lines: each is appended by one write, and one that a kill or a full disk has cut short goes with the next."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path


def append(path: Path, line: bytes, is_complete: Callable[[bytes], bool]) -> None:
    """`line` with its end, or on a full disk nothing of it. `is_complete`: as of `end_of`."""
    with path.open("ab+", buffering=0) as f:
        end = end_of(f, is_complete)
        if f.write(line) != len(line):
            f.truncate(end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def drop_torn(path: Path) -> None:
    """What stands behind the last line that is complete."""
    with path.open("ab+", buffering=0) as f:
        end_of(f, lambda text: False)


def end_of(f: FileIO, is_complete: Callable[[bytes], bool]) -> int:
    """The size of a file that is open to append and to read, once its last line is complete. `is_complete`: of a text without the end of
    its line, which then gets it; any other is dropped."""
    end = f.seek(0, os.SEEK_END)
    size = 1 << 12
    while True:
        begin = max(0, end - size)
        f.seek(begin)
        tail = f.read(end - begin)
        complete = tail.rfind(b"\n") + 1
        if complete or not begin:
            break
        size *= 8
    torn = tail[complete:]
    if torn and is_complete(torn):
        f.write(b"\n")
        return end + 1
    if torn:
        f.truncate(begin + complete)
    return begin + complete


def files_below(folder: Path) -> Iterator[Path]:
    """At any depth; folders that are removed meanwhile, or may not be read, are passed over. Other OSErrors are raised."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError):
            raise error

    for place, _, names in os.walk(folder, onerror=refuse):
        yield from (Path(place, name) for name in names)
