"""What a plan says of Phase 1: the packages, the encoders, the aligner that it goes on from, the lines and their pairs, the batch."""

from __future__ import annotations

import math
from pathlib import Path

from podwright.errors import abbreviated, counted, expanded
from podwright.plan.checks import encoders, multimodal
from podwright.plan.findings import Finding
from podwright.recipe import hf_weights, llm
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
    is_drawn = recipe.data.source == "drawn"
    lines = (recipe.data.num_train, recipe.data.num_test) if is_drawn else multimodal.num_lines(records)
    return findings + (_batch(recipe, *lines, where) if lines else [])


def to_start(recipe: ContrastiveRecipe, cwd: Path) -> list[Finding]:
    """What stands against starting a run from a text encoder that could be planned."""
    source = recipe.text_encoder.source
    directory = cwd / expanded(source)
    unread = source == "random" or recipe.text_encoder.name == "tiny" or not directory.is_dir()
    if unread or hf_weights.present(directory) or (directory / _PICKLED).is_file():
        return []
    what = f"text_encoder.source={source} has a config.json and no weights"
    return [multimodal.error("model", what, f"put {hf_weights.SINGLE} there, or type text_encoder.source=random")]


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
    if lines < max(2, devices):
        what = f"{counted(lines, 'line')} to train on, and contrastive loss needs at least {max(2, devices)} on {counted(devices, 'device')}"
        return [multimodal.error("batch", what, _more(recipe, "num_train", _TRAIN * devices, max(2, devices)))]
    if size < 2:
        what = f"per_device_batch_size={recipe.per_device_batch_size} on {devices} device: contrastive loss needs at least 2 samples per step"
        return [multimodal.error("batch", what, f"type per_device_batch_size={min(32, lines)}")]
    if lines < size:
        what = f"a step takes {size} lines and there are {lines} to train on; a sample cannot be its own negative"
        return [multimodal.error("batch", what, f"type per_device_batch_size={lines // devices}")]
    if held_out < _LEAST_HELD_OUT:
        what = f"{counted(held_out, 'line')} held out: retrieval needs at least 2, because one is always right"
        return [multimodal.error("batch", what, _more(recipe, "num_test", _TEST, _LEAST_HELD_OUT))]
    steps = recipe.training.max_steps or recipe.training.num_epochs * math.ceil(lines / size)
    return [Finding("batch", "info", f"{counted(steps, 'step')}; contrastive batch of {size} lines over all devices")]


def _more(recipe: ContrastiveRecipe, key: str, number: int, least: int) -> str:
    """What to type for at least `least` lines of a file, or for a `number` of drawn ones."""
    if recipe.data.source == "drawn":
        return f"type data.{key}={number}"
    if key == "num_train":
        return f"give at least {least} lines" + (" and type data.num_train=0" if recipe.data.num_train else "")
    return f"type data.num_test={least}, with at least {least} lines in val.jsonl where there is one"
