"""A multimodal run from first to last: features, answers, steps, answers. Every decision here is replayed by a resume."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
import platform
import resource
import shlex
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from podwright.accelerators import GIB, by_device_kind
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.rundir import Ending, RunDir
from podwright.train.emit import Emitter, Outcome, evaluations
from podwright.train.multimodal import batches, checkpoints, evaluate, inputs, model, updates
from podwright.train.multimodal.batches import Order
from podwright.train.multimodal.decode import Grammar
from podwright.train.multimodal.inputs import Inputs
from podwright.train.multimodal.updates import Learner
from podwright.train.multimodal.world import World

STAGE = "multimodal"
_PACKAGES = ("torch", "transformers", "peft", "timm", "av", "podwright")


@dataclasses.dataclass(frozen=True)
class Job:
    """Everything a run needs that does not change while it runs."""

    run: RunDir
    recipe: MultimodalRecipe
    emit: Emitter
    world: World
    inputs: Inputs
    grammar: Grammar
    order: Order
    learner: Learner
    max_steps: int
    stopping: Callable[[], bool]


def prepare(run: RunDir, recipe: MultimodalRecipe, emit: Emitter, stopping: Callable[[], bool], world: World) -> Job:
    emit.event("phase", phase="loading")
    found = inputs.load(run, recipe, world)
    parts = recipe.training.gradient_accumulation_steps
    order = Order(found.training.lengths, recipe.per_device_batch_size, parts, world.rank, world.size, recipe.seed)
    max_steps = recipe.training.max_steps or recipe.training.num_epochs * order.steps_per_epoch
    built = model.build(recipe, found.directory)
    learner = updates.learner(built, recipe, world, max_steps)
    for one in found.skipped:
        emit.event("notice", message=f"line {one['line']} was left out: {one['message']}")
    emit.event("environment", **_environment(built, world), max_steps=max_steps, data=_about(recipe, found))
    grammar = Grammar(found.tokenizer, recipe.evaluation.max_new_tokens)
    return Job(run, recipe, emit, world, found, grammar, order, learner, max_steps, lambda: world.any(stopping()))


def train(run: RunDir, recipe: MultimodalRecipe, emit: Emitter, stopping: Callable[[], bool], world: World) -> Outcome:
    """Runs the recipe to its end, or to where `stopping()` turns true; resumes from the newest checkpoint if there is one."""
    job = prepare(run, recipe, emit, stopping, world)
    number = _begin(job)
    tested = world.from_first(lambda: evaluations(run))
    if number == 0 and ("before", 0) not in tested:
        _evaluate(job, "before", 0)
    emit.event("phase", phase=STAGE)
    while number < job.max_steps:
        every = recipe.evaluation.every_n_steps
        if number and every and number % every == 0 and ("during", number) not in tested:
            _evaluate(job, "during", number)
            emit.event("phase", phase=STAGE)
        if job.stopping():
            return _stop(job, number)
        figures = step(job, number)
        number += 1
        emit.metrics(STAGE, number, figures)
        bad = not math.isfinite(figures["loss"]) or not (math.isfinite(figures["grad_norm"]) or "skipped" in figures)
        if bad:
            return _not_finite(job, number, figures)
        saved = recipe.checkpoint.every_n_steps or job.order.steps_per_epoch
        if number % saved == 0 or number == job.max_steps:
            _save(job, number)
    if ("after", number) not in tested:
        _evaluate(job, "after", number)
    if world.rank == 0:
        state = {name: p.detach().cpu() for name, p in job.learner.model.trained().items()}
        checkpoints.write(run.weights, {"model_state_dict": state, "config": recipe.model_dump(mode="json"), "run_id": run.name})
    return Outcome(Ending.FINISHED, number)


def step(job: Job, number: int) -> dict[str, Any]:
    """One optimizer step, waited for. `number`: steps before it."""
    begin = time.perf_counter()
    lines = job.inputs.training
    rows, own = job.order.step(number)
    pad_id = job.inputs.tokenizer.pad_id
    micro = [batches.collated(lines, part, pad_id).to(job.world.device) for part in own]
    ready = time.perf_counter()
    figures = updates.update(job.learner, micro, lines.num_targets(rows), number)
    seconds = time.perf_counter() - begin
    tokens = sum(lines.lengths_at(rows))
    flops = _flops(job, tokens + len(rows) * micro[0].present.shape[1] * job.recipe.projector.num_soft_tokens, lines.num_targets(rows))
    return figures | {
        "epoch": (number + 1) / job.order.steps_per_epoch,
        "samples": (number + 1) * job.order.batch_size,
        "samples_per_s": len(rows) / seconds,
        "tokens_per_s_per_device": tokens / seconds / job.world.size,
        "padding_share": batches.padding(lines, own),
        "data_wait_s": ready - begin,
        "step_s": seconds,
        **_rates(flops, seconds, job.world),
    }


def _begin(job: Job) -> int:
    state, damaged = job.world.from_first(lambda: checkpoints.latest(job.run.checkpoints))
    for step_ in damaged:
        job.emit.event("notice", message=f"the checkpoint of step {step_} is damaged and was put aside")
    if state is None:
        return 0
    job.learner.load(state)
    number = int(state["step"])
    job.emit.event("resumed", step=number, stage=STAGE)
    return number


def _evaluate(job: Job, when: str, number: int) -> None:
    begin = time.perf_counter()
    job.emit.event("phase", phase=f"evaluation {when}")
    held_out, built, recipe = job.inputs.held_out, job.learner.model, job.recipe
    loss = evaluate.loss(built, held_out, recipe, job.world, job.inputs.tokenizer.pad_id)
    figures, samples = evaluate.grade(built, held_out, job.inputs.training.examples, job.grammar, recipe, job.world)
    if when != "during":
        job.emit.samples([{"when": when, **sample} for sample in samples])
    job.emit.event("evaluation", when=when, step=number, num=len(held_out), loss=loss, **figures, seconds=time.perf_counter() - begin)


def _save(job: Job, number: int) -> None:
    if job.world.rank == 0:
        checkpoints.save(job.run.checkpoints, number, job.learner.state())
    job.emit.event("checkpoint", step=number)
    job.world.barrier()


def _stop(job: Job, number: int) -> Outcome:
    job.emit.event("phase", phase="saving")
    if number:
        _save(job, number)
    return Outcome(Ending.STOPPED, number, f"stopped after step {number}")


def _not_finite(job: Job, number: int, figures: dict[str, Any]) -> Outcome:
    """Nothing is saved: the newest checkpoint is from before."""
    wrong = f"step {number}: loss={figures['loss']}, grad_norm={figures['grad_norm']}; the newest checkpoint is from before it"
    lower = f"{job.recipe.optimizer.learning_rate / 3:.1g}"
    again = f"type: podwright run {shlex.quote(str(job.run.recipe))} optimizer.learning_rate={lower}"
    return Outcome(Ending.NOT_FINITE, number - 1, wrong, again)


def _flops(job: Job, tokens: int, targets: int) -> float:
    """Of a step: a backward pass costs as much again for activations, and once more for weights where they are trained."""
    llm = job.learner.model.llm
    layers = sum(m.weight.numel() for m in llm.model.modules() if isinstance(m, nn.Linear))
    forward = 2 * (layers * tokens + llm.lm_head.weight.numel() * targets)
    return forward * (2 if job.recipe.model.lora_rank else 3)


def _rates(flops: float, seconds: float, world: World) -> dict[str, float | None]:
    on_gpu = world.device.type == "cuda"
    chip = by_device_kind(torch.cuda.get_device_name(world.device)) if on_gpu else None
    peak = torch.cuda.max_memory_allocated(world.device) if on_gpu else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "tflops_per_device": flops / seconds / world.size / 1e12,
        "mfu": flops / seconds / (chip.bf16_flops * world.size) if chip and chip.bf16_flops else None,
        "peak_memory_gib": peak / GIB,
    }


def _environment(built: model.Phase2, world: World) -> dict[str, Any]:
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "devices": world.size,
        "device_kind": torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else "cpu",
        "processes": world.size,
        "versions": versions,
        "num_params": sum(p.numel() for p in built.parameters()),
        "num_trained_params": sum(p.numel() for p in built.trained().values()),
    }


def _about(recipe: MultimodalRecipe, found: Inputs) -> dict[str, Any]:
    sizes = {"lines": len(found.training), "held_out_lines": len(found.held_out), "skipped_lines": len(found.skipped)}
    return {"source": recipe.data.source, "vocab_size": found.tokenizer.vocab_size, **sizes}
