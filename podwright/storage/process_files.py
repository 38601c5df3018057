"""What each process of an attempt has besides records when it ends: its log, its devices' samples, its stacks and how it ended.

Below attempts/NUMBER/ of a storage, under the names that they have in a run directory. They are diagnostics: the end of a long one
is enough, and a process that is killed leaves none.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from podwright.rundir import RunDir, part_of
from podwright.storage.base import Storage

PREFIX = "attempts/"
LARGEST = 256 << 10  # bytes of a file
_NAME = re.compile(r"attempts/\d+/(exit|stacks|devices|log)(-\d+)?\.(json|txt|csv)")


def leave(run: RunDir, storage: Storage, attempt: int, process: int) -> None:
    """Of one process; an earlier start of the attempt is replaced. StorageFailure when the storage cannot be written."""
    paths = [run.exit(attempt, process), run.stacks(attempt, process), run.devices(attempt, process)]
    for path in (*paths, run.log(attempt, process)):
        if path.is_file():
            storage.write(path.relative_to(run.path).as_posix(), _end_of(path))


def _end_of(path: Path) -> bytes:
    """All of a file, or whole lines of its end; of a table with its first line, which names the columns."""
    with path.open("rb") as f:
        if (size := f.seek(0, os.SEEK_END)) <= LARGEST:
            f.seek(0)
            return f.read()
        f.seek(0)
        head = f.readline() if path.suffix == ".csv" else b""
        f.seek(size - LARGEST)
        return head + f.read().partition(b"\n")[2]


def bring(run: RunDir, storage: Storage, attempt: int = 0) -> None:
    """What is longer in the storage than in the run directory comes there; `attempt`: 0 for all. StorageFailure as above."""
    for name in storage.names(f"{PREFIX}{attempt}/" if attempt else PREFIX):
        path = run.path / name
        if not _NAME.fullmatch(name):
            continue  # put there by somebody else
        there = storage.read(name)
        if there is None:
            continue
        if path.exists() and path.stat().st_size >= len(there.data):
            continue
        with part_of(path) as part:
            part.write_bytes(there.data)
