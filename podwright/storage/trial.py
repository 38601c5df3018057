"""Whether a storage can be used as trainers and launchers use it: tried with an object of the trial's own, which is deleted again."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

from podwright.errors import UserError
from podwright.storage import open_storage
from podwright.storage.base import Cause, Conflict, Storage, StorageFailure
from podwright.storage.folder import require_folder

_PATIENCE_S = 5.0
_DATA = b"written by podwright to see whether it can; safe to delete"


def require_usable(url: str) -> None:
    """Create an object at `url` if absent, read, list and delete it. UserError if runs cannot be kept there, StorageFailure if that is
    not known."""
    if "://" not in url:
        require_folder(Path(url))
    name = _new_name()
    try:
        with _without_a_right():
            storage = open_storage(url, _PATIENCE_S)
            storage.write(name, _DATA, 0)
            try:
                _require_reliable(storage, name)
            finally:
                storage.delete(name)
    except OSError as e:  # of a folder
        raise _not_writable(url, str(e.strerror)) from e


def require_listable(url: str) -> None:
    """Look at the storage `url` and write nothing. UserError if runs cannot be kept there, StorageFailure if that is not known."""
    if "://" in url:
        with _without_a_right():
            open_storage(url, _PATIENCE_S).names(_new_name())  # of no object: there may be many
        return
    require_folder(Path(url))
    if not os.access(url, os.R_OK | os.W_OK | os.X_OK):
        raise _not_writable(url, "no right to read and write there, or mounted read-only")


@contextlib.contextmanager
def _without_a_right() -> Iterator[None]:
    """Turns the failure of a login that is known there, and lacks the right, into a UserError: it is no matter of the moment."""
    try:
        yield
    except StorageFailure as e:
        if e.cause is Cause.LOGIN and getattr(e.__cause__, "code", None) == HTTPStatus.FORBIDDEN:
            raise UserError(e.what, e.fix, "storage-login") from e
        raise


def _new_name() -> str:
    return f"podwright-trial-{secrets.token_hex(8)}"


def _not_writable(url: str, why: str) -> UserError:
    fix = "give yourself the right to write there, or correct storage of the target"
    return UserError(f"folder {url} cannot be written ({why})", fix, "not-writable")


def _require_reliable(storage: Storage, name: str) -> None:
    """UserError unless the storage shows at once what was written, and refuses to create what is there."""
    there = storage.read(name)
    if there is not None and there.data == _DATA and name in storage.names(name):
        try:
            storage.write(name, b"", 0)
        except Conflict:
            return
    what = f"storage {storage.url} does not show, or does not keep, an object that has just been written to it"
    raise UserError(what, "correct storage of the target", "unreliable-storage")
