"""What the plan says that a multimodal update needs, against what the process that runs it really takes on this CPU.

    python bench/phase2_memory.py [--out bench/results/FILE.json]

Qwen2.5-0.5B's width and vocabulary, few layers, random weights. Each case runs two real updates in a process of its own; measured is the
most that the process held during the second, less what it held before there was a model (VmHWM and VmRSS of Linux).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from stamp import keep, stamp

HERE = Path(__file__).resolve().parent
LINE = 128
AT_ONCE = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""what is freed goes back to the system, as it goes back to CUDA's allocator, instead of staying with the process in pieces"""
GIB = 2**30
CASES = {
    "adapters, float32": (4, 8, ()),
    "adapters, float32, checkpointing": (4, 16, ("model.gradient_checkpointing=true",)),
    "adapters, bf16": (4, 8, ("model.mixed_precision=bf16",)),
    "adapters, bf16, checkpointing": (4, 16, ("model.mixed_precision=bf16", "model.gradient_checkpointing=true")),
    "all parameters, float32": (2, 8, ("model.lora_rank=0",)),
    "all parameters, bf16, accumulation": (
        2,
        8,
        ("model.lora_rank=0", "model.mixed_precision=bf16", "training.gradient_accumulation_steps=2"),
    ),
}


def case(name: str):
    from podwright.recipe import llm, load

    layers, batch, extra = CASES[name]
    settings = (
        "data.num_train=64",
        "data.num_test=2",
        "model.lora_rank=16",
        "projector.hidden_size=2048",
        "aligner.dim=512",
    )
    recipe = load.load("phase2-tiny", (*settings, f"per_device_batch_size={batch}", *extra))
    return recipe, llm.LlmDims(896, 4864, layers, 14, 2, 151936)


def predicted(name: str) -> float:
    from podwright.data.lines import Lengths
    from podwright.train.multimodal.memory import Shadow

    recipe, dims = case(name)
    update = Shadow(recipe, dims, 1).update(recipe.per_device_batch_size, Lengths(LINE, LINE // 2, known=True))
    return update["peak_bytes"] / GIB


def held(field: str) -> float:
    """GiB, of VmRSS or VmHWM."""
    match = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match
    return int(match[1]) * 1024 / GIB


def measured(name: str) -> float:
    import torch

    from podwright.train.multimodal import updates
    from podwright.train.multimodal.networks import model
    from podwright.train.multimodal.processes.world import World

    torch.set_num_threads(os.cpu_count() or 1)
    recipe, dims = case(name)
    torch.ones(64, 64).matmul(torch.ones(64, 64))
    model.random(type(dims)(64, 64, 1, 2, 2, 64))  # what is imported and set up once
    before = held("VmRSS")
    learner = updates.learner(model.around(model.random(dims), recipe), recipe, World(), 10)
    size, width = recipe.per_device_batch_size, LINE
    places = [n * width + width // 2 + i for n in range(size) for i in range(width // 2)]
    batch = model.MultimodalBatch(
        torch.randn(size, 2, recipe.aligner.dim),
        torch.ones(size, 2, dtype=torch.bool),
        torch.randint(0, dims.vocab_size, (size, width)),
        torch.tensor(places),
    )
    parts = recipe.training.gradient_accumulation_steps
    for number in range(2):
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")
        updates.update(learner, [batch] * parts, len(places) * parts, number)
    return held("VmHWM") - before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    sides = {"predicted": predicted, "measured": measured}
    if args.one:
        print(json.dumps(sides[args.one[0]](args.one[1])))
        return 0
    rows: dict[str, dict[str, float]] = {}
    for name in CASES:
        rows[name] = {}
        for side in sides:
            argv = [sys.executable, __file__, "--one", side, name]
            done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | AT_ONCE)
            rows[name][f"{side}_gib"] = round(json.loads(done.stdout.splitlines()[-1]), 3)
        rows[name]["ratio"] = round(rows[name]["predicted_gib"] / rows[name]["measured_gib"], 3)
        print(f"{name}: {rows[name]}", file=sys.stderr)
    result = {**stamp(__file__), "line_tokens": LINE, "cases": rows}
    return keep(result, args.out)


if __name__ == "__main__":
    sys.exit(main())
