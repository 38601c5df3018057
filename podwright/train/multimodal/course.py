"""The course of a run in PyTorch, whatever it trains: tests, steps, checkpoints, a stop, the end. A resume replays its decisions."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from podwright.recipe.kinds import TorchRecipe
from podwright.rundir import Ending
from podwright.train import devices, not_finite
from podwright.train.emit import Emitter, TrainingOutcome, evaluations
from podwright.train.multimodal import checkpoints
from podwright.train.multimodal.data.batches import Order
from podwright.train.multimodal.processes import machine
from podwright.train.multimodal.processes.world import StopAsked, World
from podwright.train.run_storage import RunStorage
from podwright.train.saved_states import Newest
from podwright.train.step_times import StepTimes
from podwright.train.watchdog import Patience, Watchdog

Figures = dict[str, Any]
R = TypeVar("R", bound=TorchRecipe)
PATIENCE = Patience()
DATA_WAIT = (
    "features are in memory by then, so the cores of the host are busy or it swaps: end what else runs there, or give each process more "
    "cores"
)


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


def train(
    prepare: Callable[[R, Emitter, World], Trainable],
    recipe: R,
    emit: Emitter,
    stopping: Callable[[], bool],
    world: World,
) -> TrainingOutcome:
    """What `prepare` makes of the recipe, to its end or to where somebody asks for a stop; a resume begins at the newest checkpoint."""
    world = dataclasses.replace(world, stopping=stopping)
    try:
        training = prepare(recipe, emit, world)
    except StopAsked:
        return TrainingOutcome(Ending.STOPPED, checkpoints.newest_step(emit.storage), "stopped while loading")
    return follow(training, emit, world)


def follow(training: Trainable, emit: Emitter, world: World, patience: Patience = PATIENCE) -> TrainingOutcome:
    watchdog = Watchdog(emit, (world.rank, world.size), (world.tell, world.read_key), patience)
    samples = emit.run.devices(emit.attempt, world.rank)
    with devices.watched(samples, lambda: machine.gauge(world), emit), watchdog.watching():
        return _follow(training, emit, world, watchdog)


def _follow(training: Trainable, emit: Emitter, world: World, watchdog: Watchdog) -> TrainingOutcome:
    recipe = training.recipe
    times = StepTimes(world.size, world.gathered, DATA_WAIT)
    with watchdog.resting():
        number = _begin(training, emit, world)
    tested = world.from_first(lambda: evaluations(emit.run))
    if number == 0 and ("before", 0) not in tested:
        with watchdog.resting():
            _test(training, emit, "before", 0)
    emit.event("phase", phase=recipe.kind)
    while number < training.max_steps:
        every = recipe.evaluation.every_n_steps
        if number and every and number % every == 0 and ("during", number) not in tested:
            with watchdog.resting():
                _test(training, emit, "during", number)
            emit.event("phase", phase=recipe.kind)
        if world.any(world.stopping()):
            with watchdog.resting():
                return _stop(training, emit, world, number)
        figures = training.step(number)
        number += 1
        emit.notice(*times.stepped(figures.pop("own_s"), figures["step_s"], figures["data_wait_s"]))
        emit.metrics(recipe.kind, number, figures)
        watchdog.stepped(number)
        if not (math.isfinite(figures["loss"]) and (math.isfinite(figures["grad_norm"]) or "skipped" in figures)):
            return not_finite.outcome(emit.run, recipe, number, checkpoints.newest_step(emit.storage), figures)
        saved = recipe.checkpoint.every_n_steps or training.order.steps_per_epoch
        if number % saved == 0 or number == training.max_steps:
            with watchdog.resting():
                _save(training, emit, world, number)
    with watchdog.resting():
        if ("after", number) not in tested and not _test(training, emit, "after", number):
            return _stop(training, emit, world, number)
        path, content = training.result()
        if world.rank == 0:
            checkpoints.write(path, content)
    return TrainingOutcome(Ending.FINISHED, number)


def _begin(training: Trainable, emit: Emitter, world: World) -> int:
    newest = _newest(emit.storage, world)
    if newest is None:
        emit.begins_again(training.recipe.kind)
        return 0
    emit.notice(*newest.notices)
    training.load(newest.state)
    number, lines, own = newest.step, newest.state["lines"], training.order.batch_size
    if lines != own:
        message = (
            f"steps were of {lines} lines up to step {number} and are of {own} from there on: the devices are others"
        )
        emit.notice(message)
    emit.event("resumed", step=number, stage=training.recipe.kind)
    return number


def _newest(storage: RunStorage, world: World) -> Newest[dict[str, Any]] | None:
    """In every process the state that the first chooses. Those that see the same file read it themselves: what is sent to the others goes
    through the memory of the devices, which may not hold a whole state."""
    own: list[Newest[dict[str, Any]]] = []

    def choose() -> Newest[dict[str, Any]] | None:
        newest = checkpoints.latest(storage)
        if newest is None:
            return None
        own.append(newest)
        return newest._replace(state={})

    chosen = world.from_first(choose)
    if chosen is None:
        return None
    stamps = world.gathered(checkpoints.stamp(storage, chosen.step))
    if stamps.count(stamps[0]) < len(stamps):
        return world.from_first(lambda: own[0])
    return own[0] if own else chosen._replace(state=checkpoints.load(storage, chosen.step))


def _test(training: Trainable, emit: Emitter, when: str, number: int) -> bool:
    """False when stopped on the way."""
    begin = time.perf_counter()
    emit.event("phase", phase=f"evaluation {when}")
    try:
        figures, samples = training.test()
    except StopAsked:
        return False
    if when != "during":
        emit.samples([{"when": when, **sample} for sample in samples])
    emit.event("evaluation", when=when, step=number, **figures, seconds=time.perf_counter() - begin)
    return True


def _save(training: Trainable, emit: Emitter, world: World, number: int) -> None:
    state = training.state() | {"lines": training.order.batch_size}
    if world.rank == 0:
        checkpoints.save(emit.storage, number, state)
    emit.event("checkpoint", step=number)
    world.barrier()


def _stop(training: Trainable, emit: Emitter, world: World, number: int) -> TrainingOutcome:
    emit.event("phase", phase="saving")
    if number:
        _save(training, emit, world, number)
    return TrainingOutcome(Ending.STOPPED, number, f"stopped after step {number}")
