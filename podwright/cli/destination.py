"""What a plan is told of the place that was typed after --on: devices, and what stands in the way there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from podwright.plan import kinds
from podwright.plan.findings import Finding
from podwright.plan.options import Destination
from podwright.recipe.kinds import Recipe

if TYPE_CHECKING:
    from podwright.targets import ResolvedTarget
    from podwright.targets.base import Remark


def find(on: str, recipe: Recipe, *, generation: bool = False, only: Sequence[str] = ()) -> Destination:
    """Target or slice `on`, "" for the devices that the recipe names or else this machine, or a `generation` of accelerators without a size, of which --fit takes the smallest slice.

    `only`: the checks that are wanted; all for none. No other machine is asked about the rest.
    """
    from podwright import accelerators, targets

    if not on:
        named = kinds.of(recipe).written_for(recipe)
        on = named.name if named else "local"
    row = accelerators.gpu(on)
    if row is None:
        row = next((row for row in accelerators.TPUS if row.name == on), None)
    if generation and row:
        return Destination(row.name, None, tuple(_trackers(recipe)))
    return of(targets.resolve(on), recipe, only, starting=False)


def of(target: ResolvedTarget, recipe: Recipe, only: Sequence[str] = (), *, starting: bool = True) -> Destination:
    """A target that does not answer this login is an error for a run that is `starting`, and unknown to a plan."""
    target = target.for_slice(slice_of(target, recipe))
    questions = {
        "target": lambda: _findings("target", target.as_used_by(recipe).check(recipe.kind), starting),
        "storage": lambda: _findings("storage", target.look_at_storage(recipe.kind), starting),
        "trackers": lambda: _trackers(recipe),
    }
    findings: list[Finding] = []
    for check, ask in questions.items():
        if not only or check in only:
            findings += ask()
    findings += _findings("target", target.differences(recipe))
    destination = Destination(target.name, target.slice, tuple(findings), target.is_local, target.gpus_per_node)
    if target.settings is None:
        return destination
    traits = target.traits
    return replace(
        destination,
        provisioning=traits.provisioning,
        price=traits.price,
        preemptions_per_day=traits.preemptions_per_day,
        shared_storage=bool(traits.storage),
    )


def _findings(check: str, remarks: Iterable[Remark], starting: bool = True) -> list[Finding]:
    findings = []
    for remark in remarks:
        level = "inconclusive" if remark.unanswered and not starting else remark.level
        findings.append(Finding(check, level, remark.what, remark.fix, "target-remark"))
    return findings


def slice_of(target: ResolvedTarget, recipe: Recipe) -> str:
    """The name of the slice that a run of `recipe` on `target` gets by its recipe; "" where it gets that of the target."""
    if target.settings is None or not target.traits.slice_of_recipe:
        return ""
    named = kinds.of(recipe).written_for(recipe)
    return named.name if named else ""


def remarks(target: ResolvedTarget) -> list[Finding]:
    """What stands in the way of runs on a target; it may ask other machines."""
    return _findings("target", target.check(""))


def access(target: ResolvedTarget) -> list[Finding]:
    """Whether this user can have machines of a target whose machines are requested."""
    return _findings("access", target.check_access())


def storage(target: ResolvedTarget) -> list[Finding]:
    """Whether this machine can use the storage of a target. It writes there, which a plan does not."""
    return _findings("storage", target.try_storage())


def unchecked_hosts(target: ResolvedTarget) -> list[Finding]:
    """What cannot be looked at before a run: the hosts of a target that exist only while a run has them. [] for hosts that can be probed."""
    traits = target.traits
    if not (traits.pods or traits.zones):
        return []
    hosts = "pods" if traits.pods else "hosts"
    access = f", access to storage={traits.storage}" if traits.storage else ""
    why = f"only a run logs in to {traits.borrowed}" if traits.borrowed else "they exist only while a run has them"
    what = f"the {hosts} of {target.name} were not looked at (packages, disk, files{access}): {why}"
    fix = "a run that cannot use them ends, and says why" if traits.pods else "a run checks them before it starts"
    return [Finding("machines", "inconclusive", what, fix, "hosts-not-checked")]


def _trackers(recipe: Recipe) -> list[Finding]:
    from podwright import track

    return [Finding("trackers", "warning", e.what, e.fix, e.code) for e in track.check(recipe.trackers)]
