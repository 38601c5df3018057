"""`podwright diagnose` of a run of many workers: processor time and peak memory, of a process of its own.

python bench/diagnose_logs.py [--gigabytes 2] [--workers 256] [--out bench/results/diagnose_logs.json]

Each worker's log is what a TPU run writes: steps, warnings and a few other lines, drawn with a fixed seed. One worker's log has a cause
in its last lines; those of the others have what they see of that.
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
CAUSE = "2026-11-21 18:00:00,100 ERROR jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Attempting to reserve 30.31G. Only 29.35G free.\n"
CONSEQUENCE = (
    "2026-11-21 17:59:59,900 ERROR jaxlib.xla_extension.XlaRuntimeError: UNAVAILABLE: Socket closed\n"
    "Fatal Python error: Aborted\n"
)


def block(draw: random.Random, size: int) -> bytes:
    """About `size` bytes of an ordinary log."""
    lines, length, step = list[str](), 0, 0
    while length < size:
        step += 1
        second = f"2026-11-21 {10 + step // 3600 % 8:02}:{step // 60 % 60:02}:{step % 60:02}"
        line = (
            f"{second},{draw.randrange(1000):03} INFO completed step: {step}, seconds: {draw.uniform(3, 4):.3f}, "
            f"TFLOP/s/device: {draw.uniform(300, 310):.3f}, Tokens/s/device: {draw.uniform(8e3, 9e3):.3f}, "
            f"total_weights: 16384, loss: {draw.uniform(2, 3):.3f}\n"
        )
        if draw.random() < 0.2:
            line += f"I1121 {second[11:]}.{draw.randrange(10**6):06} {draw.randrange(9999)} checkpointer.py:100] [process=0] Finished blocking save in {draw.random():.2f} s\n"
        if draw.random() < 0.05:
            line += f"{second} WARNING absl: retention period of {draw.randrange(99)} items exceeded, information is kept in the final folder\n"
        if draw.random() < 0.02:
            line += f'{second} WARNING Retrying: HTTP response code: 503, "Backend Error" from storage.googleapis.com\n'
        lines.append(line)
        length += len(line)
    return "".join(lines).encode()


def write_logs(folder: Path, total: int, workers: int) -> int:
    draw = random.Random(0)
    body, written = block(draw, total // workers), 0
    for worker in range(workers):
        turned = draw.randrange(len(body))
        cut = body.index(b"\n", turned) + 1 if b"\n" in body[turned:] else 0
        end = (CAUSE if worker == workers - 3 else CONSEQUENCE).encode()
        written += (folder / f"log-{worker}.txt").write_bytes(body[cut:] + body[:cut] + end)
    return written


def measure(folder: Path) -> dict[str, Any]:
    """Of the command itself, whose memory is that of its largest process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    argv = [sys.executable, "-m", "podwright", "diagnose", str(folder), "--json"]
    done = subprocess.run(
        argv, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    matches = json.loads(done.stdout)["matches"]
    return {
        "cpu_s": round(cpu_s, 1),
        "wall_s": round(time.monotonic() - start, 1),
        "peak_memory_mb": round(after.ru_maxrss * 1024 / 1e6),  # kB on Linux
        "matches": [{key: m[key] for key in ("rule", "logs")} for m in matches],
        "first_is_the_cause": bool(matches) and matches[0]["evidence"] == CAUSE.strip(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--workers", type=int, default=256)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        written = write_logs(Path(folder), int(args.gigabytes * 1e9), args.workers)
        figures = measure(Path(folder))
    keep({**stamp(__file__), "bytes": written, "workers": args.workers, **figures}, args.out)


if __name__ == "__main__":
    main()
