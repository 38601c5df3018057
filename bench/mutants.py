"""Which of a seeded sample of small wrong changes no fast test sees: the outcomes of `tests/mutation.py`, module by module, as a result.

    python tests/mutation.py --seed 0 --total 300 --limit 900 --out mutants.jsonl
    python tests/mutation.py --seed 0 --total 300 --limit 900 --out mutants.jsonl --again
    python bench/mutants.py mutants.jsonl --out bench/results/mutants-DATE.json

The first command takes some hours of processor time and goes on where it ended; the second runs those that survived once more, after
tests were added. A mutant that survived all the same is equivalent to the code, with its reason in EQUIVALENT, or has none and counts as missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from stamp import keep, stamp

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests import mutation  # noqa: E402

FROZEN = "a dataclass that could be assigned to, which nothing does"
WITHIN = 'return "within tolerance" if abs(difference) <= tolerance + 1e-12 else "outside tolerance"'
SHARES = "return chosen, share / (share.sum(-1, keepdims=True) + 1e-20) * m.routed_scaling_factor"
ZIPPED = "zip of sequences that have the same length by construction"
# (module, its line, code after) -> why no test can tell them apart
EQUIVALENT = {
    ("podwright.train.grpo.evaluate", "if len(samples) < NUM_SAMPLES:", "len(samples) <= NUM_SAMPLES"): (
        "with eight samples it asks for none more"
    ),
    ("podwright.train.grpo.evaluate", "@dataclasses.dataclass(frozen=True)", "False"): FROZEN,
    ("podwright.train.grpo.collect", "@dataclasses.dataclass(frozen=True)", "False"): FROZEN,
    ("podwright.report.result", 'order = {"before": 0, "during": 1, "after": 2}', "3"): (
        "only the order of the three ranks counts"
    ),
    ("podwright.report.result", WITHIN, "abs(difference) < tolerance + 1e-12"): (
        "the limit has 1e-12 for rounding, which no figure meets exactly"
    ),
    ("podwright.report.result", WITHIN, "2e-12"): "2e-12 for rounding does as well",
    (
        "podwright.plan.checks.meshes",
        'others = math.prod(n for axis, n in zip(axes(recipe), requested, strict=True) if axis != "fsdp")',
        "False",
    ): ZIPPED,
    (
        "podwright.plan.checks.meshes",
        "return [s for s in fitting if not over_links(where, dict(zip(names, s, strict=True)))]",
        "False",
    ): ZIPPED,
    ("podwright.plan.checks.meshes", "return (round(changed, 6), *reversed(shape[2:]), shape[0])", "7"): (
        "logarithms of ratios of small integers differ in the sixth decimal or are equal"
    ),
    ("podwright.models.moe", SHARES, "1"): "the last of two dims is dim 1",
    ("podwright.models.moe", SHARES, "2e-20"): (
        "it keeps 0 / 0 away, and is below the rounding of every sum of sigmoids that training meets"
    ),
    (
        "podwright.kernels.kda",
        "return d_state, tuple(_put(gradient, x, i) for gradient, x in zip(grads, ours, strict=True))",
        "False",
    ): ZIPPED,
    (
        "podwright.train.muon",
        "return jax.lax.all_gather(x, copied) if copies > 1 else x[None]",
        "copies >= 1",
    ): "a gather over axes of one device is x[None], and is compiled to no communication",
}


def module_row(module: str, chosen: list[mutation.Mutant], records: list[dict[str, Any]]) -> dict[str, Any]:
    """Of one module: how many mutants were drawn, ran and were killed, by the first tests and by those of now."""
    of_each: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        of_each.setdefault(f"{record['module']}:{record['number']}", []).append(record)
    ran = [(m, of_each[m.key]) for m in chosen if m.module == module and m.key in of_each]
    wrong = [m.key for m, known in ran if (known[-1]["before"], known[-1]["after"]) != (m.before, m.after)]
    if wrong:
        raise SystemExit(
            f"the code has changed since these ran: {', '.join(wrong)}; delete their lines and run them again"
        )
    lines = (ROOT / f"{module.replace('.', '/')}.py").read_text().splitlines()
    states = Counter(known[-1]["outcome"] for _, known in ran)
    survived = [m for m, known in ran if known[-1]["outcome"] == "survived"]
    rows = [
        {
            "number": m.number,
            "line": m.line,
            "change": f"{m.before} -> {m.after}",
            "equivalent": EQUIVALENT.get((m.module, lines[m.line - 1].strip(), m.after)),
        }
        for m in survived
    ]
    return {
        "module": module,
        "drawn": sum(m.module == module for m in chosen),
        "ran": len(ran),
        "killed_at_first": sum(known[0]["outcome"] != "survived" for _, known in ran),
        "killed": len(ran) - len(survived),
        "by_time": states["timeout"],
        "equivalent": sum(row["equivalent"] is not None for row in rows),
        "median_s": sorted(known[-1]["seconds"] for _, known in ran)[len(ran) // 2] if ran else None,
        "survived": rows,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outcomes", type=Path, metavar="FILE", help="what tests/mutation.py wrote")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--total", type=int, default=300)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    chosen = mutation.sample(options.seed, options.total)
    records = [json.loads(line) for line in options.outcomes.read_text().splitlines()]
    rows = [module_row(module, chosen, records) for module in mutation.MODULES]
    totals = {
        name: sum(row[name] for row in rows) for name in ("drawn", "ran", "killed_at_first", "killed", "equivalent")
    }
    command = f"python tests/mutation.py --seed {options.seed} --total {options.total} --limit 900 --out mutants.jsonl"
    more = {"command": f"{command}; python bench/mutants.py mutants.jsonl", "seed": options.seed}
    return keep({**stamp(__file__), **more, **totals, "modules": rows}, options.out)


if __name__ == "__main__":
    raise SystemExit(main())
