"""How the processes of a jax run come to the storage of its checkpoints: who claims it, and which of them share a disk."""

from __future__ import annotations

from pathlib import Path

import jax

from podwright.errors import UserError
from podwright.rundir import RunDir
from podwright.train import run_storage
from podwright.train.mesh import share_a_disk, together
from podwright.train.run_storage import AttemptStart, RunStorage


def attach(run: RunDir, start: AttemptStart) -> RunStorage:
    """Every process must call it. UserError in all of them when another attempt has the storage."""
    first, url = jax.process_index() == 0, start.url
    with together():
        run_storage.remember(run, url)
        storage = RunStorage(run, url)
        if first and jax.process_count() > 1 and not storage.in_bucket:
            storage.make()
    shares = storage.in_bucket or share_a_disk(Path(storage.root))
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
