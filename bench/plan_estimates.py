"""Memory and time in closed form against the TPU compiler's program: many settings, models, meshes and generations.

    python bench/plan_estimates.py [--kind pretrain] [--out bench/results/FILE.json] [--cache DIR] [--rows N]

Each row is one `podwright plan --compile --json`, whose document holds both figures of memory; the compiled seconds are those of
the roofline over its schedule, which `bench/plan_roofline.py` holds against published runs. With a cache that is kept, a second
call compares at once. All rows of GRPO take about 20 minutes of two free cores, tpu7x and Qwen3-32B most of them; those of
pretraining half an hour.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

import compiled_plan
from stamp import stamp

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from podwright import slices  # noqa: E402
from podwright.plan import kinds  # noqa: E402
from podwright.recipe import load  # noqa: E402

SHIPPED = "qwen3-1.7b-gsm8k-grpo"
# recipe, slice, overrides; the first four are the shipped recipes
ROWS = (
    (SHIPPED, "v6e-16", ""),
    (SHIPPED, "v6e-8", "batch_size=32"),
    ("qwen3-tiny-arithmetic-grpo", "v6e-1", ""),
    ("qwen3-tiny-gsm8k-grpo", "v6e-1", ""),
    (SHIPPED, "v6e-8", "batch_size=32 training.gradient_accumulation_steps=4"),
    (SHIPPED, "v6e-8", "batch_size=32 training.gradient_accumulation_steps=2"),
    (SHIPPED, "v6e-8", "batch_size=8"),
    (SHIPPED, "v6e-8", "batch_size=32 mesh.fsdp=4 mesh.tensor=2"),
    (SHIPPED, "v6e-16", "mesh.fsdp=4 mesh.tensor=4"),
    (SHIPPED, "v6e-16", "mesh.data=4 mesh.fsdp=4"),
    (SHIPPED, "v6e-16", "batch_size=32"),
    (SHIPPED, "v6e-16", "rollout.total_generation_steps=1024"),
    (SHIPPED, "v6e-8", "batch_size=16 grpo.num_generations=4"),
    (SHIPPED, "v6e-8", "batch_size=16 rollout.max_prompt_length=1024 rollout.total_generation_steps=1024"),
    (SHIPPED, "v6e-16", "model.remat=none rollout.total_generation_steps=512"),
    (SHIPPED, "v6e-16", "model.compute_dtype=float32"),
    (SHIPPED, "v6e-16", "grpo.beta=0"),
    (SHIPPED, "v6e-16", "model.lora_rank=16"),
    (SHIPPED, "v6e-16", "model.name=qwen3-0.6b model.source=random"),
    (SHIPPED, "v6e-16", "model.name=qwen3-4b model.source=random"),
    (SHIPPED, "v6e-16", "model.name=qwen3-8b model.source=random"),
    (SHIPPED, "v6e-16", "model.name=qwen3-8b model.source=random model.lora_rank=64"),
    (SHIPPED, "v5e-16", "rollout.total_generation_steps=1024"),
    (SHIPPED, "v5p-16", ""),
    (SHIPPED, "v6e-64", "batch_size=64 model.name=qwen3-14b model.source=random mesh.fsdp=8 mesh.tensor=8"),
    (SHIPPED, "v6e-64", "batch_size=64 model.name=qwen3-32b model.source=random mesh.fsdp=8 mesh.tensor=8"),
    (SHIPPED, "tpu7x-8", "model.name=qwen3-8b model.source=random"),
)

DENSE, HYBRID, EXPERTS = "qwen3-0.6b-pretrain", "almodel-8b-tpu7x-64", "deepseek-v3-tpu7x-256"
PRETRAIN = (
    (DENSE, "v6e-8", ""),
    (HYBRID, "tpu7x-64", ""),
    ("almodel-8b-source", "tpu7x-64", ""),
    (EXPERTS, "tpu7x-4x4x8", ""),
    ("almodel-tiny", "v6e-1", ""),
    (DENSE, "v6e-8", "model.remat=attention"),
    (DENSE, "v6e-8", "model.remat=none batch_size=16"),
    (DENSE, "v6e-8", "training.gradient_accumulation_steps=2"),
    (DENSE, "v6e-8", "optimizer.name=adamw batch_size=32"),
    (DENSE, "v6e-8", "mesh.data=2 batch_size=32"),
    (DENSE, "v6e-8", "mesh.tensor=2 batch_size=64"),
    (DENSE, "v6e-8", "model.compute_dtype=float32 batch_size=32"),
    (DENSE, "v6e-8", "sequence_length=16384 batch_size=16"),
    (DENSE, "v6e-8", "model.name=qwen3-1.7b batch_size=64"),
    (DENSE, "v6e-16", "model.name=qwen3-4b batch_size=32"),
    (DENSE, "v6e-16", "model.name=qwen3-4b batch_size=128"),
    (DENSE, "v6e-16", "model.name=qwen3-4b mesh.tensor=4 mesh.fsdp=4 batch_size=32"),
    (DENSE, "v6e-32", "model.name=qwen3-8b batch_size=128"),
    (DENSE, "tpu7x-16", "model.name=qwen3-8b batch_size=64 model.remat=attention"),
    (DENSE, "v6e-256", "model.name=qwen3-32b batch_size=256"),
    (HYBRID, "tpu7x-64", "model.remat=products"),
    (HYBRID, "tpu7x-64", "batch_size=64"),
    (HYBRID, "tpu7x-64", "model.remat=attention"),
    (HYBRID, "tpu7x-64", "mesh.expert=4"),
    (HYBRID, "tpu7x-64", "training.gradient_accumulation_steps=2"),
    (HYBRID, "tpu7x-64", "optimizer.name=adamw"),
    (HYBRID, "tpu7x-128", ""),
    (HYBRID, "tpu7x-64", "mesh.tensor=4"),
    (HYBRID, "tpu7x-64", "model.gate=softplus"),
    (EXPERTS, "tpu7x-4x8x8", "batch_size=512"),
    (HYBRID, "tpu7x-64", "model.remat=none batch_size=64"),
    (HYBRID, "tpu7x-64", "mesh.context=2 batch_size=64"),
    (DENSE, "v6e-8", "mesh.data=8 mesh.fsdp=1 batch_size=32"),
    (DENSE, "v6e-8", "mesh.fsdp=4 mesh.tensor=2 batch_size=32 training.gradient_accumulation_steps=8"),
    (DENSE, "v6e-16", "model.name=qwen3-4b mesh.data=4 mesh.fsdp=4 batch_size=32"),
    (EXPERTS, "tpu7x-4x4x8", "mesh.fsdp=32 mesh.tensor=8"),
    (EXPERTS, "tpu7x-4x4x8", "mesh.fsdp=32 mesh.expert=8 model.remat=products"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=("grpo", "pretrain"), default="grpo")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/podwright").expanduser())
    parser.add_argument("--rows", type=int, help="only the first so many")
    args = parser.parse_args()
    rows = []
    for case in (ROWS if args.kind == "grpo" else PRETRAIN)[: args.rows]:
        rows.append(row(*case, args.cache))
        print(line(rows[-1]), flush=True)
    print(f"peaks:      {spread(r['peak_error'] for r in rows if r['programs'])}")
    print(f"programs:   {spread(p['error'] for r in rows for p in r['programs'])}")
    if timed := [r["step_error"] for r in rows if "step_error" in r]:
        print(f"step times: {spread(timed)}")
    result = {**stamp(__file__), "rows": rows}
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


def row(recipe: str, on: str, overrides: str, cache: Path) -> dict:
    document = compiled_plan.document(recipe, on, overrides.split(), cache)
    estimated = {e["name"]: e["estimated_gib"] for e in document["memory"]}
    programs = [
        {
            "name": p["name"],
            "estimated_gib": estimated[p["name"]],
            "compiled_gib": p["hbm_gib"],
            "error": round(estimated[p["name"]] / p["hbm_gib"] - 1, 4),
        }
        for p in document["programs"]
        if p["hbm_gib"]
    ]
    errors = [f["message"] for f in document["findings"] if f["level"] == "error"]
    record: dict = {"recipe": recipe, "on": on, "overrides": overrides, "programs": programs, "errors": errors}
    if programs:
        most = max(programs, key=lambda p: p["compiled_gib"])["compiled_gib"]
        record["peak_error"] = round(max(p["estimated_gib"] for p in programs) / most - 1, 4)
    resolved, where = load.load(recipe, overrides.split()), slices.parse(on)
    if document["step"]:
        part = kinds.of(resolved)
        estimated_s = part.step_seconds(resolved, part.dimensions(resolved, Path()), where)
        record |= {"estimated_step_s": round(estimated_s, 4), "compiled_step_s": round(document["step"]["step_s"], 4)}
        record["step_error"] = round(estimated_s / document["step"]["step_s"] - 1, 4)
    return record


def spread(errors: Iterable[float]) -> str:
    ordered = sorted(map(abs, errors))
    within = sum(e <= 0.15 for e in ordered)
    return f"{within} of {len(ordered)} within 15 %; {ordered[len(ordered) // 2]:.1%} in the middle, {ordered[-1]:.1%} at most"


def line(r: dict) -> str:
    text = "  ".join(
        f"{p['name']} {p['estimated_gib']:.2f}/{p['compiled_gib']:.2f} {p['error']:+.1%}" for p in r["programs"]
    )
    step = (
        f"  step {r['estimated_step_s']:.2f}/{r['compiled_step_s']:.2f} s {r['step_error']:+.1%}"
        if "step_error" in r
        else ""
    )
    return f"{r['recipe']} {r['on']} {r['overrides']}: {text or r['errors']}{step}"


if __name__ == "__main__":
    main()
