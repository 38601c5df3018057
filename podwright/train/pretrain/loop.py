"""A pretraining run from first to last: weights, test, steps, test. Every decision here is replayed by a resume."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from podwright.attention_kernels import Layout, heads_of
from podwright.data.tokens import Row
from podwright.recipe import dimensions
from podwright.recipe.pretrain import PretrainRecipe
from podwright.rundir import Ending, RunDir
from podwright.train import attention_check, checkpoint, data_record, not_finite, observe, profile, speed
from podwright.train.data_record import Written
from podwright.train.emit import Emitter, TrainingOutcome, evaluated
from podwright.train.mesh import agreed, cache_folder, combined, from_first, make_mesh, require_divides, together
from podwright.train.pretrain import feed, program
from podwright.train.pretrain.program import PretrainSetup, PretrainState
from podwright.train.program import Program
from podwright.train.watchdog import Watchdog

STAGE = "pretrain"
LAYOUTS = (Layout.PACKED,)  # of the attention in its programs
DATA_WAIT = "copy data.source to a local disk of each host, or give each process more cores"


@dataclasses.dataclass(frozen=True)
class PretrainRun:
    """Everything a run needs that does not change while it runs."""

    run: RunDir
    recipe: PretrainRecipe
    emit: Emitter
    setup: PretrainSetup
    programs: dict[str, Program]
    feed: feed.Feed
    stopping: Callable[[], bool]


def prepare(run: RunDir, recipe: PretrainRecipe, emit: Emitter, stopping: Callable[[], bool]) -> PretrainRun:
    """Reads the data and builds the programs; every fault of the user's input shows up here."""
    emit.event("phase", phase="loading")
    before = Written(**from_first(lambda: data_record.written(run)._asdict()))
    with together():
        dims = dimensions.find(recipe.model.name, recipe.model.gate, recipe.model.kda)
        mesh = make_mesh(recipe.mesh)
        require_divides(mesh, {"batch_size": recipe.batch_size // recipe.training.gradient_accumulation_steps})
        setup = PretrainSetup(recipe, dims, mesh)
        built = program.programs(setup)
        fed = feed.open_(run, recipe, dims.vocab_size, mesh, before)
    heads = heads_of(dims, recipe.model.compute_dtype)
    emit.notice(*fed.notices, *attention_check.refused(mesh, heads, LAYOUTS, cache_folder()))
    emit.event(
        "environment",
        **speed.environment(),
        num_params=dims.num_params(),
        num_active_params=dims.num_active_params(),
        data=fed.about,
        rows=fed.rows,
    )
    return PretrainRun(run, recipe, emit, setup, built, fed, stopping)


def train(run: RunDir, recipe: PretrainRecipe, emit: Emitter, stopping: Callable[[], bool]) -> TrainingOutcome:
    """Runs the recipe to its end, or to where `stopping()` turns true; resumes from the newest checkpoint if there is one."""
    with observe.observed(emit) as watchdog:
        job = prepare(run, recipe, emit, agreed(stopping))
        with checkpoint.Checkpoints(emit.storage, checkpoint.KEPT) as checkpoints:
            return _train(job, checkpoints, watchdog)


def _train(job: PretrainRun, checkpoints: checkpoint.Checkpoints, watchdog: Watchdog) -> TrainingOutcome:
    recipe, emit = job.recipe, job.emit
    state, number = _begin(job, checkpoints)
    tested = evaluated(job.run)
    if number == 0 and ("before", 0) not in tested:
        evaluate(job, state, "before", 0)
    emit.event("phase", phase=STAGE)
    batches = job.feed.batches(number)
    traced = profile.of(job.run)
    times = observe.step_times(DATA_WAIT)
    with watchdog.pacing(number):
        while number < recipe.training.max_steps:
            every = recipe.evaluation.every_n_steps
            if number and every and number % every == 0 and ("during", number) not in tested:
                with watchdog.resting():
                    evaluate(job, state, "during", number)
                emit.event("phase", phase=STAGE)
            if job.stopping():
                with watchdog.resting():
                    return _stop(job, checkpoints, state, number)
            begin = time.perf_counter()
            batch = next(batches, None)
            if batch is None:
                with watchdog.resting():
                    return _out_of_data(job, checkpoints, state, number)
            with traced.step(number + 1) as marks:
                state, figures = step(job, state, batch, number)
            number += 1
            figures |= marks | {"data_wait_s": batches.waited_s, "step_s": time.perf_counter() - begin}
            own_s = figures.pop("own_s") + batches.waited_s
            emit.notice(*times.stepped(own_s, figures["step_s"], batches.waited_s))
            emit.metrics(STAGE, number, figures)
            watchdog.stepped(number)
            if not (math.isfinite(figures["loss"]) and math.isfinite(figures["grad_norm"])):
                return not_finite.outcome(job.run, recipe, number, checkpoints.latest() or 0, figures)
            if number % recipe.checkpoint.every_n_steps == 0 or number == recipe.training.max_steps:
                with watchdog.resting():
                    _save(job, checkpoints, state, number)
    if ("after", number) not in tested and not evaluate(job, state, "after", number):
        return _stop(job, checkpoints, state, number)
    return TrainingOutcome(Ending.FINISHED, number)


def _begin(job: PretrainRun, checkpoints: checkpoint.Checkpoints) -> tuple[PretrainState, int]:
    if checkpoints.latest() is None:
        job.emit.begins_again(STAGE)
        return program.new_state(job.setup), 0
    restored = checkpoints.restore(program.abstract_state(job.setup))
    job.emit.notice(*restored.notices)
    job.emit.event("resumed", step=restored.step, stage=STAGE)
    return restored.state, restored.step


def step(job: PretrainRun, state: PretrainState, rows: Row, number: int) -> tuple[PretrainState, dict[str, Any]]:
    """One optimizer step, waited for: what is measured is the step and not its dispatch. `number`: steps before it.

    Of the figures `own_s` (seconds before this process met others) is its own.
    """
    begin = time.perf_counter()
    batch = job.feed.on_devices(rows)
    own_s = time.perf_counter() - begin
    rate = np.float32(program.schedule(job.recipe)(number))
    state, measured = job.programs["update"](state, batch, rate)
    figures: dict[str, Any] = {name: float(x) for name, x in measured.items()} | {"own_s": own_s}
    seconds = time.perf_counter() - begin
    recipe, devices = job.recipe, job.setup.mesh.size
    tokens = recipe.batch_size * recipe.sequence_length
    if "dead_experts" in figures:
        figures["dead_experts"] = int(figures["dead_experts"])
    figures["learning_rate"] = float(rate)
    figures["tokens_per_s_per_device"] = tokens / seconds / devices
    figures["tokens"] = (number + 1) * tokens
    # a token of a packed row sees the tokens of its own document so far; 3 x a forward pass, recomputation not counted
    context = float(rows["positions"].mean()) + 1
    return state, figures | speed.rates(3 * job.setup.dims.forward_flops(tokens, context), seconds)


def evaluate(job: PretrainRun, state: PretrainState, when: str, number: int) -> bool:
    """Mean loss on held-out documents, in nats a token, and what it is without context; nothing where none are held out. False when
    stopped on the way."""
    begin = time.perf_counter()
    total = 0.0
    count = 0
    of_ids = np.zeros(job.setup.dims.vocab_size, np.int32)
    job.emit.event("phase", phase=f"evaluation {when}")
    for rows in job.feed.held_out():
        if job.stopping():
            return False
        batch_loss, counted = job.programs["evaluate"](state.params, state.bias_LX, job.feed.on_devices(rows))
        total, count = total + float(batch_loss), count + int(counted)
        of_ids += np.bincount(rows["targets"][rows["loss_mask"]], minlength=len(of_ids)).astype(np.int32)
    if count:
        figures = {"loss": total / count, "unigram_entropy": feed.unigram_entropy(combined(of_ids))}
        job.emit.event("evaluation", when=when, step=number, num=count, **figures, seconds=time.perf_counter() - begin)
    return True


def _save(job: PretrainRun, checkpoints: checkpoint.Checkpoints, state: PretrainState, number: int) -> None:
    job.emit.event("checkpoint", step=number)
    checkpoints.save(number, state, {"step": number})


def _stop(job: PretrainRun, checkpoints: checkpoint.Checkpoints, state: PretrainState, number: int) -> TrainingOutcome:
    job.emit.event("phase", phase="saving")
    if number:
        _save(job, checkpoints, state, number)
    return TrainingOutcome(Ending.STOPPED, number, f"stopped after step {number}")


def _out_of_data(
    job: PretrainRun, checkpoints: checkpoint.Checkpoints, state: PretrainState, number: int
) -> TrainingOutcome:
    recipe = job.recipe
    if number:
        _save(job, checkpoints, state, number)
    wrong = f"data.source={recipe.data.source} is used up after {number} of {recipe.training.max_steps} steps; the last one is kept"
    fix = f"give more data and type: podwright resume {job.run.typed}"
    return TrainingOutcome(
        Ending.OUT_OF_DATA, number, wrong, fix + ", or run it with data.num_epochs=0, training.max_steps=" + str(number)
    )
