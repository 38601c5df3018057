"""What a plan says of multimodal training: the packages, the model, the aligner, the lines and what they name, the budget, the batch."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import shlex
import shutil
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

from podwright.errors import UserError, abbreviated, counted, expanded
from podwright.plan.checks import encoders, hub, weights
from podwright.plan.checks.inputs import in_source, lora_rank, missing_source
from podwright.plan.checks.inputs import weights as weights_of
from podwright.plan.findings import Finding, InconclusiveCheck, of_error
from podwright.recipe import answers, held_out, hf_config, hf_weights, llm, pairs
from podwright.recipe.answers import FieldFault
from podwright.recipe.contrastive import Pairs
from podwright.recipe.conversions import to_responses
from podwright.recipe.llm import LlmDims
from podwright.recipe.multimodal import Encoders, MultimodalData, MultimodalModel, MultimodalRecipe, ProjectorSection
from podwright.recipe.paths import (
    media_folder,
    missing,
    project_root,
    require_directory,
    require_file,
    require_file_or_directory,
    require_root,
    require_weights,
)
from podwright.recipe.sampled_files import require_utf8, sampled_text
from podwright.recipe.text_lines import JsonFault, parse_json
from podwright.slices import Slice

_EXAMPLE = '{"image": "a.png", "instruction": "...", "response": "{...}"}'
_IS_DIRECTORY = " (a directory)"
_NAMED = 1000  # files that are looked for below another folder
_BYTES_PER_TOKEN = 3.5  # of JSON and English, with a vocabulary of 150,000
_NEEDED = {"torch": "torch", "transformers": "transformers", "av": "av", "PIL": "pillow"}


def check(recipe: MultimodalRecipe, where: Slice | None, cwd: Path) -> list[Finding]:
    findings = [] if where is None else _place(recipe, where)
    findings += _model(recipe, cwd)
    findings += encoders.check(recipe.encoders, cwd)
    findings += _aligner(recipe, cwd)
    if recipe.data.source == "drawn":
        return findings + _batch(recipe, recipe.data.num_train, where)
    return findings + _data(recipe, where, cwd)


def packages(section: Encoders, *more: str) -> list[Finding]:
    """Those that are not installed here, of what it needs."""
    absent = [package for module, package in needed(section, *more).items() if importlib.util.find_spec(module) is None]
    if not absent:
        return []
    return [
        error(
            "packages", f"{', '.join(absent)} not installed here", "type pip install -e '.[torch]' in podwright's clone"
        )
    ]


def needed(section: Encoders, *more: str) -> dict[str, str]:
    """Modules and the packages that bring them: what every trainer in PyTorch needs, what its encoders do, and `more`."""
    return _NEEDED | dict(zip(more, more, strict=True)) | ({} if section.image == "tiny" else {"timm": "timm"})


def compiler(recipe: MultimodalRecipe) -> list[Finding]:
    if not recipe.training.compile or shutil.which("g++"):
        return []
    what = "training.compile=true writes C++, and there is no g++ here"
    return [error("packages", what, "install g++, or type training.compile=false")]


def place(where: Slice) -> list[Finding]:
    row = where.accelerator
    if row.pod is None:
        return []
    return [
        error(
            "slice",
            f"{row.name} is a TPU, and multimodal training is PyTorch's",
            "type --on with GPUs, such as 4xA100-40GB",
        )
    ]


def _place(recipe: MultimodalRecipe, where: Slice) -> list[Finding]:
    row = where.accelerator
    if row.pod is None and row.hbm_bytes and recipe.model.mixed_precision == "bf16" and not row.bf16_flops:
        return [error("slice", f"{row.name} has no bfloat16", "type model.mixed_precision=fp16")]
    if row.pod is None and recipe.training.fsdp and where.num_devices == 1:
        what = "training.fsdp=true has one device to spread the model over, which keeps all of it"
        return [Finding("slice", "warning", what, "type --on with several, or training.fsdp=false")]
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
        directory = cwd / expanded(m.source)
        if m.source != "random" and directory.is_dir():
            findings += weights_of(m.source, directory, hf_weights.qwen2(dims))
    except InconclusiveCheck:
        return findings
    except UserError as e:
        return [*findings, of_error("model", e)]
    findings += lora_rank(m.name, m.lora_rank, dims.hidden_size) + _positions(recipe, dims)
    projector = dims.num_projector_params(recipe.aligner.dim, p.hidden_size, p.num_soft_tokens)
    rest = (
        f"{abbreviated(dims.num_lora_params(m.lora_rank, m.lora_target_modules))} in adapters"
        if m.lora_rank
        else "all of the language model"
    )
    what = f"{m.name} has {abbreviated(dims.num_params())} parameters; trainable: {abbreviated(projector)} in the projector and {rest}"
    return [*findings, Finding("model", "info", what)]


def _positions(recipe: MultimodalRecipe, dims: LlmDims) -> list[Finding]:
    """An error where the soft tokens of a picture and a sound, and the text after them, may be more tokens than the model has positions."""
    soft, text, positions = recipe.projector.num_soft_tokens, recipe.data.max_text_length, dims.max_position_embeddings
    if 2 * soft + text <= positions:
        return []
    what = (
        f"projector.num_soft_tokens={soft} for a picture and for a sound and data.max_text_length={text} are {2 * soft + text:,} tokens, "
        f"{recipe.model.name if recipe.model.source == 'random' else recipe.model.source} has {positions:,} positions"
    )
    default = ProjectorSection().num_soft_tokens
    if (fewer := (positions - text) // 2) > 0:
        return [error("model", what, f"type projector.num_soft_tokens={fewer}")]
    if (room := positions - 2 * min(soft, default)) < 1:
        return [error("model", what, f"give a model with {2 * min(soft, default) + text:,} positions or more")]
    fix = f"projector.num_soft_tokens={default} " if soft > default else ""
    return [error("model", what, f"type {fix}data.max_text_length={room}")]


def dimensions(section: MultimodalModel, cwd: Path) -> LlmDims:
    """Of the weights where they or their config.json are here, else those that model.name stands for."""
    if section.source == "random":
        return llm.find(section.name)
    directory = cwd / expanded(section.source)
    if os.path.exists(directory):
        require_directory(f"model.source={section.source}", directory)
        try:
            return hf_config.qwen2(hf_config.read(directory, model_type="qwen2"))
        except UserError as e:
            raise in_source(section.source, directory, e) from e
    if (config := hub.model(section.source)[1]) is not None:
        try:
            return hf_config.qwen2(config)
        except UserError as e:
            raise UserError(f"model.source={section.source}: {e.what}", e.fix) from e
    if section.name in llm.MODELS:
        return llm.find(section.name)
    what = f"the dimensions of model.source={section.source} are not known here"
    raise InconclusiveCheck(what, "give model.source as a directory with a config.json")


def _aligner(recipe: MultimodalRecipe, cwd: Path) -> list[Finding]:
    source = recipe.aligner.source
    if source == "random":
        if recipe.encoders.image == "tiny":
            return []
        what = "aligner.source=random: the features mean nothing yet"
        return [Finding("model", "warning", what, "give the aligner.pt of Phase 1")]
    path = cwd / expanded(source)
    try:
        require_weights("aligner.source", source, path, "check the path")
    except UserError as e:
        return [of_error("model", e)]
    names = weights.shapes(path)
    if names is None:
        return [
            error("model", f"aligner.source={source} is not what torch.save writes", "give the aligner.pt of Phase 1")
        ]
    wanted = [name for modality in ("image", "audio") for name in weights.head_names(modality)]
    absent = [
        error("model", f"aligner.source={source} has no {name}", "give an aligner of these modalities")
        for name in wanted
        if name not in names
    ]
    widths = {"image": llm.IMAGE_DIMS.get(recipe.encoders.image), "audio": llm.AUDIO_DIMS[recipe.encoders.audio]}
    damaged = weights.misfits(source, names, recipe.aligner.dim, widths) or absent[:1] or weights.not_finite(path)
    return [*damaged, *_other_features(recipe, path)]


def _other_features(recipe: MultimodalRecipe, path: Path) -> list[Finding]:
    """A warning where the run whose aligner.pt this is saw files through other encoders, or prepared otherwise."""
    try:
        trained = Encoders.model_validate(json.loads((path.parent / "recipe.json").read_text())["encoders"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
    before, now = trained.model_dump(), recipe.encoders.model_dump()
    changed = [key for key in now if now[key] != before[key]]
    if not changed:
        return []
    what = f"aligner.source={recipe.aligner.source} was trained on other features: " + ", ".join(
        f"encoders.{key}={before[key]}, and here {now[key]}" for key in changed
    )
    return [Finding("model", "warning", what, "type " + " ".join(f"encoders.{key}={before[key]}" for key in changed))]


def data_files(key: str, source: str, cwd: Path, fix: str) -> list[Path]:
    """train.jsonl and, where there is one, val.jsonl of a directory, or the file itself; UserError with `fix` where it is not there."""
    path = cwd / expanded(source)
    if not os.path.lexists(path):
        fault = missing(key, source, cwd)
        raise UserError(fault.what, f"{fault.fix}, or {fix}" if "did you mean" not in fault.fix else fault.fix)
    require_file_or_directory(f"{key}={source}", path)
    if not path.is_dir():
        return [path]
    listed = [path / name for name in ("train.jsonl", "val.jsonl")]
    if not os.path.lexists(listed[0]):
        raise UserError(f"{key}={source} has no train.jsonl", "name a directory that does, or a file")
    listed = [file for file in listed if os.path.lexists(file)]
    for file in listed:
        require_file(str(file), file)
    return listed


def _data(recipe: MultimodalRecipe, where: Slice | None, cwd: Path) -> list[Finding]:
    try:
        require_root("data.root", recipe.data.root, cwd)
        files = data_files("data.source", recipe.data.source, cwd, f"type {drawn(recipe.data)}")
    except UserError as e:
        return [of_error("data", e)]
    contents: list[list[Hashable]] = [[] for _ in files]
    looks = [_file(path, recipe.data, cwd, lines) for path, lines in zip(files, contents, strict=True)]
    findings = [finding for _, listed in looks for finding in listed]
    if not any(f.level == "error" for f in findings):
        findings += shared(recipe.data, files, contents)
        left = looks[0][0] if len(files) > 1 else looks[0][0] - pairs.num_held_out(looks[0][0], recipe.data.num_test)
        if left < 1:
            refused = pairs.none_left(recipe.data.source, looks[0][0], 1)
            return [*findings, of_error("data", refused)]
        findings += _batch(recipe, min(recipe.data.num_train or left, left), where)
    return findings


def shared(data: MultimodalData | Pairs, files: list[Path], lines: Sequence[Sequence[Hashable]]) -> list[Finding]:
    """A warning of lines that stand in both files, by what makes those equal that were read; or of held-out lines that nobody reads."""
    if len(files) < 2:
        return [Finding("data", "warning", *unread)] if (unread := held_out.unread(files[0])) else []
    held = lines[1][: data.num_test or None]
    equal = held_out.shared(lines[0][: data.num_train or None], held)
    names = files[0].name, files[1].name
    return [Finding("data", "warning", *held_out.warning(data.source, names, equal, len(held)))] if equal else []


def drawn(data: MultimodalData | Pairs) -> str:
    """What to type for lines that need no file."""
    return f"data.source=drawn data.num_train=2000 data.num_test=200{' data.root=' if data.root else ''}"


def sampled_lines(path: Path) -> tuple[list[tuple[str, bytes]], int, bool]:
    """Named lines of a file without its empty ones, how many it has, and whether these are all: of a large file they are those of
    both ends and a sample, and the number is estimated."""
    lines, num_lines, complete = sampled_text(path)
    require_utf8(path, lines)
    named = [(where.removeprefix(f"{path}").removeprefix(":").strip(), line) for where, line in lines]
    return [(f"line {where}" if where.isdecimal() else where, line) for where, line in named], num_lines, complete


def partly_read(path: Path, read: int, num_lines: int) -> Finding:
    what = f"{path.name} has about {num_lines:,} lines, of which {read:,} were read, at both ends and between; "
    return Finding("data", "info", f"{what}`podwright data check {path}` reads all")


def mending(path: Path, num_valid: int, options: str, example: str) -> str:
    """What to type for faulty lines; --fix keeps the valid ones of a .jsonl file, so that there have to be some."""
    if num_valid and path.suffix == ".jsonl":
        return f"type podwright data check {path} --fix{options}"
    return f"give a file with lines such as {example}"


def _file(path: Path, data: MultimodalData, cwd: Path, contents: list[Hashable]) -> tuple[int, list[Finding]]:
    """How many lines it has, and its first fault, its first absent file, its longest line; what its lines ask goes to `contents`."""
    faults: list[str] = []
    absent: list[str] = []
    named: list[str] = []
    longest, at, num_valid, has_objects = 0, "", 0, False
    schema, repeats, folder = data.schema_of_answers, answers.Repeats(), media_folder(path, data.root, cwd)
    try:
        lines, num_lines, complete = sampled_lines(path)
    except UserError as e:
        return 0, [of_error("data", e)]
    for where, line in lines:
        parsed, wrong = parsed_line(line, schema.line_faults)
        # pieces of a large file may overlap, so that a line is read twice
        if complete and not wrong and (repeated := repeats.fault(where, parsed)):
            wrong = [("line", repeated)]
        faults += [f"{where}: {field} {message}" for field, message in wrong]
        has_objects = has_objects or (isinstance(parsed, dict) and isinstance(parsed.get("response"), dict))
        if not wrong:
            num_valid += 1
            contents.append(pairs.content_of(parsed))
            absent += absent_of(where, parsed, folder)
            named += named_by(parsed)
            size = len((data.system_prompt + parsed["instruction"] + parsed["response"]).encode())
            longest, at = max((longest, at), (size, where))
    findings = [] if complete else [partly_read(path, len(lines), num_lines)]
    if faults:
        findings.append(
            error(
                "data",
                f"{path} has {counted(len(faults), 'fault')}, such as {faults[0]}",
                to_responses(str(path)) if has_objects else mending(path, num_valid, data.check_options, _EXAMPLE),
            )
        )
    findings += missing_files(path, absent, named, data.root, cwd)
    if (need := math.ceil(longest / _BYTES_PER_TOKEN)) > data.max_text_length:
        what = f"{at} of {path.name} needs about {need} tokens for prompt and response, data.max_text_length={data.max_text_length}"
        findings.append(Finding("context", "warning", what, f"type data.max_text_length={need}; no line is ever cut"))
    if not lines:
        findings.append(error("data", *pairs.empty(path)))
    return num_lines, findings


def absent_of(where: str, line: dict[str, str], folder: Path) -> list[str]:
    """Files that a line names and that are not there, a name that no file can have among them."""
    return [
        f"{where}: {answers.shown(line[m])}{_IS_DIRECTORY if os.path.isdir(folder / line[m]) else ''}"
        for m in answers.MEDIA
        if m in line and not os.path.isfile(folder / line[m])
    ]


def named_by(line: dict[str, str]) -> list[str]:
    return [line[m] for m in answers.MEDIA if m in line]


def missing_files(path: Path, absent: list[str], named: list[str], root: str, cwd: Path) -> list[Finding]:
    """An error for files that are not below the `root` of the recipe; where all are below another folder, with the data.root to type."""
    if not absent:
        return []
    below = f"data.root={root}" if root else "its own folder"
    what = f"{path.name} names {counted(len(absent), 'file')} that {'is' if len(absent) == 1 else 'are'} not below {below}, such as {absent[0]}"
    if any("://" in name for name in named):
        return [error("data", what, "fetch the files of URLs to this machine, and write their paths into the lines")]
    if all(line.endswith(_IS_DIRECTORY) for line in absent):
        return [error("data", what, "name a file in each of these lines")]
    other = project_root(named[:_NAMED], path, cwd)
    if other:
        return [error("data", f"{what}; below {other} they are", f"type data.root={shlex.quote(other)}")]
    return [error("data", what, f"check the paths{' and data.root' if root else ', or type data.root=FOLDER'}")]


def parsed_line(line: bytes, line_faults: Callable[[Any], Iterator[FieldFault]]) -> tuple[Any, list[FieldFault]]:
    try:
        parsed = parse_json(line)
    except JsonFault as e:
        return None, [("line", f"is not JSON ({e})")]
    return parsed, list(line_faults(parsed))


def _smaller_step(recipe: MultimodalRecipe, lines: int, devices: int) -> str:
    """What to type for a step of at most so many lines."""
    parts = recipe.training.gradient_accumulation_steps
    if size := lines // (devices * parts):
        return f"type per_device_batch_size={size}"
    if parts := lines // (devices * recipe.per_device_batch_size):
        return f"type training.gradient_accumulation_steps={parts}"
    return "type per_device_batch_size=1 training.gradient_accumulation_steps=1, or give more data"


def _batch(recipe: MultimodalRecipe, lines: int, where: Slice | None) -> list[Finding]:
    devices = where.num_devices if where else 1
    size = recipe.per_device_batch_size * devices * recipe.training.gradient_accumulation_steps
    if lines < size:
        what = f"a step takes {counted(size, 'line')} and there are {lines} to train on, so that some are in it more than once"
        return [Finding("batch", "warning", what, _smaller_step(recipe, lines, devices))]
    steps = recipe.training.max_steps or recipe.training.num_epochs * math.ceil(lines / size)
    factor = devices if recipe.optimizer.scale_with_devices else 1
    what = f"{counted(steps, 'step')} of {counted(size, 'line')}; the learning rate is {recipe.optimizer.learning_rate * factor:g}"
    return [
        Finding(
            "batch",
            "info",
            what + (f", {factor} times what the recipe says, for {devices} devices" if factor > 1 else ""),
        )
    ]


def error(check: str, message: str, fix: str) -> Finding:
    return Finding(check, "error", message, fix)
