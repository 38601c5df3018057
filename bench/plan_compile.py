"""The GRPO settings that ran out of memory elsewhere, compiled by the TPU compiler for the slices they were meant for: memory and time.

    python bench/plan_compile.py [--out bench/results/FILE.json] [--cache DIR]

Full parameters, frozen reference, 256 + 2048 tokens of Qwen3-1.7B. The row 'full' goes through code generation and is
held against the short way. Every row is one `podwright plan --compile --json`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import compiled_plan
from stamp import keep, stamp

RECIPE = "qwen3-1.7b-gsm8k-grpo"
ROWS = (
    ("v6e-8", ["batch_size=32"], "quick"),
    ("v6e-16", ["batch_size=16"], "quick"),
    ("v6e-8", ["batch_size=32", "mesh.fsdp=4", "mesh.tensor=2"], "quick"),
    ("v6e-16", ["batch_size=16", "mesh.fsdp=4", "mesh.tensor=4"], "quick"),
    ("v6e-8", ["batch_size=32", "model.remat=none"], "quick"),
    ("v6e-16", ["batch_size=16"], "full"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(tempfile.mkdtemp()),
        help="default: an empty one, so that compilers really run",
    )
    args = parser.parse_args()
    rows = [row(*case, args.cache) for case in ROWS]
    keep({**stamp(__file__), "recipe": RECIPE, "rows": rows}, args.out)


def row(on: str, overrides: list[str], depth: str, cache: Path) -> dict:
    begin = time.perf_counter()
    document = compiled_plan.document(RECIPE, on, overrides, cache, depth)
    first_s = time.perf_counter() - begin
    begin = time.perf_counter()
    compiled_plan.document(RECIPE, on, overrides, cache, depth)
    again_s = time.perf_counter() - begin
    errors = [f["message"] for f in document["findings"] if f["level"] == "error"]
    keys = (
        "name",
        "verdict",
        "hbm_gib",
        "limit_gib",
        "arguments_gib",
        "temporaries_gib",
        "resident_gib",
        "compile_s",
        "largest",
        "predicted_s",
        "bound",
        "flops",
        "hbm_bytes",
        "collectives",
        "notes",
    )
    programs = [{k: p[k] for k in keys if k in p} for p in document["programs"]]
    line = "  ".join(f"{p['name']} {p['hbm_gib']} GiB {p['compile_s']} s -> {p.get('predicted_s')} s" for p in programs)
    print(f"{on} {' '.join(overrides)} {depth}: {first_s:.0f} s, again {again_s:.2f} s: {line}", file=sys.stderr)
    return {
        "on": on,
        "overrides": overrides,
        "depth": depth,
        "ok": document["ok"],
        "seconds": round(first_s, 1),
        "again_seconds": round(again_s, 2),
        "errors": errors,
        "programs": programs,
        "step": document["step"],
    }


if __name__ == "__main__":
    main()
