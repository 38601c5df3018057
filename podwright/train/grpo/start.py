"""Where a run starts: dimensions, tokenizer, first weights, and the frozen reference.

The weights at step 0 are written to start/ when no other place holds them, so that a resumed run keeps the same reference.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from podwright.data.layouts import Example
from podwright.data.tokenizer import Tokenizer
from podwright.errors import expanded
from podwright.models import convert, param, qwen3
from podwright.recipe import models
from podwright.recipe.models import Qwen3Dims
from podwright.recipe.schema import GrpoRecipe
from podwright.rundir import Record, RunDir, part_of, read_events
from podwright.train import checkpoint, data_record, hub
from podwright.train.emit import Emitter
from podwright.train.grpo import program, prompts, warm_start
from podwright.train.grpo.program import GrpoSetup
from podwright.train.mesh import from_first, together
from podwright.train.program import Program
from podwright.train.run_storage import RunStorage
from podwright.train.watchdog import Watchdog

Tree = Any


@dataclasses.dataclass(frozen=True)
class Source:
    """The directory of the recipe's weights (None: random ones), and the commit it is from if it is the hub's."""

    path: Path | None
    revision: str | None = None


def begun_with(run: RunDir) -> Record:
    """What the first attempt that got so far wrote about its surroundings; {} before that."""
    return next(iter(read_events(run.events, "environment")), {})


def date_of(begun: Record) -> datetime.date:
    """The day on which the run `begun_with` that has rendered its prompts, which a template may name; today before that."""
    return datetime.date.fromtimestamp(begun.get("time", time.time()))


def rows_of(examples: list[Example]) -> data_record.DataRows:
    return data_record.rows(json.dumps([*filter(None, [e.system]), e.question, e.solution]) for e in examples)


def find_source(recipe: GrpoRecipe, revision: str | None = None) -> Source:
    """Downloads a hub id, at the commit `revision` if one is given. To be asked once a process: the hub may move on meanwhile."""
    path = hub.weights(recipe.model.source, revision)
    if path is None or path == expanded(recipe.model.source):
        return Source(path)
    return Source(path, path.name)  # the cache names a snapshot by its commit


def dimensions(recipe: GrpoRecipe, source: Source) -> Qwen3Dims:
    if source.path is None:
        return models.find(recipe.model.name)
    dims = convert.read_config(source.path)
    models.check_name(recipe.model.name, recipe.model.source, dims)
    return dims


def tokenizer(run: RunDir, source: Source, dims: Qwen3Dims, train: list[Example]) -> Tokenizer:
    """The checkpoint's own tokenizer; for random weights one trained on the training questions, which the first process keeps and sends:
    its directory may be on another host's disk, and a resume may find more questions.
    """
    if source.path is not None:
        with together():
            return prompts.load_tokenizer(source.path, dims.vocab_size)

    def kept() -> dict[str, str]:
        if not run.tokenizer.exists():
            with part_of(run.tokenizer) as part:
                prompts.learned_tokenizer(train, dims.vocab_size).save(part)
        return prompts.load_tokenizer(run.tokenizer, dims.vocab_size).texts

    return Tokenizer.of_files({name: text.encode() for name, text in from_first(kept).items()}, str(run.tokenizer))


def weights(
    source: Source,
    setup: GrpoSetup,
    programs: dict[str, Program],
    examples: list[Example],
    tokenizer: Tokenizer,
    emit: Emitter,
    stopping: Callable[[], bool],
    watchdog: Watchdog,
) -> Tree | None:
    """The policy at step 0, after the warm start if the recipe has one; None when stopped on the way there."""
    if from_first(lambda: emit.storage.exists("start")):
        return reference(emit.storage, source, setup)
    path = source.path
    declared = qwen3.declare(setup.dims)
    params = (
        param.initialize(declared, setup.mesh, setup.recipe.seed)
        if path is None
        else convert.read(path, setup.dims, setup.mesh)
    )
    if setup.recipe.warm_start:
        with watchdog.pacing(0):
            params = warm_start.train(
                setup, programs["warm_start"], params, examples, tokenizer, emit, stopping, watchdog.stepped
            )
        if params is None:
            return None
    if path is None or setup.recipe.warm_start:
        checkpoint.save_weights(emit.storage, params)
    return params


def reference(storage: RunStorage, source: Source, setup: GrpoSetup) -> Tree:
    """The weights at step 0 once more, as arrays of their own: training the policy cannot move them."""
    if source.path is None or setup.recipe.warm_start:
        return checkpoint.load_weights(storage, param.abstract(qwen3.declare(setup.dims), setup.mesh))
    return convert.read(source.path, setup.dims, setup.mesh)


def moved(weights: Tree, kind: str) -> Tree:
    """The arrays in a memory of that kind, sharded as they are, without a copy where they are there."""
    return jax.device_put(weights, jax.tree.map(lambda x: x.sharding.with_memory_kind(kind), weights))


def base(storage: RunStorage, source: Source, setup: GrpoSetup) -> Tree | None:
    """The frozen weights of a run that goes on: those at step 0. None where all parameters are trained."""
    return program.freeze(setup, reference(storage, source, setup)) if setup.recipe.model.lora_rank else None
