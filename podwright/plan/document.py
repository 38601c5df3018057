"""A plan as a typed record: what `podwright plan --json` prints, what plan.json of a run keeps, and what is read back from it.

Seconds are predicted, memory is in GiB per device. A key that a kind of recipe or an uncompiled plan does not know is left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from podwright import __version__
from podwright.errors import UserError
from podwright.plan.findings import Finding, Verdict, verdict_of
from podwright.rundir import Record


class PlanRecord(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class SliceEntry(BaseModel):
    """The devices that the plan is for, and the names that their vendors' tools have for them."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)

    name: str
    accelerator: str
    devices: int
    chips: int
    hosts: int
    slices: int
    hbm_gib: float | None
    meshes: tuple[dict[str, int], ...]
    """every mesh that works, by axis"""


class MemoryEntry(PlanRecord):
    """The closed form of one program's memory."""

    name: str
    estimated_gib: float
    limit_gib: float
    parts_gib: dict[str, float]


class PartSeconds(PlanRecord):
    part: str
    phase: str
    """forward, backward or recompute"""
    seconds: float


class CollectiveEntry(PlanRecord):
    kind: str
    axis: str
    gib_sent: float
    count: int


class AllocationEntry(PlanRecord):
    gib: float
    shape: str
    what: str


class ProgramEntry(PlanRecord):
    """One compiled program; bytes and FLOPs are of one device."""

    name: str
    verdict: str
    """fits, too large, failed or unknown"""
    hbm_gib: float | None
    limit_gib: float | None
    compile_s: float
    cached: bool
    resident_gib: dict[str, float]
    """what stays on the device while it runs"""
    error: str
    notes: tuple[str, ...]
    flops: float | None = None
    hbm_bytes: float | None = None
    host_bytes: float | None = None
    dcn_bytes: float | None = None
    predicted_s: float | None = None
    bound: str | None = None
    parts: tuple[PartSeconds, ...] = ()
    collectives: tuple[CollectiveEntry, ...] = ()
    arguments_gib: float = 0.0
    aliased_gib: float | None = None
    outputs_gib: float | None = None
    temporaries_gib: float | None = None
    constants_gib: float | None = None
    host_gib: float | None = None
    largest: tuple[AllocationEntry, ...] = ()
    largest_batch_size: int | None = None
    """per device, that fits"""


class ProgramSeconds(PlanRecord):
    name: str
    runs: int
    """in one step"""
    seconds: float
    """of all its runs in a step"""
    bound: str | None
    """what limits it: compute, hbm or links; None where that is not known"""


class CostEntry(PlanRecord):
    """What a run costs by one way of paying for machines, USD."""

    provisioning: str
    """on-demand, spot, reserved or flex-start"""
    price: float | None
    """per chip-hour; None where no source names it"""
    cost: float | None
    source: str
    """of the price, with its date; where there is none, how to set one"""


class RunTotals(PlanRecord):
    steps: int
    evaluations: int | None
    steps_s: float
    evaluations_s: float | None
    warm_start_s: float | None = None
    hours: float
    chip_hours: float | None
    price: float | None
    cost: float | None
    costs: tuple[CostEntry, ...] = ()
    """by ways of paying; () where --price names the price, and for what is no TPU"""


class StepEntry(PlanRecord):
    estimated: bool
    """in closed form; else from the compiled programs"""
    programs: tuple[ProgramSeconds, ...]
    step_s: float
    range_s: tuple[float, float] | None = None
    """in which 8 of 10 runs lie that were predicted in the same way; None where none were compared"""
    prompts_per_s: float | None = None
    completions_per_s: float | None = None
    tokens_per_s_per_device: float
    tflops_per_device: float | None = None
    mfu: float | None
    run: RunTotals | None
    """None where the number of steps is known only when the data has been read"""
    notes: tuple[str, ...]


class PreemptionEntry(PlanRecord):
    """What saves and preemptions cost a run on machines that may be taken away."""

    preemptions_per_day: float
    """that are assumed"""
    checkpoint_gib: float
    wait_s: float
    """that training stands still for a save"""
    write_s: float
    """until a save counts"""
    every_n_steps: int
    """of the recipe"""
    interval_s: float | None = None
    """between saves; None, as all below, where the time of a step is not known"""
    loss: float | None = None
    """share of the time that goes to saves and to steps that are computed again"""
    best_every_n_steps: int | None = None
    best_loss: float | None = None


class FitRow(PlanRecord):
    typed: str
    step_s: float | None
    need_gib: float
    limit_gib: float
    program: str
    fits: bool | None
    compiled: bool
    chosen: bool


class FitEntry(PlanRecord):
    """What a search for settings chose, and what else it looked at."""

    on: str
    overrides: dict[str, int | str]
    typed: str
    searched: int
    fitting: int
    settings: tuple[FitRow, ...]


class Plan(PlanRecord):
    """Whether a recipe will run on a target, as far as that could be checked."""

    recipe: str
    target: str
    slice: SliceEntry | None
    verdict: Verdict
    findings: tuple[Finding, ...]
    memory: tuple[MemoryEntry, ...] = ()
    programs: tuple[ProgramEntry, ...] = ()
    step: StepEntry | None = None
    fit: FitEntry | None = None
    preemption: PreemptionEntry | None = None

    @field_validator("step", mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        return None if value == {} else value

    @property
    def ok(self) -> bool | None:
        return self.verdict.ok

    @property
    def errors(self) -> list[Finding]:
        return [f for f in self.findings if f.level == "error"]

    def with_finding(self, finding: Finding) -> Plan:
        findings = (*self.findings, finding)
        return self.model_copy(update={"findings": findings, "verdict": verdict_of(findings)})

    def document(self) -> Record:
        """JSON, with `ok` (true, false, null) beside the verdict, `step` {} where no time is known, and the version that wrote it."""
        listed = self.model_dump(mode="json", exclude_unset=True)
        record: Record = {"version": __version__}
        record |= {name: listed.get(name) for name in ("recipe", "target", "slice", "verdict")} | {"ok": self.ok}
        record |= {name: listed.get(name, []) for name in ("findings", "memory", "programs")}
        record["step"] = listed.get("step") or {}
        return record | {name: listed[name] for name in ("preemption", "fit") if getattr(self, name)}

    def refuse(self) -> None:
        """Raise the first error as a UserError, if there is one."""
        if self.errors:
            more = f" (and {len(self.errors) - 1} more: `podwright plan` shows all)" if len(self.errors) > 1 else ""
            raise UserError(self.errors[0].message + more, self.errors[0].fix, self.errors[0].code)

    @classmethod
    def read(cls, path: Path) -> Plan:
        """plan.json of a run; UserError where it is damaged or of another version."""
        version = None
        try:
            record = json.loads(path.read_text())
            record.pop("ok", None)
            version = record.pop("version", None)
            return cls.model_validate(record)
        except ValidationError as e:
            author = f"Podwright {version}" if version else "a Podwright that did not write its version"
            fault = f"was written by {author}, and {__version__} cannot read it"
            fault = "is damaged" if version == __version__ else fault
            raise UserError(f"{path} {fault}", "type podwright plan RECIPE for a new one", "damaged-plan") from e
        except (OSError, ValueError, AttributeError, TypeError, RecursionError) as e:
            reason = e.strerror if isinstance(e, OSError) else "it is no plan in JSON"
            what = f"{path} cannot be read ({reason})"
            raise UserError(what, "type podwright plan RECIPE for a new one", "damaged-plan") from e
