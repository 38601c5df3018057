"""jax's persistent compilation cache: which folder holds it, entries that are whole, and whether the programs of a first step came from it.

jax runs what an entry holds. A folder that somebody else can write is therefore refused, and the programs are compiled.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import stat
from pathlib import Path

import jax
from jax._src import compilation_cache  # which class keeps entries has no public name
from jax._src.lru_cache import LRUCache

from podwright.accelerators import GIB
from podwright.errors import UserError
from podwright.rundir import replace_file
from podwright.train.mesh import anywhere, cache_folder, from_first, share_a_disk, together

MAX_BYTES = 10 * GIB
"""of all entries, at the start of a process"""
_REQUEST, _HIT = (f"/jax/compilation_cache/{event}" for event in ("compile_requests_use_cache", "cache_hits"))
_CPU_LINE = re.compile(r"^(?:model name|flags|Features|CPU part)\s*:.*", re.MULTILINE)


class AtomicEntries(LRUCache):
    """jax's own class writes an entry in place and never replaces it: one that a kill has cut off would be read, in vain, at each start."""

    def __init__(self, folder: Path):
        super().__init__(str(folder), max_size=-1)  # its own bound takes a package and a file for each entry
        self._folder = folder

    def get(self, key: str) -> bytes | None:
        with contextlib.suppress(OSError):
            os.utime(self._folder / f"{key}-cache")  # the time of the last use, also on disks that keep none
        entry: bytes | None = super().get(key)
        return entry

    def put(self, key: str, value: bytes) -> None:
        """jax calls it for a program that it had to compile: an entry of that key, if there is one, could not be read."""
        replace_file(self._folder / f"{key}-cache", value, 0o600)


class ProgramCount:
    """Counts the programs that jax asks the cache for, and those that it gets."""

    def __init__(self) -> None:
        self._requests = self._hits = 0
        jax.monitoring.register_event_listener(self._count)

    def _count(self, event: str, **_: str | int) -> None:
        self._requests += event == _REQUEST
        self._hits += event == _HIT

    def take(self) -> str:
        """`cached` if all programs since the last call came from the cache, else `compiled`."""
        all_hits = 0 < self._requests == self._hits
        self._requests = self._hits = 0
        return "cached" if all_hits else "compiled"


def use() -> str:
    """Switches the cache on, unless the user has named one to jax; why it stays off, or "". Every process of the run must call it."""
    settings = jax.config.values
    if anywhere(bool(settings["jax_compilation_cache_dir"]) or not settings["jax_enable_compilation_cache"]):
        return ""
    try:
        with together():
            folder = cache_folder() / "compiled"
        if jax.default_backend() == "cpu":
            folder /= cpu_name()
        fault = from_first(lambda: _prepare(folder))
        # Where only some processes find their programs, the others may wait for them: XLA tunes kernels of GPUs in all processes together.
        if not fault and not share_a_disk(folder):
            fault = f"the processes do not share {folder}"
    except UserError as e:
        fault = str(e)
    if fault:
        return f"programs are compiled at each start: {fault}; name a folder of yours in PODWRIGHT_CACHE"
    compilation_cache.get_file_cache = lambda path: (AtomicEntries(Path(path)), path)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return ""


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """A name for this type of CPU: XLA's programs use the instructions of the CPU that compiled them."""
    try:
        lines = sorted(set(_CPU_LINE.findall(cpuinfo.read_text())))
    except OSError:
        lines = [platform.platform()]
    return "cpu-" + hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def _prepare(folder: Path) -> str:
    """Makes `folder`, and in it room for new entries; why it cannot be used, or ""."""
    top = folder if folder.name == "compiled" else folder.parent
    try:
        top.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = top.stat()
        if own.st_uid != os.geteuid() or own.st_mode & 0o022:
            return f"{top} belongs to another user or can be written by others"
        if _lets_others_replace(top.parent.stat()):
            return f"{top.parent} belongs to another user or can be written by others"
        folder.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # of an entry that another process deletes
            evict(top)
    except OSError as e:
        return f"{top} cannot be used ({e.strerror})"
    return ""


def _lets_others_replace(folder: os.stat_result) -> bool:
    """Whether another user than root can put a folder in the place of one of ours; in one like /tmp each can replace what is theirs."""
    others_write = folder.st_mode & 0o022 and not folder.st_mode & stat.S_ISVTX
    return folder.st_uid not in (os.geteuid(), 0) or bool(others_write)


def evict(top: Path, limit: int = MAX_BYTES) -> None:
    """Deletes the entries that have not been used for longest, and what killed processes left of theirs, down to `limit` bytes."""
    files = [(path.stat(), path) for path in top.rglob("*") if path.is_file()]
    total = 0
    for status, path in sorted(files, key=lambda file: file[0].st_mtime, reverse=True):
        total += status.st_size
        if total > limit:
            path.unlink(missing_ok=True)
