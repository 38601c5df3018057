"""What the memory of multimodal training means: the compute half counts it on an update of meta tensors."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from pathlib import Path

from podwright.accelerators import GIB
from podwright.errors import UserError, counted
from podwright.plan.checks.multimodal import dimensions
from podwright.plan.compiled.compile import CompileContext, limit_bytes
from podwright.plan.document import ProgramEntry
from podwright.plan.findings import MISSING_PACKAGE, Finding, InconclusiveCheck
from podwright.plan.kinds import CompiledPrograms
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.rundir import Record
from podwright.slices import Slice

LIMIT_S = 1800.0
SAFE = 0.95  # of a device's memory; the rest goes in pieces that fit nothing


def compiled(recipe: MultimodalRecipe, where: Slice, shop: CompileContext) -> CompiledPrograms:
    """One program, the update, and a finding with what to type."""
    limit = limit_bytes(where)
    begin = time.monotonic()
    counts = _count(recipe, where, limit and SAFE * limit, shop)
    seconds = time.monotonic() - begin
    verdict = _verdict(counts["peak_bytes"], limit)
    entry = ProgramEntry(
        name="update",
        verdict=verdict,
        hbm_gib=_gib(counts["peak_bytes"]),
        limit_gib=limit and _gib(limit),
        arguments_gib=_gib(counts["weights_bytes"] + counts["optimizer_bytes"]),
        resident_gib={},
        compile_s=round(seconds, 1),
        cached=False,
        error="",
        notes=(),
        largest_batch_size=counts["largest_batch_size"],
    )
    return CompiledPrograms((_finding(counts, verdict, limit, recipe),), (entry,))


def _count(recipe: MultimodalRecipe, where: Slice, limit: float | None, shop: CompileContext) -> Record:
    spec = {
        "recipe": recipe.model_dump(mode="json"),
        "dims": dataclasses.asdict(dimensions(recipe.model, Path.cwd())),
        "devices": where.num_devices,
        "limit_bytes": limit,
    }
    argv = [sys.executable, "-m", "podwright.train", "memory", json.dumps(spec)]
    shop.progress("update", "counting what its tensors need", 0.0)
    _, out, errors = shop.runner.ask(argv, seconds=LIMIT_S)
    try:
        counts: Record = json.loads(out)
    except ValueError:
        reason = (errors.strip().splitlines() or ["the process ended without output"])[-1]
        what = f"the memory of an update was not counted: {reason}"
        raise InconclusiveCheck(what, "leave --compile out", "not-compiled") from None
    if counts.get("code") == MISSING_PACKAGE:
        what = f"the memory of an update was not counted: {counts['error']}"
        raise InconclusiveCheck(what, counts["fix"], MISSING_PACKAGE)
    if "error" in counts:
        raise UserError(counts["error"], counts["fix"], counts.get("code", ""))
    return counts


def _verdict(peak_bytes: float, limit_bytes: float | None) -> str:
    if limit_bytes is None or peak_bytes <= SAFE * limit_bytes:
        return "fits"
    return "unknown" if peak_bytes <= limit_bytes else "too large"


def _finding(counts: Record, verdict: str, limit: float | None, recipe: MultimodalRecipe) -> Finding:
    of = "" if limit is None else f" of {limit / GIB:.2f}"
    kept = f"weights {_gib(counts['weights_bytes']):.2f}, optimizer {_gib(counts['optimizer_bytes']):.2f}"
    longest = "" if counts["known"] else " (data.max_text_length)"
    lines = f"{counted(recipe.per_device_batch_size, 'line')} of up to {counts['tokens']} tokens{longest}"
    what = f"an update needs {counts['peak_bytes'] / GIB:.2f}{of} GiB per device ({kept}) with {lines}"
    most = counts["largest_batch_size"]
    if verdict == "fits":
        largest = "" if most is None else f"; the largest per_device_batch_size is {most}"
        return Finding("memory", "info", what + largest)
    fix = _smaller(recipe, most)
    if verdict == "unknown":
        what = f"{what}, too close to the limit for this estimate"
        return Finding("memory", "inconclusive", what, fix, "near-the-limit")
    return Finding("memory", "error", what, fix, "too-large")


def _smaller(recipe: MultimodalRecipe, most: int) -> str:
    """What to type; a step sees as many lines as before."""
    own = recipe.per_device_batch_size
    if most:
        size = max(n for n in range(1, most + 1) if own % n == 0)
        parts = recipe.training.gradient_accumulation_steps * own // size
        return f"type per_device_batch_size={size} training.gradient_accumulation_steps={parts}"
    if not recipe.model.gradient_checkpointing:
        return "type model.gradient_checkpointing=true"
    return "take a GPU with more memory, or a smaller model"


def _gib(size: float) -> float:
    return round(size / GIB, 4)
