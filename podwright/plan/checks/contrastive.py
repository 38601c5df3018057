"""What a plan says of Phase 1: the packages, the encoders, the aligner that it goes on from, the lines and their pairs, the batch."""

from __future__ import annotations

import math
from pathlib import Path

from podwright.errors import abbreviated, counted, expanded
from podwright.plan.checks import encoders, inputs, multimodal
from podwright.plan.findings import Finding
from podwright.recipe import llm
from podwright.recipe.contrastive import ContrastiveRecipe
from podwright.slices import Slice

_PICKLED = "pytorch_model.bin"
_TRAIN, _TEST = 2000, 200  # drawn lines, as in phase1-tiny
_LEAST_HELD_OUT = 2


def check(recipe: ContrastiveRecipe, where: Slice | None, cwd: Path) -> list[Finding]:
    findings = [] if where is None else multimodal.place(where)
    findings += [*encoders.check(recipe.encoders), *_sizes(recipe)]
    sources = multimodal.files(recipe, recipe.text_encoder.source)
    records = multimodal.checked(recipe, sources, (), cwd) if sources else []
    findings += multimodal.merged(records)
    lines = multimodal.num_lines(recipe, records)
    return findings + (_batch(recipe, *lines, where) if lines else [])


def to_start(recipe: ContrastiveRecipe, cwd: Path) -> list[Finding]:
    """What stands against starting a run from a text encoder that could be planned."""
    source = recipe.text_encoder.source
    if recipe.text_encoder.name == "tiny" or (cwd / expanded(source) / _PICKLED).is_file():
        return []
    return inputs.to_start(source, cwd, "text_encoder.source")


def _sizes(recipe: ContrastiveRecipe) -> list[Finding]:
    """What is trained."""
    e, dim = recipe.encoders, recipe.aligner.dim
    widths = [llm.TEXT_DIM, llm.IMAGE_DIMS.get(e.image, 0), llm.AUDIO_DIMS[e.audio]]
    if not all(widths):
        return []
    trained = abbreviated(sum(2 * width + width * dim for width in widths))
    scales = ", and 3 scales" if recipe.aligner.learnable_scales else ""
    what = f"{trained} trainable parameters in heads for text, picture and sound{scales}"
    return [Finding("model", "info", what)]


def _batch(recipe: ContrastiveRecipe, lines: int, held_out: int, where: Slice | None) -> list[Finding]:
    devices = where.num_devices if where else 1
    size = recipe.per_device_batch_size * devices
    least = max(2, devices)
    if lines < least:
        what = f"{counted(lines, 'line')} to train on, and contrastive loss needs at least {least} on {counted(devices, 'device')}"
        fix = (
            f"type data.num_train={_TRAIN * devices}"
            if recipe.data.source == "drawn"
            else f"give at least {least} lines"
        )
        return [Finding("batch", "error", what, fix, "too-few-examples")]
    if size < 2:
        what = f"per_device_batch_size={recipe.per_device_batch_size} on {devices} device: contrastive loss needs at least 2 samples per step"
        return [Finding("batch", "error", what, f"type per_device_batch_size={min(32, lines)}", "too-small")]
    if lines < size:
        what = f"a step takes {size} lines and there are {lines} to train on; a sample cannot be its own negative"
        return [Finding("batch", "error", what, f"type per_device_batch_size={lines // devices}", "too-few-examples")]
    if held_out < _LEAST_HELD_OUT:
        what = f"{counted(held_out, 'line')} held out: retrieval needs at least 2, because one is always right"
        number = _TEST if recipe.data.source == "drawn" else _LEAST_HELD_OUT
        return [Finding("batch", "error", what, f"type data.num_test={number}", "too-few-examples")]
    steps = recipe.training.max_steps or recipe.training.num_epochs * math.ceil(lines / size)
    return [Finding("batch", "info", f"{counted(steps, 'step')}; contrastive batch of {size} lines over all devices")]
