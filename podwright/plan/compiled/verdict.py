"""What compiled programs mean for the recipe: findings with what to type, and the entries of a plan's document."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from podwright.accelerators import GIB
from podwright.plan.checks.inputs import DIRECTORY
from podwright.plan.compiled import compile as aot
from podwright.plan.compiled.compile import Compiled
from podwright.plan.document import ProgramEntry, StepEntry
from podwright.plan.findings import Finding, InconclusiveCheck
from podwright.plan.kinds import CompiledPrograms, PlanPart
from podwright.plan.options import PlanOptions
from podwright.recipe.dimensions import Dims
from podwright.recipe.kinds import JaxRecipe
from podwright.rundir import Record
from podwright.slices import Slice

R = TypeVar("R", bound=JaxRecipe)

_SHOWN = 3  # allocations named in one line


def unknown_dimensions(model: str) -> InconclusiveCheck:
    return InconclusiveCheck(f"the compiler was not run: the dimensions of {model} are not known here", DIRECTORY)


def compile_programs(part: PlanPart[R], recipe: R, dims: Dims, where: Slice, options: PlanOptions) -> list[Compiled]:
    """Every program of the recipe, by the compiler."""
    assert options.context is not None
    full, more = options.depth == "full", part.compiler_package(recipe)
    names = part.programs(recipe)
    return aot.compile_all(recipe, dims, where, names, full=full, shop=options.context, more=more)


def results(
    part: PlanPart[R], compiled: list[Compiled], recipe: R, where: Slice, step: StepEntry | None
) -> CompiledPrograms:
    """`step`: the time of one, which counts only when all programs fit."""
    limit = aot.limit_bytes(where)
    found = findings(compiled, limit, lambda name: part.smaller(name, recipe, where))
    fits = not {one.verdict for one in compiled} & {"too large", "failed"}
    return CompiledPrograms(tuple(found), tuple(entry(one, limit) for one in compiled), step if fits else None)


def findings(compiled: list[Compiled], limit_bytes: float | None, smaller: Callable[[str], str]) -> list[Finding]:
    """`smaller`: what to type when the program of that name is too large."""
    found = [finding for one in compiled for finding in _of(one, limit_bytes, smaller)]
    missing = dict.fromkeys(
        note for one in compiled if one.verdict == "fits" and one.cost is None for note in one.notes
    )
    if kernels := sum(one.kernels for one in compiled):
        found.append(
            Finding(
                "compile",
                "info",
                f"{kernels} kernels compile alone, to the end: {sum(one.kernels_s for one in compiled):.1f} s",
            )
        )
    return found + [Finding("step", "info", note) for note in missing]


def _of(one: Compiled, limit_bytes: float | None, smaller: Callable[[str], str]) -> list[Finding]:
    if one.verdict == "unknown":
        return [
            Finding(
                "compile",
                "inconclusive",
                f"{one.name}: {one.error}, so that it is not known whether it fits",
                "try it on a machine with less to do",
            )
        ]
    if one.verdict == "failed":
        return [Finding("compile", "error", f"{one.name} does not compile: {one.error}", _mend(one.error))]
    assert one.hbm_bytes is not None
    if one.verdict == "fits":
        of = "" if limit_bytes is None else f" of {limit_bytes / GIB:.2f}"
        return [Finding("compile", "info", f"{one.name} needs {one.hbm_bytes / GIB:.2f}{of} GiB per device")]
    assert limit_bytes is not None and one.memory is not None
    largest = ", ".join(f"{a.size_bytes / GIB:.2f} GiB {a.shape} by {a.what}" for a in one.memory.largest[:_SHOWN])
    said = f' (the compiler: "{one.error}")' if one.error else ""
    message = f"{one.name} needs {one.hbm_bytes / GIB:.2f} of {limit_bytes / GIB:.2f} GiB per device; its largest: {largest}{said}"
    return [Finding("compile", "error", message, smaller(one.name))]


def _mend(error: str) -> str:
    if "command line flag" in error or "Illegal value" in error:
        return "correct LIBTPU_INIT_ARGS"
    if kib := aot.scoped_kib(error):
        return f"add --xla_tpu_scoped_vmem_limit_kib={1 << (kib - 1).bit_length()} to LIBTPU_INIT_ARGS"
    return "the log is beside the verdict; `--compile=full` shows more"


def entry(one: Compiled, limit_bytes: float | None) -> ProgramEntry:
    """One entry of `programs` in `podwright plan --json`; memory in GiB per device."""
    known: Record = {}
    if one.cost is not None:
        known = {
            name: getattr(one.cost, name)
            for name in ("flops", "hbm_bytes", "host_bytes", "dcn_bytes", "predicted_s", "bound")
        }
        known["parts"] = [{"part": part, "phase": phase, "seconds": seconds} for part, phase, seconds in one.cost.parts]
        known["collectives"] = [
            {"kind": t.kind, "axis": t.axis, "gib_sent": _gib(t.sent_bytes), "count": t.count}
            for t in one.cost.collectives
        ]
    if one.memory is not None:
        for name in ("arguments", "aliased", "outputs", "temporaries", "constants"):
            known[f"{name}_gib"] = _gib(getattr(one.memory, name))
        if one.memory.host:
            known["host_gib"] = _gib(one.memory.host)
        known["largest"] = [{"gib": _gib(a.size_bytes), "shape": a.shape, "what": a.what} for a in one.memory.largest]
    return ProgramEntry.model_validate(
        {
            "name": one.name,
            "verdict": one.verdict,
            "hbm_gib": _gib(one.hbm_bytes),
            "limit_gib": _gib(limit_bytes),
            "compile_s": round(one.seconds, 1),
            "cached": one.cached,
            "resident_gib": {name: _gib(size) for name, size in one.resident.items()},
            "error": one.error,
            "notes": list(one.notes),
            **known,
        }
    )


def _gib(size: float | None) -> float | None:
    return None if size is None else round(size / GIB, 4)
