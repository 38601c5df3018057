"""Machines that are created for a run: how they are requested, what the cloud says of them, and who creates and deletes them."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from podwright.errors import UserError
from podwright.rundir import Ending, Record


@dataclass(frozen=True)
class HostAddress:
    """One host of an allocation."""

    name: str
    """as a user knows it"""
    address: str
    """by which the other hosts reach it"""
    connect: str = ""
    """by which this machine reaches it; "" if that is `address`"""


Hosts = tuple[HostAddress, ...]
"""in the order of process numbers"""


@dataclass(frozen=True)
class Request:
    """Machines to be created for a run: everything about them that is known before they exist. Plain JSON as `asdict`."""

    name: str
    """unique to run and number; found again by it"""
    zone: str
    """where it is requested: a zone, or ZONE/RESERVATION"""
    argv: tuple[str, ...] = ()
    """the command that creates it, as a dry run prints it"""
    labels: Mapping[str, str] = field(default_factory=dict)
    chip: str = ""
    """an accelerator's name; "" where no price applies"""
    num_chips: int = 0
    price: float | None = None
    """per chip-hour, if the target's settings name one; else the price table decides"""
    details: Mapping[str, Any] = field(default_factory=dict)
    """further plain JSON that the provisioner needs to find it again"""
    borrowed: bool = False
    """whether it exists without the run, which uses it and never deletes it"""

    @classmethod
    def of(cls, record: Record) -> Request:
        """From a journal; UserError for one of another version."""
        try:
            return cls(**{**record, "argv": tuple(record["argv"])})
        except (KeyError, TypeError) as e:
            name = record.get("name", "")
            what = f"the journal of the run has a request {name!r} for machines that this version cannot read"
            raise UserError(what, "follow the run with the version that started it", "other-version") from e


class AllocationState(enum.StrEnum):
    UNKNOWN = "unknown"  # the cloud did not answer: nothing may be concluded
    WAITING = "waiting"
    PARTIAL = "partial"  # a part of it exists, and the rest must be requested again
    FILLING = "filling"  # it exists, and some of its machines have not come
    READY = "ready"
    REPAIRING = "repairing"  # under maintenance: it exists, costs, and may come back
    LOST = "lost"  # it was taken away or broke; what is left of it must be deleted
    REFUSED = "refused"  # the cloud will not create it; what is left of it must be deleted
    DELETING = "deleting"
    GONE = "gone"  # nothing of that name exists, and nothing of it costs


@dataclass(frozen=True)
class ChargedChips:
    """Chips of the machines of a request that exist, and so cost, whether or not they are ready."""

    chips: int
    since: float | None = None
    """Unix seconds, the mean of the starts of all chips; None without any"""


@dataclass(frozen=True)
class Allocation:
    """What the cloud says of a request."""

    state: AllocationState
    reason: str = ""
    """as `Reason: what it means`"""
    hosts: Hosts = ()
    """of a ready one"""
    ending: Ending | None = None
    """of a lost one: what its attempt ended with; of a refused one: what the run ends with once all places refuse; BAD_INPUT: its places
    can never have it, and are not tried again"""
    scope: str = ""
    """of a refused one: what `covers` the places that refused: a place, a zone, or a region; "" for all"""
    uncreated: bool = False
    """of a refused one: whether the call that requested it was refused itself, and so has created nothing"""
    since: float | None = None
    """Unix seconds since when a ready one is ready, a lost one lost, or one that is gone was first seen to be; None where that is not known"""
    charged: ChargedChips | None = None
    """None where the cloud does not tell; machines then cost from when they are ready"""
    exists: bool = False
    """of an unknown one: whether the cloud tells at least that something of it exists"""


def unknown(reason: str) -> Allocation:
    return Allocation(AllocationState.UNKNOWN, reason)


def waiting(reason: str) -> Allocation:
    return Allocation(AllocationState.WAITING, reason)


def partial(reason: str) -> Allocation:
    return Allocation(AllocationState.PARTIAL, reason)


def filling(reason: str) -> Allocation:
    return Allocation(AllocationState.FILLING, reason)


def ready(hosts: Hosts, since: float | None = None) -> Allocation:
    return Allocation(AllocationState.READY, hosts=hosts, since=since)


def repairing(reason: str) -> Allocation:
    return Allocation(AllocationState.REPAIRING, reason)


def lost(ending: Ending, reason: str, since: float | None = None) -> Allocation:
    return Allocation(AllocationState.LOST, reason, ending=ending, since=since)


def refused(scope: str, reason: str, ending: Ending = Ending.NO_CAPACITY) -> Allocation:
    return Allocation(AllocationState.REFUSED, reason, scope=scope, ending=ending)


def deleting(reason: str = "") -> Allocation:
    return Allocation(AllocationState.DELETING, reason)


GONE = Allocation(AllocationState.GONE)


def covers(scope: str, place: str) -> bool:
    """Whether `place` is `scope`, or lies in it: a reservation (ZONE/RESERVATION) in its zone, a zone in its region (written REGION-)."""
    return place == scope or place.startswith(scope if scope.endswith("-") else f"{scope}/")


def first_place(places: Sequence[str], avoid: Sequence[str]) -> str:
    """The first of `places` that no scope of `avoid` covers; the first at all if there is none."""
    for place in places:
        if not any(covers(scope, place) for scope in avoid):
            return place
    return places[0]


@dataclass(frozen=True)
class Owned:
    """Something that exists in the cloud and carries our labels."""

    request: Request
    run_dir: str
    """of the run that it was created for, on the machine that did it; "" where the cloud does not tell"""
    state: AllocationState
    created: float | None = None
    """Unix seconds"""
    mine: bool = True
    """whether this user created it on this machine"""
    cloud_state: str = ""
    """as the cloud calls it, with its health if that is not good"""
    remark: str = ""
    """what a user may want to know of it, such as maintenance to come"""
    expires: float | None = None
    """Unix seconds when it deletes itself at the earliest; a run that lives on it puts that off"""
    charged: ChargedChips | None = ChargedChips(0)
    """of its machines that exist and cost; None where that is not known"""
    charged_at_most: bool = False
    """whether they began to cost later than `charged` says"""


class OwnedResources(Protocol):
    """Lists and deletes what podwright has created where one target is."""

    def delete(self, request: Request) -> None:
        """Ask for the deletion of it, with all that is left of it. As often as wanted; its list confirms. Barred (targets/base.py) where a person
        has to act first."""
        ...

    def list_owned(self) -> list[Owned]:
        """Everything that podwright has created where the target is, from the cloud's own list, and the borrowed machines of the target.
        UserError if it cannot be had."""
        ...


class KeptResources(OwnedResources, Protocol):
    """Of a target whose runs create no machines, where earlier ones may have."""

    unlisted: UserError | None
    """why the last list is without machines"""


class Provisioner(OwnedResources, Protocol):
    """Creates and deletes the machines of one target. Replies may be lost: only `describe` and `list_owned` are believed."""

    def describe_request(self, run_dir: Path, created: float | None, number: int, avoid: Sequence[str]) -> Request:
        """Pure: what would be requested as the run's `number`-th, in the first zone that no scope of `avoid` covers. `created`: when the
        run was, Unix seconds; None for a dry run."""
        ...

    def create(self, request: Request) -> Allocation:
        """Start creating it and return; a name that exists already is adopted. `refused` if the reply says so, which
        nothing else may tell later (a quota); whatever else comes back is looked up by `describe`."""
        ...

    def describe(self, request: Request, ready_since: float | None = None) -> Allocation:
        """`ready_since`: Unix seconds since when the machines were ready, by the journal of the run; None if they never were."""
        ...
