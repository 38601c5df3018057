"""One of several processes that save a sharded state, restore it and save it once more: SCRIPT RUN_DIR URL ATTEMPT RESULT."""

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from podwright.errors import UserError
from podwright.rundir import RunDir
from podwright.train import checkpoint, gathered
from podwright.train.checkpoint import attach
from podwright.train.mesh import start_processes
from podwright.train.run_storage import AttemptStart

gathered.PIECE_BYTES = 1 << 10  # several pieces an array


def make(step):
    mesh = jax.make_mesh((jax.device_count() // 2, 2), ("fsdp", "tensor"))
    split = NamedSharding(mesh, PartitionSpec("fsdp", "tensor"))
    other = NamedSharding(mesh, PartitionSpec(None, "fsdp"))
    everywhere = NamedSharding(mesh, PartitionSpec())
    rng = np.random.default_rng(step)
    wide = rng.normal(size=(64, 32)).astype(np.float32)
    wide[0, :3] = [-0.0, np.inf, np.float32(np.nan)]
    whole = {
        "wide": (wide, split),
        "half": (rng.normal(size=(6, 8, 4)).astype(jnp.bfloat16), other),
        "bias": (rng.normal(size=(5,)).astype(np.float32), everywhere),
        "count": (np.int32(step), everywhere),
    }
    return jax.tree.map(
        lambda x: jax.make_array_from_callback(x[0].shape, x[1], lambda index: x[0][index]),
        whole,
        is_leaf=lambda x: isinstance(x, tuple),
    )


def own_bytes(state):
    return {name: [np.asarray(s.data).tobytes().hex() for s in x.addressable_shards] for name, x in state.items()}


def main(run, url, attempt, result):
    start = AttemptStart(attempt, url, takeover=attempt > 1)
    storage = attach(run, start)
    report = {"gathered": storage.gathered, "attempt": attempt}
    try:
        with checkpoint.Checkpoints(storage, checkpoint.KEPT) as checkpoints:
            report["latest"] = checkpoints.latest()
            first = (report["latest"] or 0) + 1
            for step in (first, first + 1, first + 2):
                checkpoints.save(step, make(step), {"step": step})
        with checkpoint.Checkpoints(storage, None) as checkpoints:
            abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), make(first))
            found = checkpoints.restore(abstract)
            report |= {"step": found.step, "cursor": found.cursor}
            report["equal"] = own_bytes(found.state) == own_bytes(make(found.step))
            checkpoint.save_weights(storage, found.state)
            report["start"] = own_bytes(checkpoint.load_weights(storage, abstract)) == own_bytes(found.state)
        start.finish(jax.process_index())
    except UserError as e:
        report["refused"] = e.what
    result.write_text(json.dumps(report))


if __name__ == "__main__":
    start_processes()
    run_dir, url, attempt, result = sys.argv[1:]
    main(RunDir(Path(run_dir)), url, int(attempt), Path(result))
