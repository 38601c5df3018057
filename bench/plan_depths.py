"""Whether the short compile says what the whole one says: every program of every shipped recipe, both ways, for a TPU slice.

    python bench/plan_depths.py [--out bench/results/FILE.json] [--cache DIR]

The short way's memory is read from what the compiler dumps before code generation. It is held against the figures
of the finished executable (JAX's `memory_analysis`), and its predicted time against that of the whole compile.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
GIB = 1024**3
RECIPES = {"qwen3-tiny-arithmetic-grpo": "v6e-1", "qwen3-tiny-gsm8k-grpo": "v6e-1", "qwen3-1.7b-gsm8k-grpo": "v6e-16"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.mkdtemp()), help="default: an empty one, so that compilers really run")
    args = parser.parse_args()
    rows = [row for recipe, on in RECIPES.items() for row in compared(recipe, on, args.cache)]
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE).stdout.strip(),
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "largest_difference_percent": max(abs(row["difference_percent"]) for row in rows),
        "rows": rows,
    }
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


def compared(recipe: str, on: str, cache: Path) -> list[dict]:
    quick, full = (plan(recipe, on, depth, cache / recipe / depth) for depth in ("quick", "full"))
    rows = []
    for name, short in quick.items():
        whole = full[name]
        finished = executable_bytes(cache / recipe / "full", name)
        own = round((short["hbm_gib"] - sum(short["beside_gib"].values())) * GIB)
        row = {
            "recipe": recipe,
            "on": on,
            "program": name,
            "quick_mib": round(own / 2**20, 2),
            "executable_mib": round(finished / 2**20, 2),
            "difference_percent": round(100 * (own - finished) / finished, 3),
            "same_verdict": short["verdict"] == whole["verdict"],
            "same_prediction": short.get("predicted_s") == whole.get("predicted_s"),
            "quick_s": short["compile_s"],
            "full_s": whole["compile_s"],
        }
        print(" ".join(f"{key}={value}" for key, value in row.items()), file=sys.stderr)
        rows.append(row)
    return rows


def plan(recipe: str, on: str, depth: str, cache: Path) -> dict[str, dict]:
    argv = [sys.executable, "-m", "podwright", "plan", recipe, "--on", on, f"--compile={depth}", "--cache", str(cache), "--json"]
    env = os.environ | {"PYTHONPATH": f"{HERE.parent}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(argv, capture_output=True, text=True, env=env)
    return {p["name"]: p for p in json.loads(done.stdout)["programs"]}


def executable_bytes(cache: Path, program: str) -> int:
    """Of the finished executable, per device: arguments, what outputs need beyond them, temporaries."""
    (record,) = cache.glob(f"*/{program}/record.jsonl")
    memory = next(r["memory"] for r in map(json.loads, record.read_text().splitlines()) if r["phase"] == "compiled")
    return memory["argument_size"] + memory["output_size"] - memory["alias_size"] + memory["temp_size"]


if __name__ == "__main__":
    main()
