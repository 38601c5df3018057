"""How fast one process saves a training state with the trainer's own writer, and how long training waits for it: `python bench/checkpoint_save.py`.

The state is random float32 arrays in a run directory. `podwright plan` takes the median rate for what a host of a slice writes
(plan/estimates/preemption.py).
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import jax
from stamp import keep, stamp

from podwright.rundir import RunDir
from podwright.train.checkpoint import Checkpoints
from podwright.train.run_storage import RunStorage

ARRAYS = 28 * 11  # as many as a Qwen3-1.7B has


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=1.0, help="size of the state")
    parser.add_argument("--saves", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    width = int(given.gib * (1 << 30) / 4 / ARRAYS) // 1024
    keys = jax.random.split(jax.random.key(0), ARRAYS)
    state = {f"layer_{i}": jax.random.normal(key, (width, 1024)) for i, key in enumerate(keys)}
    num_bytes = sum(x.nbytes for x in jax.tree.leaves(state))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        run = RunDir(Path(folder))
        with Checkpoints(RunStorage(run), keep=1) as checkpoints:
            for step in range(1, given.saves + 1):
                begin, cpu = time.perf_counter(), time.process_time()
                checkpoints.save(step, state, {"step": step})
                waited = time.perf_counter() - begin
                checkpoints.latest()
                seconds = time.perf_counter() - begin
                rows.append({"waited_s": waited, "seconds": seconds, "cpu_s": time.process_time() - cpu})
    rates = [num_bytes / row["seconds"] for row in rows]
    result = stamp(__file__) | {
        "bytes": num_bytes,
        "arrays": ARRAYS,
        "saves": rows,
        "bytes_per_s": statistics.median(rates),
        "least_bytes_per_s": min(rates),
        "load": round(os.getloadavg()[0], 1),
    }
    return keep(result, given.out)


if __name__ == "__main__":
    raise SystemExit(main())
