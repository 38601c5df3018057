"""The two kinds of PyTorch in the compute half: multimodal training and the contrastive training of its aligner."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel

from podwright.errors import UserError
from podwright.recipe import load
from podwright.recipe.contrastive import ContrastiveRecipe
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.rundir import Record, RunDir, recipe_of
from podwright.train.emit import Emitter, TrainingOutcome
from podwright.train.entry import Stopping, TrainerEntry, locked
from podwright.train.run_storage import AttemptStart

if TYPE_CHECKING:
    from podwright.train.multimodal.processes.world import World

R = TypeVar("R", bound=BaseModel)


_ALLOCATOR = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}  # the second until torch 2.8, and read by later ones too


def _grow_segments(environment: MutableMapping[str, str]) -> None:
    """CUDA's allocator is to grow what it has where a batch has another shape, unless the user configures it; PyTorch reads this once."""
    if not _ALLOCATOR & environment.keys():
        environment["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"


def _processes(environment: MutableMapping[str, str]) -> int:
    _grow_segments(environment)
    from podwright.train.multimodal.processes import launch

    return launch.wanted(environment)


@contextlib.contextmanager
def _in_torch(run: RunDir, schema: type[R], start: AttemptStart) -> Iterator[tuple[R, Emitter, World]]:
    """Joins the other processes of the attempt; the run is locked by the first one."""
    _grow_segments(os.environ)
    from podwright.train.multimodal.processes import world

    joined = world.join(os.environ).around(run.path)
    recipe = load.require(load.stored(recipe_of(run)), schema)
    with contextlib.ExitStack() as held:

        def lock() -> None:
            held.enter_context(locked(run))

        joined.from_first(lock)
        emit = Emitter(run, start.number, joined.rank == 0)
        start.trained = lambda: emit.trained
        yield recipe, emit, joined


class MultimodalEntry(TrainerEntry):
    kind = "multimodal"

    def num_processes(self, environment: MutableMapping[str, str]) -> int:
        return _processes(environment)

    def train(self, run: RunDir, start: AttemptStart, stopping: Stopping) -> TrainingOutcome:
        with _in_torch(run, MultimodalRecipe, start) as (recipe, emit, world):
            from podwright.train.multimodal import course, loop

            return course.train(loop.prepare, recipe, emit, stopping, world)

    def check(self, recipe: MultimodalRecipe, without: Sequence[str]) -> list[Record]:
        from podwright.train.multimodal import data_check

        return data_check.of_multimodal(recipe, without)

    def evaluate(self, path: Path, source: str, limit: int, overrides: Sequence[str]) -> Record:
        from podwright.train.multimodal.inference import held_out

        return held_out.examine(path, source, limit, overrides)

    def export(self, path: Path, out: Path, onnx: bool) -> Record:
        from podwright.train.multimodal.inference import export

        return export.export(path, out, onnx)

    def predict(self, path: Path, files: dict[str, Path], text: str, out: Path | None) -> Record:
        from podwright.train.multimodal.inference import predict

        return predict.predict(path, files, text, out)


class ContrastiveEntry(TrainerEntry):
    kind = "contrastive"

    def num_processes(self, environment: MutableMapping[str, str]) -> int:
        return _processes(environment)

    def train(self, run: RunDir, start: AttemptStart, stopping: Stopping) -> TrainingOutcome:
        with _in_torch(run, ContrastiveRecipe, start) as (recipe, emit, world):
            from podwright.train.multimodal import contrastive, course

            return course.train(contrastive.prepare, recipe, emit, stopping, world)

    def check(self, recipe: ContrastiveRecipe, without: Sequence[str]) -> list[Record]:
        from podwright.train.multimodal import data_check

        return data_check.of_contrastive(recipe)

    def unanswered(self, path: Path, verb: str) -> UserError:
        fix = f"train on it: podwright run phase2-tiny aligner.source={RunDir(path).aligner}"
        return UserError(
            f"{path} trained an aligner, which cannot answer without a language model", fix, "no-language-model"
        )


MULTIMODAL, CONTRASTIVE = MultimodalEntry(), ContrastiveEntry()
