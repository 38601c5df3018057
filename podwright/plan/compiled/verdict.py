"""What compiled programs mean for the recipe: findings with what to type, and the entries of a plan's document."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from podwright import slices
from podwright.accelerators import GIB
from podwright.errors import UserError
from podwright.plan.checks import pretrain
from podwright.plan.checks.sufficiency import num_test_examples
from podwright.plan.compiled import compile as aot
from podwright.plan.compiled import step_time, torch_memory
from podwright.plan.compiled.compile import CompileContext, Compiled
from podwright.plan.findings import Finding
from podwright.plan.make import dimensions, smaller
from podwright.recipe.contrastive import ContrastiveRecipe
from podwright.recipe.dimensions import Dims
from podwright.recipe.kinds import JaxRecipe, Recipe
from podwright.recipe.models import Qwen3Dims
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.recipe.pretrain import PretrainRecipe
from podwright.slices import Slice

_SHOWN = 3  # allocations named in one line


def compiled(
    document: dict[str, Any], recipe: Recipe, on: str, depth: str, shop: CompileContext, price: float | None = None
) -> dict[str, Any]:
    """What compiling adds to a static plan's document: programs, the time of a step, more findings, and the verdict with them.

    `price`: money per chip-hour.
    """
    if depth not in ("quick", "full"):
        raise UserError(f"--compile={depth} is no depth", "type --compile or --compile=full")
    if isinstance(recipe, ContrastiveRecipe):
        raise UserError(
            f"{recipe.name} trains heads behind frozen encoders, and there is nothing to compile", "leave --compile out"
        )
    if on == "local":
        raise UserError(
            "what `local` has is known only when a run starts", "type --on cpu-1, or a slice such as --on v6e-16"
        )
    where = slices.parse(on)
    if isinstance(recipe, MultimodalRecipe):
        if price is not None or shop.jax:
            given = "--jax" if shop.jax else "--price"
            raise UserError(
                f"{given} has no meaning for {recipe.name}: its memory is counted, in PyTorch, and not its time",
                f"leave {given} out",
            )
        return torch_memory.compiled(document, recipe, where, shop)
    dims = dimensions(recipe, Path.cwd())
    if dims is None:
        raise UserError(
            f"the dimensions of {recipe.model.name} are not known here", "type model.name= one that `recipes` lists"
        )
    names = aot.programs(recipe)
    found = aot.compile_all(recipe, dims, where, names, full=depth == "full", shop=shop)
    limit = aot.limit_bytes(where)
    told = [asdict(f) for f in findings(found, limit, lambda name: smaller(name, recipe, where))]
    verdicts = {one.verdict for one in found}
    ok = False if verdicts & {"too large", "failed"} else None if "unknown" in verdicts else document["ok"]
    step = {} if ok is False else _step(found, recipe, dims, where, price)
    return {
        "ok": ok,
        "findings": document["findings"] + told,
        "programs": [entry(one, limit) for one in found],
        "step": step,
    }


def _step(found: list[Compiled], recipe: JaxRecipe, dims: Dims, where: Slice, price: float | None) -> dict[str, Any]:
    if isinstance(recipe, PretrainRecipe):
        return pretrain.step(found, recipe, dims, where, price)
    assert isinstance(dims, Qwen3Dims)
    return step_time.document(found, recipe, dims, where, num_test_examples(recipe.data, Path.cwd()), price)


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
                "warning",
                f"{one.name}: {one.error}, so nobody knows whether it fits",
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


def entry(one: Compiled, limit_bytes: float | None) -> dict[str, Any]:
    """One entry of `programs` in `podwright plan --json`; memory in GiB per device."""
    said: dict[str, Any] = {
        "name": one.name,
        "verdict": one.verdict,
        "hbm_gib": _gib(one.hbm_bytes),
        "limit_gib": _gib(limit_bytes),
        "compile_s": round(one.seconds, 1),
        "cached": one.cached,
        "resident_gib": {name: _gib(size) for name, size in one.resident.items()},
        "error": one.error,
        "notes": list(one.notes),
    }
    if one.cost is not None:
        for name in ("flops", "hbm_bytes", "host_bytes", "dcn_bytes", "predicted_s", "bound"):
            said[name] = getattr(one.cost, name)
        said["parts"] = [{"part": part, "phase": phase, "seconds": seconds} for part, phase, seconds in one.cost.parts]
        said["collectives"] = [
            {"kind": t.kind, "axis": t.axis, "gib_sent": _gib(t.sent_bytes), "count": t.count}
            for t in one.cost.collectives
        ]
    if one.memory is not None:
        for name in ("arguments", "aliased", "outputs", "temporaries", "constants"):
            said[f"{name}_gib"] = _gib(getattr(one.memory, name))
        if one.memory.host:
            said["host_gib"] = _gib(one.memory.host)
        said["largest"] = [{"gib": _gib(a.size_bytes), "shape": a.shape, "what": a.what} for a in one.memory.largest]
    return said


def _gib(size: float | None) -> float | None:
    return None if size is None else round(size / GIB, 4)
