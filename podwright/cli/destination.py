"""What a plan is told of the place that was typed after --on: devices, and what stands in the way there."""

from __future__ import annotations

from podwright.plan.findings import Finding
from podwright.plan.options import Destination
from podwright.recipe.kinds import Recipe


def find(on: str, recipe: Recipe, *, generation: bool = False) -> Destination:
    """Target or slice `on`, or a `generation` of accelerators without a size, of which --fit takes the smallest slice."""
    from podwright import accelerators, targets, track

    trackers = [Finding("trackers", "warning", e.what, e.fix) for e in track.check(recipe.trackers)]
    if generation and any(row.name == on for row in (*accelerators.TPUS, *accelerators.GPUS)):
        return Destination(on, None, tuple(trackers))
    return Destination(on, targets.place(on), (*remarks(on, recipe.kind), *trackers))


def remarks(on: str, kind: str = "") -> list[Finding]:
    """What stands in the way of runs (of a `kind` of recipe) on a target; it may ask other machines."""
    from podwright import targets

    return [Finding("target", r.level, r.what, r.fix) for r in targets.check(on, kind)]
