"""What a run starts from: its lines with their features, its tokenizer, its weights. Every fault of the user's input shows up here."""

from __future__ import annotations

import dataclasses
import json
import shlex
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from podwright.data import line_files, synthetic_images, synthetic_pairs
from podwright.data.annotated import AnnotatedExample, learned
from podwright.data.line_files import LineReader, Record
from podwright.data.lines import reader, split, tokenized
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError, counted, expanded
from podwright.recipe.contrastive import Pairs
from podwright.recipe.kinds import TorchRecipe
from podwright.recipe.multimodal import MultimodalData, MultimodalRecipe
from podwright.rundir import RunDir, part_of
from podwright.train import data_record, hub
from podwright.train.data_record import Written
from podwright.train.multimodal.data import features
from podwright.train.multimodal.data.batches import LineBatches
from podwright.train.multimodal.data.features import Sight
from podwright.train.multimodal.processes.world import World

LineFault = tuple[int, str]
"""number of a line, and what is wrong with its files"""
_WRITERS = {"multimodal": synthetic_images.write, "contrastive": synthetic_pairs.write}  # of lines that are drawn


@dataclasses.dataclass(frozen=True)
class MultimodalInputs:
    training: LineBatches
    held_out: LineBatches
    tokenizer: Tokenizer
    directory: Path | None
    """of the language model's weights"""
    rows: Record
    """what the next attempt compares its lines with"""
    notices: list[str]


class RunLines(NamedTuple):
    """The lines of a run, and what its earlier attempts have written down of them."""

    source: Path
    parts: list[list[Any]]
    """to train on, and held out"""
    read: dict[str, int]
    before: Written


def lines_of(run: RunDir, recipe: TorchRecipe, reader: LineReader[Any], world: World) -> RunLines:
    source = world.on_each_disk(lambda: source_of(recipe, run.path / "data"))
    before = world.from_first(lambda: data_record.written(run))
    *parts, read = split(source, recipe.data, reader, before.read)
    same_everywhere(source, recipe.data.source, world)
    return RunLines(source, parts, read, before)


def load(run: RunDir, recipe: MultimodalRecipe, world: World) -> MultimodalInputs:
    source, examples, read, before = lines_of(run, recipe, reader(recipe.data), world)
    directory = world.on_each_disk(lambda: hub.weights(recipe.model.source))
    tokenizer = tokenizer_of(run, recipe, directory, examples[0], world)
    sight = features.sight(recipe)
    both = [*examples[0], *examples[1]]
    lines, faults = seen(both, source, tokenizer, sight, recipe, world, run.path.parent / features.FEATURES)
    require_decoded(faults, source, recipe.data)
    parts = lines[: len(examples[0])], lines[len(examples[0]) :]
    digests = [rows_of(part.examples) for part in parts]
    rows, notices = data_record.check(run, recipe.data.source, before, read, *digests)
    return MultimodalInputs(parts[0], parts[1], tokenizer, directory, rows, notices)


def rows_of(examples: list[AnnotatedExample]) -> data_record.DataRows:
    contents = ([e.instruction, e.answer, features.marks(e.paths)] for e in examples)
    return data_record.rows(json.dumps(content, sort_keys=True) for content in contents)


def require_decoded(faults: list[LineFault], source: Path, data: MultimodalData | Pairs) -> None:
    """UserError where files of lines cannot be decoded, which `podwright data check` calls faults."""
    if faults:
        number, message = faults[0]
        what = f"{source} has {counted(len(faults), 'line')} with files that cannot be used, such as line {number}: {message}"
        raise UserError(
            what, f"type podwright data check {shlex.quote(str(source))} --fix{data.check_options}", "undecodable-files"
        )


def faults_of(lines: Sequence[Any], faults: dict[int, str]) -> list[LineFault]:
    return [(lines[i].line, message) for i, message in sorted(faults.items())]


def same_everywhere(source: Path, typed: str, world: World) -> None:
    """UserError where machines that share no disk have other lines."""
    marks = world.gathered([zlib.crc32(path.read_bytes()) for path in line_files.files(typed, source)])
    odd = [str(rank) for rank, mark in enumerate(marks) if mark != marks[0]]
    if odd:
        raise UserError(
            f"{source} has other lines in process {', '.join(odd)} than in the first",
            "copy it to every machine anew",
            "data-differs",
        )


def source_of(recipe: TorchRecipe, folder: Path) -> Path:
    """The file or directory of the lines; what has to be drawn is drawn in `folder`."""
    if recipe.data.source != "drawn":
        return expanded(recipe.data.source)
    _WRITERS[recipe.kind](folder, recipe.data.num_train, recipe.data.num_test, recipe.seed)
    return folder


def seen(
    examples: list[AnnotatedExample],
    source: Path,
    tokenizer: Tokenizer,
    by: Sight,
    recipe: MultimodalRecipe,
    world: World,
    folder: Path,
) -> tuple[LineBatches, list[LineFault]]:
    """The lines whose files can be decoded, and what is wrong with the others; features are kept in `folder`."""
    prompts, responses = tokenized(examples, tokenizer, recipe.data)
    values, present, faults = features.of_files(examples, by, recipe, world, folder)
    keep = [i for i in range(len(examples)) if i not in faults]
    if not keep:
        require_decoded(faults_of(examples, faults), source, recipe.data)
    lines = LineBatches(examples, prompts, responses, values, present).take(keep)
    return lines, faults_of(examples, faults)


def tokenizer_of(
    run: RunDir, recipe: MultimodalRecipe, directory: Path | None, training: list[AnnotatedExample], world: World
) -> Tokenizer:
    """The model's own; of random weights one that is learned from the training lines, once for the run."""

    def make() -> None:
        if not run.tokenizer.exists():
            with part_of(run.tokenizer) as part:
                (Tokenizer.load(directory) if directory else learned(training, recipe)).save(part)

    world.on_each_disk(make)
    return Tokenizer.load(run.tokenizer)
