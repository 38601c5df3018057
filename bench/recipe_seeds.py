"""A recipe that runs on a CPU from several seeds: what its report promises, and how long it took.

python bench/recipe_seeds.py [--recipe phase2-tiny] [--seeds 0 1 2] [--out bench/results/recipe_seeds.json]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from stamp import keep, stamp

HERE = Path(__file__).resolve().parent
DEMO = "qwen3-tiny-arithmetic-grpo"
# figures of the report, by recipe
FIGURES = {
    DEMO: ("accuracy_before", "accuracy_after", "accuracy_gain"),
    "phase2-tiny": (
        "accuracy_before",
        "accuracy_after",
        "accuracy_without_image",
        "accuracy_without_audio",
        "majority",
        "json_valid",
    ),
    "phase1-tiny": ("recall_at_1_before", "recall_at_1_after", "recall_at_5_after", "chance_at_1"),
}


def figures(recipe: str, seed: int, runs: str) -> dict[str, Any]:
    start, name = time.time(), f"seed-{seed}"
    podwright = [sys.executable, "-m", "podwright"]
    env = os.environ | {"PYTHONPATH": str(HERE.parent)}
    argv = [*podwright, "run", recipe, f"seed={seed}", "--name", name, "--runs", runs]
    subprocess.run(argv, cwd=runs, check=True, stdout=sys.stderr, env=env)
    seconds = time.time() - start
    argv = [*podwright, "report", name, "--runs", runs, "--json"]
    result = json.loads(subprocess.run(argv, cwd=runs, check=True, stdout=subprocess.PIPE, text=True, env=env).stdout)
    return {"seed": seed, "seconds": round(seconds)} | {k: result[k] for k in FIGURES[recipe]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", choices=FIGURES, default=DEMO)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as runs:
        rows = [figures(args.recipe, seed, runs) for seed in args.seeds]
    keep({**stamp(__file__), "recipe": args.recipe, "runs": rows}, args.out)


if __name__ == "__main__":
    main()
