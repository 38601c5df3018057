"""The smallest slice for GRPO of every dense Qwen3: by the closed form for all, by the TPU compiler for those that are asked for.

    python bench/plan_sizes.py [--confirm v6e:qwen3-8b ...] [--out bench/results/FILE.json] [--cache DIR]

Full parameters, a frozen reference, 32 prompts x 8 completions, 256 + 2048 tokens. A confirmed row is one
`podwright plan --compile --json` of the fastest settings that fit by the estimate.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import compiled_plan
from stamp import stamp

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from podwright.accelerators import GIB, TPUS  # noqa: E402
from podwright.plan import fit  # noqa: E402
from podwright.recipe import load  # noqa: E402
from podwright.recipe.models import find  # noqa: E402
from podwright.recipe.schema import GrpoRecipe  # noqa: E402

RECIPE = "qwen3-1.7b-gsm8k-grpo"
MODELS = ("qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b")
GENERATIONS = ("v6e", "tpu7x")
CONFIRMED = ("v6e:qwen3-1.7b", "v6e:qwen3-0.6b", "v6e:qwen3-4b", "v6e:qwen3-8b")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/podwright").expanduser())
    parser.add_argument("--confirm", nargs="*", default=list(CONFIRMED), metavar="GENERATION:MODEL")
    args = parser.parse_args()
    rows = []
    for model in MODELS:
        for generation in GENERATIONS:
            rows.append(estimated(generation, model))
            if f"{generation}:{model}" in args.confirm:
                rows[-1] |= {"compiled": compiled(rows[-1], args.cache)}
            print(json.dumps(rows[-1]), flush=True)
    if args.out:
        args.out.write_text(json.dumps({**stamp(__file__), "rows": rows}, indent=1) + "\n")


def overrides(model: str) -> list[str]:
    return [f"model.name={model}", "model.source=random", "batch_size=32"]


def estimated(generation: str, model: str) -> dict:
    recipe, dims = load.require(load.load(RECIPE, overrides(model)), GrpoRecipe), find(model)
    row = next(row for row in TPUS if row.name == generation)
    where = next(fit.memory_search(recipe, dims, Path()).slices(recipe, row), None)
    if where is None:
        return {"model": model, "generation": generation, "slice": None}
    best = fit.candidates(recipe, dims, where)[0]
    need = {
        "need_gib": round(best.need_bytes / GIB, 1),
        "limit_gib": round(row.hbm_bytes / GIB, 1),
        "step_s": round(best.step_s, 1),
    }
    return {
        "model": model,
        "generation": generation,
        "slice": where.name,
        "chips": where.num_chips,
        "settings": best.typed,
        **need,
    }


def compiled(row: dict, cache: Path) -> dict:
    settings = [*overrides(row["model"]), *row["settings"].split()]
    begin = time.perf_counter()
    plan = compiled_plan.document(RECIPE, row["slice"], settings, cache)
    needs = {p["name"]: round(p["hbm_gib"], 2) for p in plan["programs"] if p["hbm_gib"] is not None}
    step_s = plan["step"].get("step_s")
    return {
        "fits": plan["ok"],
        "need_gib": needs,
        "step_s": step_s and round(step_s, 1),
        "seconds": round(time.perf_counter() - begin, 1),
    }


if __name__ == "__main__":
    main()
