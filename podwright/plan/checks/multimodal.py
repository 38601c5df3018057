"""What a plan says of multimodal training: the packages, the model, the aligner, the lines and what they name, the budget, the batch."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from podwright.errors import UserError, abbreviated, counted, expanded
from podwright.plan.checks import encoders, hub, patience, token_lengths
from podwright.plan.checks.inputs import DIRECTORY, in_source, lora_rank, missing_source, name_of_id
from podwright.plan.findings import MISSING_PACKAGE, Finding, InconclusiveCheck, of_error
from podwright.recipe import hf_config, llm
from podwright.recipe.contrastive import ContrastiveRecipe
from podwright.recipe.llm import LlmDims
from podwright.recipe.multimodal import Encoders, MultimodalModel, MultimodalRecipe, ProjectorSection
from podwright.recipe.paths import require_directory
from podwright.rundir import Record
from podwright.slices import Slice

_NEEDED = {"torch": "torch", "transformers": "transformers", "av": "av", "PIL": "pillow"}
_WORDS = ("random", "pretrained", "drawn")  # sources that are no files
_CHECKED = ("model", "encoders", "text_encoder", "aligner", "data", "seed")  # sections on which the answers depend


def check(recipe: MultimodalRecipe, where: Slice | None, cwd: Path) -> list[Finding]:
    findings = [] if where is None else _place(recipe, where)
    findings += encoders.check(recipe.encoders)
    model = _model(recipe, cwd)
    findings += model + _other_features(recipe, cwd)
    without = any(f.level == "error" for f in model) or _is_out_of_reach(recipe.model.source, cwd)
    sources = files(recipe, recipe.model.source)
    records = checked(recipe, sources, ("model",) if without else (), cwd)
    findings += merged(records)
    lines = num_lines(recipe, records)
    return findings + (_batch(recipe, lines[0], where) if lines else [])


def _is_out_of_reach(source: str, cwd: Path) -> bool:
    """Whether a model is neither on this machine nor on the hub."""
    is_here = source == "random" or os.path.exists(cwd / expanded(source))
    return not is_here and hub.model(source)[0].level != "info"


def needed(section: Encoders, *more: str) -> dict[str, str]:
    """Modules and the packages that bring them: what every trainer in PyTorch needs, what its encoders do, and `more`."""
    packages = _NEEDED | dict(zip(more, more, strict=True))
    if section.image != "tiny":
        packages["timm"] = "timm"
    return packages


def compiler(recipe: MultimodalRecipe) -> list[Finding]:
    if not recipe.training.compile or shutil.which("g++"):
        return []
    what = "training.compile=true writes C++, and there is no g++ here"
    return [Finding("packages", "error", what, "install g++, or type training.compile=false", MISSING_PACKAGE)]


def place(where: Slice) -> list[Finding]:
    row = where.accelerator
    if row.pod is None:
        return []
    what = f"{row.name} is a TPU, and multimodal training is PyTorch's"
    return [Finding("slice", "error", what, "type --on with GPUs, such as 4xA100-40GB", "wrong-accelerator")]


def _place(recipe: MultimodalRecipe, where: Slice) -> list[Finding]:
    row = where.accelerator
    if row.pod is None and row.hbm_bytes and recipe.model.mixed_precision == "bf16" and not row.bf16_flops:
        what = f"{row.name} has no bfloat16"
        return [Finding("slice", "error", what, "type model.mixed_precision=fp16", "no-bfloat16")]
    if row.pod is None and recipe.training.fsdp and where.num_devices == 1:
        what = "training.fsdp=true has one device to spread the model over, which keeps all of it"
        return [Finding("slice", "warning", what, "type --on with several, or training.fsdp=false", "no-effect")]
    return place(where)


def _model(recipe: MultimodalRecipe, cwd: Path) -> list[Finding]:
    m, p = recipe.model, recipe.projector
    findings = []
    try:
        if m.source != "random" and not os.path.exists(cwd / expanded(m.source)):
            if fault := missing_source(m.source, cwd):
                raise fault
            findings.append(hub.model(m.source)[0])
        dims = dimensions(m, cwd)
    except InconclusiveCheck:
        return findings
    except UserError as e:
        return [*findings, of_error("model", e)]
    findings += lora_rank(m.name, m.lora_rank, dims.hidden_size) + _positions(recipe, dims)
    projector = dims.num_projector_params(recipe.aligner.dim, p.hidden_size, p.num_soft_tokens)
    rest = "all of the language model"
    if m.lora_rank:
        rest = f"{abbreviated(dims.num_lora_params(m.lora_rank, m.lora_target_modules))} in adapters"
    what = f"{m.name} has {abbreviated(dims.num_params())} parameters; trainable: {abbreviated(projector)} in the projector and {rest}"
    return [*findings, Finding("model", "info", what)]


def _positions(recipe: MultimodalRecipe, dims: LlmDims) -> list[Finding]:
    """An error where the soft tokens of a picture and a sound, and the text after them, may be more tokens than the model has positions."""
    soft, text, positions = recipe.projector.num_soft_tokens, recipe.data.max_text_length, dims.max_position_embeddings
    if 2 * soft + text <= positions:
        return []
    named = recipe.model.name if recipe.model.source == "random" else recipe.model.source
    what = (
        f"twice projector.num_soft_tokens={soft} and data.max_text_length={text} are {2 * soft + text:,} tokens, "
        f"{named} has {positions:,} positions"
    )
    fewer = min(soft, ProjectorSection().num_soft_tokens, max(1, positions // 4))
    fix = f"type projector.num_soft_tokens={fewer} data.max_text_length={min(text, positions - 2 * fewer)}"
    return [Finding("model", "error", what, fix, "too-long")]


def dimensions(section: MultimodalModel, cwd: Path) -> LlmDims:
    """Of the weights where they or their config.json are here, else those that model.name stands for."""
    if section.source == "random":
        return llm.find(section.name)
    directory = cwd / expanded(section.source)
    if os.path.exists(directory):
        require_directory(f"model.source={section.source}", directory)
        try:
            return hf_config.qwen2(hf_config.read(directory))
        except UserError as e:
            raise in_source(section.source, directory, e) from e
    if (config := hub.model(section.source)[1]) is not None:
        try:
            return hf_config.qwen2(config)
        except UserError as e:
            raise UserError(f"model.source={section.source}: {e.what}", e.fix, e.code) from e
    if row := name_of_id(section.source, llm.MODELS):
        return llm.find(row)
    what = f"the dimensions of model.source={section.source} are not known here"
    raise InconclusiveCheck(what, DIRECTORY, "unknown-dimensions")


def _other_features(recipe: MultimodalRecipe, cwd: Path) -> list[Finding]:
    """A warning where the run whose aligner.pt this is saw files through other encoders, or prepared otherwise; or where it is of none."""
    if recipe.aligner.source == "random" and recipe.encoders.image != "tiny":
        what = "aligner.source=random: the features mean nothing yet"
        return [Finding("model", "warning", what, "give the aligner.pt of Phase 1", "no-weights")]
    path = cwd / expanded(recipe.aligner.source)
    try:
        trained = Encoders.model_validate(json.loads((path.parent / "recipe.json").read_text())["encoders"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
    before, now = trained.model_dump(), recipe.encoders.model_dump()
    changed = [key for key in now if now[key] != before[key]]
    if not changed:
        return []
    differences = ", ".join(f"encoders.{key}={before[key]}, and here {now[key]}" for key in changed)
    what = f"aligner.source={recipe.aligner.source} was trained on other features: {differences}"
    fix = f"type {' '.join(f'encoders.{key}={before[key]}' for key in changed)}"
    return [Finding("model", "warning", what, fix, "other-features")]


def checked(
    recipe: MultimodalRecipe | ContrastiveRecipe, sources: list[str], without: tuple[str, ...], cwd: Path
) -> list[Record]:
    """What the loaders of training say of lines, tokens and weights; [] where --only leaves all of it out.

    `sources`: files of the answer. `without`: `model` where its source cannot be had.
    """
    if all(patience.left_out(check) for check in ("data", "model", "context")):
        return []
    return token_lengths.records(_only_checked(recipe), without, sources, cwd)


def files(recipe: MultimodalRecipe | ContrastiveRecipe, weights: str) -> list[str]:
    """Sources of a recipe that are files, with `weights` among them."""
    encoders = recipe.encoders
    sources = [recipe.data.source, recipe.aligner.source, encoders.image_weights, encoders.audio_weights, weights]
    return [source for source in sources if source not in _WORDS]


def _only_checked(recipe: MultimodalRecipe | ContrastiveRecipe) -> str:
    """As JSON, with the defaults of what the answer does not depend on: one question for all settings that are searched."""
    record = recipe.model_dump(mode="json")
    fields = type(recipe).model_fields
    kept = {key: value for key, value in record.items() if key in _CHECKED or fields[key].is_required()}
    return json.dumps(kept | {"per_device_batch_size": 1})


def num_lines(recipe: MultimodalRecipe | ContrastiveRecipe, records: Sequence[Record]) -> tuple[int, int] | None:
    """Lines to train on and held out; None where they could not be counted."""
    if recipe.data.source == "drawn":
        return recipe.data.num_train, recipe.data.num_test
    counted = next((record for record in records if record.get("code") == token_lengths.EXAMPLES), None)
    return (counted["train"], counted["held_out"]) if counted else None


def merged(records: Sequence[Record]) -> list[Finding]:
    return [token_lengths.finding(record) for record in records if record.get("code") != token_lengths.EXAMPLES]


def _batch(recipe: MultimodalRecipe, lines: int, where: Slice | None) -> list[Finding]:
    devices = where.num_devices if where else 1
    size = recipe.per_device_batch_size * devices * recipe.training.gradient_accumulation_steps
    if lines < size:
        what = f"a step takes {counted(size, 'line')} and there are {lines} to train on, so that some are in it more than once"
        return [
            Finding(
                "batch", "warning", what, "type a smaller per_device_batch_size, or give more data", "too-few-examples"
            )
        ]
    steps = recipe.training.max_steps or recipe.training.num_epochs * math.ceil(lines / size)
    factor = devices if recipe.optimizer.scale_with_devices else 1
    what = f"{counted(steps, 'step')} of {counted(size, 'line')}; the learning rate is {recipe.optimizer.learning_rate * factor:g}"
    if factor > 1:
        what += f", {factor} times what the recipe says, for {devices} devices"
    return [Finding("batch", "info", what)]
