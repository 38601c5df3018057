"""A file or directory that a recipe names: on this machine, or at a URL that fsspec knows (gs://, s3://, memory://).

Files of this machine need nothing but Python. Whatever a store answers when it does not give the file is a UserError.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any

from podwright import extras
from podwright.errors import UserError, expanded, message_of
from podwright.recipe.paths import absent
from podwright.storage.base import StorageFailure, cause_of


class Unreachable(UserError):
    """A store that cannot be asked from this machine: its package, its credentials or the network are missing."""


def storage_failure(error: UserError) -> StorageFailure | None:
    """What a trainer ends by when a store failed; None of every other error, a missing package among them."""
    if isinstance(error, StorageFailure):
        return error
    cause = cause_of(error) if isinstance(error, Unreachable) else None
    return StorageFailure(error.what, error.fix, cause) if cause else None


_GCS = extras.install("gcs")
_ADLFS = "type pip install adlfs"
_INSTALL = {"gs": _GCS, "gcs": _GCS, "s3": "type pip install s3fs", "az": _ADLFS, "abfs": _ADLFS}
_PIECE = 1 << 22


@dataclasses.dataclass(frozen=True)
class Location:
    typed: str
    """as the user wrote it, for messages"""
    path: str
    fs: Any = None
    """a file system of fsspec; None: this machine's"""

    @classmethod
    def of(cls, typed: str) -> Location:
        """UserError when the URL's kind is unknown; Unreachable when it needs a package that is not installed."""
        protocol, separator, rest = typed.partition("://")
        if not typed.strip():
            raise UserError(
                f"the source {typed!r} is empty", "give a path, or a URL such as gs://bucket/directory", "no-such-place"
            )
        if not separator:
            return cls(typed, str(expanded(typed)))
        if protocol == "file":
            return cls(typed, rest)
        cls.require_client(typed)
        try:
            import fsspec

            fs, path = fsspec.core.url_to_fs(typed)
            for kind in type(fs).__mro__:  # that of a trainer is derived from the client's
                client = logging.getLogger(kind.__module__.partition(".")[0])
                client.setLevel(logging.CRITICAL)  # it logs what it raises, with tracebacks
            return cls(typed.rstrip("/"), path, fs)
        except ValueError as e:
            raise _no_place(typed, e) from e
        except Exception as e:  # clients look for credentials as soon as they are made, and raise dozens of types
            raise Unreachable(
                f"{typed} cannot be read ({type(e).__name__}: {message_of(e)})",
                "check the URL and your credentials",
                "unreadable",
            ) from e

    @staticmethod
    def require_client(typed: str) -> None:
        """UserError when the URL's kind is unknown; Unreachable when it needs a package that is not installed. Asks no server."""
        protocol = typed.partition("://")[0]
        try:
            import fsspec

            fsspec.get_filesystem_class(protocol)
        except ImportError as e:
            fix = _INSTALL.get(protocol, extras.install("jax"))
            raise Unreachable(f"reading {typed} needs the package {_package(e)}", fix, "missing-package") from e
        except ValueError as e:
            raise _no_place(typed, e) from e

    @property
    def local(self) -> Path | None:
        return None if self.fs else Path(self.path)

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.path).suffix

    def __truediv__(self, name: str) -> Location:
        return Location(f"{self.typed.rstrip('/')}/{name}", f"{self.path.rstrip('/')}/{name}", self.fs)

    def is_dir(self) -> bool:
        with self._explained():
            return bool(self.fs.isdir(self.path)) if self.fs else Path(self.path).is_dir()

    def exists(self) -> bool:
        with self._explained():
            return bool(self.fs.exists(self.path)) if self.fs else Path(self.path).exists()

    def files(self) -> dict[str, int]:
        """Name -> bytes of what lies in a directory, sorted; one question to a store, however many there are."""
        with self._explained():
            if self.fs:
                sizes = {
                    PurePosixPath(e["name"]).name: e["size"]
                    for e in self.fs.ls(self.path, detail=True)
                    if e["type"] == "file"
                }
            else:
                sizes = {p.name: p.stat().st_size for p in Path(self.path).iterdir() if p.is_file()}
        return dict(sorted(sizes.items()))

    def size(self) -> int:
        with self._explained():
            return int(self.fs.size(self.path)) if self.fs else Path(self.path).stat().st_size

    def read(self, start: int = 0, stop: int | None = None) -> bytes:
        with self._explained():
            if self.fs:
                return bytes(self.fs.cat_file(self.path, start=start, end=stop))
            with Path(self.path).open("rb") as f:
                f.seek(start)
                return f.read() if stop is None else f.read(stop - start)

    @contextlib.contextmanager
    def opened(self, block_bytes: int) -> Iterator[IO[bytes]]:
        """A file of a store, open for reading `block_bytes` at a time."""
        with self._explained(), self.fs.open(self.path, "rb", block_size=block_bytes) as file:
            yield file

    def pieces(self, start: int = 0, size: int = _PIECE) -> Iterator[bytes]:
        """The bytes from `start` on, `size` at a time."""
        with self._explained(), self.fs.open(self.path, "rb") if self.fs else Path(self.path).open("rb") as f:
            f.seek(start)
            while piece := f.read(size):
                yield piece

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (UserError, GeneratorExit):
            raise
        except FileNotFoundError as e:
            if self.fs is None:
                raise absent(self.typed, Path(self.path)) from e
            raise UserError(f"there is no {self.typed}", "check the path", "no-such-file") from e
        except Exception as e:
            if isinstance(e, OSError) and e.errno == errno.ELOOP:
                raise absent(self.typed, Path(self.path)) from e
            if self.fs is None and not isinstance(e, OSError):
                raise
            reason = e.strerror if isinstance(e, OSError) and e.strerror else f"{type(e).__name__}: {message_of(e)}"
            what, fix = f"{self.typed} cannot be read ({reason})", "check the path and your rights to it"
            if self.fs:
                raise Unreachable(what, fix, "unreachable") from e
            raise UserError(what, fix, "unreadable") from e


def ranges(wanted: Sequence[tuple[Location, int, int]]) -> list[bytes]:
    """The bytes [start, stop) of places in one store, asked for together."""
    first = wanted[0][0]
    with first._explained():
        paths = [place.path for place, _, _ in wanted]
        starts = [start for _, start, _ in wanted]
        stops = [stop for _, _, stop in wanted]
        contents = first.fs.cat_ranges(paths, starts, stops, on_error="raise")
    return [bytes(b) for b in contents]


def _no_place(typed: str, e: ValueError) -> UserError:
    return UserError(
        f"{typed} is no place that can be read ({message_of(e)})",
        "give a path, or a URL such as gs://bucket/directory",
        "no-such-place",
    )


def _package(e: ImportError) -> str:
    return e.name or ("gcsfs" if "gcsfs" in str(e) else "of its store")
