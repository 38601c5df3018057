"""A trained model, opened again: from the model.pt of a run, or from the directory that `podwright export` made of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.recipe import load
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.rundir import Record, RunDir, recipe_of
from podwright.train import entry, hub, saved_states
from podwright.train.multimodal.networks import model
from podwright.train.multimodal.networks.model import Phase2

PROJECTOR, ALIGNER = "projector.safetensors", "aligner.pt"


@dataclasses.dataclass(frozen=True)
class Trained:
    run: RunDir
    """or the directory of an export"""
    recipe: MultimodalRecipe
    model: Phase2
    """on the host, in the state in which it answers"""
    tokenizer: Tokenizer
    name: str
    file: Path
    """that the weights are from"""
    source: str
    """of the lines that it was trained on"""

    @property
    def exported(self) -> bool:
        return self.file.name == PROJECTOR


def open_(path: Path, overrides: Sequence[str] = ()) -> Trained:
    run = RunDir(path)
    if run.weights.is_file() or not (path / PROJECTOR).is_file():
        return _of_run(run, overrides)
    return _of_export(run, overrides)


def _of_run(run: RunDir, overrides: Sequence[str]) -> Trained:
    """By model.pt alone, and the tokenizer beside it."""
    place = run.weights
    if not place.is_file():
        fix = f"type podwright resume {run.typed}"
        if run.is_finished:
            fix = f"bring it back from a copy, or train again: type {run.train_again}"
        raise UserError(f"{run.path} has no {place.name}, which is written at the end", fix, "no-weights")
    try:
        checkpoint = torch.load(place, map_location="cpu", weights_only=True)
        config, state, name = (
            dict(checkpoint["config"]),
            dict(checkpoint["model_state_dict"]),
            str(checkpoint["run_id"]),
        )
    except Exception as e:  # whatever a torn file makes of the reader
        raise _unread(place, e, run.train_again) from e
    recipe = _recipe(config, place)
    resolved = load.require(load.override(recipe, overrides), MultimodalRecipe)
    built = model.build(resolved, hub.weights(resolved.model.source))
    built.load_trained(state)
    return Trained(run, resolved, built.eval(), Tokenizer.load(run.tokenizer), name, place, recipe.data.source)


def _of_export(run: RunDir, overrides: Sequence[str]) -> Trained:
    """Its language model has its adapters merged; encoders are those that the recipe names."""
    path, place = run.path, run.path / PROJECTOR
    config = recipe_of(run)
    try:
        state = load_file(place)
    except (OSError, ValueError, SafetensorError) as e:
        raise _unread(place, e, "podwright export RUN DIR, of the run that it is from") from e
    recipe = _recipe(config, run.recipe)
    here = {
        "model": recipe.model.model_copy(update={"source": str(path), "lora_rank": 0}),
        "aligner": recipe.aligner.model_copy(update={"source": str(path / ALIGNER)}),
    }
    resolved = load.require(load.override(recipe.model_copy(update=here), overrides), MultimodalRecipe)
    built = model.build(resolved, path)
    try:
        built.projector.load_state_dict(state)
    except RuntimeError as e:
        raise UserError(
            f"{place} does not fit the recipe beside it", "export the run again", "weights-do-not-fit"
        ) from e
    return Trained(run, resolved, built.eval(), Tokenizer.load(path), path.resolve().name, place, recipe.data.source)


def _recipe(config: Record, place: Path) -> MultimodalRecipe:
    with entry.naming(place):
        parsed = load.stored(config)
    return load.require(parsed, MultimodalRecipe)


def _unread(place: Path, e: Exception, command: str) -> UserError:
    """`command` writes another one."""
    fix = f"bring it back from a copy, or type {command}"
    return UserError(f"{place} cannot be read ({saved_states.why(e, place)})", fix, "unreadable-weights")
