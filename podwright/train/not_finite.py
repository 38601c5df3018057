"""Why the loss or the gradient of a step is not a finite number, and what to type: the four causes have four remedies.

Weights are looked at when they are read, so that a step begins with finite ones or with what updates have made of them.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from podwright.counted_steps import read_steps
from podwright.recipe.kinds import JaxRecipe, TorchRecipe
from podwright.recipe.schema import GrpoRecipe
from podwright.rundir import Ending, Record, RunDir, read_events
from podwright.train.emit import TrainingOutcome

_USUAL = 10.0  # times the median, up to which the gradient of the step before is as those before it
_RECENT = 20


def outcome(
    run: RunDir, recipe: JaxRecipe | TorchRecipe, step: int, good: int, figures: Mapping[str, Any]
) -> TrainingOutcome:
    """`good`: the step whose weights are kept.

    A reward that overflows shows in the figures. Before the first update it is the weights, of which the first test tells, or the rows; where
    the steps before were as ever it is the rows of this one; else the learning rate.
    """
    before = [record for record in read_steps(run, recipe.kind) if record["step"] < step]
    moved = _moved(recipe, step, before, figures)
    wrong = f"step {step}: loss={figures['loss']}, grad_norm={figures['grad_norm']}"
    kept = f"the weights of step {good} are kept"
    command = f"podwright run {shlex.quote(str(run.recipe))}"
    lower = f"type: {command} optimizer.learning_rate={recipe.optimizer.learning_rate / 3:.1g}"
    source = f"{shlex.quote(recipe.data.source)}{recipe.data.check_options}"
    check = f"look at the rows of that step: type podwright data check {source}"
    of_rewards = {name: value for name, value in figures.items() if name.startswith(("reward", "advantage"))}
    infinite = [name for name, value in of_rewards.items() if not math.isfinite(value)]
    if infinite:
        what = f", {infinite[0]}={of_rewards[infinite[0]]}; {kept}"
        fix = "make the rewards smaller: within a group only their differences count"
    elif moved and _suddenly(before):
        what, fix = f", and the steps before were as ever; {kept}", f"{check}; if they are good, {lower}"
    elif moved:
        what, fix = f"; {kept}", lower
    elif _tested_badly(run):
        what = ", and so was the loss of the test before any update: the weights that it began with are of no use"
        fix = f"start from other weights: type {command} with another source of them"
    else:
        what = "; no update had changed the weights yet, so it is not the learning rate"
        fix = f"{check}; if they are good, start from other weights"
    return TrainingOutcome(Ending.NOT_FINITE, good, wrong + what, fix)


def _moved(recipe: JaxRecipe | TorchRecipe, step: int, before: Sequence[Record], figures: Mapping[str, Any]) -> bool:
    """Whether an update had changed the weights before the last loss of this step. A record has the rate of the first update of its step."""
    if any(record.get("learning_rate") and record.get("grad_norm") for record in before):
        return True
    updates = recipe.grpo.num_iterations if isinstance(recipe, GrpoRecipe) else 1
    if updates == 1:
        return False
    # Warm-up begins at 0, so the first update of all may change nothing; those behind it do.
    return bool(figures.get("learning_rate")) or step * updates > 2


def _tested_badly(run: RunDir) -> bool:
    tested = [e["loss"] for e in read_events(run.events, "evaluation") if isinstance(e.get("loss"), float)]
    return bool(tested) and not math.isfinite(tested[0])


def _suddenly(before: Sequence[Record]) -> bool:
    """Whether the gradient had not grown in the steps before."""
    norms = [float(r["grad_norm"]) for r in before[-_RECENT:] if isinstance(r.get("grad_norm"), int | float)]
    return len(norms) >= 5 and norms[-1] <= _USUAL * sorted(norms)[len(norms) // 2]
