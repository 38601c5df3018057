"""The folder in which compilers' verdicts are kept, and the lock by which one compiler at a time works on this machine.

FOLDER/KEY/PROGRAM.json  a verdict, by what the program depends on
           PROGRAM.txt   the log of a compiler that failed
       cpu-KEY.json      what operations cost on a CPU
       jax-VERSION/      an environment with another jax
What a compiler dumps is deleted once it has been read. A folder that cannot be written answers with what it holds.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from podwright.rundir import part_of
from podwright.shell import Shell

Progress = Callable[[str, str, float], None]
"""program, phase, seconds since its child was started, or since it waits"""

LIMIT_BYTES = 64 << 20
"""of all verdicts; one has about ten thousand"""
IN_USE_S = 7200.0
"""for which nothing is pruned: longer than the longest compile"""
_VERDICTS = re.compile(r"[0-9a-f]{24}")
_REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM)
_POLL_S = 0.1


@contextlib.contextmanager
def exclusive(what: str, progress: Progress) -> Iterator[None]:
    """One compiler at a time on this machine, whatever folders its plans keep verdicts in: two take twice the memory and no less time.

    A plan that is told to end meanwhile (by `timeout`, say) ends its child too, which has a session of its own.
    """
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with (Shell.private_folder() / "compiler.lock").open("w") as lock:
            begin = time.monotonic()
            while not _locked(lock.fileno()):
                progress(what, "waiting for another plan", time.monotonic() - begin)
                time.sleep(_POLL_S)
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def writable(folder: Path) -> Path:
    """`folder`, empty; a temporary one where this user may not write there. Whoever asks deletes it."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    except OSError as e:
        if e.errno not in _REFUSED:
            raise
        return Path(tempfile.mkdtemp(prefix="podwright-compile-"))
    return folder


def keep(path: Path, text: str) -> bool:
    """Write `path` whole or not at all; whether this user may."""
    try:
        with part_of(path) as part:
            part.write_text(text)
    except OSError as e:
        if e.errno not in _REFUSED:
            raise
        return False
    return True


def used(path: Path) -> None:
    """Note that a verdict was of use, so that it is pruned late."""
    with contextlib.suppress(OSError):
        os.utime(path.parent)


def prune(cache: Path) -> None:
    """Delete the verdicts that were of no use for longest, until the rest takes no more than LIMIT_BYTES. What cannot be deleted stays."""
    with contextlib.suppress(OSError):
        folders = sorted(
            ((p.stat().st_mtime, p) for p in cache.iterdir() if _VERDICTS.fullmatch(p.name) and p.is_dir()),
            reverse=True,
        )
        left = LIMIT_BYTES
        for changed, folder in folders:
            left -= sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
            if left < 0 and time.time() - changed > IN_USE_S:
                shutil.rmtree(folder, ignore_errors=True)
