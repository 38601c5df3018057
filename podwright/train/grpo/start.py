"""Where a run starts: dimensions, tokenizer, first weights, and the frozen reference.

The weights at step 0 are written to start/ when no other place holds them, so that a resumed run keeps the same reference.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from podwright.data.gsm8k import Example
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.models import convert, param, qwen3
from podwright.recipe import models
from podwright.recipe.models import Qwen3Dims
from podwright.recipe.schema import GrpoRecipe
from podwright.rundir import RunDir
from podwright.train import checkpoint
from podwright.train.emit import Emitter
from podwright.train.grpo import warm_start
from podwright.train.grpo.program import Setup
from podwright.train.program import Program

Tree = Any


def source(recipe: GrpoRecipe) -> Path | None:
    """The directory of the recipe's weights, downloaded if it is a hub id; None for random weights."""
    if recipe.model.source == "random":
        return None
    path = Path(recipe.model.source).expanduser()
    if path.is_dir():
        return path
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(huggingface_hub.snapshot_download(recipe.model.source, allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.txt"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as e:
        raise UserError(
            f"model.source={recipe.model.source!r} is no directory and cannot be fetched from the hub ({type(e).__name__})",
            "download it where there is a network and type model.source=DIRECTORY",
        ) from e


def dimensions(recipe: GrpoRecipe) -> Qwen3Dims:
    path = source(recipe)
    known = models.find(recipe.model.name)
    if path is None:
        return known
    found = convert.read_config(path)
    if (found.hidden_size, found.num_layers) != (known.hidden_size, known.num_layers):
        raise UserError(
            f"model.name={recipe.model.name} has {known.num_layers} layers of {known.hidden_size}, "
            f"{path} has {found.num_layers} of {found.hidden_size}",
            "name the model that this checkpoint is",
        )
    return found


def tokenizer(run: RunDir, recipe: GrpoRecipe, dims: Qwen3Dims, train: list[Example]) -> Tokenizer:
    """The checkpoint's own tokenizer; for random weights one trained on the training questions, kept in tokenizer/."""
    path = source(recipe)
    if path is None and not run.tokenizer.exists():
        made = Tokenizer.train([f"{e.question}\n{e.solution}" for e in train], dims.vocab_size)
        if jax.process_index() == 0:
            part = run.tokenizer.with_name("tokenizer.part")
            made.save(part)
            part.rename(run.tokenizer)
        return made
    loaded = Tokenizer.load(path or run.tokenizer)
    if loaded.vocab_size > dims.vocab_size:
        raise UserError(
            f"the tokenizer of {path or run.tokenizer} has {loaded.vocab_size} tokens, the model {dims.vocab_size}",
            "give a checkpoint whose embeddings were resized with its tokenizer",
        )
    return loaded


def weights(
    run: RunDir,
    setup: Setup,
    programs: dict[str, Program],
    examples: list[Example],
    tokenizer: Tokenizer,
    emit: Emitter,
    stopping: Callable[[], bool],
) -> Tree | None:
    """The policy at step 0, after the warm start if the recipe has one; None when stopped on the way there."""
    if run.start.exists():
        return reference(run, setup)
    path = source(setup.recipe)
    declared = qwen3.declare(setup.dims)
    params = param.initialize(declared, setup.mesh, setup.recipe.seed) if path is None else convert.read(path, setup.dims, setup.mesh)
    if setup.recipe.warm_start:
        params = warm_start.train(setup, programs["warm_start"], params, examples, tokenizer, emit, stopping)
        if params is None:
            return None
    if path is None or setup.recipe.warm_start:
        checkpoint.save_weights(run.start, params)
    return params


def reference(run: RunDir, setup: Setup) -> Tree:
    """The weights at step 0 once more, as arrays of their own: training the policy cannot move them."""
    path = source(setup.recipe)
    if run.start.exists() or path is None:
        return checkpoint.load_weights(run.start, param.abstract(qwen3.declare(setup.dims), setup.mesh))
    return convert.read(path, setup.dims, setup.mesh)
