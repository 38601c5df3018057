"""What compiled programs mean for the recipe: findings with what to type, and the entries of a plan's document."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from podwright.accelerators import GIB
from podwright.errors import counted
from podwright.plan.checks.inputs import DIRECTORY
from podwright.plan.compiled import compile as aot
from podwright.plan.compiled.compile import Compiled
from podwright.plan.document import ProgramEntry, StepEntry
from podwright.plan.findings import Finding, InconclusiveCheck
from podwright.plan.kinds import CompiledPrograms, PlanPart
from podwright.plan.options import PlanOptions
from podwright.plan.remedies import MemoryRemedy, MemorySearch
from podwright.recipe.dimensions import Dims
from podwright.recipe.kinds import JaxRecipe
from podwright.rundir import Record
from podwright.slices import Slice

R = TypeVar("R", bound=JaxRecipe)


def unknown_dimensions(model: str) -> InconclusiveCheck:
    return InconclusiveCheck(f"the compiler was not run: the dimensions of {model} are not known here", DIRECTORY)


def compile_programs(part: PlanPart[R], recipe: R, dims: Dims, where: Slice, options: PlanOptions) -> list[Compiled]:
    """Every program of the recipe, by the compiler."""
    assert options.context is not None
    full, more = options.depth == "full", part.compiler_package(recipe)
    names = part.programs(recipe)
    return aot.compile_all(
        recipe, dims, where, names, full=full, shop=options.context, more=more, irrelevant=part.irrelevant
    )


def results(
    part: PlanPart[R], compiled: list[Compiled], recipe: R, where: Slice, step: StepEntry | None, cwd: Path
) -> CompiledPrograms:
    """`step`: the time of one, which counts only when all programs fit."""
    limit = aot.limit_bytes(where)

    def remedy() -> str:
        estimated = {e.name: e.estimated_gib * GIB for e in part.memory(recipe, where, cwd)}
        scales = {p.name: p.hbm_bytes / estimated[p.name] for p in compiled if p.hbm_bytes and estimated.get(p.name)}
        search = MemorySearch(part, part.dimensions(recipe, cwd), cwd, scales)
        return MemoryRemedy(search, recipe, where).text()

    listed = findings(compiled, limit, functools.cache(remedy))
    fits = not {program.verdict for program in compiled} & {"too large", "failed"}
    return CompiledPrograms(tuple(listed), tuple(entry(program, limit) for program in compiled), step if fits else None)


def findings(compiled: list[Compiled], limit_bytes: float | None, remedy: Callable[[], str]) -> list[Finding]:
    """`remedy`: what to type when a program is too large."""
    listed = [finding for program in compiled for finding in _of(program, limit_bytes, remedy)]
    missing = dict.fromkeys(
        note for program in compiled if program.verdict == "fits" and program.cost is None for note in program.notes
    )
    if kernels := sum(program.kernels for program in compiled):
        listed.append(
            Finding(
                "compile",
                "info",
                f"{counted(kernels, 'kernel')} compiled alone, to the end: {sum(program.kernels_s for program in compiled):.1f} s",
            )
        )
    return listed + [Finding("step", "info", note) for note in missing]


def _of(program: Compiled, limit_bytes: float | None, remedy: Callable[[], str]) -> list[Finding]:
    if program.verdict == "unknown":
        return [
            Finding(
                "compile",
                "inconclusive",
                f"{program.name}: {program.error}, so that it is not known whether it fits",
                "try it on a machine with less to do",
            )
        ]
    if program.verdict == "failed":
        return [Finding("compile", "error", f"{program.name} does not compile: {program.error}", _mend(program))]
    assert program.hbm_bytes is not None
    if program.verdict == "fits":
        return []  # its entry of `programs` says what it needs
    assert limit_bytes is not None
    return [Finding("compile", "error", program.needs(limit_bytes) + program.largest(), remedy())]


def _mend(program: Compiled) -> str:
    error = program.error
    if "command line flag" in error or "Illegal value" in error:
        return "correct LIBTPU_INIT_ARGS"
    if kib := aot.scoped_kib(error):
        return f"add --xla_tpu_scoped_vmem_limit_kib={1 << (kib - 1).bit_length()} to LIBTPU_INIT_ARGS"
    return f"read the compiler's log, {program.log}" if program.log else "type --cache with a folder that keeps its log"


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
