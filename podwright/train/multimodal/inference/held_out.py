"""What is asked of a trained model afterwards: held-out lines, its own or others', graded with intervals."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from podwright.data import line_files
from podwright.data.annotated import AnnotatedExample
from podwright.data.lines import reader, split
from podwright.data.media import Unreadable
from podwright.errors import expanded, warn
from podwright.recipe import load
from podwright.recipe.multimodal import MultimodalData
from podwright.rundir import RunDir
from podwright.train import confidence, data_record
from podwright.train.multimodal.data import features, inputs
from podwright.train.multimodal.inference import evaluate, trained
from podwright.train.multimodal.inference.decode import Grammar
from podwright.train.multimodal.processes.world import World

_READ = (
    "data",
    "model",
    "encoders",
    "aligner",
    "projector",
    "seed",
    "evaluation.batch_size",
    "evaluation.max_new_tokens",
)
_ABOUT = {"json_valid", "accuracy", "fields"}


def examine(path: Path, source: str, limit: int, overrides: Sequence[str]) -> dict[str, Any]:
    """A run or an export on the lines of `source`: "" for those that the run kept from training.

    Of a share {correct, accuracy, low, high}, with 95 % bounds. The fields of a line hang together, so that bounds of their
    mean take a line for one trial.
    """
    opened = trained.open_(path, [*overrides, *([f"data.source={source}"] if source else [])])
    for sentence in load.unused(overrides, _READ, f"eval of {path}"):
        warn(sentence)
    world = World(device=torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    opened.model.to(world.device)
    recipe, tokenizer = opened.recipe, opened.tokenizer
    with tempfile.TemporaryDirectory() as scratch:  # an export stays as it is
        kept = Path(scratch) if opened.exported else path
        lines_at = inputs.source_of(recipe, kept / "data")
        training, selected = _selected(lines_at, opened.source, recipe.data, opened.run)
        sight = features.sight(recipe)
        folder = (kept if opened.exported else path.parent) / features.FEATURES
        lines, skipped = inputs.seen(selected[: limit or None], lines_at, tokenizer, sight, recipe, world, folder)
    print(f"{len(lines)} lines, {recipe.evaluation.batch_size} at a time", file=sys.stderr)
    loss = evaluate.loss(opened.model, lines, recipe, world, tokenizer.pad_id)
    grammar = Grammar(tokenizer, recipe.data.schema_of_answers, recipe.evaluation.max_new_tokens)
    figures, samples = evaluate.grade(opened.model, lines, training, grammar, recipe, world)
    num = len(lines)
    right = figures["accuracy"]
    low, high = confidence.wilson(right * num, num)
    return {
        "checkpoint": str(path),
        "data": recipe.data.source,
        "num": num,
        "left_out": len(skipped),
        "loss": loss,
        "json_valid": _share(figures["json_valid"], num),
        "accuracy": {"accuracy": right, "low": low, "high": high},
        "fields": {name: _share(share, num) for name, share in figures["fields"].items()},
        **{name: value for name, value in figures.items() if name not in _ABOUT},
        "samples": samples,
    }


def _share(share: float, num: int) -> dict[str, Any]:
    return confidence.counted(round(share * num), num)


def _selected(
    place: Path, own: str, data: MultimodalData, run: RunDir
) -> tuple[list[AnnotatedExample], list[AnnotatedExample]]:
    """Training lines, where they are the model's own, and those to ask: of a foreign file all."""
    if data.source == own or expanded(data.source).resolve() == expanded(own).resolve():
        training, held_out, _ = split(place, data, reader(data), data_record.written(run).read)
        with contextlib.suppress(Unreadable):  # lines whose files are gone are left out
            data_record.require_held_out(run, data.source, inputs.rows_of(held_out))
        return training, held_out
    named = place / "val.jsonl"
    path = named if named.is_file() else line_files.files(data.source, place)[-1]
    return [], line_files.require_good(line_files.read(path, reader(data)), data.check_options).good
