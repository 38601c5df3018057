"""What `python -m podwright.train check` says of Phase 1 and Phase 2: lines, tokens and weights, by the loaders that train.

PyTorch is imported for files of weights alone; where it is missing, these were not checked.
"""

from __future__ import annotations

import collections
import functools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from podwright.data import line_check, line_files, lines, pairs
from podwright.data.annotated import AnnotatedExample
from podwright.data.line_files import LineFile
from podwright.data.lines import SampledSplit, Split
from podwright.data.pairs import Pair
from podwright.data.rows import MissingPackage
from podwright.errors import UserError, counted, expanded
from podwright.recipe import extras, hf_config, hf_weights, llm
from podwright.recipe.contrastive import ContrastiveRecipe, Pairs, TextEncoder
from podwright.recipe.multimodal import Encoders, MultimodalData, MultimodalRecipe
from podwright.recipe.paths import no_tokenizer, require_weights
from podwright.rundir import Record
from podwright.train.answers import record, without_weights
from podwright.train.multimodal.networks import text_encoder_files

_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
_PICKLED = "pytorch_model.bin"
_LISTED = 4  # combinations of fields in a message
EXAMPLES = "examples"
"""code of the record with the numbers of lines to train on and held out"""


def of_multimodal(recipe: MultimodalRecipe, without: Collection[str]) -> list[Record]:
    """Each {check, level, code, message, fix}. `without`: `model` where its source cannot be had."""
    records = _encoders(recipe.encoders)
    records += _answers("model", lambda: _aligner(recipe))
    if "model" not in without:
        records += _answers("model", lambda: _language_model(recipe.model.source))
    split: list[Split[AnnotatedExample]] = []
    if recipe.data.source == "drawn":
        split = [lines.drawn(recipe)]
    else:
        records += _answers("data", lambda: _annotated(recipe.data, split))
    if split and not any(each["level"] == "error" for each in records):
        records += _answers("context", lambda: _lengths(recipe, split[0], "model" in without))
    return records


def of_contrastive(recipe: ContrastiveRecipe) -> list[Record]:
    """Each {check, level, code, message, fix}."""
    records = _encoders(recipe.encoders)
    widths = _widths(recipe.encoders) | {"text": llm.TEXT_DIM}
    records += _answers("model", lambda: _text_encoder(recipe.text_encoder, widths))
    modalities = ["text", "image", "audio"]
    if recipe.data.source != "drawn":
        records += _answers("data", lambda: _pairs(recipe.data, modalities))
    records += _answers("model", lambda: _heads(recipe, widths, modalities))
    return records


def _answers(check: str, ask: Callable[[], Iterable[Record]]) -> list[Record]:
    """What is answered, until something is refused or cannot be looked at."""
    records: list[Record] = []
    try:
        for each in ask():
            records.append(each)
    except MissingPackage as e:
        records.append(record(check, "inconclusive", e.what, e.fix, "missing-package"))
    except UserError as e:
        records.append(record(check, "error", e.what, e.fix, e.code))
    except ImportError as e:
        fix = extras.install(extras.of(e.name or "") or "torch")
        records.append(record(check, "inconclusive", f"{check} was not checked: {e}", fix, "missing-package"))
    return records


def _annotated(data: MultimodalData, split: list[Split[AnnotatedExample]]) -> Iterator[Record]:
    sample = lines.sampled(data, lines.reader(data))
    yield from _files(data, sample)
    split.append(sample.lines)
    yield _examples(sample.num_training, sample.num_held_out)


def _pairs(data: Pairs, modalities: list[str]) -> Iterator[Record]:
    """`modalities` become those of the data."""
    sample = lines.sampled(data, pairs.reader(data.root))
    yield from _files(data, sample)
    for file in sample.files:
        yield from _of_pairs(file)
    numbers = []
    for part, number in ((sample.lines.training, sample.num_training), (sample.lines.held_out, sample.num_held_out)):
        share = sum(not pairs.alone(pair.contents) for pair in part) / max(1, len(part))
        numbers.append(round(number * share))
    fields = {field for file in sample.files for pair in file.good for field in pair.contents}
    modalities[:] = [m for m in modalities if m in fields or (m != "text" and "video" in fields)]
    yield _examples(*numbers)


def _of_pairs(file: LineFile[Pair]) -> Iterator[Record]:
    kept = [pair for pair in file.good if not pairs.alone(pair.contents)]
    if not kept:
        raise line_check.nothing_to_pair(file.path)
    if alone := len(file.good) - len(kept):
        what = f"{file.path.name} has {counted(alone, 'line')} with a single modality, and training leaves those out"
        yield record("data", "warning", what, "give each a text, a picture or a sound besides")
    for warning in line_check.repeated(file):
        yield record("data", "warning", *warning)
    has = collections.Counter(" and ".join(pair.contents) for pair in kept)
    most = ", ".join(f"{number:,} of {fields}" for fields, number in has.most_common(_LISTED))
    about = "" if file.complete else "about "
    number = round(file.total * len(kept) / file.num_read)
    yield record("data", "info", f"{file.path.name} has {about}{counted(number, 'pair')}, such as {most}")


def _examples(train: int, held_out: int) -> Record:
    what = f"{counted(train, 'line')} to train on, {held_out:,} held out"
    return record("data", "info", what, code=EXAMPLES) | {"train": train, "held_out": held_out}


def _files(data: MultimodalData | Pairs, sample: SampledSplit[Any]) -> Iterator[Record]:
    """What is the same of both kinds; UserError where files are not there that lines name."""
    for file in sample.files:
        if not file.complete:
            what = f"{file.path.name} has about {file.total:,} lines, of which {file.num_read:,} were read, at both ends and between"
            yield record("data", "info", f"{what}; `podwright data check {file.path}` reads all")
        absent = [entry for line in file.good for entry in line_check.unusable(line, _presence)]
        line_files.require_good(file._replace(faults=absent), data.check_options)
    for warning in line_check.between(data.source, sample.files, data.num_train, data.num_test):
        yield record("data", "warning", *warning)


def _presence(field: str, path: Path) -> str:
    """What is wrong with a file that nobody opens."""
    if os.path.isfile(path):
        return ""
    return "it is a directory" if os.path.isdir(path) else "there is no such file"


def _lengths(recipe: MultimodalRecipe, split: Split[AnnotatedExample], unreachable: bool) -> Iterator[Record]:
    """UserError where prompt and response of a line do not fit the recipe."""
    source = recipe.model.source
    directory = None if source == "random" else expanded(source)
    if unreachable:
        what = f"whether lines fit data.max_text_length={recipe.data.max_text_length} was not checked: model.source={source} cannot be read here"
        yield record("context", "inconclusive", what, "plan where the hub can be reached, or give a directory")
        return
    if directory and not directory.exists():
        import huggingface_hub

        directory = Path(huggingface_hub.snapshot_download(source, allow_patterns=list(_TOKENIZER)))
    if not directory or (directory / "tokenizer.json").is_file():  # else it is no checkpoint yet
        lines.longest(split, recipe, directory)


def _language_model(source: str) -> Iterator[Record]:
    directory = expanded(source)
    if source == "random" or not directory.is_dir():
        return
    dims = hf_config.qwen2(hf_config.read(directory))
    records = without_weights(source, hf_weights.qwen2(dims))
    if not records and not (directory / "tokenizer.json").is_file():
        raise no_tokenizer(str(directory), directory)
    yield from records


def _encoders(section: Encoders) -> list[Record]:
    images = _answers("model", functools.partial(_encoder_weights, section, "image", ("random", "pretrained")))
    return images + _answers("model", functools.partial(_encoder_weights, section, "audio", ("random",)))


def _encoder_weights(section: Encoders, modality: str, words: Sequence[str]) -> Sequence[Record]:
    """UserError for a file of weights that the encoder does not load. `words`: values that stand for no file."""
    key, source = f"encoders.{modality}_weights", getattr(section, f"{modality}_weights")
    if source in words:
        return ()
    require_weights(key, source, expanded(source), f"check the path, or type {key}=random", words)
    if getattr(section, modality) != "tiny":
        if modality == "image":
            import timm  # noqa: F401  without it nothing is checked, which is no error

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
    config = text_encoder_files.check(source, directory, section.max_tokens)
    if not hf_weights.present(directory) and not (directory / _PICKLED).is_file():
        what = f"text_encoder.source={source} has a config.json and no weights that can be looked at, which a run needs"
        yield record("model", "inconclusive", what, f"put {hf_weights.SINGLE} there")
        return
    from podwright.train.multimodal.networks.text_encoder import text_encoder

    widths["text"] = text_encoder(section).dim
    if config.get("model_type") != "bert":
        what = f"text_encoder.source={source} is a {config.get('model_type')}; whether it takes texts is seen when the run starts"
        yield record("model", "inconclusive", what, "start it there with --smoke 3, or give a BERT such as MiniLM")


def _aligner(recipe: MultimodalRecipe) -> Sequence[Record]:
    source, widths = recipe.aligner.source, _widths(recipe.encoders)
    if source == "random":
        return ()
    require_weights("aligner.source", source, expanded(source), "check the path")
    from podwright.train.multimodal.networks import aligner

    stored = aligner.sizes(source)
    dims = {m: width or stored.get(m, 0) for m, width in widths.items()}
    aligner.load(source, dims, recipe.aligner.dim, needed=dims)
    return ()


def _heads(recipe: ContrastiveRecipe, widths: dict[str, int], modalities: list[str]) -> Iterator[Record]:
    """Of the aligner.pt that a run of Phase 1 starts from."""
    source = recipe.aligner.source
    if source == "random":
        return
    require_weights("aligner.source", source, expanded(source), "check the path, or type aligner.source=random")
    from podwright.train.multimodal.networks import aligner

    stored = aligner.sizes(source)
    dims = {m: widths[m] if m in modalities and widths[m] else stored.get(m, 0) for m in {*modalities, *stored}}
    aligner.load(source, dims, recipe.aligner.dim, needed=())
    if absent := [m for m in modalities if m not in stored]:
        what = f"aligner.source={source} has no head for {', '.join(absent)}, which begin from random weights"
        yield record("model", "warning", what, "give the aligner.pt of all modalities, if there is one")
