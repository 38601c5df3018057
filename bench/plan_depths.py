"""Whether the short compile says what the whole one says: every program of every shipped recipe, both ways, for a TPU slice.

    python bench/plan_depths.py [RECIPE ...] [--out bench/results/FILE.json] [--cache DIR]

Both ways read memory from the buffer assignment that the compiler dumps, so their agreement shows that nothing moves from compile
to compile; what the finished executable says of itself (JAX's `memory_analysis`) stands beside it, part by part.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import compiled_plan
from stamp import keep, stamp

RECIPES = {"qwen3-tiny-arithmetic-grpo": "v6e-1", "qwen3-tiny-gsm8k-grpo": "v6e-1", "qwen3-1.7b-gsm8k-grpo": "v6e-16"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", default=list(RECIPES), metavar="RECIPE")
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(tempfile.mkdtemp()),
        help="default: an empty one, so that compilers really run",
    )
    args = parser.parse_args()
    rows = [row for recipe in args.recipes for row in compared(recipe, RECIPES[recipe], args.cache)]
    result = {
        **stamp(__file__),
        "largest_difference_percent": max(abs(row["difference_percent"]) for row in rows),
        "rows": rows,
    }
    keep(result, args.out)


def compared(recipe: str, on: str, cache: Path) -> list[dict]:
    quick, full = (verdicts(recipe, on, depth, cache / recipe / depth) for depth in ("quick", "full"))
    rows = []
    for name, (short, _) in quick.items():
        complete, executable = full[name]
        a, b = need(short["memory"]), need(complete["memory"])
        row = {
            "recipe": recipe,
            "on": on,
            "program": name,
            "quick_bytes": a,
            "full_bytes": b,
            "difference_percent": round(100 * (a - b) / b, 3),
            "same_verdict": short["verdict"] == complete["verdict"],
            "same_cost": short["cost"] == complete["cost"],
            "assigned": {k: v for k, v in complete["memory"].items() if k != "largest"},
            "executable": executable,
            "quick_s": round(short["seconds"], 1),
            "full_s": round(complete["seconds"], 1),
        }
        print(" ".join(f"{key}={value}" for key, value in row.items()), file=sys.stderr)
        rows.append(row)
    return rows


def verdicts(recipe: str, on: str, depth: str, cache: Path) -> dict[str, tuple[dict, dict]]:
    """The kept verdict on every program, and what its executable says of its memory (compiles to the end only)."""
    kept_verdicts: dict[str, tuple[dict, dict]] = {}
    for name in (p["name"] for p in compiled_plan.document(recipe, on, [], cache, depth)["programs"]):
        (kept,) = cache.glob(f"*/{name}.json")
        verdict = json.loads(kept.read_text())
        kept_verdicts[name] = verdict, verdict["executable"]
    return kept_verdicts


def need(memory: dict) -> int:
    return memory["arguments"] + memory["outputs"] + memory["temporaries"] + memory["constants"]


if __name__ == "__main__":
    main()
