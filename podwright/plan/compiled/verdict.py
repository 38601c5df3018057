"""What compiled programs mean for the recipe: findings with what to type, and the entries of a plan's document."""

from __future__ import annotations

from typing import TypeVar

from podwright.accelerators import GIB
from podwright.errors import counted
from podwright.plan.checks.inputs import DIRECTORY
from podwright.plan.compiled import compile as aot
from podwright.plan.compiled.compile import Compiled
from podwright.plan.document import ProgramEntry, StepEntry
from podwright.plan.estimates.memory import FIT
from podwright.plan.findings import Finding, InconclusiveCheck
from podwright.plan.kinds import CompiledPrograms, PlanPart
from podwright.plan.options import PlanOptions
from podwright.recipe.dimensions import Dims
from podwright.recipe.kinds import JaxRecipe
from podwright.rundir import Record
from podwright.slices import Slice

R = TypeVar("R", bound=JaxRecipe)


def unknown_dimensions(model: str) -> InconclusiveCheck:
    what = f"the compiler was not run: the dimensions of {model} are not known here"
    return InconclusiveCheck(what, DIRECTORY, "unknown-dimensions")


def compile_programs(part: PlanPart[R], recipe: R, dims: Dims, where: Slice, options: PlanOptions) -> list[Compiled]:
    """Every program of the recipe, by the compiler."""
    assert options.context is not None
    full = options.depth == "full"
    more = part.compiler_package(recipe)
    names = part.programs(recipe)
    return aot.compile_all(
        recipe, dims, where, names, full=full, shop=options.context, more=more, irrelevant=part.irrelevant
    )


def results(compiled: list[Compiled], where: Slice, step: StepEntry | None) -> CompiledPrograms:
    """`step`: the time of one, which counts only when all programs fit."""
    limit = aot.limit_bytes(where)
    fits = not {program.verdict for program in compiled} & {"too large", "failed"}
    entries = tuple(entry(program, limit) for program in compiled)
    return CompiledPrograms(tuple(findings(compiled, limit)), entries, step if fits else None)


def findings(compiled: list[Compiled], limit_bytes: float | None) -> list[Finding]:
    listed = [finding for program in compiled if (finding := _of(program, limit_bytes))]
    kernels = sum(program.kernels for program in compiled)
    if kernels:
        seconds = sum(program.kernels_s for program in compiled)
        what = f"{counted(kernels, 'kernel')} compiled alone, to the end: {seconds:.1f} s"
        listed.append(Finding("compile", "info", what))
    without_time = [program for program in compiled if program.verdict == "fits" and program.cost is None]
    notes = dict.fromkeys(note for program in without_time for note in program.notes)
    return listed + [Finding("step", "info", note) for note in notes]


def _of(program: Compiled, limit_bytes: float | None) -> Finding | None:
    """None for a program that fits: its entry of `programs` says what it needs."""
    if program.verdict == "unknown":
        what = f"{program.name}: {program.error}, and whether it fits is not known"
        return Finding("compile", "inconclusive", what, "try it on a machine with less to do", "not-compiled")
    if program.verdict == "failed":
        fix = mend(program, "LIBTPU_INIT_ARGS") or "type --cache with a folder that keeps its log"
        what = f"{program.name} does not compile: {program.error}"
        return Finding("compile", "error", what, fix, "does-not-compile")
    if program.verdict == "fits":
        return None
    assert limit_bytes is not None
    return Finding("compile", "error", program.needs(limit_bytes) + program.largest(), FIT, "too-large")


def mend(program: Compiled, flags: str) -> str:
    """What to do about a program that failed to compile; `flags`: where the compiler's flags stand. "" where its log was not kept."""
    if kib := aot.scoped_kib(program.error):
        return f"add --xla_tpu_scoped_vmem_limit_kib={1 << (kib - 1).bit_length()} to {flags}"
    return program.log and f"read the compiler's log, {program.log}"


def entry(program: Compiled, limit_bytes: float | None) -> ProgramEntry:
    """One entry of `programs` in `podwright plan --json`; memory in GiB per device."""
    known: Record = {}
    if program.cost is not None:
        known = {
            name: getattr(program.cost, name)
            for name in ("flops", "hbm_bytes", "host_bytes", "dcn_bytes", "predicted_s", "bound")
        }
        known["parts"] = [
            {"part": part, "phase": phase, "seconds": seconds} for part, phase, seconds in program.cost.parts
        ]
        known["collectives"] = [
            {"kind": t.kind, "axis": t.axis, "gib_sent": _gib(t.sent_bytes), "count": t.count}
            for t in program.cost.collectives
        ]
    if program.memory is not None:
        for name in ("arguments", "aliased", "outputs", "temporaries", "constants"):
            known[f"{name}_gib"] = _gib(getattr(program.memory, name))
        if program.memory.host:
            known["host_gib"] = _gib(program.memory.host)
        known["largest"] = [
            {"gib": _gib(a.size_bytes), "shape": a.shape, "what": a.what} for a in program.memory.largest
        ]
    return ProgramEntry.model_validate(
        {
            "name": program.name,
            "verdict": program.verdict,
            "hbm_gib": _gib(program.hbm_bytes),
            "limit_gib": _gib(limit_bytes),
            "compile_s": round(program.seconds, 1),
            "cached": program.cached,
            "resident_gib": {name: _gib(size) for name, size in program.resident.items()},
            "error": program.error,
            "notes": list(program.notes),
            **known,
        }
    )


def _gib(size: float | None) -> float | None:
    return None if size is None else round(size / GIB, 4)
