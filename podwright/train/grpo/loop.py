"""A GRPO run from first to last: weights, warm start, test, steps, test. Every decision here is replayed by a resume."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from podwright.attention_kernels import Layout, heads_of
from podwright.data import gsm8k
from podwright.data.layouts import Example
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.models import lora
from podwright.recipe import even_groups, schema
from podwright.recipe.schema import GrpoRecipe
from podwright.rundir import Ending, Record, RunDir, read_events
from podwright.train import attention_check, checkpoint, data_record, not_finite, observe, profile, speed
from podwright.train.data_record import Written
from podwright.train.emit import Emitter, TrainingOutcome, evaluated
from podwright.train.entry import Stopping
from podwright.train.grpo import collect, evaluate, grading, program, prompts, reward, start
from podwright.train.grpo.collect import Clock, Collector
from podwright.train.grpo.evaluate import Evaluator
from podwright.train.grpo.program import GrpoSetup, GrpoState
from podwright.train.grpo.token_limits import PromptTokens, TokenLimits
from podwright.train.mesh import agreed, cache_folder, from_first, make_mesh, require_divides, together
from podwright.train.watchdog import Watchdog

LoadRewards = Callable[[Sequence[schema.Reward]], list[reward.LoadedReward]]
LAYOUTS = (Layout.CAUSAL, Layout.GROUPS, Layout.DECODE)  # of the attention in its programs
NO_UPDATE = {"loss": 0.0, "grad_norm": 0.0, "kl": 0.0, "clip_ratio": 0.0, "entropy": None, "importance_mismatch": None}
"""figures of a step that runs no update; the last two are computed nowhere else"""


@dataclasses.dataclass(frozen=True)
class GrpoRun:
    """Everything a run needs that does not change while it runs."""

    run: RunDir
    recipe: GrpoRecipe
    emit: Emitter
    source: start.Source
    setup: GrpoSetup
    tokenizer: Tokenizer
    collector: Collector
    evaluator: Evaluator
    examples: list[Example]
    stopping: Callable[[], bool]
    hurried: Callable[[], bool]
    """whether there is no time to finish the step"""


def prepare(run: RunDir, recipe: GrpoRecipe, emit: Emitter, stopping: Stopping, load_rewards: LoadRewards) -> GrpoRun:
    """Reads data, tokenizer and rewards and builds the programs; every fault of the user's input shows up here."""
    emit.event("phase", phase="loading")
    begun = from_first(lambda: start.begun_with(run))
    revision = from_first(lambda: start.find_source(recipe, begun.get("model_revision")).revision)
    before = Written(**from_first(lambda: data_record.written(run)._asdict()))
    with together():
        rewards = load_rewards(recipe.rewards)
        train, test, read = gsm8k.parts(recipe.data, recipe.seed, before.read)
        digests = start.rows_of(train), start.rows_of(test)
        data, notices = data_record.check(run, recipe.data.source, before, read, *digests)
    data_of_first = from_first(lambda: data)
    with together():
        if data != data_of_first:
            raise UserError(
                f"data.source={recipe.data.source} is not the same in every process",
                "put it where all of them see it",
                "data-differs",
            )
        source = start.find_source(recipe, revision)
        dims = start.dimensions(recipe, source)
    tokenizer = start.tokenizer(run, source, dims, train)
    tokenizer.date = start.date_of(begun)
    with together():
        mesh = make_mesh(recipe.mesh)
        sizes = {"batch_size": recipe.batch_size // recipe.training.gradient_accumulation_steps}
        if recipe.warm_start:
            sizes["warm_start.batch_size"] = recipe.warm_start.batch_size
        require_divides(mesh, sizes)
        training, testing = _prompts(recipe, dims.max_positions, tokenizer, train, test)
        recipe = recipe.in_steps(len(training))
        setup = GrpoSetup(recipe, dims, mesh, tokenizer.stop_ids, tokenizer.pad_id)
    heads = heads_of(dims, recipe.model.compute_dtype)
    emit.notice(*notices)
    systems = {e.system for e in [*train, *test]}
    if any(systems) and not tokenizer.has_system_turn:
        emit.notice("the chat template has no system turn: what the system says begins the user's turn")
    emit.notice(*attention_check.refused(mesh, heads, LAYOUTS, cache_folder()))
    limit = recipe.rollout.max_prompt_length
    for name, encoded, of in (("training", training, train), ("test", testing, test)):
        if encoded.left_out:
            message = f"{encoded.left_out} of {len(of)} {name} prompts are longer than {limit} tokens and are left out"
            emit.notice(message)
    rank = recipe.model.lora_rank
    total = dims.num_params()
    emit.event(
        "environment",
        **speed.environment(),
        num_params=total,
        num_trained_params=dims.num_lora_params(rank) if rank else total,
        max_steps=recipe.training.max_steps,
        model_revision=source.revision,
        rows=data,
        system=systems.pop() if len(systems) == 1 else "",
    )
    programs = program.programs(setup, len(testing))
    collector = Collector(setup, programs, training, tokenizer, rewards, _zeros(run, emit))
    stop = agreed(stopping)
    hurry = agreed(stopping.hurried)
    evaluator = Evaluator(setup, programs["evaluate"], testing, tokenizer, stop)
    return GrpoRun(run, recipe, emit, source, setup, tokenizer, collector, evaluator, train, stop, hurry)


def _prompts(
    recipe: GrpoRecipe, max_positions: int, tokenizer: Tokenizer, train: list[Example], test: list[Example]
) -> tuple[prompts.Prompts, prompts.Prompts]:
    """(training, test): those that fit; UserError for lengths for which the run would have nothing to do."""
    encoded = [prompts.tokenized(examples, tokenizer, recipe.data) for examples in (train, test)]
    names = ("training", "test")
    parts = [PromptTokens(n, len(rows.rows), rows.lengths()) for n, rows in zip(names, encoded, strict=True)]
    worked = prompts.worked_answers(train, tokenizer) if recipe.warm_start else []
    lessons = list(zip(parts[0].counted, map(len, worked), strict=False))
    TokenLimits(recipe.rollout, max_positions, parts, lessons).require()
    training, testing = (rows.fitting(recipe.rollout.max_prompt_length, tokenizer.pad_id) for rows in encoded)
    return training, testing


def train(
    run: RunDir, recipe: GrpoRecipe, emit: Emitter, stopping: Stopping, load_rewards: LoadRewards
) -> TrainingOutcome:
    """Runs the recipe to its end, or to where `stopping()` turns true; resumes from the newest checkpoint if there is one."""
    with observe.observed(emit) as watchdog:
        job = prepare(run, recipe, emit, stopping, load_rewards)
        with checkpoint.Checkpoints(emit.storage, checkpoint.KEPT) as checkpoints:
            return _train(job, checkpoints, watchdog)


def _train(job: GrpoRun, checkpoints: checkpoint.Checkpoints, watchdog: Watchdog) -> TrainingOutcome:
    recipe, emit = job.recipe, job.emit
    begun = _begin(job, checkpoints, watchdog)
    if isinstance(begun, TrainingOutcome):
        return begun
    state, base, cursor = begun

    def report(when: str, number: int) -> bool:
        return evaluate.report(job.evaluator, lora.policy(state.params, base), emit, when, number)

    reference = _reference(job, state, base) if recipe.grpo.beta > 0 else None
    tested = evaluated(job.run)
    if cursor["step"] == 0 and ("before", 0) not in tested:
        report("before", 0)

    emit.event("phase", phase="grpo")
    traced = profile.of(job.run)
    times = observe.step_times()
    recent: list[dict[str, Any]] = []
    even = ""
    with watchdog.pacing(cursor["step"]):
        while (number := cursor["step"]) < recipe.training.max_steps:
            every = recipe.evaluation.every_n_steps
            if number and every and number % every == 0 and ("during", number) not in tested:
                with watchdog.resting():
                    report("during", number)
                emit.event("phase", phase="grpo")
            if job.stopping():
                with watchdog.resting():
                    return _stop(job, checkpoints, state, cursor)
            try:
                with traced.step(number + 1) as marks:
                    done = step(job.collector, state, reference, cursor, base, job.hurried)
            except reward.RewardTimeout as e:
                with watchdog.resting():
                    return _reward_timeout(job, checkpoints, state, cursor, e.record)
            if done is None:
                with watchdog.resting():
                    return _stop(job, checkpoints, state, cursor)
            state, cursor, figures = done
            number = cursor["step"]
            recent = [*recent, figures][-even_groups.SAID_AFTER :]
            if not even:  # once is enough
                even = even_groups.notice(recent, number)
                emit.notice(*filter(None, [even]))
            emit.notice(*times.stepped(figures.pop("own_s"), figures["step_s"]))
            emit.metrics("grpo", number, figures | marks)
            watchdog.stepped(number)
            if not (math.isfinite(figures["loss"]) and math.isfinite(figures["grad_norm"])):
                return not_finite.outcome(job.run, recipe, number, checkpoints.latest() or 0, figures)
            if number % recipe.checkpoint.every_n_steps == 0 or number == recipe.training.max_steps:
                emit.event("checkpoint", step=number)
                with watchdog.resting():
                    checkpoints.save(number, state, cursor)

    if ("after", number) not in tested and not report("after", number):
        return _stop(job, checkpoints, state, cursor)
    _compare(job)
    return TrainingOutcome(Ending.FINISHED, cursor["step"])


def _begin(
    job: GrpoRun, checkpoints: checkpoint.Checkpoints, watchdog: Watchdog
) -> tuple[GrpoState, Any, dict[str, int]] | TrainingOutcome:
    """State, frozen weights (or None) and cursor, of the newest checkpoint or of step 0.

    What is needed only here is let go with the return.
    """
    if checkpoints.latest() is not None:
        restored = checkpoints.restore(program.abstract_state(job.setup))
        job.emit.notice(*restored.notices)
        job.emit.event("resumed", step=restored.step)
        return restored.state, start.base(job.emit.storage, job.source, job.setup), restored.cursor
    job.emit.begins_again("grpo")
    programs, examples = job.collector.programs, job.examples
    weights = start.weights(job.source, job.setup, programs, examples, job.tokenizer, job.emit, job.stopping, watchdog)
    if weights is None:
        return TrainingOutcome(Ending.STOPPED, 0, "stopped during the warm start")
    state = program.new_state(job.setup, program.first_params(job.setup, weights))
    return state, program.freeze(job.setup, weights), {"step": 0, "used": 0, "rollouts": 0}


def _reference(job: GrpoRun, state: GrpoState, base: Any) -> Any:
    if base is not None:
        return lora.reference(state.params, base)
    weights = program.scored(job.setup, start.reference(job.emit.storage, job.source, job.setup))
    return start.moved(weights, "pinned_host") if job.recipe.grpo.offload_reference else weights


def step(
    collector: Collector,
    state: GrpoState,
    reference: Any,
    cursor: dict[str, int],
    base: Any = None,
    hurried: Callable[[], bool] = lambda: False,
) -> tuple[GrpoState, dict[str, int], dict[str, Any]] | None:
    """One GRPO step: rollouts, rewards, reference scores, `num_iterations` updates. -> state, cursor, figures

    Without a reference, completions that teach nothing update nothing: weight decay and momentum would move the weights all the same.
    `base` are the frozen weights of a run that trains adapters. Of the figures `own_s` (seconds before this process met others) is its own.
    None when `hurried()` after the rollouts, with the state as it was: the step has to be done again.
    """
    recipe = collector.setup.recipe
    programs = collector.programs
    clock = Clock()
    policy = lora.policy(state.params, base)
    sampled, rounds = collector.collect(policy, cursor["used"], cursor["rollouts"])
    clock.mark("rollout_s")
    if hurried():
        return None
    advantages = collect.advantages(sampled, recipe)
    updates = reference is not None or bool(advantages.any())
    old = None
    if updates and recipe.grpo.num_iterations > 1:
        old = programs["score"](program.scored(collector.setup, policy), sampled.group)
    scores = None
    if reference is not None and recipe.grpo.offload_reference:  # of which there is a copy until it has scored
        scores = programs["score"](start.moved(reference, "device"), sampled.group)
    elif reference is not None:
        scores = programs["score"](reference, sampled.group)
    clock.mark("score_s", (old, scores))
    figures: dict[str, Any] = dict(NO_UPDATE)
    first = cursor["step"] * recipe.grpo.num_iterations
    schedule = program.policy_schedule(recipe)
    rates = [np.float32(schedule(first + n)) for n in range(recipe.grpo.num_iterations)]
    if updates:
        batch = collector.batch(sampled, advantages, old, scores)
        for rate in rates:
            state, measured = programs["update"](state, batch, rate, base)
        figures = {name: float(x) for name, x in measured.items()}
    clock.mark("update_s", state)
    figures["learning_rate"] = float(rates[0])
    cursor = {
        "step": cursor["step"] + 1,
        "used": cursor["used"] + rounds * recipe.batch_size,
        "rollouts": cursor["rollouts"] + rounds,
    }
    figures |= collect.figures(sampled, advantages, recipe) | {"own_s": sampled.own_s}
    figures |= speed.figures(
        collector.setup.dims, recipe, int(sampled.prompt_lengths_P.sum()), sampled.lengths_PG, clock, updates
    )
    figures["epoch"] = cursor["used"] / len(collector.prompts)
    return state, cursor, figures


def _stop(
    job: GrpoRun, checkpoints: checkpoint.Checkpoints, state: GrpoState, cursor: dict[str, int]
) -> TrainingOutcome:
    job.emit.event("phase", phase="saving")
    if cursor["step"]:
        job.emit.event("checkpoint", step=cursor["step"])
        checkpoints.save(cursor["step"], state, cursor)
    return TrainingOutcome(Ending.STOPPED, cursor["step"], f"stopped after step {cursor['step']}")


def _reward_timeout(
    job: GrpoRun, checkpoints: checkpoint.Checkpoints, state: GrpoState, cursor: dict[str, int], record: Record
) -> TrainingOutcome:
    """The last whole step is saved: a resume samples the same completions, and knows of the one on which a reward hangs."""
    stopped = _stop(job, checkpoints, state, cursor)
    hangs = "completion" in record
    if hangs:
        job.emit.event("reward_timeout", **record)
    elif job.stopping():
        return stopped
    limit_s, name = job.recipe.rewards_timeout, record["reward"]
    late = f"step {cursor['step'] + 1}: the reward {name} did not return within rewards_timeout={limit_s:g} s"
    if hangs:
        detail = f"{late} for the {reward.row(record['question'], record['completion'])}"
        fix = f"type: podwright resume {job.run.typed}, which scores that completion 0"
    else:
        detail = f"{late} for all its completions, and hangs on none of them alone"
        fix = f"make it faster and resume, or type: podwright run {shlex.quote(str(job.run.recipe))} rewards_timeout={3 * limit_s:g}"
    return TrainingOutcome(Ending.REWARD_TIMEOUT, stopped.step, detail, fix)


def _zeros(run: RunDir, emit: Emitter) -> set[reward.Row]:
    """Completions on which rewards hung in earlier attempts. Every process must call it."""
    records = from_first(lambda: read_events(run.events, "reward_timeout"))
    for record in records:
        message = f"the reward {record['reward']} did not return in attempt {record['attempt']}: it is 0 for the {reward.row(record['question'], record['completion'])}"
        emit.notice(message)
    return {(e["reward"], e["question"], e["completion"]) for e in records}


def _compare(job: GrpoRun) -> None:
    """The paired test of after against before, question by question."""
    if job.emit.mine and job.run.flags("before").exists():
        before, after = (job.run.read_flags(when) for when in ("before", "after"))
        if before is None or after is None or len(before) != len(after):
            where = job.run.flags("before").parent
            job.emit.notice(f"before and after were not compared: the answers in {where} are damaged")
            return
        job.emit.event("comparison", **grading.paired(before, after))
