"""Whether a storage can be used as trainers and launchers use it: tried with an object of the trial's own, which is deleted again."""

from __future__ import annotations

import secrets
from pathlib import Path

from podwright.errors import UserError
from podwright.storage import open_storage
from podwright.storage.base import Conflict, Storage
from podwright.storage.folder import require_folder

_PATIENCE_S = 5.0
_DATA = b"written by podwright to see whether it can; safe to delete"


def require_usable(url: str) -> None:
    """Create an object at `url` if absent, read, list and delete it. UserError for whatever would end a run there."""
    if "://" not in url:
        require_folder(Path(url))
    storage, name = open_storage(url, _PATIENCE_S), f"podwright-trial-{secrets.token_hex(8)}"
    try:
        storage.write(name, _DATA, 0)
        try:
            _require_shown(storage, name)
            _require_conditions(storage, name)
        finally:
            storage.delete(name)
    except OSError as e:  # of a folder
        fix = "give yourself the right to write there, or correct storage of the target"
        raise UserError(f"folder {url} cannot be written ({e.strerror})", fix) from e


def _require_shown(storage: Storage, name: str) -> None:
    there = storage.read(name)
    if there is None or there.data != _DATA or name not in storage.names(name):
        what = f"storage {storage.url} does not show an object that has just been written to it"
        raise UserError(what, "correct storage of the target: runs need one that shows at once what was written")


def _require_conditions(storage: Storage, name: str) -> None:
    try:
        storage.write(name, b"", 0)
    except Conflict:
        return
    what = f"storage {storage.url} replaced an object that was to be created if absent"
    raise UserError(what, "correct storage of the target: runs need one that keeps to such conditions")
