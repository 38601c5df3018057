"""A storage in a folder, of this machine or shared over a network."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from podwright.storage.base import Conflict, Versioned, patiently

_LOCK = ".lock"


class Folder:
    """Generations are modification times in ns; conditional writes hold a lock of the folder."""

    def __init__(self, url: str, patience_s: float | None = None):
        self._patience_s = patience_s
        self.path = Path(url).expanduser().absolute()
        self.url = str(self.path)

    def read(self, name: str) -> Versioned | None:
        def act() -> Versioned | None:
            try:
                with (self.path / name).open("rb") as f:
                    return Versioned(f.read(), os.fstat(f.fileno()).st_mtime_ns)
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                return None

        return patiently(self.url, act, self._patience_s)

    def write(self, name: str, data: bytes, generation: int | None = None) -> int:
        def act() -> int:
            with self._locked():
                own = self._generation(name)
                if generation is not None and generation != own:
                    raise Conflict(f"{self.url}/{name}")
                return self._put(name, data, own)

        return patiently(self.url, act, self._patience_s)

    def names(self, prefix: str = "") -> list[str]:
        folder = self.path / prefix.rpartition("/")[0]
        paths = (str(p.relative_to(self.path)) for p in folder.rglob("*") if p.is_file() and p.name != _LOCK)
        return sorted(name for name in paths if name.startswith(prefix) and not name.endswith(".part"))

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
            path.parent.mkdir(parents=True, exist_ok=True)
            (self.path / name).replace(path)
            self.delete(name)  # the folders that are empty now

    def upload(self, path: Path, name: str) -> None:
        patiently(self.url, lambda: _copy(path, self.path / name), self._patience_s)

    def download(self, name: str, path: Path) -> None:
        patiently(self.url, lambda: _copy(self.path / name, path), self._patience_s)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / _LOCK).open("a") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            yield

    def _generation(self, name: str) -> int:
        path = self.path / name
        return path.stat().st_mtime_ns if path.exists() else 0

    def _put(self, name: str, data: bytes, before: int) -> int:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        part.write_bytes(data)
        now = max(time.time_ns(), before + 1)
        os.utime(part, ns=(now, now))
        part.replace(path)
        return self._generation(name)  # as the file system keeps it


def _copy(source: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    shutil.copyfile(source, part)
    part.replace(path)
