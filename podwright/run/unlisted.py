"""Machines that runs have, by their journals, and no inventory shows: no target's entry looks there now, or their creation is still under way."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from podwright import targets
from podwright.errors import UserError
from podwright.run import journal, listing
from podwright.run.allocations import AllocationRecord
from podwright.run.attended import is_attended
from podwright.rundir import Record, RunDir
from podwright.targets.base import Traits
from podwright.targets.machines import AllocationState, Owned, Request

Scope = tuple[str, ...]
"""`Traits.inventory_scope`"""


@dataclass(frozen=True)
class UnlistedAllocation:
    """Machines that a run has requested, by its journal, and that were not listed."""

    run: RunDir
    target: str
    request: Request
    fault: UserError
    """why they were not listed, and what to type"""

    def document(self) -> Record:
        return {
            "name": self.request.name,
            "zone": self.request.zone,
            "target": self.target,
            "run": self.run.name,
            "run_dir": str(self.run.path),
            "detail": self.fault.what,
            "fix": self.fault.fix,
        }


def of_runs(
    name: str, scopes: Mapping[str, Scope | None], runs: Path, names: Collection[str] = ()
) -> Iterator[UnlistedAllocation]:
    """Of target `name`, or of all (""). `scopes`: of each entry; None where it cannot be read, which is a fault of its own. `names`: what was listed."""
    listed = {scope for target, scope in scopes.items() if scope and (target == name or not name)}
    for run in listing.run_dirs(runs):
        record = _allocation_of(run)
        if record is None or record.request.borrowed or record.request.name in names:
            continue
        target = str(record.target.get("target", ""))
        if (name and target != name) or (target in scopes and scopes[target] is None):
            continue
        scope = _scope_of(record)
        try:
            looked = scope in listed
            why = coming(run, record.request.name) if looked else _not_looked(target, scope, scopes.get(target))
        except UserError as e:
            why = str(e)
        if why:
            yield UnlistedAllocation(run, target, record.request, _fault(run, record, target, why))


def _not_looked(target: str, requested: Scope | None, now: Scope | None) -> str:
    """Why no entry looks where an allocation is. `requested`, `now`: where, and what the entry of the target names now."""
    where, there = ("/".join(scope or ()) or "no cloud" for scope in (requested, now))
    return f"target {target} names {there} now, and they were requested in {where}"


def coming(run: RunDir, name: str) -> str:
    """Why the newest allocation of a run, called `name`, may exist or come though the cloud does not list it, as after a launcher whose gcloud
    has outlived it; "" if it cannot, or a launcher sees to it. UserError."""
    record = _allocation_of(run)
    if record is None or record.request.name != name or listing.only_observed(run) or is_attended(run):
        return ""
    if (provisioner := targets.of_handle(record.target).provisioner) is None:
        return ""
    cloud = provisioner.describe(record.request, record.ready_since)
    absent = cloud.state in (AllocationState.GONE, AllocationState.REFUSED)
    return "" if absent else cloud.reason or f"the cloud calls them {cloud.state}"


def _fault(run: RunDir, record: AllocationRecord, target: str, why: str) -> UserError:
    where = f"{record.request.name} in {record.request.zone} (target {target})"
    fix = f"type podwright stop {run.typed}, which stops the run and deletes them with its recorded settings"
    if listing.only_observed(run):
        fix = f"type podwright stop {run.name} on the machine that drives the run"
    return UserError(f"run {run.name}: its machines {where} were not listed: {why}", fix, "machines-not-listed")


def _allocation_of(run: RunDir) -> AllocationRecord | None:
    """The newest allocation of a run, unless it is gone; None also for a journal that cannot be read."""
    try:
        record = journal.read(run).allocation
    except (UserError, OSError):
        return None
    return record if record and record.may_exist else None


def _scope_of(record: AllocationRecord) -> Scope | None:
    """Where it was requested; None where its target was recorded by a version whose settings cannot be read."""
    try:
        return targets.recorded(record.target).traits.inventory_scope
    except UserError:
        return None


def elsewhere(run: RunDir, owned: Owned, traits: Traits | None) -> Scope | None:
    """Where the machines of the request are, by the journal of its run, if a target with `traits` does not list them; else None. Two
    clusters of a region have the same list of workload policies."""
    record = _allocation_of(run) if owned.state is AllocationState.PARTIAL else None
    if record is None or traits is None or record.request.name != owned.request.name:
        return None
    scope = _scope_of(record)
    return scope if scope and scope != traits.inventory_scope else None
