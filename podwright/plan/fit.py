"""Searches for the settings that run a recipe fastest within a slice's memory, and for the smallest slice that holds it.

Meshes, micro-batches and remat change how fast a recipe runs and what it needs, not what it computes; so do rows of a test batch.
The closed form (estimates/) goes through all of them, the compiler through the best few.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from podwright import slices
from podwright.accelerators import GIB, GPUS, TPUS
from podwright.errors import UserError
from podwright.plan import kinds, make
from podwright.plan.checks.inputs import DIRECTORY
from podwright.plan.checks.meshes import axes
from podwright.plan.compiled import compile as aot
from podwright.plan.document import FitEntry, FitRow, Plan
from podwright.plan.estimates import memory
from podwright.plan.findings import Finding, InconclusiveCheck, Verdict
from podwright.plan.options import Destination, PlanOptions
from podwright.plan.remedies import LESS, Candidate, MemorySearch, room
from podwright.plan.settings import differing, divisible_slices, typed
from podwright.recipe.dimensions import Dims
from podwright.recipe.kinds import JaxRecipe
from podwright.shell import targets_file
from podwright.slices import Slice

COMPILED = 3  # meshes that the compiler is asked about
LISTED = 12
_SEARCHED = ("mesh", "batch", "memory")  # what a search changes


def fitted(recipe: JaxRecipe, destination: Destination, options: PlanOptions) -> Plan:
    """The plan of the fastest settings that fit, with what else was looked at in its entry `fit`.

    The destination's name may be a generation without a size (`v6e`): then the smallest slice of it that holds the recipe.
    """
    dims = kinds.of(recipe).dimensions(recipe, options.cwd)
    if dims is None:
        static = make.static(recipe, destination, options, compiling=False)
        what = f"no settings were searched: the dimensions of {recipe.model.name} are not known here"
        return static.with_finding(Finding("fit", "inconclusive", what, DIRECTORY, "unknown-dimensions"))
    plan: Plan | None = None
    for where in _places(destination, recipe, dims, options.cwd):
        name = destination.name if destination.where else where.name
        plan = _searched(recipe, dims, replace(destination, name=name, where=where), where, options)
        if plan.verdict is not Verdict.REFUSED:
            break
    assert plan is not None
    return plan


def _places(destination: Destination, recipe: JaxRecipe, dims: Dims, cwd: Path) -> Iterator[Slice]:
    where, on = destination.where, f"--on {destination.name}"
    row = None
    if not where:
        row = next((row for row in (*TPUS, *GPUS) if row.name == destination.name), None)
    if row is None:
        if where is None and destination.gpus_per_node:
            fix = f"add a line such as accelerator: H100-80GB to {destination.name} in {targets_file()}"
            raise UserError(f"{on} does not name its GPUs, so --fit has no limit of memory", fix, "no-memory-limit")
        if where is None or not where.accelerator.program_bytes:
            fix = "leave --fit out, or type podwright plan with a slice such as --on v6e-16"
            raise UserError(f"{on} has no limit of memory that --fit could keep", fix, "no-memory-limit")
        yield where
        return
    holding = memory_search(recipe, dims, cwd).slices(recipe, row)
    if (first := next(holding, None)) is None:
        *_, largest = [next(slices.sold(row)), *divisible_slices(recipe, dims, row)]
        what = f"no {row.name} slice holds {recipe.name} with batch_size={recipe.batch_size}"
        raise UserError(f"{what} up to {largest.name}, the largest that splits batch and model", LESS, "too-large")
    yield first
    yield from holding


def _searched(recipe: JaxRecipe, dims: Dims, destination: Destination, where: Slice, options: PlanOptions) -> Plan:
    assert options.context is not None
    missing: InconclusiveCheck | None = None
    try:
        compiling = aot.find_compiler(where, options.context) is not None
    except InconclusiveCheck as e:
        compiling, missing = False, e
    plan = _ranked(recipe, dims, destination, where, options, compiling=compiling)
    return plan.with_finding(missing.finding("compile")) if missing else plan


def _ranked(
    recipe: JaxRecipe,
    dims: Dims,
    destination: Destination,
    where: Slice,
    options: PlanOptions,
    *,
    compiling: bool,
) -> Plan:
    static = make.static(recipe, destination, options, compiling=compiling)
    if any(f.level == "error" and f.check not in _SEARCHED for f in static.findings):
        return static.with_finding(make.not_done("--fit"))
    ranked = candidates(recipe, dims, where, options.cwd)
    most = room(where)
    fits = [candidate for candidate in ranked if candidate.need_bytes <= most]
    if not fits:
        limit = where.accelerator.program_bytes * (1 + memory.ERROR)
        possible = bool(where.libtpu) and not compiling and any(candidate.need_bytes <= limit for candidate in ranked)
        fix = memory_search(recipe, dims, options.cwd).beyond(recipe, where, destination.gpus_per_node > 0)
        return _nothing(static, recipe, where, fix, possible=possible)
    tried: dict[str, Plan] = {}
    if compiling:
        for candidate in _of_each_mesh(fits)[:COMPILED]:
            alone = make.static(candidate.recipe, destination, options, compiling=True)
            tried[candidate.typed] = make.compiled(alone, candidate.recipe, destination, options)
    best = min(tried, key=lambda typed: _rank(tried[typed])) if tried else fits[0].typed
    chosen = next(candidate for candidate in fits if candidate.typed == best)
    entry = FitEntry(
        on=where.name,
        overrides=chosen.overrides,
        typed=typed(differing(recipe, chosen.overrides)),
        searched=len(ranked),
        fitting=len(fits),
        settings=tuple(
            _row(candidate, tried.get(candidate.typed), candidate is chosen, where)
            for candidate in _listed(fits, tried)
        ),
    )
    plan = tried.get(best) or make.static(chosen.recipe, destination, options, compiling=False)
    return plan.model_copy(update={"fit": entry})


def candidates(recipe: JaxRecipe, dims: Dims, where: Slice, cwd: Path = Path()) -> list[Candidate[JaxRecipe]]:
    """Every setting, those that fit by the estimate first, the fastest of them first."""
    limit = room(where)
    search = memory_search(recipe, dims, cwd)
    rated = [
        replace(each, step_s=search.part.step_seconds(each.recipe, dims, where))
        for each in search.candidates(recipe, where)
    ]
    return sorted(rated, key=lambda c: (c.need_bytes > limit, c.step_s if c.need_bytes <= limit else c.need_bytes))


def pareto(rated: Iterable[Candidate[JaxRecipe]]) -> list[Candidate[JaxRecipe]]:
    """Those that no other one beats in both memory and time, the fastest first."""
    kept: list[Candidate[JaxRecipe]] = []
    for candidate in sorted(rated, key=lambda c: (c.step_s, c.need_bytes)):
        if not kept or candidate.need_bytes < kept[-1].need_bytes:
            kept.append(candidate)
    return kept


def memory_search(recipe: JaxRecipe, dims: Dims, cwd: Path) -> MemorySearch[JaxRecipe]:
    return MemorySearch(kinds.of(recipe), dims, cwd)


def _of_each_mesh(fits: list[Candidate[JaxRecipe]]) -> list[Candidate[JaxRecipe]]:
    """Of every mesh the fastest; micro-batches beyond those that memory asks for make no candidate of their own."""
    first: dict[tuple[int | str, ...], Candidate] = {}
    for candidate in fits:
        first.setdefault(tuple(candidate.overrides[f"mesh.{axis}"] for axis in axes(candidate.recipe)), candidate)
    return list(first.values())


def _rank(plan: Plan) -> tuple[bool, float]:
    return _fits(plan) is not True, plan.step.step_s if plan.step else math.inf


def _fits(plan: Plan) -> bool | None:
    """Whether all programs fit, as the compiler says; None where it does not say."""
    verdicts = {p.verdict for p in plan.programs}
    if verdicts & {"too large", "failed"} or plan.verdict is Verdict.REFUSED:
        return False
    return None if "unknown" in verdicts else True


def _listed(fits: list[Candidate[JaxRecipe]], tried: Mapping[str, Plan]) -> list[Candidate[JaxRecipe]]:
    compiled = [candidate for candidate in fits if candidate.typed in tried]
    listed = {id(candidate): candidate for candidate in (*compiled, *pareto(fits))}
    return sorted(listed.values(), key=lambda candidate: candidate.step_s)[:LISTED]


def _row(candidate: Candidate[JaxRecipe], plan: Plan | None, chosen: bool, where: Slice) -> FitRow:
    needs = [p.hbm_gib for p in plan.programs if p.hbm_gib is not None] if plan else []
    step_s: float | None = candidate.step_s
    if plan:
        step_s = plan.step.step_s if plan.step else None
    return FitRow(
        typed=candidate.typed,
        step_s=step_s,
        need_gib=max(needs) if needs else round(candidate.need_bytes / GIB, 4),
        limit_gib=round(where.accelerator.program_bytes / GIB, 4),
        program=candidate.program,
        fits=_fits(plan) if plan else candidate.need_bytes <= where.accelerator.program_bytes,
        compiled=plan is not None,
        chosen=chosen,
    )


def _nothing(static: Plan, recipe: JaxRecipe, where: Slice, fix: str, *, possible: bool) -> Plan:
    """`possible`: the estimate of some settings is so near to the limit that only the compiler, which is not installed, can decide."""
    message = f"none of the settings that were searched makes {recipe.name} with batch_size={recipe.batch_size} fit {where.name}"
    finding = Finding("fit", "error", message, fix, "too-large")
    if possible:
        message += f" with the margin of {memory.ERROR:.0%} that an estimate needs"
        finding = Finding("fit", "inconclusive", message, fix, "near-the-limit")
    kept = tuple(f for f in static.findings if f.check not in _SEARCHED)
    return static.model_copy(update={"findings": kept, "step": None}).with_finding(finding)
