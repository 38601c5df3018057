"""A storage in a folder, of this machine or shared over a network."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shlex
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from podwright.errors import UserError, expanded
from podwright.growing_file import files_below
from podwright.rundir import part_of
from podwright.storage.base import Cause, Conflict, StorageFailure, StoredObject, Versioned, patiently

_LOCK = ".lock"


def file_on_path(path: Path) -> Path | None:
    """The file that stands where `path` needs a folder."""
    exists = next((p for p in (path, *path.parents) if os.path.exists(p)), None)
    return None if exists is None or os.path.isdir(exists) else exists


def require_folder(path: Path, key: str = "storage") -> None:
    """UserError unless there is the folder `path`, which a user names as `key` of a target."""
    if file := file_on_path(path):
        raise UserError(f"{key}={path}: {file} is a file, not a folder", f"correct {key} of the target", "not-a-folder")
    if not os.path.isdir(path):
        fix = f"type mkdir -p {shlex.quote(str(path))}, or correct {key} of the target"
        raise UserError(f"there is no folder {path}", fix, "no-such-folder")


class Folder:
    """Generations are modification times in ns; conditional writes hold a lock of the folder. Writing makes the folder itself, never the
    one that it is in: that one may be a file system that is not mounted, and what is written to its place fills the local disk."""

    def __init__(self, url: str, patience_s: float | None = None):
        self._patience_s = patience_s
        self.path = expanded(url).absolute()
        self.url = str(self.path)

    def read(self, name: str) -> Versioned | None:
        def act() -> Versioned | None:
            try:
                with (self.path / name).open("rb") as f:
                    return Versioned(f.read(), os.fstat(f.fileno()).st_mtime_ns)
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                return None

        return patiently(self.url, act, self._patience_s)

    def make(self) -> None:
        """StorageFailure, at once, if there is no folder to make it in."""
        try:
            require_folder(self.path.parent)
        except UserError as e:
            raise StorageFailure(e.what, e.fix, Cause.SERVER) from e
        self.path.mkdir(exist_ok=True)

    def write(self, name: str, data: bytes, generation: int | None = None) -> int:
        def act() -> int:
            with self._locked():
                own = self._generation(name)
                if generation is not None and generation != own:
                    raise Conflict(f"{self.url}/{name}")
                return self._put(name, data, own)

        self.make()
        return patiently(self.url, act, self._patience_s)

    def names(self, prefix: str = "") -> list[str]:
        return [row.name for row in self.objects(prefix)]

    def objects(self, prefix: str = "") -> list[StoredObject]:
        return patiently(self.url, lambda: self._objects(prefix), self._patience_s)

    def _objects(self, prefix: str) -> list[StoredObject]:
        rows = []
        for path in files_below(self.path / prefix.rpartition("/")[0]):
            name = str(path.relative_to(self.path))
            if not name.startswith(prefix) or name.endswith(".part") or path.name == _LOCK:
                continue
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                about = path.stat()
                if stat.S_ISREG(about.st_mode):
                    rows.append(StoredObject(name, about.st_size, about.st_mtime))
        return sorted(rows, key=lambda row: row.name)

    def delete(self, name: str) -> None:
        path = self.path / name
        patiently(self.url, lambda: path.unlink(missing_ok=True), self._patience_s)
        with contextlib.suppress(OSError):  # a folder that holds more stays
            for folder in path.parents:
                if folder == self.path:
                    return
                folder.rmdir()

    def move(self, prefix: str, to: str) -> None:
        for name in self.names(prefix):
            path = self.path / (to + name.removeprefix(prefix))
            patiently(self.url, functools.partial(_moved, self.path / name, path), self._patience_s)
            self.delete(name)  # the folders that are empty now

    def upload(self, path: Path, name: str) -> None:
        self.make()
        patiently(self.url, lambda: _copy(path, self.path / name), self._patience_s)

    def download(self, name: str, path: Path) -> None:
        patiently(self.url, lambda: _copy(self.path / name, path), self._patience_s)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.path / _LOCK).open("a") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            yield

    def _generation(self, name: str) -> int:
        path = self.path / name
        return path.stat().st_mtime_ns if path.exists() else 0

    def _put(self, name: str, data: bytes, before: int) -> int:
        path = self.path / name
        with part_of(path) as part:
            part.write_bytes(data)
            now = max(time.time_ns(), before + 1)
            os.utime(part, ns=(now, now))
        return self._generation(name)  # as the file system keeps it


def _moved(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() or not to.exists():  # else an earlier try moved it
        path.replace(to)


def _copy(source: Path, path: Path) -> None:
    with part_of(path) as part:
        shutil.copyfile(source, part)
