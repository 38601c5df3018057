"""How many of a seeded sample of small wrong changes of the product a test notices, and which test it is, as a result.

    make mutants                       # again until it says that all ran
    python bench/mutants.py .mutants/STATE/verdicts.jsonl --out bench/results/mutants-DATE.json
    python bench/mutants.py .mutants/STATE/verdicts.jsonl --missed bench/results/mutants-EARLIER.json    # what of it the long tests kill
    python bench/mutants.py .mutants/STATE/verdicts.jsonl --killed bench/results/mutants-EARLIER.json    # what of it is still killed
    python bench/mutants.py .mutants/STATE/verdicts.jsonl --standing bench/results/mutants-EARLIER.json  # what stands of it, and new ones

A mutant that no test kills is equivalent to the code, with its reason in EQUIVALENT, or has none and counts as missed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from stamp import keep, stamp

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.mutation.__main__ import KILLED, draw, latest  # noqa: E402
from tests.mutation.changes import line_text  # noqa: E402

# (file, its line, code after) -> why no test can tell them apart
EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "podwright/data/wording.py",
        "@dataclasses.dataclass(frozen=True)",
        "False",
    ): "no step of a loop is hashed or changed",
    (
        "podwright/models/attention.py",
        "if kernel_for(mesh, HeadDims(q_BNHD.shape[-1], v_dim, str(q_BNHD.dtype)), Layout.PACKED) is Kernel.SPLASH:",
        "1",
    ): "on a TPU the width of values alone decides",
    (
        "podwright/models/attention.py",
        "kernel = splash.make_kernel(q_BNHD.shape[1] // parts, q_BNHD.shape[1], q_BNHD.shape[2] // tensor, parts)",
        "3",
    ): "all heads share one mask",
    (
        "podwright/recipe/script_text.py",
        "step, kind = (end if end >= 0 else len(text)) - place, COMMENT",
        "end > 0",
    ): "a line's end is looked for behind a #, so it is never at 0",
    ("podwright/report/page.py", "total = sum(seconds.values()) or 1.0", "2.0"): "where the sum is 0 every share is",
    (
        "podwright/recipe/smoke.py",
        'return _of_trainer(recipe, steps) | {"data.num_test": min(recipe.data.num_test or 16, 16)}',
        "17",
    ): "of 17 and 16 the smaller is 16",
    (
        "podwright/run/drive.py",
        "return 0.0",
        "1.0",
    ): "the seconds of a stop are read once it is acknowledged, and are measured then",
    (
        "podwright/run/strays.py",
        "if time.monotonic() >= self._next:",
        "time.monotonic() > self._next",
    ): "two readings of a clock are never equal",
    (
        "podwright/train/grpo/entry.py",
        "return program.programs(program.GrpoSetup(recipe, Qwen3Dims(**dims), mesh, _STOP_IDS, 0))",
        "1",
    ): "programs for a plan are compiled, not run, and the id of padding is a constant in them",
    (
        "podwright/train/multimodal/networks/model.py",
        "_NO_LOSS = -100  # a target that cross_entropy passes over",
        "101",
    ): "targets and loss have it from the same constant",
    (
        "podwright/train/multimodal/updates.py",
        "return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, max_steps - warmup)))",
        "2",
    ): "they differ for a run of one step alone, whose cosine is of 0",
}
KEPT = ("file", "line", "before", "after", "verdict", "test", "cpu_s", "reached_by", "ran")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verdicts", type=Path, metavar="FILE", help="what `make mutants` wrote")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--total", type=int, default=300)
    parser.add_argument(
        "--missed", type=Path, metavar="RESULT", help="of the mutants that no test of this result killed"
    )
    parser.add_argument(
        "--killed", type=Path, metavar="RESULT", help="of the mutants that a test of this result killed"
    )
    parser.add_argument(
        "--standing", type=Path, metavar="RESULT", help="of those of this result that stand, and of new ones"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result = options.missed or options.killed or options.standing
    for file in (options.verdicts, *filter(None, [result])):
        if not file.is_file():
            parser.error(f"there is no file {file}")
    verdicts, rows = latest(options.verdicts), []
    chosen = draw(options)
    for mutant in chosen:
        record = verdicts.get(mutant.key)
        if record is None:
            continue
        if (record["before"], record["after"]) != (mutant.before, mutant.after):
            raise SystemExit(f"{mutant.key} has changed since it ran: type make mutants, which runs it again")
        line = line_text(mutant.file, mutant.line)
        row = {name: record[name] for name in KEPT}
        rows.append(row | {"equivalent": EQUIVALENT.get((mutant.file, line, mutant.after))})
    counts = Counter(row["verdict"] for row in rows)
    totals = {
        "command": "python -m tests.mutation"
        + "".join(f" --{name} {file}" for name in ("missed", "killed", "standing") if (file := getattr(options, name))),
        "state": options.verdicts.resolve().parent.name,
        "tiers": sorted({verdicts[mutant.key].get("tier", "test") for mutant in chosen if mutant.key in verdicts}),
        "seed": options.seed,
        "drawn": len(chosen),
        "ran": len(rows),
        "killed": sum(counts[verdict] for verdict in KILLED),
        "equivalent": sum(row["equivalent"] is not None for row in rows),
        "verdicts": dict(counts),
    }
    return keep({**stamp(__file__), **totals, "mutants": rows}, options.out)


if __name__ == "__main__":
    raise SystemExit(main())
