"""`podwright report --log` of a log with 100,000 steps: processor time, wall time and peak memory, of a process of its own, and
the load of the machine over the last minute (/proc/loadavg) before and after it.

python bench/maxtext_log.py [--steps 100000] [--out bench/results/maxtext_log.json]

The log is drawn with a fixed seed: steps as MaxText 0.2.5 logs them on 128 chips of tpu7x, with a restart that repeats 1,000 of them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from stamp import keep, stamp

ROOT = Path(__file__).resolve().parent.parent
REPEATED = 1000


def write_log(path: Path, steps: int) -> int:
    """Its size in bytes."""
    draw, clock = random.Random(0), 0.0
    with path.open("w") as f:
        f.write("Num_devices: 256, shape (256,)\n")
        for n in [*range(steps // 2), *range(steps // 2 - REPEATED, steps - REPEATED)]:
            seconds = draw.uniform(27.3, 27.6)
            clock += seconds / 200
            time_of_day = f"{int(clock) // 3600 % 24:02}:{int(clock) // 60 % 60:02}:{int(clock) % 60:02}.{draw.randrange(10**6):06}"
            loss = draw.uniform(2, 3)
            f.write(
                f"I11{1 + int(clock) // 86400 % 20:02} {time_of_day} 140579179993984 metric_logger.py:265] completed step: {n}, "
                f"seconds: {seconds:.3f}, TFLOP/s/device: {8208.7 / seconds:.3f}, Tokens/s/device: {32768 / seconds:.3f}, "
                f"total_weights: 8388608, loss: {loss:.3f}, lm_loss: {loss:.3f}, perplexity: {draw.uniform(8, 20):.3f}\n"
            )
        f.write("EXIT_CODE=0\n")
    return path.stat().st_size


def measure(log: Path) -> dict[str, Any]:
    """Of the command itself."""
    load = os.getloadavg()[0]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    argv = [sys.executable, "-m", "podwright", "report", "--log", str(log), "--on", "tpu7x-4x4x8", "--json"]
    argv += ["-o", str(log.with_suffix(".report"))]
    done = subprocess.run(
        argv, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    r = json.loads(done.stdout)
    return {
        "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "wall_s": round(time.monotonic() - start, 1),
        "load_before": round(load, 2),
        "load_after": round(os.getloadavg()[0], 2),
        "peak_memory_mb": round(after.ru_maxrss * 1024 / 1e6),  # kB on Linux
        "steps_logged": r["steps_logged"],
        "steps_recomputed": r["steps_recomputed"],
        "num_steady": r["steady_state"]["num_steps"],
        "step_s": round(r["steady_state"]["step_s"], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.log"
        written = write_log(log, args.steps)
        figures = measure(log)
    keep({**stamp(__file__), "bytes": written, "steps": args.steps, **figures}, args.out)


if __name__ == "__main__":
    main()
