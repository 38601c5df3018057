"""What a run on machines that may be taken away loses: seconds of a save, and the expected loss at the recipe's checkpoint interval."""

from __future__ import annotations

import sys

from podwright.accelerators import GIB
from podwright.plan.document import PreemptionEntry
from podwright.plan.estimates.preemption import DAY_S, MOST_LOSS, best_interval, expected_loss, save_time
from podwright.plan.findings import Finding
from podwright.plan.options import Destination
from podwright.recipe.kinds import JaxRecipe
from podwright.slices import Slice

SHORT_STEP_S = 0.1
"""below which a run is a trial, and the estimated time of its step too rough to advise an interval by"""


def check(
    recipe: JaxRecipe, saved_bytes: float, step_s: float | None, destination: Destination, where: Slice
) -> tuple[PreemptionEntry, Finding]:
    """`saved_bytes`: of a checkpoint; `step_s`: None where the time of a step is not known. The rate of `destination` is above 0."""
    hosts = where.num_hosts if destination.shared_storage else 1
    save = save_time(saved_bytes, where.num_chips, hosts)
    rate, every = destination.preemptions_per_day, recipe.checkpoint.every_n_steps
    between_s = DAY_S / rate
    entry = PreemptionEntry(
        preemptions_per_day=rate,
        checkpoint_gib=saved_bytes / GIB,
        wait_s=save.wait_s,
        write_s=save.write_s,
        every_n_steps=every,
    )
    writers = f"{hosts} hosts write" if hosts > 1 else "1 host writes"
    what = f"a save of {saved_bytes / 1e9:.3g} GB: training waits {save.wait_s:.2g} s, and {writers} it in about {save.write_s:.2g} s"
    if step_s is None:
        what += "; what preemptions cost is not known, since the time of a step is not known"
        return entry, Finding("preemption", "info", what, "type --compile")
    most = recipe.training.max_steps or sys.maxsize  # 0: the examples decide
    steps = min(every, most)
    interval_s = steps * step_s
    loss = expected_loss(interval_s, save, between_s)
    best = best_interval(step_s, most, save, between_s)
    least = expected_loss(best * step_s, save, between_s)
    entry = entry.model_copy(
        update={"interval_s": interval_s, "loss": loss, "best_every_n_steps": best, "best_loss": least}
    )
    what += f"; at {rate:g} preemptions a day, saves every {steps} steps ({interval_s:,.0f} s) lose {_share(loss)}"
    if loss <= MOST_LOSS or step_s < SHORT_STEP_S:
        return entry, Finding("preemption", "info", what)
    fix = f"type checkpoint.every_n_steps={best}, which loses {_share(least)}"
    if least >= loss:
        fix = "request machines with provisioning=on-demand"
    return entry, Finding("preemption", "warning", what, fix, "preemption-loss")


def _share(loss: float) -> str:
    """A loss is relative to the time of training, so a run that hardly advances has one far above 1."""
    return f"{loss:.1%} of the time" if loss < 1 else "more than all of the time"
