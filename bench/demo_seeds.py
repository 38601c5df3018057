"""The demo recipe from several seeds: accuracy before and after GRPO, and how long it took.

python bench/demo_seeds.py [--seeds 0 1 2] [--out bench/results/demo_seeds.json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from stamp import stamp

HERE = Path(__file__).resolve().parent


def one(seed: int, runs: str) -> dict:
    start = time.time()
    argv = [
        sys.executable,
        "-m",
        "podwright",
        "run",
        "qwen3-tiny-arithmetic-grpo",
        f"seed={seed}",
        "--name",
        f"seed-{seed}",
        "--runs",
        runs,
    ]
    subprocess.run(argv, cwd=HERE.parent, check=True, stdout=sys.stderr)
    seconds = time.time() - start
    argv = [sys.executable, "-m", "podwright", "report", f"seed-{seed}", "--runs", runs, "--json"]
    result = json.loads(subprocess.run(argv, cwd=HERE.parent, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return {"seed": seed, "seconds": round(seconds)} | {k: result[k] for k in ("accuracy_before", "accuracy_after", "accuracy_gain")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as runs:
        rows = [one(seed, runs) for seed in args.seeds]
    result = {**stamp(__file__), "runs": rows}
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
