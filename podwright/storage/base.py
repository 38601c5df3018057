"""What every storage does, the errors of storages by class, and how long a failing one is tried."""

from __future__ import annotations

import enum
import errno
import random
import re
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from textwrap import shorten
from typing import NamedTuple, Protocol, TypeVar

from podwright.errors import UserError, message_of
from podwright.rundir import Record, parse_record

PATIENCE_S = 600.0
"""how long an operation on a storage that fails for a passing reason is repeated"""
LONGEST_PAUSE_S = 30.0
COMMITTED = "commit_success.txt"
"""the last object of a checkpoint in a bucket, as orbax writes it: without it the checkpoint is not complete"""
T = TypeVar("T")


class Versioned(NamedTuple):
    data: bytes
    generation: int
    """changes with each write; 0 stands for an object that does not exist"""


class StoredObject(NamedTuple):
    """As a list tells of it."""

    name: str
    size_bytes: int
    time: float
    """Unix seconds when it was written"""


class Conflict(Exception):
    """A conditional write was refused: the object has another generation than the writer knew."""


class Cause(enum.StrEnum):
    NETWORK = "network"
    LOGIN = "login"
    QUOTA = "quota"
    SERVER = "server"


_FIX = {
    Cause.NETWORK: "check the network between the hosts and the storage",
    Cause.LOGIN: "type gcloud auth application-default login, or give the hosts' service account the role storage.objectAdmin",
    Cause.QUOTA: "wait, or ask for more quota",
    Cause.SERVER: "wait until the storage works again",
}


class StorageFailure(UserError):
    """A storage did not do what was asked although nothing is wrong with the bytes in it."""

    def __init__(self, what: str, fix: str, cause: Cause):
        super().__init__(what, fix, f"storage-{cause}")
        self.cause = cause


def failed(url: str, cause: Cause, detail: str) -> StorageFailure:
    return StorageFailure(f"storage {url} failed ({cause}: {detail})", _FIX[cause], cause)


class Storage(Protocol):
    """Objects by name, relative to `url`. Every method raises StorageFailure after PATIENCE_S of failures."""

    url: str

    def read(self, name: str) -> Versioned | None:
        """An object with its generation; None where there is none."""
        ...

    def write(self, name: str, data: bytes, generation: int | None = None) -> int:
        """Write an object whole; its new generation. Conflict when `generation` is given (0: no object yet) and is not its own."""
        ...

    def names(self, prefix: str = "") -> list[str]:
        """All names that begin with `prefix`, sorted."""
        ...

    def objects(self, prefix: str = "") -> list[StoredObject]:
        """The same objects with their sizes and times."""
        ...

    def delete(self, name: str) -> None:
        """Harmless where there is no such object."""
        ...

    def move(self, prefix: str, to: str) -> None:
        """Give all objects whose names begin with `prefix` names that begin with `to`. Repeated, it finishes what was begun."""
        ...

    def upload(self, path: Path, name: str) -> None:
        """A file of any size."""
        ...

    def download(self, name: str, path: Path) -> None:
        """Into a file of any size, which appears whole; FileNotFoundError where there is no such object."""
        ...


def record_in(data: bytes, where: str, keys: Collection[str]) -> Record:
    """The JSON object with `keys` in `data`, which was read at `where`; UserError where there is none."""
    record = parse_record(data) or {}
    if absent := [key for key in keys if key not in record]:
        fix = "restore it from a copy; if there is none and no attempt is at work, delete that object"
        raise UserError(f"{where} is damaged: it lacks {', '.join(absent)}", fix, "damaged-file")
    return record


_NETWORK = (errno.ETIMEDOUT, errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE, errno.EHOSTUNREACH, errno.ENETUNREACH)
_FOLDER = (errno.ESTALE, errno.EIO, errno.ENOTCONN, errno.EREMOTEIO)  # of a network file system that is not there
_CLIENTS = ("google", "gcsfs", "aiohttp", "requests", "urllib3")
_FROM_STORE = re.compile(r"gs://|HTTP response code|storage\.googleapis|CURL error|/storage/v1/b/|/upload/")
_STATUS = re.compile(r"HTTP response code: (\d{3})")
_WORDS = {
    "UNAUTHENTICATED": Cause.LOGIN,
    "PERMISSION_DENIED": Cause.LOGIN,
    "RESOURCE_EXHAUSTED": Cause.QUOTA,
    "UNAVAILABLE": Cause.SERVER,
    "DEADLINE_EXCEEDED": Cause.NETWORK,
    "ABORTED": Cause.SERVER,
    "CURL error": Cause.NETWORK,
}


def cause_of(error: BaseException) -> Cause | None:
    """Why a storage failed, of what any of its clients raises; None of other errors, damaged and missing objects among them."""
    for each in _chain(error):
        cause = _cause(each)
        if cause:
            return cause
    return None


def failure_of(error: BaseException, url: str) -> StorageFailure | None:
    for e in _chain(error):
        if isinstance(e, StorageFailure):
            return e
    cause = cause_of(error)
    return failed(url, cause, first_line(error)) if cause else None


def first_line(error: BaseException) -> str:
    if type(error).__name__ == "DefaultCredentialsError":  # its text is a link to a manual
        return "no credentials of Google Cloud on this machine"
    return f"{type(error).__name__}: {shorten(message_of(error, 1000), 124, placeholder=' ...')}"


def patiently(url: str, act: Callable[[], T], patience_s: float | None = None) -> T:
    """`act()`, repeated with growing pauses while the storage fails; StorageFailure in the end. A refused login is not repeated."""
    end, pause = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s), 0.5
    while True:
        try:
            return act()
        except Exception as e:
            failure = failure_of(e, url)
            if failure is None:
                raise
            left = end - time.monotonic()
            if failure.cause is Cause.LOGIN or left <= 0:
                raise failure from e
        time.sleep(min(pause * random.uniform(0.5, 1.0), left))
        pause = min(2 * pause, LONGEST_PAUSE_S)


def _chain(error: BaseException) -> Iterator[BaseException]:
    e: BaseException | None = error
    for _ in range(10):
        if e is None:
            return
        yield e
        e = e.__cause__ or e.__context__


def _cause(e: BaseException) -> Cause | None:
    if isinstance(e, StorageFailure):
        return e.cause
    library = type(e).__module__.partition(".")[0]
    status = _status(e, library)
    if status is not None:
        return _of_status(status, str(e))
    if type(e).__module__ == "google.auth.exceptions" and type(e).__name__ != "TransportError":
        return Cause.NETWORK if getattr(e, "retryable", False) else Cause.LOGIN
    if library in _CLIENTS or isinstance(e, TimeoutError):
        return Cause.NETWORK
    if isinstance(e, OSError):
        if str(e).startswith("Forbidden: "):  # gcsfs
            return Cause.LOGIN
        return Cause.NETWORK if e.errno in (*_NETWORK, *_FOLDER) else None
    text = str(e)
    if not _FROM_STORE.search(text):
        return None
    return next((cause for word, cause in _WORDS.items() if word in text), None)


def _status(e: BaseException, library: str) -> int | None:
    """The HTTP status that a client's exception stands for."""
    if library in _CLIENTS:
        response = getattr(e, "response", None)
        for value in (getattr(e, "code", None), getattr(response, "status_code", None), getattr(e, "status", None)):
            if str(value).isdigit():
                return int(str(value))
    match = _STATUS.search(str(e))
    return int(match[1]) if match else None


def _of_status(status: int, text: str) -> Cause | None:
    if status == 429 or (status == 403 and re.search(r"quota|rateLimit", text, re.IGNORECASE)):
        return Cause.QUOTA
    if status in (401, 403):
        return Cause.LOGIN
    return Cause.SERVER if status == 408 or status >= 500 else None
