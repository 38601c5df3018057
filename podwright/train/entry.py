"""The trainer of a kind of recipe, as the compute half starts and asks it; each kind's own is in its folder's entry.py.

Imports neither JAX nor PyTorch: where one of them trains, the other may be absent.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO, TypeVar

from pydantic import BaseModel

from podwright.errors import UserError
from podwright.recipe import kinds, load
from podwright.rundir import Record, RunDir, recipe_of
from podwright.storage import inputs
from podwright.train.emit import Emitter, TrainingOutcome
from podwright.train.run_storage import AttemptStart

if TYPE_CHECKING:
    from jax import Device

    from podwright.train.program import Program

R = TypeVar("R", bound=BaseModel)


class Stopping(Protocol):
    """Whether somebody asked the trainer to finish its step, save and leave."""

    def __call__(self) -> bool: ...

    def hurried(self) -> bool:
        """Whether there is no time to finish the step: the machines are taken in seconds."""
        ...

    def listen(self) -> None:
        """Take the signals again, after a library took them."""
        ...


class TrainerEntry:
    """What a kind of recipe does in the compute half; what it does not answer is refused in one line."""

    kind = ""

    def num_processes(self, environment: MutableMapping[str, str]) -> int:
        """That this machine is to start for an attempt, where nobody has started several yet; may add what they need to `environment`."""
        return 1

    def train(self, run: RunDir, start: AttemptStart, stopping: Stopping) -> TrainingOutcome:
        raise NotImplementedError

    def evaluate(self, path: Path, source: str, limit: int, overrides: Sequence[str]) -> Record:
        """`path`: a run or an export; `source`: other data; `limit`: at most so many examples, 0 for all."""
        raise self.unanswered(path, "eval")

    def export(self, path: Path, out: Path, onnx: bool) -> Record:
        raise self.unanswered(path, "export")

    def predict(self, path: Path, files: dict[str, Path], text: str, out: Path | None) -> Record:
        """`files`: by what they are, image, audio or video."""
        raise self.unanswered(path, "predict")

    def programs(self, recipe: Any, dims: Record, devices: list[Device]) -> dict[str, Program]:
        """By name, those that a plan compiles for `devices`; `dims`: of the model, by field."""
        raise NotImplementedError

    def check(self, recipe: Any, without: Sequence[str]) -> list[Record]:
        """Findings of a plan, {check, level, code, message, fix} each, by what will load the data and the tokenizer of a recipe.

        `without`: sections that are left out, since their source cannot be had.
        """
        return []

    def unanswered(self, path: Path, verb: str) -> UserError:
        answering = {"eval": "grpo or multimodal", "export": "grpo or multimodal", "predict": "multimodal"}[verb]
        return UserError(
            f"{path} is a run of kind {self.kind}", f"`podwright {verb}` takes runs of kind {answering}", "wrong-kind"
        )


@contextlib.contextmanager
def naming(recipe: Path) -> Iterator[None]:
    """UserErrors about what a kept recipe holds name its file: nobody has typed it."""
    try:
        yield
    except UserError as e:
        if str(recipe) in e.what:
            raise
        what = f"{recipe} is damaged or of another version: {e.what}"
        raise UserError(what, "restore it from a copy, or use the version that wrote it", "damaged-recipe") from e


def of(kind: object) -> TrainerEntry:
    """The trainer of a kind; UserError for an unknown kind, and for one whose trainer is not ours."""
    row = kinds.find(kind)
    if not row.trainer:
        raise UserError(f"kind {row.name} has a trainer of its own", "use what that trainer brings", "wrong-kind")
    entry: TrainerEntry = kinds.resolve(row.trainer)
    return entry


@contextlib.contextmanager
def in_jax(run: RunDir, schema: type[R], start: AttemptStart, stopping: Stopping) -> Iterator[tuple[R, Emitter]]:
    """Joins the other processes of the attempt; yields the recipe and the emitter, with the run locked by the first process."""
    from podwright.train.mesh import require_gpus, require_own_number, start_processes, together

    start_processes()
    stopping.listen()  # jax.distributed takes SIGTERM for itself
    import jax

    from podwright.train import compile_cache

    require_gpus()
    require_own_number()
    uncached = compile_cache.use()
    programs = compile_cache.ProgramCount()  # without those by which processes agreed on the cache

    first = jax.process_index() == 0
    with contextlib.ExitStack() as held:
        with together():
            recipe = load.require(load.parse(inputs.localized(run, recipe_of(run))), schema)
            if first:
                held.enter_context(locked(run))
        from podwright.train.checkpoint import attach

        emit = Emitter(run, start.number, first, attach(run, start), programs.take)
        start.trained = lambda: emit.trained
        if uncached:
            emit.notice(uncached)
        yield recipe, emit


def locked(run: RunDir) -> TextIO:
    """One trainer at a time; the kernel lets go when the process ends, however it does."""
    lock = run.lock.open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
        raise UserError(
            f"another trainer is at work in {run.path}", f"type: podwright watch {run.typed}", "run-is-training"
        ) from e
    return lock
