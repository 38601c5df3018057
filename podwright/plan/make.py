"""Makes the plan of a recipe for a target: what every kind of recipe has in common, and in which order it is asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

from podwright.errors import UserError, nearest
from podwright.plan import kinds, prices
from podwright.plan.checks import patience, preemption, this_machine, unused_keys
from podwright.plan.checks.inputs import DIRECTORY
from podwright.plan.document import MemoryEntry, Plan, SliceEntry
from podwright.plan.estimates import memory
from podwright.plan.findings import MISSING_PACKAGE, Finding, InconclusiveCheck, Verdict, verdict_of
from podwright.plan.options import Destination, PlanOptions
from podwright.recipe.kinds import JaxRecipe, Recipe
from podwright.slices import Slice

CHECKS = (
    "packages",
    "slice",
    "mesh",
    "batch",
    "model",
    "data",
    "rewards",
    "context",
    "memory",
    "target",
    "storage",
    "trackers",
    "profiler",
    "launch",
    "preemption",
)
"""the parts of a static plan, as findings and `--only` name them"""
JaxPlan = kinds.PlanPart[JaxRecipe]
_NEEDED = ("mesh", "batch", "model")  # without which no closed form can be worked out


def make(recipe: Recipe, destination: Destination, options: PlanOptions | None = None) -> Plan:
    """The plan of `recipe` on `destination`: checks and closed forms, and by `options` a search for settings or compiled programs.

    UserError for options that have no meaning for this recipe or these devices.
    """
    options = options or PlanOptions()
    wanted = checks_named(options.only)
    _refuse_without_memory(wanted, options)
    weights = [patience.WEIGHTS] * ("model" in wanted)
    with patience.only_about([*wanted, *_needed(recipe, wanted), *weights]):
        planned = _planned(recipe, destination, options)
    if not wanted or "preemption" in wanted:
        planned = _with_preemption(planned, recipe, destination, options.cwd)
    return planned if options.price is not None else prices.with_costs(planned, destination)


def _with_preemption(plan: Plan, recipe: Recipe, destination: Destination, cwd: Path) -> Plan:
    """`plan` with what preemptions cost, on machines that may be taken away."""
    where = destination.where
    if where is None or not destination.preemptions_per_day or plan.verdict is Verdict.REFUSED:
        return plan
    saved_bytes = kinds.of(recipe).saved_bytes(recipe, cwd)
    if saved_bytes is None:
        return plan
    step_s = plan.step.step_s if plan.step else None
    entry, finding = preemption.check(cast(JaxRecipe, recipe), saved_bytes, step_s, destination, where)
    return plan.with_finding(finding).model_copy(update={"preemption": entry})


def _planned(recipe: Recipe, destination: Destination, options: PlanOptions) -> Plan:
    if options.fit:
        return kinds.of(recipe).fitted(recipe, destination, options)
    if not options.depth:
        return static(recipe, destination, options)
    if options.depth not in ("quick", "full"):
        raise UserError(f"--compile={options.depth} is no depth", "type --compile or --compile=full", "bad-value")
    if destination.here and destination.where is None:
        destination = replace(destination, where=this_machine.devices())
    return compiled(static(recipe, destination, options), recipe, destination, options)


def static(recipe: Recipe, destination: Destination, options: PlanOptions, *, compiling: bool | None = None) -> Plan:
    """Without a compiler. One who is `compiling` learns of memory and time from the programs, not from a closed form."""
    compiling = bool(options.depth) if compiling is None else compiling
    part = kinds.of(recipe)
    where = destination.where
    wanted = checks_named(options.only)
    findings = part.checks(recipe, where, options.cwd) + unused_keys.check(recipe, part.unused_keys)
    findings += part.to_start(recipe, options.cwd) if options.starting else []
    entries: list[MemoryEntry] = []
    sound = not any(f.level == "error" and f.check in _NEEDED for f in findings)
    with_memory = sound and (not wanted or "memory" in wanted)
    if where is not None and where.accelerator.hbm_bytes and with_memory:
        entries = part.memory(recipe, where, options.cwd)
        if not compiling:
            findings += _memory(part, entries, recipe, where)
    if destination.here:
        of_machine = _here(part, recipe, where, options.cwd, findings, with_memory) if sound else []
        findings = part.here(recipe) + findings + of_machine
    findings += destination.findings
    if options.starting and destination.provisioning:
        findings = [_required_where_rented(f) for f in findings]
    step = None
    if where is not None and with_memory and not compiling and verdict_of(findings) is not Verdict.REFUSED:
        step = part.step(recipe, where, options.cwd, options.price)
    if wanted:
        findings = _only(wanted, _needed(recipe, wanted), findings)
    entry = None
    if where is not None:
        meshes = part.meshes(recipe, where, options.cwd)
        entry = SliceEntry.model_validate(where.document() | {"meshes": meshes})
    return Plan(
        recipe=recipe.name,
        target=destination.name,
        slice=entry,
        verdict=verdict_of(findings),
        findings=tuple(findings),
        memory=tuple(entries),
        programs=(),
        step=step,
    )


def _here(
    part: kinds.PlanPart[Recipe],
    recipe: Recipe,
    where: Slice | None,
    cwd: Path,
    before: list[Finding],
    with_memory: bool,
) -> list[Finding]:
    """What this machine says of a recipe whose mesh, batch and model are sound by the findings `before`."""
    if not part.closed_form:
        if not with_memory or (where is None and this_machine.has_accelerator()):
            return []
        return this_machine.host_memory(part, recipe, where.num_devices if where else 1, cwd)
    findings: list[Finding] = []
    if where is None:
        findings += this_machine.gpu_plugin()
        findings += this_machine.mesh(cast(JaxPlan, part), cast(JaxRecipe, recipe), cwd)
    refused = any(f.level == "error" and f.check in ("mesh", "context") for f in before + findings)
    if with_memory and not refused:
        findings += this_machine.memory(cast(JaxPlan, part), cast(JaxRecipe, recipe), where, cwd)
    return findings


def _required_where_rented(finding: Finding) -> Finding:
    """An error where a package is missing to check something here: machines that cost do not start on data that nobody has read."""
    if finding.level != "inconclusive" or finding.code != MISSING_PACKAGE:
        return finding
    fix = f"{finding.fix}, or type --force to start machines that cost without this check"
    return replace(finding, level="error", fix=fix)


def compiled(plan: Plan, recipe: Recipe, destination: Destination, options: PlanOptions) -> Plan:
    """`plan` with what the compiler says of every program, or a finding that says why it was not run."""
    if plan.verdict is Verdict.REFUSED:
        return plan.with_finding(not_done("--compile"))
    if destination.where is None:
        what = f"what `{destination.name}` has is known only when a run starts"
        raise UserError(what, "type --on cpu-1, or a slice such as --on v6e-16", "unknown-devices")
    part = kinds.of(recipe)
    try:
        added = part.compiled(recipe, destination.where, options)
    except InconclusiveCheck as e:
        if part.closed_form:
            plan = static(recipe, destination, options, compiling=False)
        return plan.with_finding(e.finding("compile"))
    findings = (*(f for f in plan.findings if not part.settled(f, added)), *added.findings)
    changes = {
        "verdict": verdict_of(findings),
        "findings": findings,
        "programs": added.programs,
        "step": added.step,
    }
    return plan.model_copy(update=changes)


def not_done(option: str) -> Finding:
    """Of a plan that is refused without the compiler or the search that was wanted."""
    what = f"{option} was not done: the plan is refused without it"
    return Finding(option[2:], "info", what, "correct the errors, then type it again", "not-done")


def checks_named(names: str) -> list[str]:
    """A list with commas; UserError for what is no check."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in CHECKS:
            guess = nearest(name, list(CHECKS))
            raise UserError(
                f"--only {name} is no check",
                f"type --only {guess}" if guess else f"there are {', '.join(CHECKS)}",
                "unknown-check",
            )
    return wanted


def _refuse_without_memory(wanted: list[str], options: PlanOptions) -> None:
    option = "--fit" if options.fit else "--compile" if options.depth else ""
    if wanted and option and "memory" not in wanted:
        what = f"--only {options.only} leaves out the memory, for which {option} is"
        raise UserError(what, f"type --only {','.join([*wanted, 'memory'])}, or leave {option} out", "left-out")


def _needed(recipe: Recipe, wanted: list[str]) -> set[str]:
    """Checks that are not wanted themselves, and without whose answer one that is says nothing."""
    depends = kinds.of(recipe).depends
    return {name for check in wanted for name in depends.get(check, ())} - {*wanted}


def _only(wanted: list[str], needed: set[str], findings: list[Finding]) -> list[Finding]:
    """The findings of some checks, and of those that they need what keeps them from an answer."""
    hinders = ("error", "inconclusive")
    kept = [f for f in findings if f.check in wanted or (f.check in needed and f.level in hinders)]
    what = f"{', '.join(wanted)} alone {'was' if len(wanted) == 1 else 'were'} checked"
    return [Finding(wanted[0], "info", what), *kept]


def _memory(part: kinds.PlanPart[Recipe], entries: list[MemoryEntry], recipe: Recipe, where: Slice) -> list[Finding]:
    if entries:
        near = "type --compile" if where.libtpu else "start it there with --smoke 3, which shows what it needs"
        return memory.findings(entries, near)
    if part.closed_form:
        what = "the memory of its programs was not estimated: the dimensions of its model are not known here"
        return [Finding("memory", "inconclusive", what, DIRECTORY, "unknown-dimensions")]
    what = (
        f"whether a step fits into memory was not looked at: there is no closed form for recipes of kind {recipe.kind}"
    )
    return [Finding("memory", "inconclusive", what, part.memory_fix, "no-estimate")]
