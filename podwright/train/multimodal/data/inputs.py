"""What a run starts from: its lines with their features, its tokenizer, its weights. Every fault of the user's input shows up here."""

from __future__ import annotations

import dataclasses
import json
import shlex
import zlib
from collections.abc import Callable
from pathlib import Path

from podwright.data import line_files, synthetic_images
from podwright.data.annotated import AnnotatedExample, learned
from podwright.data.line_files import Record
from podwright.data.lines import reader, split, tokenized
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError, expanded
from podwright.recipe.contrastive import Pairs
from podwright.recipe.multimodal import MultimodalData, MultimodalRecipe
from podwright.rundir import RunDir
from podwright.train import data_record
from podwright.train.multimodal.data import features
from podwright.train.multimodal.data.batches import LineBatches
from podwright.train.multimodal.data.features import Sight
from podwright.train.multimodal.processes.world import World


@dataclasses.dataclass(frozen=True)
class MultimodalInputs:
    training: LineBatches
    held_out: LineBatches
    tokenizer: Tokenizer
    directory: Path | None
    """of the language model's weights"""
    rows: Record
    """what the next attempt compares its lines with"""


def load(
    run: RunDir, recipe: MultimodalRecipe, world: World, say: Callable[[str], None] = features.silent
) -> MultimodalInputs:
    """`say`: takes a notice for the user."""
    source = world.on_each_disk(lambda: source_of(recipe, run.path / "data"))
    before = world.from_first(lambda: data_record.written(run))
    training, held_out, read = split(source, recipe.data, reader(recipe.data), before.read)
    same_everywhere(source, recipe.data.source, world)
    directory = world.on_each_disk(lambda: weights(recipe.model.source))
    tokenizer = tokenizer_of(run, recipe, directory, training, world)
    sight = features.sight(recipe, say)
    parts, faults = [], []
    for examples in (training, held_out):
        lines, wrong = seen(examples, source, tokenizer, sight, recipe, world, run.path.parent / features.FEATURES)
        faults += wrong
        parts.append(lines)
    require_decoded(faults, source, recipe.data)
    rows, notices = data_record.check(
        run, recipe.data.source, before, read, *(rows_of(part.examples) for part in parts)
    )
    for notice in notices:
        say(notice)
    return MultimodalInputs(parts[0], parts[1], tokenizer, directory, rows)


def rows_of(examples: list[AnnotatedExample]) -> data_record.DataRows:
    contents = ([e.instruction, e.answer, features.marks(e.paths)] for e in examples)
    return data_record.rows(json.dumps(content, sort_keys=True) for content in contents)


def require_decoded(faults: list[Record], source: Path, data: MultimodalData | Pairs) -> None:
    """UserError where files of lines cannot be decoded, which `podwright data check` calls faults."""
    if faults:
        lines = f"{len(faults)} line{'s' if len(faults) > 1 else ''}"
        what = f"{source} has {lines} with files that cannot be used, such as line {faults[0]['line']}: {faults[0]['message']}"
        raise UserError(what, f"type podwright data check {shlex.quote(str(source))} --fix{data.check_options}")


def same_everywhere(source: Path, typed: str, world: World) -> None:
    """UserError where machines that share no disk have other lines."""
    marks = world.gathered([zlib.crc32(path.read_bytes()) for path in line_files.files(typed, source)])
    if odd := [str(rank) for rank, mark in enumerate(marks) if mark != marks[0]]:
        raise UserError(
            f"{source} has other lines in process {', '.join(odd)} than in the first", "copy it to every machine anew"
        )


def source_of(recipe: MultimodalRecipe, folder: Path) -> Path:
    """The file or directory of the lines; what has to be drawn is drawn in `folder`."""
    if recipe.data.source != "drawn":
        return expanded(recipe.data.source)
    synthetic_images.write(folder, recipe.data.num_train, recipe.data.num_test, recipe.seed)
    return folder


def seen(
    examples: list[AnnotatedExample],
    source: Path,
    tokenizer: Tokenizer,
    by: Sight,
    recipe: MultimodalRecipe,
    world: World,
    folder: Path,
) -> tuple[LineBatches, list[Record]]:
    """The lines whose files can be decoded, and what is wrong with the others; features are kept in `folder`."""
    prompts, responses = tokenized(examples, tokenizer, recipe.data)
    values, present, faults = features.of_files(examples, by, recipe, world, folder)
    keep = [i for i in range(len(examples)) if i not in faults]
    if not keep:
        what = f"no line of {source} has a file that can be decoded"
        raise UserError(what, f"type podwright data check {shlex.quote(str(source))}{recipe.data.check_options}")
    lines = LineBatches(
        [examples[i] for i in keep],
        [prompts[i] for i in keep],
        [responses[i] for i in keep],
        values[keep],
        present[keep],
    )
    return lines, [
        {"line": examples[i].line, "field": None, "message": message} for i, message in sorted(faults.items())
    ]


def weights(source: str) -> Path | None:
    """The directory of the language model; None for random weights."""
    if source == "random":
        return None
    directory = expanded(source)
    if directory.is_dir():
        return directory
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.txt"]))
    except Exception as e:
        what = f"model.source={source} is no directory, and the hub does not give it ({type(e).__name__})"
        raise UserError(what, "give a Hugging Face directory, or log in with `hf auth login`") from e


def tokenizer_of(
    run: RunDir, recipe: MultimodalRecipe, directory: Path | None, training: list[AnnotatedExample], world: World
) -> Tokenizer:
    """The model's own; of random weights one that is learned from the training lines, once for the run."""

    def make() -> None:
        if (run.tokenizer / "tokenizer.json").exists():
            return
        if directory is not None:
            Tokenizer.load(directory).save(run.tokenizer)
            return
        learned(training, recipe).save(run.tokenizer)

    world.on_each_disk(make)
    return Tokenizer.load(run.tokenizer)
