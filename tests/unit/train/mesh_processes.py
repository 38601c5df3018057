"""One of several processes of JAX with two devices each, `mesh_processes.py OUT`: writes what podwright.train.mesh gives it as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from podwright.errors import UserError
from podwright.recipe.pretrain import PretrainMesh
from podwright.storage.base import Cause, StorageFailure
from podwright.train import compile_cache, mesh

ROWS = np.arange(24.0, dtype=np.float32).reshape(8, 3)


def fault_of(find: Callable[[], Any]) -> list[str]:
    """Class, text, remedy and cause of the UserError that `find` raises."""
    try:
        find()
    except UserError as e:
        return [type(e).__name__, e.what, e.fix, str(getattr(e, "cause", ""))]
    return []


def fails_in(*ranks: int, storage: bool = False) -> Callable[[], None]:
    def find() -> None:
        rank = jax.process_index()
        with mesh.together():
            if rank in ranks and storage:
                raise StorageFailure(f"what {rank}", f"fix {rank}", Cause.QUOTA)
            if rank in ranks:
                raise UserError(f"what {rank}", f"fix {rank}", "a-code")

    return find


def calls_of(find: Callable[[Callable[[], Any]], Any]) -> list[Any]:
    """What `find` gives, and how often this process was asked."""
    calls = []

    def own() -> dict[str, Any]:
        calls.append(1)
        return {"rank": jax.process_index(), "text": "é" * 700}

    return [find(own), len(calls)]


def refused() -> Any:
    raise UserError(f"what {jax.process_index()}", "fix", "a-code")


def arrays(rank: int) -> dict[str, Any]:
    """On a mesh whose second axis, tensor, lies across the processes, and on the one of all devices in a row."""
    found = {}
    for name, tensor in (("rows", 1), ("copies", 2)):
        laid = mesh.make_mesh(PretrainMesh(tensor=tensor), sorted(jax.devices(), key=lambda d: (d.id % 2, d.id)))
        mine = {
            i
            for d in laid.local_devices
            for i in mesh.batch_sharding(laid).devices_indices_map((8, 3))[d][0].indices(8)[:1]
        }
        each = 8 // mesh.num_batch_shards(laid)
        own = np.full_like(ROWS, np.nan)
        for start in mine:
            own[start : start + each] = ROWS[start : start + each]
        array = mesh.to_device(own, laid)
        rows = mesh.own_rows(array)
        found[name] = {
            "whole": mesh.gather(array).tolist(),
            "own": {i: row.tolist() for i, row in rows.items()},
            "devices": [d.id for d in laid.devices.flat],
        }
    return found


def caches(folder: Path) -> dict[str, Any]:
    """What each process is told of a cache in a folder of its own, and in that of all; and where a program then came from."""
    (own := folder / f"own-{jax.process_index()}").mkdir()
    found: dict[str, Any] = {"shares": [mesh.share_a_disk(folder), mesh.share_a_disk(own)]}
    jax.config.update("jax_compilation_cache_dir", None)
    for name, place in (("apart", own), ("shared", folder / "cache")):
        os.environ["PODWRIGHT_CACHE"] = str(place)
        found[name] = compile_cache.use()
    count = compile_cache.ProgramCount()
    for _ in range(2):
        jax.clear_caches()
        jax.jit(lambda x: x * 3)(np.arange(7.0))
        multihost_utils.sync_global_devices("written")
        found.setdefault("programs", []).append(count.take())
    return found


def main() -> None:
    mesh.start_processes()
    rank = jax.process_index()
    texts = ["", "é" * 300]
    mesh.tell("first", f"earlier {rank}") if rank == 0 else None
    mesh.tell("first", f"word of {rank}") if rank == 0 else None
    multihost_utils.sync_global_devices("told")
    stops = mesh.agreed(lambda: rank == 1)
    record = {
        "processes": jax.process_count(),
        "anywhere": [mesh.anywhere(flag) for flag in (False, rank == 0, rank == 1, True)],
        "agreed": [stops(), stops()],
        "from_first": calls_of(mesh.from_first),
        "refused": fault_of(lambda: mesh.from_first(refused)),
        "nobody": fault_of(fails_in()),
        "first": fault_of(fails_in(0)),
        "second": fault_of(fails_in(1)),
        "both": fault_of(fails_in(0, 1)),
        "storage": fault_of(fails_in(1, storage=True)),
        "gathered": mesh.gathered({"rank": rank, "text": texts[rank]}),
        "combined": mesh.combined(np.array([1 + rank, 0, rank], np.int8)).tolist(),
        "dtype": str(mesh.combined(np.array([True, rank == 1])).dtype),
        "words": [mesh.look_up("first"), mesh.look_up("second")],
        "arrays": arrays(rank),
        "caches": caches(Path(sys.argv[1]).parent),
    }
    Path(sys.argv[1]).write_text(json.dumps(record))
    multihost_utils.sync_global_devices("written")  # the first process holds the words of all


if __name__ == "__main__":
    main()
