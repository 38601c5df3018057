"""Phase 1: the aligner's heads learn which text, picture and sound belong together. Each rank scores its lines against those of all ranks."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from podwright.errors import UserError
from podwright.recipe.contrastive import ContrastiveRecipe
from podwright.rundir import RunDir
from podwright.train.emit import Emitter
from podwright.train.multimodal import updates
from podwright.train.multimodal.data import paired
from podwright.train.multimodal.data.batches import Order
from podwright.train.multimodal.data.paired import PairedInputs, PairedLines
from podwright.train.multimodal.inference import retrieval
from podwright.train.multimodal.networks import aligner
from podwright.train.multimodal.networks.aligner import Aligner
from podwright.train.multimodal.processes import machine
from podwright.train.multimodal.processes.world import World

_MOST = math.log(100.0)  # of a scale: as in CLIP (arXiv 2103.00020, 2.5)


@dataclasses.dataclass(frozen=True)
class ContrastiveRun:
    run: RunDir
    recipe: ContrastiveRecipe
    world: World
    inputs: PairedInputs
    order: Order
    model: Aligner
    optimizer: torch.optim.AdamW
    max_steps: int

    def step(self, number: int) -> dict[str, Any]:
        begin = time.perf_counter()
        rows, (own,) = self.order.step(number)
        batch = self.inputs.training.at(own).to(self.world.device)
        ready = time.perf_counter()
        figures = self._update(batch, number)
        seconds = time.perf_counter() - begin
        return figures | {
            "epoch": (number + 1) / self.order.steps_per_epoch,
            "samples": (number + 1) * len(rows),
            "samples_per_s": len(rows) / seconds,
            "data_wait_s": ready - begin,
            "own_s": figures["own_s"] + ready - begin,
            "step_s": seconds,
            "peak_memory_gib": machine.peak_memory_gib(self.world),
        }

    def _update(self, batch: PairedLines, number: int) -> dict[str, Any]:
        settings, world = self.recipe.optimizer, self.world
        rate = settings.learning_rate * updates.share(number, self.max_steps, settings.warmup_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with (alone := machine.Stopwatch(world)).running():
            units = vectors(self.model, batch)
        share = share_of_loss(self.model, units, batch, world)
        share.backward()
        trained = [p for group in self.optimizer.param_groups for p in group["params"]]
        _add_up(trained, world)
        norm = nn.utils.clip_grad_norm_(trained, settings.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                if name.endswith("logit_scale") and parameter.requires_grad:
                    parameter.clamp_(max=_MOST)
        loss = float(world.summed(share.detach().clone()))
        return {"loss": loss, "grad_norm": float(norm), "learning_rate": rate, "own_s": alone.seconds()}

    @torch.no_grad()
    def test(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Every process comes to the same: there is little to do."""
        lines, size = self.inputs.held_out, self.order.batch_size
        units = vectors(self.model, lines.to(self.world.device))
        scales = {m: self.model.scale(m) for m in units}
        total = 0.0
        for part in parts(len(lines), size):
            self.world.require_going_on()
            present = {m: x[part].to(self.world.device) for m, x in lines.present.items()}
            loss = aligner.info_nce({m: x[part] for m, x in units.items()}, scales, present)
            total += float(loss) * (part.stop - part.start)
        figures = retrieval.retrieval({m: x.cpu() for m, x in units.items()}, lines)
        return {"num": len(lines), "loss": total / len(lines), **figures}, []

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])

    def result(self) -> tuple[Path, dict[str, Tensor]]:
        return self.run.aligner, {name: value.detach().cpu().clone() for name, value in self.model.state_dict().items()}


def parts(count: int, size: int) -> list[slice]:
    """Of `count` lines, `size` (2 or more) at a time; a loss needs two, so one that is left goes with those before."""
    starts = [n for n in range(0, count, size) if n == 0 or count - n > 1]
    return [slice(a, b) for a, b in zip(starts, [*starts[1:], count], strict=True)]


def vectors(model: Aligner, lines: PairedLines) -> dict[str, Tensor]:
    """[B, D] of length 1 of each modality; zeros where it is missing, which no gradient crosses."""
    by_modality = {}
    for modality, features in lines.features.items():
        there = lines.present[modality]
        rows = features.new_zeros(len(features), model.dim)
        by_modality[modality] = rows.index_put((there,), model.unit(modality, features[there]))
    return by_modality


def share_of_loss(model: Aligner, units: dict[str, Tensor], batch: PairedLines, world: World) -> Tensor:
    """This process's share of the loss over the lines of all: its own, of vectors `units`, as queries, all as answers."""
    scales = {m: model.scale(m) for m in batch.features}
    if world.size == 1:
        return aligner.info_nce(units, scales, batch.present)
    names = list(units)
    gathered = _Gathered.apply(torch.stack([units[m] for m in names], 1), world)
    present = torch.stack([batch.present[m] for m in names], 1)
    parts = [torch.empty_like(present) for _ in range(world.size)]
    dist.all_gather(parts, present)
    there = torch.cat(parts)
    own = torch.zeros(len(there), dtype=torch.bool, device=world.device)
    own[world.rank * len(present) :][: len(present)] = True
    return aligner.info_nce(_by_name(names, gathered), scales, _by_name(names, there), own)


class _Gathered(torch.autograd.Function):
    """The rows of all processes. What any of them makes of a row goes back to the process that it came from."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, world: World) -> Tensor:
        ctx.world = world
        parts = [torch.empty_like(own) for _ in range(world.size)]
        dist.all_gather(parts, own.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = ctx.world.summed(gradient.contiguous())
        return total.chunk(ctx.world.size)[ctx.world.rank], None


def _by_name(names: list[str], stacked: Tensor) -> Mapping[str, Tensor]:
    return {name: stacked[:, n] for n, name in enumerate(names)}


def _add_up(trained: list[nn.Parameter], world: World) -> None:
    """Gradients of shares into that of the loss; a head that no process used has zeros, not nothing."""
    for parameter in trained:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    if world.size > 1:
        total = world.summed(torch.cat([p.grad.flatten() for p in trained if p.grad is not None]))
        for parameter, gradient in zip(trained, total.split([p.numel() for p in trained]), strict=True):
            parameter.grad = gradient.view_as(parameter)


def prepare(recipe: ContrastiveRecipe, emit: Emitter, world: World) -> ContrastiveRun:
    emit.event("phase", phase="loading")
    data = paired.load(emit.run, recipe, world)
    emit.notice(*data.notices)
    order = Order([0] * len(data.training), recipe.per_device_batch_size, 1, world.rank, world.size, recipe.seed)
    _sizes(order.batch_size, len(data.training), world)
    max_steps = recipe.training.max_steps or recipe.training.num_epochs * order.steps_per_epoch
    model, started = _model(recipe, data.dims)
    model.to(world.device)
    groups = _groups(model, recipe, list(data.dims))
    if data.num_alone:
        emit.notice(f"{data.num_alone} lines were left out, which have a single modality")
    for modality in started:
        emit.notice(f"aligner.source={recipe.aligner.source} has no head for {modality}: it starts from random weights")
    count = sum(p.numel() for group in groups for p in group["params"])
    emit.event(
        "environment",
        **machine.environment(world, count, count),
        max_steps=max_steps,
        data={
            "source": recipe.data.source,
            "lines": len(data.training),
            "held_out_lines": len(data.held_out),
            "lines_alone": data.num_alone,
            "lines_with": {m: int(x.sum()) for m, x in data.training.present.items()},
        },
        rows=data.rows,
    )
    optimizer = torch.optim.AdamW(groups, recipe.optimizer.learning_rate, fused=world.device.type == "cuda")
    return ContrastiveRun(emit.run, recipe, world, data, order, model, optimizer, max_steps)


def _sizes(batch_size: int, lines: int, world: World) -> None:
    if batch_size < 2:
        raise UserError(
            "per_device_batch_size=1 on one device: contrastive loss needs at least 2 samples per step",
            f"type per_device_batch_size={min(32, max(2, lines))}",
            "batch-too-small",
        )
    if lines < batch_size:
        fix = f"type per_device_batch_size={lines // world.size}"
        if lines < max(2, world.size):
            fix = f"give at least {batch_size}, and type data.num_train=0, which takes all"
        what = f"a step takes {batch_size} lines, there are {lines} to train on, and no sample can be its own negative"
        raise UserError(what, fix, "too-few-lines")


def _model(recipe: ContrastiveRecipe, dims: Mapping[str, int]) -> tuple[Aligner, list[str]]:
    """With a head for every modality of the data and of the aligner.pt; and which of them start anew beside others that do not."""
    if recipe.aligner.source == "random":
        return aligner.load("random", dims, recipe.aligner.dim, seed=recipe.seed), []
    kept = aligner.sizes(recipe.aligner.source)
    widths = {m: dims.get(m, kept.get(m, 0)) for m in aligner.MODALITIES if m in dims or m in kept}
    return aligner.load(recipe.aligner.source, widths, recipe.aligner.dim, needed=(), seed=recipe.seed), [
        m for m in dims if m not in kept
    ]


def _groups(model: Aligner, recipe: ContrastiveRecipe, modalities: list[str]) -> list[dict[str, Any]]:
    """Of the modalities that the data has; vectors and scales do not decay."""
    heads = [p for m in modalities for p in model.projection_heads[f"{m}_head"].parameters()]
    scales = [model.postprocessors[f"{m}_scaling"].logit_scale for m in modalities if recipe.aligner.learnable_scales]
    model.requires_grad_(False)
    for parameter in (*heads, *scales):
        parameter.requires_grad_(True)
    decays = [p for p in heads if p.ndim > 1]
    return [
        {"params": decays, "weight_decay": recipe.optimizer.weight_decay},
        {"params": [*(p for p in heads if p.ndim < 2), *scales], "weight_decay": 0.0},
    ]
