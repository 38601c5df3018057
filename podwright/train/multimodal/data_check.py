"""What `python -m podwright.train check` says of Phase 1 and Phase 2: lines, tokens and weights, by the loaders that train.

PyTorch is imported for files of weights alone; where it is missing, these were not checked.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from podwright.data import line_check, line_files, lines, pairs
from podwright.data.annotated import AnnotatedExample
from podwright.data.line_files import LineFile
from podwright.data.lines import SampledSplit, Split
from podwright.data.pairs import Pair
from podwright.errors import counted, expanded
from podwright.recipe import hf_config, hf_weights, llm
from podwright.recipe.contrastive import ContrastiveRecipe, Pairs, TextEncoder
from podwright.recipe.kinds import TorchRecipe
from podwright.recipe.multimodal import Encoders, MultimodalData, MultimodalRecipe
from podwright.recipe.paths import no_tokenizer, require_weights
from podwright.rundir import Record
from podwright.train import hub
from podwright.train.answers import collected, record, without_weights

_WEIGHTS = (hf_weights.SINGLE, hf_weights.INDEX, "pytorch_model.bin")  # of a text encoder
EXAMPLES = "examples"
"""code of the record with the numbers of lines to train on and held out"""


def of_multimodal(recipe: MultimodalRecipe, without: Collection[str]) -> list[Record]:
    """Each {check, level, code, message, fix}. `without`: `model` where its source cannot be had."""
    records = _encoders(recipe.encoders)
    widths = _widths(recipe.encoders)
    records += collected("model", lambda: _heads(recipe, widths, widths, needed=widths))
    if "model" not in without:
        records += collected("model", lambda: _language_model(recipe.model.source))
    split: list[Split[AnnotatedExample]] = []
    if recipe.data.source == "drawn":
        split = [lines.drawn(recipe)]
    else:
        records += collected("data", lambda: _annotated(recipe.data, split))
    if split and not any(each["level"] == "error" for each in records):
        records += collected("context", lambda: _lengths(recipe, split[0], "model" in without))
    return records


def of_contrastive(recipe: ContrastiveRecipe) -> list[Record]:
    """Each {check, level, code, message, fix}."""
    records = _encoders(recipe.encoders)
    widths = _widths(recipe.encoders) | {"text": llm.TEXT_DIM}
    records += collected("model", lambda: _text_encoder(recipe.text_encoder, widths))
    modalities = ["text", "image", "audio"]
    if recipe.data.source != "drawn":
        records += collected("data", lambda: _pairs(recipe.data, modalities))
    records += collected("model", lambda: _heads(recipe, widths, modalities, needed=()))
    return records


def _annotated(data: MultimodalData, split: list[Split[AnnotatedExample]]) -> Iterator[Record]:
    sample = lines.sampled(data, lines.reader(data))
    yield from _files(data, sample)
    split.append(sample.lines)
    yield _examples(sample.num_training, sample.num_held_out)


def _pairs(data: Pairs, modalities: list[str]) -> Iterator[Record]:
    """`modalities` become those of the data."""
    sample = lines.sampled(data, pairs.reader(data.root, data.columns))
    yield from _files(data, sample)
    for file in sample.files:
        yield from _of_pairs(file)
    numbers = []
    for part, number in ((sample.lines.training, sample.num_training), (sample.lines.held_out, sample.num_held_out)):
        share = sum(not pairs.alone(pair.contents) for pair in part) / max(1, len(part))
        numbers.append(round(number * share))
    modalities[:] = pairs.modalities(pair for file in sample.files for pair in file.good)
    yield _examples(*numbers)


def _of_pairs(file: LineFile[Pair]) -> Iterator[Record]:
    kept = [pair for pair in file.good if not pairs.alone(pair.contents)]
    if not kept:
        raise line_check.nothing_to_pair(file.path)
    if alone := len(file.good) - len(kept):
        what = f"{file.path.name} has {counted(alone, 'line')} with a single modality, and training leaves those out"
        yield record("data", "warning", what, "give each a text, a picture or a sound besides", "single-modality")
    for warning in line_check.repeated(file):
        yield record("data", "warning", *warning, "repeated-lines")
    about = "" if file.complete else "about "
    number = round(file.total * len(kept) / file.num_read)
    yield record("data", "info", f"{file.path.name} has {about}{counted(number, 'pair')}", code="pairs")


def _examples(train: int, held_out: int) -> Record:
    what = f"{counted(train, 'line')} to train on, {held_out:,} held out"
    return record("data", "info", what, code=EXAMPLES) | {"train": train, "held_out": held_out}


def _files(data: MultimodalData | Pairs, sample: SampledSplit[Any]) -> Iterator[Record]:
    """What is the same of both kinds; UserError where files are not there that lines name."""
    for file in sample.files:
        if not file.complete:
            what = f"{file.path.name} has about {file.total:,} lines, of which {file.num_read:,} were read, at both ends and between"
            yield record(
                "data",
                "info",
                f"{what}; `podwright data check {file.path}{data.check_options}` reads all",
                code="sampled-lines",
            )
        absent = [entry for line in file.good for entry in line_check.unusable(line, _presence)]
        line_files.require_good(file._replace(faults=absent), data.check_options)
    for warning in line_check.between(data.source, sample.files, data.num_train, data.num_test):
        yield record("data", "warning", *warning, "held-out")


def _presence(field: str, path: Path) -> str:
    """What is wrong with a file that nobody opens."""
    return "" if os.path.isfile(path) else "there is no such file"


def _lengths(recipe: MultimodalRecipe, split: Split[AnnotatedExample], unreachable: bool) -> Iterator[Record]:
    """UserError where prompt and response of a line do not fit the recipe."""
    source = recipe.model.source
    if unreachable:
        what = f"whether lines fit data.max_text_length={recipe.data.max_text_length} was not checked: model.source={source} cannot be read here"
        yield record(
            "context", "inconclusive", what, "plan where the hub can be reached, or give a directory", "not-checked"
        )
        return
    directory = hub.tokenizer(source)
    if not directory or (directory / "tokenizer.json").is_file():  # else it is no checkpoint yet
        lines.longest(split, recipe, directory)


def _language_model(source: str) -> Iterator[Record]:
    directory = expanded(source)
    if source == "random" or not directory.is_dir():
        return
    dims = hf_config.qwen2(hf_config.read(directory))
    records = without_weights(source, hf_weights.qwen2(dims), by_transformers=True)
    if not records and not (directory / "tokenizer.json").is_file():
        raise no_tokenizer(str(directory), directory)
    yield from records


def _encoders(section: Encoders) -> list[Record]:
    images = collected("model", functools.partial(_encoder_weights, section, "image", ("random", "pretrained")))
    return images + collected("model", functools.partial(_encoder_weights, section, "audio", ("random",)))


def _encoder_weights(section: Encoders, modality: str, words: Sequence[str]) -> Sequence[Record]:
    """UserError for a file of weights that the encoder does not load. `words`: values that stand for no file."""
    key = f"encoders.{modality}_weights"
    source = getattr(section, f"{modality}_weights")
    if source == "pretrained" and section.image != "tiny":
        import timm
        from huggingface_hub import try_to_load_from_cache

        of_hub = getattr(timm.get_pretrained_cfg(section.image), "hf_hub_id", None)
        if of_hub and isinstance(try_to_load_from_cache(of_hub, "model.safetensors"), str):
            return ()
        what = f"{key}=pretrained is fetched by timm when the run starts, and was not checked"
        return [record("model", "inconclusive", what, f"type {key}=FILE of its weights", "not-checked")]
    if source in words:
        return ()
    require_weights(key, source, expanded(source), f"check the path, or type {key}=random", words)
    if getattr(section, modality) != "tiny":
        if modality == "image":
            import timm  # without it nothing is checked, which is no error

        from podwright.train.multimodal.networks import encoders

        {"image": encoders.image_encoder, "audio": encoders.audio_encoder}[modality](section)
    return ()


def _widths(section: Encoders) -> dict[str, int]:
    """Features of each modality; 0 of an encoder that only timm knows."""
    return {"image": llm.IMAGE_DIMS.get(section.image, 0), "audio": llm.AUDIO_DIMS[section.audio]}


def _text_encoder(section: TextEncoder, widths: dict[str, int]) -> Iterator[Record]:
    """Puts the features of its texts into `widths`, 0 where they are not known."""
    source = section.source
    if section.name == "tiny" or source == "random":
        return
    widths["text"] = 0
    directory = expanded(source)
    if directory.is_dir() and not any(os.path.lexists(directory / name) for name in _WEIGHTS):
        what = f"text_encoder.source={source} has no weights that can be looked at, which a run needs"
        yield record("model", "inconclusive", what, f"put {hf_weights.SINGLE} there", "no-weights")
        return
    from podwright.train.multimodal.networks.text_encoder import text_encoder

    built: Any = text_encoder(section)
    widths["text"] = built.dim
    model_type = built.body.body.config.model_type
    if model_type != "bert":
        what = f"text_encoder.source={source} is a {model_type}; whether it takes texts is seen when the run starts"
        yield record(
            "model", "inconclusive", what, "start it there with --smoke 3, or give a BERT such as MiniLM", "not-checked"
        )


def _heads(
    recipe: TorchRecipe, widths: dict[str, int], modalities: Collection[str], needed: Collection[str]
) -> Iterator[Record]:
    """Of the aligner.pt that a run starts from. `needed`: modalities without which Phase 2 has no features."""
    source = recipe.aligner.source
    if source == "random":
        return
    require_weights("aligner.source", source, expanded(source), "check the path, or type aligner.source=random")
    from podwright.train.multimodal.networks import aligner

    stored = aligner.sizes(source)
    dims = {} if needed else dict(stored)
    dims |= {modality: widths[modality] or stored.get(modality, 0) for modality in modalities}
    aligner.load(source, dims, recipe.aligner.dim, needed=needed)
    absent = [m for m in modalities if m not in stored]
    if absent:
        what = f"aligner.source={source} has no head for {', '.join(absent)}, which begin from random weights"
        yield record("model", "warning", what, "give the aligner.pt of all modalities, if there is one", "no-head")
