"""What a plan says of Phase 1: the packages, the encoders, the aligner that it goes on from, the lines and their pairs, the batch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator
from pathlib import Path

from podwright.errors import UserError, abbreviated, counted, expanded, nearest
from podwright.plan.checks import encoders, multimodal, weights
from podwright.plan.checks.inputs import in_source
from podwright.plan.findings import Finding, of_error
from podwright.recipe import hf_config, hf_weights, llm, pairs, text_encoder_files
from podwright.recipe.contrastive import ContrastiveRecipe, Pairs
from podwright.recipe.conversions import paired_keys, to_pairs
from podwright.recipe.paths import media_folder, require_root, require_weights
from podwright.slices import Slice

_PICKLED = "pytorch_model.bin"
_TRAIN, _TEST = 2000, 200  # drawn lines, as in phase1-tiny


def check(recipe: ContrastiveRecipe, where: Slice | None, cwd: Path) -> list[Finding]:
    findings = [] if where is None else multimodal.place(where)
    findings += encoders.check(recipe.encoders, cwd)
    source = recipe.text_encoder.source
    directory = cwd / expanded(source)
    if source != "random" and recipe.text_encoder.name != "tiny" and not (directory / "config.json").is_file():
        findings.append(_no_text_encoder(source, directory))
    elif source != "random" and recipe.text_encoder.name != "tiny":
        findings += _text_encoder(source, directory, recipe.text_encoder.max_tokens)
    findings += _heads(recipe, cwd)
    if recipe.data.source == "drawn":
        return findings + _batch(recipe, recipe.data.num_train, recipe.data.num_test, where)
    return findings + _data(recipe, where, cwd)


def _no_text_encoder(source: str, directory: Path) -> Finding:
    what = f"text_encoder.source={source} {'has no config.json of a text encoder' if directory.exists() else 'is not there'}"
    fix = "put MiniLM-L6-H384-uncased there, or type text_encoder.source=random"
    if not directory.exists() and (guess := nearest(source, ["random"])):
        what, fix = f"there is no text_encoder.source={source}", f"did you mean text_encoder.source={guess}?"
    if directory.is_dir():
        try:
            hf_config.refuse_other_contents(directory, "text_encoder.source")
        except UserError as e:
            what, fix = e.what, e.fix
    return multimodal.error("model", what, fix)


def _text_encoder(source: str, directory: Path, max_tokens: int) -> list[Finding]:
    """What its config.json and the headers of its weights say; of another model than a BERT only transformers knows the weights."""
    try:
        config = text_encoder_files.check(directory, max_tokens)
        held = _weights(directory)
        if config.get("model_type") == "bert" and held is not None:
            hf_weights.check_bert(directory, hf_weights.bert(config), held)
            return []
    except UserError as e:
        e = in_source(source, directory, e, "text_encoder.source")
        return [of_error("model", e)]
    if held is None:
        what = f"text_encoder.source={source} has a config.json and no weights that can be looked at, which a run needs"
        return [Finding("model", "inconclusive", what, f"put {hf_weights.SINGLE} there")]
    what = f"text_encoder.source={source} is a {config.get('model_type')}; whether its weights fit is seen when the run starts"
    return [Finding("model", "inconclusive", what, "start it there with --smoke 3, or give a BERT such as MiniLM")]


def to_start(recipe: ContrastiveRecipe, cwd: Path) -> list[Finding]:
    """What stands against starting a run from a text encoder that could be planned."""
    source = recipe.text_encoder.source
    directory = cwd / expanded(source)
    unread = source == "random" or recipe.text_encoder.name == "tiny" or not directory.is_dir()
    if unread or hf_weights.present(directory) or (directory / _PICKLED).is_file():
        return []
    what = f"text_encoder.source={source} has a config.json and no weights"
    return [multimodal.error("model", what, f"put {hf_weights.SINGLE} there, or type text_encoder.source=random")]


def _weights(directory: Path) -> hf_weights.Shapes | None:
    if hf_weights.present(directory):
        return {name: tensor.shape for name, tensor in hf_weights.stored(directory).items()}
    return weights.shapes(directory / _PICKLED)


def _heads(recipe: ContrastiveRecipe, cwd: Path) -> Iterator[Finding]:
    """What is trained, and what of it the aligner.pt does not have."""
    e, dim = recipe.encoders, recipe.aligner.dim
    widths = {"text": llm.TEXT_DIM, "image": llm.IMAGE_DIMS.get(e.image), "audio": llm.AUDIO_DIMS[e.audio]}
    if all(widths.values()):
        trained = sum(2 * width + width * dim for width in widths.values() if width)
        scales = ", and 3 scales" if recipe.aligner.learnable_scales else ""
        yield Finding(
            "model", "info", f"{abbreviated(trained)} trainable parameters in heads for text, picture and sound{scales}"
        )
    source = recipe.aligner.source
    if source == "random":
        return
    path = cwd / expanded(source)
    try:
        require_weights("aligner.source", source, path, "check the path, or type aligner.source=random")
    except UserError as e:
        yield of_error("model", e)
        return
    names = weights.shapes(path)
    if names is None:
        yield multimodal.error("model", f"aligner.source={source} is not what torch.save writes", "give an aligner.pt")
        return
    if not any(name.startswith(weights.HEADS) for name in names):
        what = f"aligner.source={source} has no weights under {weights.HEADS}"
        yield multimodal.error("model", what, "give the aligner.pt of Phase 1")
        return
    # the data says which widths matter
    yield from weights.misfits(source, names, dim, dict.fromkeys(widths)) or weights.not_finite(path)
    absent = [m for m in widths if weights.head_names(m)[0] not in names]
    if absent:
        what = f"aligner.source={source} has no head for {', '.join(absent)}: random weights where the data has that"
        yield Finding("model", "warning", what, "give the aligner.pt of all modalities, if there is one")


def _data(recipe: ContrastiveRecipe, where: Slice | None, cwd: Path) -> list[Finding]:
    fix = f"type {multimodal.drawn(recipe.data)}"
    try:
        require_root("data.root", recipe.data.root, cwd)
        files = multimodal.data_files("data.source", recipe.data.source, cwd, fix)
    except UserError as e:
        return [of_error("data", e)]
    findings: list[Finding] = []
    counts = {}
    contents: list[list[Hashable]] = [[] for _ in files]
    for path, lines in zip(files, contents, strict=True):
        counts[path.name], file_findings = _file(path, recipe.data, cwd, lines)
        findings += file_findings
    if not any(f.level == "error" for f in findings):
        left, held_out = _divided(recipe, counts)
        if left < 1:
            refused = pairs.none_left(recipe.data.source, next(iter(counts.values())), pairs.LEAST_HELD_OUT)
            return [*findings, of_error("data", refused)]
        findings += multimodal.shared(recipe.data, files, contents)
        findings += _batch(recipe, left, held_out, where)
    return findings


def _divided(recipe: ContrastiveRecipe, counts: dict[str, int]) -> tuple[int, int]:
    """Lines to train on and held out, as training divides them: without a val.jsonl the last ones are held out."""
    lines, kept = next(iter(counts.values())), counts.get("val.jsonl", 0)
    held_out = min(recipe.data.num_test or kept, kept) if kept else pairs.num_held_out(lines, recipe.data.num_test)
    left = lines if kept else lines - held_out
    return min(recipe.data.num_train or left, left), held_out


def _file(path: Path, data: Pairs, cwd: Path, contents: list[Hashable]) -> tuple[int, list[Finding]]:
    """How many of its lines make pairs; its first fault, its first absent file, how many are alone or repeat another, and which pairs
    there are, which go to `contents`."""
    faults: list[str] = []
    absent: list[str] = []
    named: list[str] = []
    other: object = None  # a line with keys of another program
    alone, folder = 0, media_folder(path, data.root, cwd)
    has: Counter[tuple[str, ...]] = Counter()
    try:
        lines, num_lines, complete = multimodal.sampled_lines(path)
    except UserError as e:
        return 0, [of_error("data", e)]
    if not lines:
        return 0, [multimodal.error("data", *pairs.empty(path))]
    for where, line in lines:
        parsed, wrong = multimodal.parsed_line(line, pairs.line_faults)
        given = {} if wrong else pairs.given(parsed)
        other = other or (parsed if paired_keys(parsed) else None)
        faults += [f"{where}: {field} {message}" for field, message in wrong]
        absent += multimodal.absent_of(where, given, folder)
        named += multimodal.named_by(given)
        alone += bool(given) and pairs.alone(given)
        if given and not pairs.alone(given):
            has[tuple(given)] += 1
            contents.append(pairs.content_of(given))
    read = sum(has.values())
    useful = read if complete else round(num_lines * read / max(1, len(lines)))
    findings = [] if complete else [multimodal.partly_read(path, len(lines), num_lines)]
    if faults:
        what = f"{path} has {counted(len(faults), 'fault')}, such as {faults[0]}"
        fix = to_pairs(str(path), other) or multimodal.mending(path, read, data.check_options, pairs.EXAMPLE)
        findings.append(multimodal.error("data", what, fix))
    findings += multimodal.missing_files(path, absent, named, data.root, cwd)
    if not useful and not faults:
        findings.append(multimodal.error("data", *pairs.nothing_to_pair(path, other)))
    elif alone:
        what = f"{path.name} has {counted(alone, 'line')} with a single modality, and training leaves those out"
        fix = to_pairs(str(path), other) or "give each a text, a picture or a sound besides"
        findings.append(Finding("data", "warning", what, fix))
    if complete and (repeated := pairs.repeated(path, contents)):  # pieces of a large file may overlap
        findings.append(Finding("data", "warning", *repeated))
    if useful:
        most = ", ".join(f"{count:,} of {' and '.join(fields)}" for fields, count in has.most_common(4))
        findings.append(
            Finding(
                "data",
                "info",
                f"{path.name} has {'' if complete else 'about '}{counted(useful, 'pair')}, such as {most}",
            )
        )
    return useful, findings


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
    if held_out < pairs.LEAST_HELD_OUT:
        what = f"{counted(held_out, 'line')} held out: retrieval needs at least 2, because one is always right"
        return [multimodal.error("batch", what, _more(recipe, "num_test", _TEST, pairs.LEAST_HELD_OUT))]
    steps = recipe.training.max_steps or recipe.training.num_epochs * math.ceil(lines / size)
    return [Finding("batch", "info", f"{counted(steps, 'step')}; contrastive batch of {size} lines over all devices")]


def _more(recipe: ContrastiveRecipe, key: str, number: int, least: int) -> str:
    """What to type for at least `least` lines of a file, or for a `number` of drawn ones."""
    if recipe.data.source == "drawn":
        return f"type data.{key}={number}"
    if key == "num_train":
        return f"give at least {least} lines" + (" and type data.num_train=0" if recipe.data.num_train else "")
    return f"type data.num_test={least}, with at least {least} lines in val.jsonl where there is one"
