"""How the processes of a jax run come to the storage of its checkpoints: who claims it, and which of them share a disk."""

from __future__ import annotations

import os
import time

import jax

from podwright.errors import UserError
from podwright.rundir import RunDir
from podwright.train import run_storage
from podwright.train.mesh import anywhere, from_first, together
from podwright.train.run_storage import AttemptStart, RunStorage

_PATIENCE_S = 5.0  # in which a network file system shows a new file to the other hosts


def attach(run: RunDir, start: AttemptStart) -> RunStorage:
    """Every process must call it. UserError in all of them when another attempt has the storage."""
    first, url = jax.process_index() == 0, start.url
    with together():
        run_storage.remember(run, url)
        storage = RunStorage(run, url)
    shares = storage.in_bucket or _share_a_disk(storage)
    if url and not shares:
        raise UserError(
            f"storage {url} is not one folder for all hosts", "mount it on all of them, or type gs://BUCKET/PREFIX"
        )
    storage.gathered = not shares
    with together():
        if first:
            storage.claim(start.number, start.allocation, start.takeover)
        start.storage = storage
    return storage


def _share_a_disk(storage: RunStorage) -> bool:
    """Whether every process sees a file that the first one has just written."""
    if jax.process_count() == 1:
        return True
    name = from_first(storage.mark)
    end = time.monotonic() + _PATIENCE_S
    while not (seen := os.path.isdir(storage.root) and storage.sees(name)) and time.monotonic() < end:
        time.sleep(0.2)
    missed = anywhere(not seen)
    if jax.process_index() == 0:
        storage.unmark(name)
    return not missed
