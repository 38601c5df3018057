"""One of two processes, `two_processes.py OUT CASE...`: the same steps with a copy of the model on each and with a part on each."""

import copy
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

from podwright.recipe.load import load
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.train.multimodal import updates
from podwright.train.multimodal.networks import model
from podwright.train.multimodal.networks.model import MultimodalBatch
from podwright.train.multimodal.processes import spread
from podwright.train.multimodal.processes.world import World, join
from podwright.train.multimodal.updates import Learner

STEPS = 10  # of the schedule
ADAPTERS = ("model.lora_rank=4", "model.lora_dropout=0")
CASES: dict[str, tuple[str, ...]] = {
    "adapters": (*ADAPTERS, "model.mixed_precision=no"),
    "half": (*ADAPTERS, "model.mixed_precision=fp16"),
    "compiled": (*ADAPTERS, "training.compile=true"),
    "whole": ("model.gradient_checkpointing=true",),
}


def recipe(case: str, *more: str) -> MultimodalRecipe:
    found = load("phase2-tiny", ["optimizer.scale_with_devices=false", "optimizer.warmup_steps=0", *CASES[case], *more])
    assert isinstance(found, MultimodalRecipe)
    return found


def learner(case: str, world: World, *more: str) -> Learner:
    asked = recipe(case, *more)
    return updates.learner(model.build(asked, None), asked, world, STEPS)


def batches(step: int) -> list[MultimodalBatch]:
    """Four micro-batches, of different lengths and with what is missing."""
    made = []
    for n in range(4):
        g = torch.Generator().manual_seed(step * 10 + n)
        width = 16 + 8 * ((step + n) % 3)
        tokens = torch.randint(0, 500, (2, width), generator=g)
        labelled = (torch.arange(width).expand(2, -1) >= 6 + n).flatten().nonzero()[:, 0]
        made.append(
            MultimodalBatch(torch.randn(2, 2, 512, generator=g), torch.rand(2, 2, generator=g) > 0.3, tokens, labelled)
        )
    return made


def taken(one: Learner, steps: range) -> list[dict[str, Any]]:
    """The micro-batches of the four that are this process's, in every step."""
    found = []
    for step in steps:
        all_ = batches(step)
        found.append(
            updates.update(one, all_[one.world.rank :: one.world.size], sum(len(b.labelled) for b in all_), step)
        )
    return found


def loss(one: Learner, rows: int) -> float:
    with torch.no_grad(), updates.autocast(one.recipe, one.world.device):
        return sum(float(one.model(b)) for b in batches(99)[:rows])


def main(out: Path, *cases: str) -> None:
    torch.set_num_threads(1)
    world, seen = join(os.environ), {}
    for case in cases:
        for kind in ("ddp", "fsdp"):
            one = learner(case, world, f"training.fsdp={kind == 'fsdp'}".lower())
            seen[case, kind] = {"figures": taken(one, range(2)), "state": copy.deepcopy(one.state())}
            with (
                spread.gathered(one.model),
                torch.compiler.set_stance("force_eager"),
            ):  # the first process answers more than the other
                seen[case, kind]["loss"] = loss(one, 4 - 3 * world.rank)
            seen[case, kind]["figures"] += taken(one, range(2, 3))
            seen[case, kind]["end"] = one.trained()
            seen[case, kind]["own"] = sum(
                p.to_local().numel() if kind == "fsdp" else p.numel() for p in one.model.parameters()
            )
        for kind, other in (("ddp", "fsdp"), ("fsdp", "ddp")):
            one = learner(case, world, f"training.fsdp={kind == 'fsdp'}".lower())
            one.load(copy.deepcopy(seen[case, other]["state"]))
            seen[case, f"{kind} from {other}"] = {"figures": taken(one, range(2, 3)), "end": one.trained()}
        if case == "half":
            one.scaler.load_state_dict(one.scaler.state_dict() | {"scale": 2.0**60})
            before = one.trained()
            seen[case, "overflow"] = {"figures": taken(one, range(1)), "before": before, "end": one.trained()}
    if world.rank == 0:
        torch.save(seen, out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
