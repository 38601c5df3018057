"""Why the loss or the gradient of a step is not a finite number, and what to type."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import Any

from podwright.counted_steps import read_steps
from podwright.recipe.kinds import JaxRecipe, TorchRecipe
from podwright.rundir import Ending, RunDir
from podwright.train.emit import TrainingOutcome


def outcome(
    run: RunDir, recipe: JaxRecipe | TorchRecipe, step: int, good: int, figures: Mapping[str, Any]
) -> TrainingOutcome:
    """`good`: the step whose weights are kept.

    A reward that overflows shows in the figures. Before any update with a learning rate it is the rows or the weights; else the learning rate.
    """
    what = f"step {step}: loss={figures['loss']}, grad_norm={figures['grad_norm']}"
    rate = f"optimizer.learning_rate={recipe.optimizer.learning_rate / 3:.1g}"
    fix = f"type: podwright run {shlex.quote(str(run.recipe))} {rate}"
    unlike = [n for n, x in figures.items() if n.startswith(("reward", "advantage")) and not math.isfinite(x)]
    if unlike:
        what += f", {unlike[0]}={figures[unlike[0]]}"
        fix = "make the rewards smaller: within a group only their differences count"
    elif not any(record.get("learning_rate") for record in read_steps(run, recipe.kind) if record["step"] < step):
        what += "; no update had changed the weights yet, so it is not the learning rate"
        fix = f"start from other weights, or look at the rows: type podwright data check {shlex.quote(recipe.data.source)}"
    return TrainingOutcome(Ending.NOT_FINITE, good, f"{what}; the weights of step {good} are kept", fix)
