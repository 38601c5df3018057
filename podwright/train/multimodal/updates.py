"""One optimizer step: groups of learning rates, warm-up and cosine, accumulation, clipping after unscaling; and its whole state."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from podwright.recipe.multimodal import MultimodalOptimizer, MultimodalRecipe
from podwright.train.multimodal.networks.model import MultimodalBatch, Phase2, skip_input_casts
from podwright.train.multimodal.processes import spread
from podwright.train.multimodal.processes.machine import Stopwatch
from podwright.train.multimodal.processes.world import World

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclasses.dataclass
class Learner:
    model: Phase2
    wrapped: nn.Module
    """the model, or what adds up its gradients over processes"""
    optimizer: torch.optim.AdamW
    scaler: torch.amp.GradScaler
    recipe: MultimodalRecipe
    world: World
    max_steps: int

    @functools.cached_property
    def parameters(self) -> list[nn.Parameter]:
        """What is trained; kept because a walk over all modules would hold up the device in every step."""
        return [p for p in self.model.parameters() if p.requires_grad]

    def state(self) -> dict[str, Any]:
        """The same however the model is spread; every process has to ask for it."""
        return {
            "model": self.trained(),
            "optimizer": spread.optimizer_state(self.optimizer),
            "scaler": self.scaler.state_dict(),
        }

    def trained(self) -> dict[str, Tensor]:
        """As `state`: whole weights."""
        return {name: spread.full_tensor(p.detach()) for name, p in self.model.trained().items()}

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_trained(state["model"])
        peaks = [
            group["peak"] for group in self.optimizer.param_groups
        ]  # these devices decide, not those of the checkpoint
        spread.load_optimizer(self.optimizer, state["optimizer"])
        for group, peak in zip(self.optimizer.param_groups, peaks, strict=True):
            group["peak"] = peak
        self.scaler.load_state_dict(state["scaler"])


def learner(model: Phase2, recipe: MultimodalRecipe, world: World, max_steps: int) -> Learner:
    # dropout of a CPU scales in the dtype of its input, and would be less exact in half of it
    if world.device.type == "cuda" and recipe.model.mixed_precision != "no":
        skip_input_casts(model)
    wrapped = spread.spread(model.train(), model.layers, world, fsdp=recipe.training.fsdp)
    if recipe.training.compile:
        for layer in model.layers:  # after FSDP2, whose gathering stays outside; lengths vary from batch to batch
            layer.forward = torch.compile(layer.forward, dynamic=True)
    return assembled(model, wrapped, recipe, world, max_steps)


def assembled(model: Phase2, wrapped: nn.Module, recipe: MultimodalRecipe, world: World, max_steps: int) -> Learner:
    fp16 = recipe.model.mixed_precision == "fp16"
    scaler = torch.amp.GradScaler(world.device.type, enabled=fp16)
    optimizer = torch.optim.AdamW(groups(model, recipe.optimizer, world.size), weight_decay=0.0, fused=True)
    return Learner(model, wrapped, optimizer, scaler, recipe, world, max_steps)


def groups(model: Phase2, optimizer: MultimodalOptimizer, devices: int) -> list[dict[str, Any]]:
    """The projector learns faster and adapters slower than the rest; vectors do not decay."""
    base = optimizer.learning_rate * (devices if optimizer.scale_with_devices else 1)
    factors = {"projector": optimizer.projector_factor, "lora": optimizer.lora_factor, "llm": 1.0}
    by_group: dict[tuple[str, bool], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            part = "projector" if name.startswith("projector.") else "lora" if "lora_" in name else "llm"
            by_group.setdefault((part, parameter.ndim > 1), []).append(parameter)
    return [
        {
            "params": members,
            "lr": base * factors[part],
            "peak": base * factors[part],
            "part": part,
            "weight_decay": optimizer.weight_decay * decays,
        }
        for (part, decays), members in by_group.items()
    ]


def share(step: int, max_steps: int, warmup_steps: int) -> float:
    """Of the peak learning rate in step `step`, counted from 0."""
    warmup = min(warmup_steps, max_steps // 10)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, max_steps - warmup)))


def autocast(recipe: MultimodalRecipe, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    dtype = DTYPES.get(recipe.model.mixed_precision)
    return torch.autocast(device.type, dtype) if dtype else contextlib.nullcontext()


def update(learner: Learner, micro: Sequence[MultimodalBatch], num_targets: int, step: int) -> dict[str, Any]:
    """One step over this process's `micro`-batches; `num_targets`: labelled tokens of the whole batch, whose mean the loss is."""
    scale = learner.scaler.get_scale()
    loss, norm = advance(learner, micro, num_targets, step, forward := Stopwatch(learner.world))
    skipped = learner.scaler.get_scale() < scale
    figures = {"loss": float(loss), "grad_norm": float(norm), "learning_rate": learner.optimizer.param_groups[0]["lr"]}
    # FSDP2 meets at every layer, and all processes take as long
    figures["own_s"] = 0.0 if learner.recipe.training.fsdp else forward.seconds()
    return figures | ({"skipped": skipped} if learner.scaler.is_enabled() else {})


def advance(
    learner: Learner, micro: Sequence[MultimodalBatch], num_targets: int, step: int, forward: Stopwatch
) -> tuple[Tensor, Tensor]:
    """Loss and norm of the gradients of one step, not yet waited for; `forward` takes the time of the forward passes.

    Dropout depends on the seed, the step and the process alone, so that a resume draws what would have been drawn.
    """
    world, recipe = learner.world, learner.recipe
    torch.manual_seed((recipe.seed * 1_000_003 + step) * 4099 + world.rank)
    rate = share(step, learner.max_steps, recipe.optimizer.warmup_steps)
    for group in learner.optimizer.param_groups:
        group["lr"] = group["peak"] * rate
    total = torch.zeros((), device=world.device)
    for n, batch in enumerate(micro):
        last = n == len(micro) - 1
        # FSDP2 adds up parts of gradients, and so has to exchange them every time
        copies = learner.wrapped if isinstance(learner.wrapped, nn.parallel.DistributedDataParallel) else None
        with copies.no_sync() if copies and not last else contextlib.nullcontext():
            with autocast(recipe, world.device), forward.running():
                loss = learner.wrapped(batch) / num_targets
            # gradients are averaged over processes, and this is a share of one mean
            learner.scaler.scale(loss * world.size).backward()
        total += loss.detach()
    learner.scaler.unscale_(learner.optimizer)
    norm = spread.full_tensor(nn.utils.clip_grad_norm_(learner.parameters, recipe.optimizer.max_grad_norm))
    learner.scaler.step(learner.optimizer)
    learner.scaler.update()
    learner.optimizer.zero_grad(set_to_none=True)
    return world.summed(total), norm
