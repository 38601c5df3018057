"""What exists in the cloud for runs, and whether somebody still needs it.

Only what this user has created on this machine may be removed without being named, and nothing that a run needs: one that a launcher
follows, or that trains without one.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from podwright import targets
from podwright.errors import UserError
from podwright.run import cost, journal, listing, mirror, strays, unlisted
from podwright.run.attended import unattended
from podwright.run.states import Phase
from podwright.run.unlisted import Scope, UnlistedAllocation, elsewhere
from podwright.rundir import Record, RunDir, read_jsonl
from podwright.targets import entries
from podwright.targets.base import RUN_LABEL, KeepsObjects, Process, Target, Traits
from podwright.targets.machines import AllocationState, Owned, OwnedResources, Provisioner

Key = tuple[str, str, str]


class Need(enum.StrEnum):
    """Who needs a slice."""

    LIVING = "living"  # a run that is followed by a launcher, or trains without one
    LEFT = "left"  # a run that has not ended, and that no launcher follows and no trainer works for
    ENDED = "ended"
    GONE = "gone"  # a run whose directory is gone from among others
    OTHERS = "others"  # another user or machine created it
    STRAY = "stray"  # its run has had it deleted, and it exists again
    ELSEWHERE = "elsewhere"  # a run with pools in a cluster that is not listed: this is their workload policy
    UNCLEAR = "unclear"


_TAKEN = (AllocationState.LOST, AllocationState.REFUSED, AllocationState.DELETING, AllocationState.GONE)
"""of machines on which nothing can train"""
_FREE = (Need.LEFT, Need.ENDED, Need.GONE, Need.STRAY)


@dataclass(frozen=True)
class CloudSlice:
    """Machines, or what is left of them, that exist in the cloud."""

    target: str
    """a target that lists it"""
    owned: Owned
    need: Need
    detail: str
    run: RunDir | None = None

    @property
    def key(self) -> Key:
        return key_of(self.owned)

    @property
    def name(self) -> str:
        return self.owned.request.name

    @property
    def removable(self) -> bool:
        """Without being named."""
        return self.need in _FREE

    @property
    def undecided(self) -> bool:
        """Whether machines that this user has created here cost, and are kept since nobody knows whether their run needs them."""
        own, charged = self.owned, self.owned.charged
        costs = charged.chips > 0 if charged else bool(own.request.chip)
        return own.mine and costs and self.need is Need.UNCLEAR

    @property
    def cost(self) -> float | None:
        """USD so far of the machines that exist now; None where the price or the number of machines is not known."""
        own, charged = self.owned.request, self.owned.charged
        if charged is None or self.need is Need.ELSEWHERE:
            return None
        hours = 0.0 if charged.since is None else max(0.0, time.time() - charged.since) / 3600
        return cost.of_chips(own.chip, charged.chips * hours, own.price)

    def document(self) -> Record:
        own = self.owned
        return {
            "name": self.name,
            "zone": own.request.zone,
            "target": self.target,
            "state": str(own.state),
            "cloud_state": own.cloud_state,
            "remark": own.remark,
            "created": own.created,
            "age_s": None if own.created is None else max(0.0, time.time() - own.created),
            "expires": own.expires,
            "cost": self.cost,
            "cost_at_most": own.charged_at_most,
            "run": self.run.name if self.run else None,
            "run_dir": str(self.run.path) if self.run else own.run_dir or None,
            "mine": own.mine,
            "borrowed": own.request.borrowed,
            "need": str(self.need),
            "detail": self.detail,
            "removable": self.removable,
        }


@dataclass
class Inventory:
    slices: list[CloudSlice] = field(default_factory=list)
    faults: list[UserError] = field(default_factory=list)
    """why a target was not listed"""
    unlisted: list[UnlistedAllocation] = field(default_factory=list)


def key_of(owned: Owned) -> Key:
    """The same for all that is left of a request: on GKE, what is left when its pools are gone is in no zone. Two clusters of a region
    list the same workload policies, so the cluster is not part of it."""
    details = owned.request.details
    return str(details.get("project", "")), str(details.get("location", owned.request.zone)), owned.request.name


def owning(name: str) -> tuple[Target, OwnedResources] | None:
    """Target `name`, if runs on it leave something in a cloud or a cluster. UserError for a wrong entry."""
    if opened := creating(name):
        return opened
    target = targets.resolve(name).open()
    return (target, target.attempt_objects) if isinstance(target, KeepsObjects) else None


def creating(name: str) -> tuple[Target, Provisioner] | None:
    """Target `name`, if it creates machines. UserError for a wrong entry."""
    entries.require(name)
    target = targets.resolve(name).open()
    return (target, target.provisioner) if target.provisioner else None


def inventory(name: str, runs: Path) -> Inventory:
    """Of target `name`, or of all (""); a slice that several targets list is there once. Borrowed machines are not."""
    known = Inventory()
    if name and (name not in entries.names() or owning(name) is None):
        known.unlisted = list(unlisted.of_runs(name, {}, runs))
        if known.unlisted:
            return known
        entries.require(name)
        what = f"target {name} creates nothing in a cloud"
        raise UserError(what, "name a target of kind=tpu-vm or gke, or none for all", "creates-no-machines")
    journals = _journals(runs)
    slices: dict[Key, CloudSlice] = {}
    borrowed: set[tuple[str, str]] = set()
    scopes: dict[str, Scope | None] = {}
    for each in entries.names():
        scopes[each] = None
        try:
            if traits := traits_of(each):
                scopes[each] = traits.inventory_scope
                borrowed.update([(traits.zones[0], traits.borrowed)] if traits.borrowed else [])
            if each == name or not name:
                listed, fault = _listed(each)
                for owned in listed:
                    new = _slice(each, owned, journals)
                    slices[new.key] = max(new, slices.get(new.key, new), key=_completeness)
                known.faults += [fault] if fault else []
        except UserError as e:
            if each == name:
                raise
            if not name:
                known.faults.append(e)
    listed_names = {s.name for s in slices.values() if s.need is not Need.ELSEWHERE}
    known.slices = [
        s
        for s in slices.values()
        if not s.owned.request.borrowed
        and (s.owned.request.zone, s.name) not in borrowed
        and (s.need is not Need.ELSEWHERE or s.name not in listed_names)
    ]
    known.unlisted = list(unlisted.of_runs(name, scopes, runs, listed_names))
    return known


def _completeness(each: CloudSlice) -> tuple[bool, bool]:
    """Orders what several targets list of one request: another cluster of the region has its workload policy, and not its node pools."""
    return each.need is not Need.ELSEWHERE, each.owned.state is not AllocationState.PARTIAL


def of_target(name: str, runs: Path) -> list[CloudSlice]:
    """What the cloud lists for target `name`, borrowed machines among it. UserError where it creates and borrows none."""
    if creating(name) is None:
        fix = "leave --live out, or name a target of kind=tpu-vm or gke whose runs create machines"
        raise UserError(f"target {name} creates no machines", fix, "creates-no-machines")
    journals = _journals(runs)
    return [_slice(name, owned, journals) for owned in _listed(name)[0]]


def traits_of(name: str) -> Traits | None:
    own = entries.find(name)
    return own.traits() if own else None


def _listed(name: str) -> tuple[list[Owned], UserError | None]:
    """And why machines are not among them. UserError, which names the target, where the cloud does not list them."""
    opened = owning(name)
    if opened is None:
        return [], None
    try:
        listed = opened[1].list_owned()
    except UserError as e:
        raise UserError(f"target {name}: {e.what}", e.fix, e.code) from e
    fault = without_machines(opened[0])
    return listed, fault and UserError(f"target {name}: {fault.what}", fault.fix, fault.code)


def without_machines(target: Target) -> UserError | None:
    """Why the last list of what is on `target` has no machines, where it has none for that."""
    return target.attempt_objects.unlisted if isinstance(target, KeepsObjects) else None


def _journals(runs: Path) -> dict[str, RunDir]:
    """The runs in `runs` by the names and the tags of what they have requested or submitted."""
    known: dict[str, RunDir] = {}
    for run in listing.run_dirs(runs):
        known |= dict.fromkeys(_requested(run), run)
    return known


def _requested(run: RunDir) -> Iterator[str]:
    for event in read_jsonl(run.journal):
        handle = event.get("handle")
        request = event.get("request")
        if event.get("event") == "submitting" and isinstance(handle, dict) and "tag" in handle:
            yield str(handle["tag"])
        if event.get("event") == "allocation requested" and isinstance(request, dict):
            names = (request.get("name"), request.get("labels", {}).get(RUN_LABEL))
            yield from (str(name) for name in names if name)


def _slice(target: str, owned: Owned, journals: dict[str, RunDir]) -> CloudSlice:
    run = journals.get(owned.request.name) or journals.get(owned.request.labels.get(RUN_LABEL, ""))
    if run is None and owned.mine and owned.run_dir:
        there = RunDir(Path(owned.run_dir))
        names = {owned.request.name, owned.request.labels.get(RUN_LABEL, "")}
        run = there if there.journal.exists() and names & set(_requested(there)) else None
    if owned.request.borrowed:
        need, detail = Need.OTHERS, "borrowed: it is used and never deleted"
    elif run is not None and (scope := elsewhere(run, owned, traits_of(target))):
        need, detail = Need.ELSEWHERE, f"run {run.name} has its machines in {'/'.join(scope)}"
    elif run is not None:
        need, detail = _need_of(run, owned)
    elif owned.run_dir:
        need, detail = _need_of_absent(Path(owned.run_dir))
    else:
        need, detail = Need.UNCLEAR, "its run cannot be determined"
    if not (owned.mine or owned.request.borrowed) and need not in (Need.LIVING, Need.ELSEWHERE, Need.STRAY):
        where = f" for {owned.run_dir}" if owned.run_dir else ""
        need, detail = Need.OTHERS, f"another user or machine created it{where}"
    return CloudSlice(target, owned, need, detail, run)


def _need_of_absent(run_dir: Path) -> tuple[Need, str]:
    """Of a run that is not in its directory: only a folder that has other runs tells that it was removed, and not its disk."""
    try:
        others = any(run_dir.parent.iterdir())
    except OSError:
        others = False
    if others:
        return Need.GONE, f"its run in {run_dir} is gone"
    where = f"{run_dir.parent}, the folder of its run, is empty or not there"
    return Need.UNCLEAR, f"{where}: mount its disk, or type the name of the slice if the runs were removed"


def _need_of(run: RunDir, owned: Owned) -> tuple[Need, str]:
    """Whether `run` needs what it has created. A list that lags shows machines at work as not ready yet: their attempt is asked."""
    try:
        if strays.is_stray(run, owned.request.name):
            return Need.STRAY, f"run {run.name} has had it deleted, and it exists again"
        state = journal.read(run)
        if mirror.observes(run):
            if state.phase is Phase.ENDED:
                return Need.ENDED, f"run {run.name} {state.ending}"
            return Need.UNCLEAR, f"another machine drives run {run.name}"
        with unattended(run) as free:
            if not free:
                return Need.LIVING, f"run {run.name} is followed by a launcher"
        if state.handle and state.attempt > state.ended_attempt and owned.state not in _TAKEN:
            target = targets.of_handle(state.handle)
            polled = target.poll(state.handle)
            if polled.process is Process.RUNNING:
                known = f"run {run.name} trains without a launcher"
                if not polled.silent:
                    return Need.LIVING, known
                cloud = target.provisioner
                if cloud is None or cloud.describe(owned.request).state not in _TAKEN:  # the list may lag
                    return Need.UNCLEAR, f"it is not known whether {known} ({polled.waiting})"
    except (UserError, OSError) as e:
        return Need.UNCLEAR, f"run {run.name} cannot be read: {e}"
    if state.phase is Phase.ENDED:
        return Need.ENDED, f"run {run.name} {state.ending}"
    return Need.LEFT, f"run {run.name} does not train, and no launcher follows it"
