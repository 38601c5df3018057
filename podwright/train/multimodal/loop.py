"""Phase 2 from inputs to weights: what one of its steps is, what is tested, what is kept."""

from __future__ import annotations

import dataclasses
import functools
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from podwright.recipe.multimodal import MultimodalRecipe
from podwright.rundir import RunDir
from podwright.train.emit import Emitter
from podwright.train.multimodal import updates
from podwright.train.multimodal.data import batches, inputs
from podwright.train.multimodal.data.batches import Order
from podwright.train.multimodal.data.inputs import MultimodalInputs
from podwright.train.multimodal.inference import evaluate
from podwright.train.multimodal.inference.decode import Grammar
from podwright.train.multimodal.networks import model
from podwright.train.multimodal.processes import machine, spread
from podwright.train.multimodal.processes.world import World
from podwright.train.multimodal.updates import Learner


@dataclasses.dataclass(frozen=True)
class MultimodalRun:
    """Everything that does not change while it runs, and the learner, which does."""

    run: RunDir
    recipe: MultimodalRecipe
    world: World
    inputs: MultimodalInputs
    grammar: Grammar
    order: Order
    learner: Learner
    max_steps: int

    def step(self, number: int) -> dict[str, Any]:
        begin = time.perf_counter()
        lines = self.inputs.training
        rows, own = self.order.step(number)
        pad_id = self.inputs.tokenizer.pad_id
        micro = [batches.collated(lines, part, pad_id).to(self.world.device) for part in own]
        ready = time.perf_counter()
        targets = lines.num_targets(rows)
        figures = updates.update(self.learner, micro, targets, number)
        seconds = time.perf_counter() - begin
        tokens = sum(lines.lengths_at(rows))
        soft_tokens = len(rows) * micro[0].present.shape[1] * self.recipe.projector.num_soft_tokens
        flops = self._flops(tokens + soft_tokens, targets)
        return figures | {
            "epoch": (number + 1) / self.order.steps_per_epoch,
            "samples": (number + 1) * self.order.batch_size,
            "samples_per_s": len(rows) / seconds,
            "tokens_per_s_per_device": tokens / seconds / self.world.size,
            "padding_share": batches.padding(lines, own),
            "data_wait_s": ready - begin,
            "own_s": figures["own_s"] + ready - begin,
            "step_s": seconds,
            **machine.rates(flops, seconds, self.world),
            "peak_memory_gib": machine.peak_memory_gib(self.world),
        }

    def test(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        held_out, built, recipe = self.inputs.held_out, self.learner.model, self.recipe
        with (
            spread.gathered(built),
            torch.compiler.set_stance("force_eager"),
        ):  # which would be compiled for hundreds of lengths
            loss = evaluate.loss(built, held_out, recipe, self.world, self.inputs.tokenizer.pad_id)
            figures, samples = evaluate.grade(
                built, held_out, self.inputs.training.examples, self.grammar, recipe, self.world
            )
        return {"num": len(held_out), "loss": loss, **figures}, samples

    def state(self) -> dict[str, Any]:
        return self.learner.state()

    def load(self, state: dict[str, Any]) -> None:
        self.learner.load(state)

    def result(self) -> tuple[Path, dict[str, Any]]:
        state = {name: value.cpu() for name, value in self.learner.trained().items()}
        return self.run.weights, {
            "model_state_dict": state,
            "config": self.recipe.model_dump(mode="json"),
            "run_id": self.run.name,
        }

    @functools.cached_property
    def _layer_weights(self) -> int:
        return sum(m.weight.numel() for m in self.learner.model.llm.model.modules() if isinstance(m, nn.Linear))

    def _flops(self, tokens: int, targets: int) -> float:
        """Of a step: a backward pass costs as much again for activations, and once more for weights where they are trained."""
        forward = 2 * (self._layer_weights * tokens + self.learner.model.llm.lm_head.weight.numel() * targets)
        return forward * (2 if self.recipe.model.lora_rank else 3)


def prepare(recipe: MultimodalRecipe, emit: Emitter, world: World) -> MultimodalRun:
    emit.event("phase", phase="loading")
    data = inputs.load(emit.run, recipe, world)
    emit.notice(*data.notices)
    parts = recipe.training.gradient_accumulation_steps
    order = Order(data.training.lengths, recipe.per_device_batch_size, parts, world.rank, world.size, recipe.seed)
    max_steps = recipe.training.max_steps or recipe.training.num_epochs * order.steps_per_epoch
    built = model.build(recipe, data.directory)
    learner = updates.learner(built, recipe, world, max_steps)
    num_params = sum(parameter.numel() for parameter in built.parameters())
    num_trained = sum(parameter.numel() for parameter in built.trained().values())
    emit.event(
        "environment",
        **machine.environment(world, num_params, num_trained),
        max_steps=max_steps,
        data={
            "source": recipe.data.source,
            "vocab_size": data.tokenizer.vocab_size,
            "lines": len(data.training),
            "held_out_lines": len(data.held_out),
        },
        rows=data.rows,
    )
    grammar = Grammar(data.tokenizer, recipe.data.schema_of_answers, recipe.evaluation.max_new_tokens)
    return MultimodalRun(emit.run, recipe, world, data, grammar, order, learner, max_steps)
