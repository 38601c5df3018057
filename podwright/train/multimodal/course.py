"""The course of a run in PyTorch, whatever it trains: tests, steps, checkpoints, a stop, the end. A resume replays its decisions."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from podwright.recipe.kinds import TorchRecipe
from podwright.rundir import Ending, RunDir
from podwright.train import devices, not_finite
from podwright.train.data_wait import DataWait
from podwright.train.emit import Emitter, TrainingOutcome, evaluations
from podwright.train.multimodal import checkpoints
from podwright.train.multimodal.data.batches import Order
from podwright.train.multimodal.processes import machine
from podwright.train.multimodal.processes.world import StopAsked, World
from podwright.train.stragglers import Stragglers
from podwright.train.watchdog import Patience, Watchdog

Figures = dict[str, Any]
PATIENCE = Patience()
DATA_WAIT = (
    "features are in memory by then, so the cores of the host are busy or it swaps: end what else runs there, or give each process more "
    "cores"
)


@dataclasses.dataclass(frozen=True)
class RunContext:
    """Where a run writes, and who takes part in it."""

    run: RunDir
    emit: Emitter
    world: World
    stopping: Callable[[], bool]
    """the same answer in every process"""


class Trainable(Protocol):
    """What is trained, with all that a resume needs in `state`."""

    @property
    def recipe(self) -> TorchRecipe: ...

    @property
    def max_steps(self) -> int: ...

    @property
    def order(self) -> Order: ...

    def step(self, number: int) -> Figures:
        """One optimizer step, waited for, after `number` others.

        `data_wait_s`: seconds without a batch. `own_s`, which is not kept: seconds before it met other processes.
        """

    def test(self) -> tuple[Figures, list[Figures]]:
        """Figures of what is held out, and a few samples. StopAsked where that is asked for on the way."""

    def state(self) -> dict[str, Any]:
        """Every process has to ask for it."""

    def load(self, state: dict[str, Any]) -> None: ...

    def result(self) -> tuple[Path, Any]:
        """What was trained, and the file that is to hold it; every process has to ask for it."""


def place(run: RunDir, emit: Emitter, stopping: Callable[[], bool], world: World) -> RunContext:
    return RunContext(run, emit, world, lambda: world.any(stopping()))


def train(
    prepare: Callable[[World], Trainable], run: RunDir, emit: Emitter, stopping: Callable[[], bool], world: World
) -> TrainingOutcome:
    """What `prepare` makes, to its end or to where somebody asks for a stop."""
    world = dataclasses.replace(world, stopping=stopping)
    try:
        training = prepare(world)
    except StopAsked:
        return TrainingOutcome(Ending.STOPPED, checkpoints.newest_step(emit.storage), "stopped while loading")
    return follow(training, place(run, emit, stopping, world))


def follow(training: Trainable, at: RunContext, patience: Patience = PATIENCE) -> TrainingOutcome:
    """To the end, or to where `at.stopping()` turns true; from the newest checkpoint if there is one."""
    world = at.world
    watchdog = Watchdog(at.run, at.emit, (world.rank, world.size), (world.tell, world.read_key), patience)
    with (
        devices.watched(at.run.devices(at.emit.attempt, at.world.rank), lambda: machine.gauge(at.world), at.emit),
        watchdog.watching(),
    ):
        return _follow(training, at, watchdog)


def _follow(training: Trainable, at: RunContext, watchdog: Watchdog) -> TrainingOutcome:
    recipe, emit = training.recipe, at.emit
    stragglers, waits = Stragglers(at.world.size, at.world.gathered), DataWait(DATA_WAIT)
    with watchdog.resting():
        number = _begin(training, at)
    tested = at.world.from_first(lambda: evaluations(at.run))
    if number == 0 and ("before", 0) not in tested:
        with watchdog.resting():
            _test(training, at, "before", 0)
    emit.event("phase", phase=recipe.kind)
    moved, rate = False, 0.0 if number == 0 else 1.0
    while number < training.max_steps:
        every = recipe.evaluation.every_n_steps
        if number and every and number % every == 0 and ("during", number) not in tested:
            with watchdog.resting():
                _test(training, at, "during", number)
            emit.event("phase", phase=recipe.kind)
        if at.stopping():
            with watchdog.resting():
                return _stop(training, at, number)
        figures = training.step(number)
        number += 1
        slow = stragglers.stepped(figures.pop("own_s"), figures["step_s"])
        emit.notice(*slow, *waits.stepped(figures["data_wait_s"], figures["step_s"]))
        emit.metrics(recipe.kind, number, figures)
        watchdog.stepped(number)
        moved, rate = moved or bool(rate), figures["learning_rate"]
        bad = not math.isfinite(figures["loss"]) or not (math.isfinite(figures["grad_norm"]) or "skipped" in figures)
        if bad:
            good = checkpoints.newest_step(emit.storage)
            return not_finite.outcome(at.run, recipe, number, good, figures, moved)
        saved = recipe.checkpoint.every_n_steps or training.order.steps_per_epoch
        if number % saved == 0 or number == training.max_steps:
            with watchdog.resting():
                _save(training, at, number)
    with watchdog.resting():
        if ("after", number) not in tested and not _test(training, at, "after", number):
            return _stop(training, at, number)
        path, content = training.result()
        if at.world.rank == 0:
            checkpoints.write(path, content)
    return TrainingOutcome(Ending.FINISHED, number)


def _begin(training: Trainable, at: RunContext) -> int:
    newest = at.world.from_first(lambda: checkpoints.latest(at.emit.storage))
    if newest is None:
        at.emit.begins_again(training.recipe.kind)
        return 0
    at.emit.notice(*newest.notices())
    training.load(newest.state)
    number, lines, own = newest.step, newest.state["lines"], training.order.batch_size
    if lines != own:
        message = (
            f"steps were of {lines} lines up to step {number} and are of {own} from there on: the devices are others"
        )
        at.emit.notice(message)
    at.emit.event("resumed", step=number, stage=training.recipe.kind)
    return number


def _test(training: Trainable, at: RunContext, when: str, number: int) -> bool:
    """False when stopped on the way."""
    begin = time.perf_counter()
    at.emit.event("phase", phase=f"evaluation {when}")
    try:
        figures, samples = training.test()
    except StopAsked:
        return False
    if when != "during":
        at.emit.samples([{"when": when, **sample} for sample in samples])
    at.emit.event("evaluation", when=when, step=number, **figures, seconds=time.perf_counter() - begin)
    return True


def _save(training: Trainable, at: RunContext, number: int) -> None:
    state = training.state() | {"lines": training.order.batch_size}
    if at.world.rank == 0:
        checkpoints.save(at.emit.storage, number, state)
    at.emit.event("checkpoint", step=number)
    at.world.barrier()


def _stop(training: Trainable, at: RunContext, number: int) -> TrainingOutcome:
    at.emit.event("phase", phase="saving")
    if number:
        _save(training, at, number)
    return TrainingOutcome(Ending.STOPPED, number, f"stopped after step {number}")
