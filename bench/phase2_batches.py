"""The largest batch of Phase 2 on each GPU, as the plan counts it, beside the batch sizes of the original's guide.

    python bench/phase2_batches.py [--out bench/results/FILE.json]

Qwen2.5-0.5B, adapters of rank 16, lines of 512 tokens of which 300 are response. `original`: its step, which makes logits of every
position and keeps frozen weights in float32. Nothing is run: all 24 layers are traced on meta tensors.
"""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path

import torch
from stamp import keep, stamp

from podwright.accelerators import GIB, GPUS
from podwright.data.lines import Lengths
from podwright.plan.compiled.torch_memory import SAFE
from podwright.recipe import llm, load
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.train.multimodal import memory
from podwright.train.multimodal.memory import Shadow
from podwright.train.multimodal.networks import model

NAMES = ("V100-16GB", "RTX-3090", "RTX-4090", "A100-40GB", "A100-80GB", "H100-80GB", "H200")
GUIDE = {"V100-16GB": "8-16", "RTX-3090": "16-32", "RTX-4090": "16-32", "A100-40GB": "32-64"}
LONGEST = Lengths(tokens=512, response=300, known=True)
RECIPE = (
    "model.source=random",
    "aligner.source=random",
    "encoders.audio_weights=random",
    "data.source=drawn",
    "data.num_train=1024",
)
SIDES = {
    "original, checkpointing": ("original", "true"),
    "original": ("original", "false"),
    "ours, checkpointing": ("ours", "true"),
    "ours": ("ours", "false"),
}


def shadow(whose: str, checkpointing: str, precision: str) -> Shadow:
    settings = (
        *RECIPE,
        "data.num_test=8",
        f"model.gradient_checkpointing={checkpointing}",
        f"model.mixed_precision={precision}",
    )
    recipe = load.require(load.load("phase2-qwen2.5-0.5b-cluster", settings), MultimodalRecipe)
    tracker = Shadow(recipe, llm.find("qwen2.5-0.5b"), 1)
    if whose == "original":
        as_the_original(tracker)
    return tracker


def as_the_original(tracker: Shadow) -> None:
    built = tracker.learner.model
    built.llm.model._forward_pre_hooks.clear()
    built.llm.model._forward_pre_hooks_with_kwargs.clear()
    with tracker._mode:
        for module in built.modules():
            for name, p in module._parameters.items():
                if p is not None and not p.requires_grad:
                    module._parameters[name] = torch.nn.Parameter(torch.empty(p.shape), requires_grad=False)
        built.llm.lm_head.weight = built.llm.get_input_embeddings().weight

    def forward(batch: model.MultimodalBatch) -> torch.Tensor:
        soft = built.projector(batch.features, batch.present)
        inputs = torch.cat([soft, built.embed(batch.tokens)], 1)
        ones = torch.ones(inputs.shape[:2], dtype=torch.long)
        return built.llm(inputs_embeds=inputs, attention_mask=ones, labels=ones).loss * len(batch.labelled)

    built.forward = forward  # type: ignore[method-assign]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    limits = {row.name: SAFE * row.hbm_bytes for row in GPUS if row.name in NAMES}
    rows: dict[str, dict] = {name: {"guide": GUIDE.get(name)} for name in NAMES}
    sixteen = {}
    for side, (whose, checkpointing) in SIDES.items():
        traced = shadow(whose, checkpointing, "bf16")  # float16 is as large
        peak = functools.cache(lambda lines, traced=traced: traced.update(lines, LONGEST)["peak_bytes"])
        sixteen[side] = round(peak(16) / GIB, 2)
        for name in NAMES:
            same = next((n for n in NAMES if side in rows[n] and limits[n] == limits[name]), None)
            rows[name][side] = rows[same][side] if same else memory.largest(peak, 16, limits[name])
        print(f"{side}: {sixteen[side]} GiB with 16 lines, {[rows[name][side] for name in NAMES]}", file=sys.stderr)
    return keep(
        {**stamp(__file__), "line_tokens": 512, "gib_with_16_lines": sixteen, "per_device_batch_size": rows}, args.out
    )


if __name__ == "__main__":
    sys.exit(main())
