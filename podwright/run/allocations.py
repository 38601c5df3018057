"""The allocations of a run, folded from its journal: what was requested, where capacity was refused, and what must be deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from podwright.run.states import ALLOCATION_TRANSITIONS, AllocationPhase
from podwright.rundir import Ending, Record
from podwright.targets.machines import AllocationState, ChargedChips, HostAddress, Hosts, Request, covers

REST_S = 30.0
"""for which a place is left alone that has refused once, or taken machines away"""


@dataclass(frozen=True)
class AllocationRecord:
    """The newest allocation, as the journal knows it."""

    number: int
    phase: AllocationPhase
    since: float
    """when the phase began"""
    request: Request
    target: Record
    """the `identity` of the target that it was requested from"""
    calls: int = 1
    """of the phase: to create it, or to delete it"""
    called: float = 0.0
    """when the last of them was written down"""
    hosts: Hosts = ()
    ready_since: float | None = None
    """since when the machines were ready; None if they never were"""
    reason: str = ""
    scope: str = ""
    ending: Ending | None = None
    uncreated: bool = False
    """whether its only request was refused by the call that made it: nothing of it exists"""
    undeleted: str = ""
    """why the last call to delete it was refused, which a person has to correct; "" where it was not"""
    at_fault: bool = False
    """whether no further attempt may use it"""
    charged: ChargedChips | None = None
    """as the cloud told last; None if it never did"""
    lacking: AllocationState | None = None
    """FILLING or REPAIRING, while machines of it are missing; None else"""
    lacking_since: float = 0.0

    @property
    def may_exist(self) -> bool:
        """Whether the cloud may have something of it: not once it is gone, nor where the call that requested it was refused itself."""
        return self.phase is not AllocationPhase.GONE and not (self.phase is AllocationPhase.REFUSED and self.uncreated)

    @property
    def awaited(self) -> bool:
        """Whether its machines come when an attempt asks for them, and are not all there."""
        return not self.hosts and self.charged is not None and self.charged.chips < self.request.num_chips


@dataclass(frozen=True)
class Refusals:
    count: int
    last: float
    lost: int = 0
    """how many of them were machines that were taken away"""
    final: bool = False
    """whether the place can never have the machines, whatever the time"""


@dataclass(frozen=True)
class Capacity:
    """The search for machines since an attempt was last submitted."""

    since: float | None = None
    """when it began; None while there is none"""
    refusals: dict[str, Refusals] = field(default_factory=dict)
    """by scope: a zone, or the beginning of the names of several"""
    final: Ending | None = None
    """set once every zone has refused for good"""


def after(record: AllocationRecord | None, event: Record) -> AllocationRecord | None:
    """The newest allocation after an event about one; an event that does not fit its phase changes nothing."""
    name, number, time = event["event"], event["allocation"], event["time"]
    if record is None or number == record.number + 1:
        fresh = name == "allocation requested" and (record is None or record.phase is AllocationPhase.GONE)
        return _requested(event) if fresh else record
    if number != record.number:
        return record
    phase = ALLOCATION_TRANSITIONS.get((record.phase, name))
    if phase is None:
        return record
    changes: dict[str, Any] = {"phase": phase}
    if phase is not record.phase:
        changes["since"] = time
    if name in ("allocation requested", "allocation deleting"):
        changes |= {"calls": record.calls + 1 if phase is record.phase else 1, "called": time}
    if "hosts" in event:
        changes["hosts"] = tuple(HostAddress(**host) for host in event["hosts"])
    changes |= {key: event[key] for key in ("reason", "scope") if key in event}
    if event.get("uncreated"):
        changes["uncreated"] = record.calls == 1
    if event.get("ending"):
        changes["ending"] = Ending(event["ending"])
    since = event.get("since")
    match name:
        case "allocation ready":
            changes["ready_since"] = time if since is None else since
        case "allocation undeleted":
            changes["undeleted"] = event["refusal"]
        case "allocation charged":
            changes["charged"] = ChargedChips(event["chips"], since)
        case "allocation lacking":
            changes["lacking"] = AllocationState(event["state"]) if event["state"] else None
            changes["lacking_since"] = time
    return replace(record, **changes)


def _requested(event: Record) -> AllocationRecord:
    request = Request.of(event["request"])
    time = event["time"]
    return AllocationRecord(event["allocation"], AllocationPhase.REQUESTED, time, request, event["target"], called=time)


def sought(capacity: Capacity, record: AllocationRecord | None, event: Record) -> Capacity:
    """The search for machines after an event about `record`, which has taken it in already."""
    name = event["event"]
    if record is None or event["allocation"] != record.number:
        return capacity
    if name == "allocation requested" and capacity.since is None:
        return replace(capacity, since=event["time"])
    if name == "allocation refused" and record.phase is AllocationPhase.REFUSED:
        if not record.scope:
            return replace(capacity, final=record.ending or Ending.NO_CAPACITY)
        return _refused(capacity, record.scope, event["time"], final=record.ending is Ending.BAD_INPUT)
    if name == "allocation lost" and record.phase is AllocationPhase.LOST:
        return _refused(capacity, record.request.zone, event["time"], lost=1)
    if name == "allocation charged" and record.phase is AllocationPhase.READY and not record.awaited:
        return Capacity()
    return capacity


def _refused(capacity: Capacity, scope: str, time: float, lost: int = 0, *, final: bool = False) -> Capacity:
    before = capacity.refusals.get(scope, Refusals(0, time))
    refusals = Refusals(before.count + 1, time, before.lost + lost, final)
    return replace(capacity, refusals={**capacity.refusals, scope: refusals})


def avoided(capacity: Capacity, places: Sequence[str], now: float) -> list[str]:
    """Scopes that a request leaves alone: each that has refused for good or lately, for longer after each refusal, and of the `places` that are left
    those that have refused more often than another one. A place may take half an hour to refuse, and the search would else come back to
    the first ones before it has tried the last."""
    resting = [
        scope
        for scope, refusals in capacity.refusals.items()
        if refusals.final or not due(refusals.count, refusals.last, now, first_s=REST_S, most_s=600.0)
    ]
    counts = {place: _refusals_of(place, capacity) for place in eligible(places, resting)}
    return [*resting, *(place for place, count in counts.items() if count > min(counts.values()))]


def hopeless(capacity: Capacity, places: Sequence[str]) -> bool:
    """Whether each of `places` has refused for good."""
    return not eligible(places, [scope for scope, refusals in capacity.refusals.items() if refusals.final])


def _refusals_of(place: str, capacity: Capacity) -> int:
    return sum(refusals.count - refusals.lost for scope, refusals in capacity.refusals.items() if covers(scope, place))


def eligible(zones: Sequence[str], avoid: Sequence[str]) -> list[str]:
    return [zone for zone in zones if not any(covers(scope, zone) for scope in avoid)]


def back_off(count: int, first_s: float = 2.0, most_s: float = 300.0) -> float:
    """Seconds to wait after the `count`-th call in a row; 0 before the first."""
    return min(most_s, first_s * 2.0 ** min(count - 1, 20)) if count > 0 else 0.0


def due(count: int, last: float, now: float, first_s: float = 2.0, most_s: float = 300.0) -> bool:
    """Whether a call that may be repeated is to be. One that lies in the future was timed by a clock that is corrected now."""
    return not 0 <= now - last < back_off(count, first_s, most_s)
