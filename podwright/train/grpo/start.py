"""Where a run starts: dimensions, tokenizer, first weights, the supervised warm start, and the frozen reference.

The weights at step 0 are written to start/ when no other place holds them, so that a resumed run keeps the same reference.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

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
from podwright.train.grpo import program
from podwright.train.grpo.collect import Clock
from podwright.train.grpo.program import Setup
from podwright.train.grpo.prompts import bucket, pad
from podwright.train.mesh import to_device
from podwright.train.program import Program

Tree = Any


def source(recipe: GrpoRecipe) -> Path | None:
    """The directory of the recipe's weights, downloaded if it is a hub id; None for random weights."""
    if recipe.model.source == "random":
        return None
    path = Path(recipe.model.source)
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
            made.save(run.tokenizer)
        return made
    return Tokenizer.load(path or run.tokenizer)


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
        params = _warm_start(setup, programs["warm_start"], params, examples, tokenizer, emit, stopping)
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


def _warm_start(
    setup: Setup,
    step: Program,
    params: Tree,
    examples: list[Example],
    tokenizer: Tokenizer,
    emit: Emitter,
    stopping: Callable[[], bool],
) -> Tree | None:
    warm = setup.recipe.warm_start
    assert warm
    emit.event("phase", phase="warm_start")
    data = _worked_answers(setup, examples, tokenizer)
    rate = program.warm_schedule(setup.recipe)
    state = program.new_state(setup, params, rate)
    for number in range(1, warm.max_steps + 1):
        if stopping():
            return None
        clock = Clock()
        picked = np.random.default_rng([setup.recipe.seed, number]).integers(0, len(data[0]), warm.batch_size)
        prompts, prompt_lengths, answers, lengths = (to_device(x[picked], setup.mesh) for x in data)
        state, measured = step(state, qwen3.Group(prompts, prompt_lengths, answers[:, None]), lengths[:, None])
        figures = {name: float(x) for name, x in measured.items()}
        clock.mark("step_s", state)
        figures["learning_rate"] = float(rate(number - 1))
        emit.metrics("warm_start", number, figures | clock.seconds | {"tokens_per_s": int(data[3][picked].sum()) / clock.total()})
    return state.params


def _worked_answers(setup: Setup, examples: list[Example], tokenizer: Tokenizer) -> tuple[np.ndarray, ...]:
    """Prompt tokens [N, S], prompt lengths, answer tokens [N, T] ending in the stop token, answer lengths; those that fit."""
    data, limits, warm = setup.recipe.data, setup.recipe.rollout, setup.recipe.warm_start
    assert warm
    asked = [tokenizer.encode(tokenizer.chat(e.question, data.instruction, data.enable_thinking)) for e in examples]
    terse = np.random.default_rng(setup.recipe.seed).random(len(examples)) < warm.terse_share
    solutions = [e.solution.splitlines()[-1] if cut else e.solution for e, cut in zip(examples, terse, strict=True)]
    answered = [[*tokenizer.encode(solution), setup.stop_ids[0]] for solution in solutions]
    fit = [
        (q, a)
        for q, a in zip(asked, answered, strict=True)
        if len(q) <= limits.max_prompt_length and len(a) <= limits.total_generation_steps
    ]
    if not fit:
        raise UserError(
            f"no worked answer fits rollout.total_generation_steps={limits.total_generation_steps}",
            f"type rollout.total_generation_steps={min(map(len, answered))} or more",
        )
    return (
        pad([q for q, _ in fit], limits.max_prompt_length, setup.pad_id),
        np.array([len(q) for q, _ in fit], np.int32),
        pad([a for _, a in fit], bucket(max(len(a) for _, a in fit), limits.total_generation_steps), setup.pad_id),
        np.array([len(a) for _, a in fit], np.int32),
    )
