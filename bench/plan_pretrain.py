"""Pretraining recipes compiled by the TPU compiler for the slices they are meant for: memory, time, and where the time goes.

    python bench/plan_pretrain.py [--out bench/results/FILE.json] [--cache DIR] [--rows N]

Every row is one `podwright plan --compile --json`, with the memory that the plan and its compiler took on this machine. The original
configuration of ALModel needed 214.45 GB where 94.75 are there (4 x 8192 tokens a device); its cut-down run took 63.9 GB (1 x 4096, fsdp 16 x tensor 4).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import compiled_plan
import psutil
from stamp import stamp

ROWS: tuple[tuple[str, str, list[str]], ...] = (
    ("almodel-8b-tpu7x-64", "tpu7x-64", []),
    ("almodel-8b-tpu7x-64", "tpu7x-64", ["model.remat=products"]),
    ("almodel-8b-source", "tpu7x-64", []),
    ("deepseek-v3-tpu7x-256", "tpu7x-4x4x8", []),
    ("deepseek-v3-tpu7x-256", "tpu7x-8x8x8", ["mesh.fsdp=1024", "batch_size=1024"]),
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
    parser.add_argument("--rows", type=int, help="only the first so many")
    args = parser.parse_args()
    rows = []
    for case in ROWS[: args.rows]:
        rows.append(row(*case, args.cache))
        print(line(rows[-1]), flush=True)
    result = {
        **stamp(__file__),
        "rows": rows,
    }
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


def row(recipe: str, on: str, overrides: list[str], cache: Path) -> dict[str, Any]:
    argv, env = compiled_plan.command(recipe, on, overrides, cache), compiled_plan.environment()
    begin, most = time.monotonic(), 0
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env) as child:
        while child.poll() is None:
            most = max(most, _resident(child.pid))
            time.sleep(0.2)
        assert child.stdout
        plan = json.load(child.stdout)
    return {
        "recipe": recipe,
        "on": on,
        "overrides": " ".join(overrides),
        "ok": plan["ok"],
        "wall_s": round(time.monotonic() - begin, 1),
        "resident_gib": round(most / 2**30, 2),
        "refused": [f"{f['message']}; {f['fix']}" for f in plan["findings"] if f["level"] == "error"],
        "programs": plan["programs"],
        "step": plan["step"],
    }


def _resident(pid: int) -> int:
    """Bytes of a process and of those it started."""
    total = 0
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def line(r: dict[str, Any]) -> str:
    programs = ", ".join(f"{p['name']} {p['hbm_gib']} GiB ({p['compile_s']} s)" for p in r["programs"])
    step = f"; step {r['step']['step_s']:.2f} s, MFU {r['step']['mfu']:.1%}" if r["step"] else ""
    return f"{r['recipe']} {r['overrides']} on {r['on']}: ok {r['ok']} in {r['wall_s']} s, {r['resident_gib']} GiB here; {programs}{step}"


if __name__ == "__main__":
    main()
