"""What a plan is made for, and how far it goes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from podwright.plan.findings import Finding
from podwright.slices import Slice

if TYPE_CHECKING:
    from podwright.plan.compiled.compile import CompileContext


@dataclass(frozen=True)
class Destination:
    """A target or a slice, as the plan needs to know it."""

    name: str
    """as it was typed"""
    where: Slice | None = None
    """its devices; None where only the machines themselves know them"""
    findings: tuple[Finding, ...] = ()
    """what was found out about the target, and the trackers, beforehand"""
    here: bool = False
    """whether it is this machine, whose packages and memory can be looked at"""
    gpus_per_node: int = 0
    """of a target whose settings say so; 0 for a slice"""
    provisioning: str = ""
    """how its machines are paid for: spot, on-demand, reserved or flex-start; "" where they are not requested for a run"""
    price: float | None = None
    """USD per chip-hour, where its settings name it"""
    preemptions_per_day: float = 0.0
    """that are expected of its machines"""
    shared_storage: bool = True
    """whether all its hosts write checkpoints; else the first one writes all"""


@dataclass(frozen=True)
class PlanOptions:
    only: str = ""
    """names of checks, with commas; "" for all"""
    depth: str = ""
    """how far the programs are compiled: "" not at all, quick, or full"""
    fit: bool = False
    """search for the fastest settings that fit"""
    price: float | None = None
    """money per chip-hour"""
    context: CompileContext | None = None
    """of the compiler, where one is wanted"""
    starting: bool = False
    """for a run that is to be started: what a run needs and a plan does not is an error"""
    cwd: Path = field(default_factory=Path.cwd)
    """where relative paths of the recipe start"""
