"""What a run starts from: its lines with their features, its tokenizer, its weights. Every fault of the user's input shows up here."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from podwright.data import annotated, drawn
from podwright.data.annotated import Example, Record
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.recipe import ethogram, llm, pairs
from podwright.recipe.alignment import Pairs
from podwright.recipe.multimodal import Data, MultimodalRecipe
from podwright.rundir import RunDir, write_json
from podwright.train.multimodal import batches, features
from podwright.train.multimodal.batches import Lines
from podwright.train.multimodal.features import Sight
from podwright.train.multimodal.world import World

T = TypeVar("T")
SKIPPED = "skipped.json"
FEATURES = ".features"
"""beside the runs"""
Reader = Callable[[Path], tuple[list[T], list[Record]]]
"""of the good lines and the faults of a file"""


@dataclasses.dataclass(frozen=True)
class Inputs:
    training: Lines
    held_out: Lines
    tokenizer: Tokenizer
    directory: Path | None
    """of the language model's weights"""
    skipped: list[Record]
    """lines whose files cannot be decoded"""


def load(run: RunDir, recipe: MultimodalRecipe, world: World) -> Inputs:
    source = world.on_each_disk(lambda: source_of(recipe, run.path / "data"))
    training, held_out = split(source, recipe.data, annotated.read)
    same_everywhere(source, world)
    directory = world.on_each_disk(lambda: weights(recipe.model.source))
    tokenizer = tokenizer_of(run, recipe, directory, training, world)
    found, skipped = features.sight(recipe), []
    parts = []
    for examples in (training, held_out):
        lines, wrong = seen(examples, source, tokenizer, found, recipe, world, run.path.parent / FEATURES)
        skipped += wrong
        parts.append(lines)
    if world.rank == 0:
        write_json(run.path / SKIPPED, skipped)
    return Inputs(parts[0], parts[1], tokenizer, directory, skipped)


def same_everywhere(source: Path, world: World) -> None:
    """UserError where machines that share no disk have other lines."""
    files = sorted(source.glob("*.jsonl")) if source.is_dir() else [source]
    marks = world.gathered([zlib.crc32(path.read_bytes()) for path in files])
    if odd := [str(rank) for rank, mark in enumerate(marks) if mark != marks[0]]:
        raise UserError(f"{source} has other lines in process {', '.join(odd)} than in the first", "copy it to every machine anew")


def source_of(recipe: MultimodalRecipe, made: Path) -> Path:
    """The file or directory of the lines; what has to be drawn is drawn in `made`."""
    if recipe.data.source != "drawn":
        return Path(recipe.data.source).expanduser()
    drawn.write(made, recipe.data.num_train, recipe.data.num_test, recipe.seed)
    return made


def seen(
    examples: list[Example], source: Path, tokenizer: Tokenizer, by: Sight, recipe: MultimodalRecipe, world: World, folder: Path
) -> tuple[Lines, list[Record]]:
    """The lines whose files can be decoded, and what is wrong with the others; features are kept in `folder`."""
    prompts, responses = batches.tokenized(examples, tokenizer, recipe.data)
    values, present, faults = features.of_files(examples, by, recipe, world, folder)
    keep = [i for i in range(len(examples)) if i not in faults]
    if not keep:
        raise UserError(f"no line of {source} has a file that can be decoded", f"type podwright data check {source}")
    lines = Lines([examples[i] for i in keep], [prompts[i] for i in keep], [responses[i] for i in keep], values[keep], present[keep])
    return lines, [{"line": examples[i].line, "field": None, "message": message} for i, message in sorted(faults.items())]


def split(source: Path, data: Data | Pairs, read: Reader[T]) -> tuple[list[T], list[T]]:
    """(training, held out): of a directory its train.jsonl and val.jsonl; without that, the last lines are held out."""
    if not source.exists():
        raise UserError(f"data.source={source} is not there", "check the path, or type data.source=drawn")
    training = whole(source / "train.jsonl" if source.is_dir() else source, read)
    held_out = whole(source / "val.jsonl", read) if source.is_dir() and (source / "val.jsonl").exists() else []
    if not held_out:
        count = pairs.num_held_out(len(training), data.num_test)
        if len(training) < 2 or count >= len(training):
            raise UserError(
                f"data.source={source} has {len(training)} lines, which leave none to train on", "give more, or a smaller data.num_test"
            )
        training, held_out = training[:-count], training[-count:]
    return training[: data.num_train or None], held_out[: data.num_test or None]


def weights(source: str) -> Path | None:
    """The directory of the language model; None for random weights."""
    if source == "random":
        return None
    directory = Path(source).expanduser()
    if directory.is_dir():
        return directory
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.txt"]))
    except Exception as e:
        said = f"model.source={source} is no directory, and the hub does not give it ({type(e).__name__})"
        raise UserError(said, "give a Hugging Face directory, or log in with `hf auth login`") from e


def tokenizer_of(run: RunDir, recipe: MultimodalRecipe, directory: Path | None, training: list[Example], world: World) -> Tokenizer:
    """The model's own; of random weights one that is learned from the training lines, once for the run."""

    def make() -> None:
        if (run.tokenizer / "tokenizer.json").exists():
            return
        if directory is not None:
            Tokenizer.load(directory).save(run.tokenizer)
            return
        texts = ["".join(text for _, text in ethogram.pieces(e.answer)) for e in training]
        size = min(llm.find(recipe.model.name).vocab_size, 4096)
        Tokenizer.train([recipe.data.system_prompt, *(e.instruction for e in training), *texts], size).save(run.tokenizer)

    world.on_each_disk(make)
    return Tokenizer.load(run.tokenizer)


def whole(path: Path, read: Reader[T]) -> list[T]:
    """Every line; UserError when one is bad."""
    if not path.is_file():
        raise UserError(f"there is no {path}", "a directory of data holds train.jsonl and perhaps val.jsonl")
    good, faults = read(path)
    if faults:
        lines = len({f["line"] for f in faults})
        raise UserError(
            f"{path} has {lines} bad line{'s' if lines > 1 else ''}, such as {faults[0]['message']}",
            f"type podwright data check {path} --fix",
        )
    return good
