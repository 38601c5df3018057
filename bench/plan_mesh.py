"""The plan's rules for meshes against jax's own on libtpu's topologies: agreement and time, slice by slice.

    python bench/plan_mesh.py [--out bench/results/FILE.json]

For each slice every mesh over (data, fsdp, tensor): how many there are, how many the links have, on how many jax's create_device_mesh
gives another verdict or another message, and what it takes us and jax. Then the whole static check of one recipe on that slice.
Needs libtpu (`pip install -e '.[dev]'` on Linux), no TPU. Times are CPU time of one process, best of three.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stamp import stamp

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from podwright.plan import kinds  # noqa: E402
from podwright.plan.checks.topology import factorisations, refusal  # noqa: E402
from podwright.recipe.load import load  # noqa: E402
from podwright.slices import parse  # noqa: E402
from tests.unit.plan import real_meshes  # noqa: E402

SLICES = (
    *("v5e-8", "v5e-16", "v5e-64", "v5e-256", "v6e-8", "v6e-16", "v6e-32", "v6e-64", "v6e-256"),
    *("v5p-16", "v5p-64", "v5p-128", "v5p-512", "v5p-2048"),
    *("tpu7x-8", "tpu7x-64", "tpu7x-4x4x4", "tpu7x-4x4x8", "tpu7x-4x8x8", "tpu7x-8x8x8"),
)


def best_ms(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(3):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return round(min(times) * 1e3, 2)


def measured(name: str, answers: list[str], jax_s: float) -> dict[str, Any]:
    where = parse(name)
    shapes = list(factorisations(where.num_devices, 3))
    ours = [str(refusal(where, s, split=False) or "") for s in shapes]
    recipe = load("qwen3-1.7b-gsm8k-grpo", ["model.source=random"])
    return {
        "slice": name,
        "devices": where.num_devices,
        "meshes": len(shapes),
        "legal": ours.count(""),
        "disagreements": sum(a.split(". ")[0] != b for a, b in zip(answers, ours, strict=True)),
        "ours_ms": best_ms(lambda: [refusal(where, s, split=False) for s in shapes]),
        "jax_ms": round(jax_s * 1e3, 1),
        "check_ms": best_ms(lambda: kinds.of(recipe).checks(recipe, where, ROOT)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    questions = [
        {"libtpu": where.libtpu, "shapes": list(factorisations(where.num_devices, 3)), "how": "create", "split": False}
        for where in map(parse, SLICES)
    ]
    rows = [measured(name, *answer) for name, answer in zip(SLICES, real_meshes.ask_timed(questions), strict=True)]
    columns = list(rows[0])
    for line in [columns, *([str(row[c]) for c in columns] for row in rows)]:
        print("".join(f"{cell:>15}" for cell in line))
    wrong = sum(row["disagreements"] for row in rows)
    print(
        f"{sum(row['meshes'] for row in rows)} meshes, {wrong} disagreements; slowest check {max(row['check_ms'] for row in rows)} ms"
    )
    if out:
        out.write_text(
            json.dumps({**stamp(__file__), "versions": real_meshes.versions(), "rows": rows}, indent=1) + "\n"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
