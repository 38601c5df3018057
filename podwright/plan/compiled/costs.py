"""What one compiled program costs: the schedule in its dump, counted by roofline.py, its collectives named by the mesh's axes.

A program that cannot be counted is no fault of the recipe: it has a note instead of figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from podwright.accelerators import CPU
from podwright.errors import UserError
from podwright.plan.checks.meshes import spanned
from podwright.plan.compiled import dump, hlo, roofline
from podwright.plan.compiled.calibrate import Prices
from podwright.slices import Slice


@dataclass(frozen=True)
class Traffic:
    """The collectives of one kind over the same axes."""

    kind: str
    axis: str
    """'fsdp', or 'data x fsdp' for what joins both"""
    sent_bytes: float
    """by each device, all of them together"""
    count: int


@dataclass(frozen=True)
class ProgramCost:
    """Of one run, per device."""

    flops: float
    hbm_bytes: float
    host_bytes: float
    dcn_bytes: float
    """sent to other slices"""
    predicted_s: float
    bound: str
    """what most of that time is spent waiting for: 'compute', 'hbm', 'ici', 'dcn' or 'host'; of a CPU one of calibrate.RESOURCES"""
    collectives: tuple[Traffic, ...]
    parts: tuple[tuple[str, str, float], ...] = ()
    """part of the model, phase (roofline.PHASES) and seconds, the longest first"""


def read(
    folder: Path, where: Slice, mesh: Mapping[str, int], temporaries: int = 0, prices: Prices | None = None
) -> tuple[ProgramCost | None, tuple[str, ...]]:
    """The cost of the program that was dumped in `folder` for `mesh`, {axis: size}, and what a reader should know of it.

    `temporaries`: bytes per device that it needs while it runs; `prices`: of this machine, for CPU devices.
    """
    row = where.accelerator
    path = dump.schedule(folder)
    why = ""
    if row is CPU and prices is None:
        why = ": this machine could not be calibrated; the log is in cpu-*/log.txt beside the verdicts"
    elif row is not CPU and row.name not in roofline.EFFICIENCIES:
        why = f" for {row.name}, only for {', '.join(roofline.EFFICIENCIES)}"
    elif path is not None:
        try:
            module = hlo.read(path)
            cost = (
                roofline.cost(module, row, where.chips)
                if prices is None
                else prices.cost(module, where.chips, temporaries)
            )
            return _named(cost, mesh), tuple(cost.notes)
        except UserError as e:
            why = f": {e.what}"
        except (ValueError, LookupError, AssertionError) as e:  # the text of a compiler that writes otherwise
            why = f": the compiler's schedule cannot be read ({type(e).__name__}: {e})"[:470]
    else:
        why = ": the compiler left no schedule"
    return None, (f"no time is predicted{why}",)


def _named(cost: roofline.Cost, mesh: Mapping[str, int]) -> ProgramCost:
    sent: dict[tuple[str, str], tuple[float, int]] = {}
    for kind, group, size, count in cost.collectives:
        key = (kind, spanned(mesh, group))
        before = sent.get(key, (0.0, 0))
        sent[key] = (before[0] + size, before[1] + count)
    collectives = tuple(Traffic(*key, *value) for key, value in sorted(sent.items()) if key[1])
    parts = [(*of, seconds) for of, seconds in cost.parts.items()]
    longest_first = tuple(sorted(parts, key=lambda part: -part[2]))
    return ProgramCost(
        cost.flops,
        cost.hbm_bytes,
        cost.host_bytes,
        cost.dcn_bytes,
        cost.predicted_s,
        cost.bound,
        collectives,
        longest_first,
    )
