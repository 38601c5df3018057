"""What the machines of a run have cost so far: a fold over the allocation events of its journal, at the price of the target or
the list price on demand, an upper bound for spot. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from podwright.errors import counted
from podwright.plan.prices import LIST_PRICES
from podwright.rundir import Record
from podwright.targets.machines import Request


@dataclass(frozen=True)
class Usage:
    """Of all allocations of a run."""

    chip_hours: float
    cost: float | None
    """USD; None where the price of a chip is not known"""
    open: bool
    """whether machines are still allocated, so that both go on growing"""
    prices: dict[str, str]
    """by chip, where its price is from"""


@dataclass
class ChipMeter:
    """Adds up chip-seconds of machines that come and go one by one."""

    chips: int = 0
    since: float = 0.0
    """the mean of the starts of these chips, Unix seconds"""
    of_departed: float = 0.0
    """chip-seconds of machines that no longer exist"""

    def at(self, time: float) -> float:
        """Chip-seconds until then."""
        return self.of_departed + self.chips * max(0.0, time - self.since)

    def read(self, chips: int, since: float, time: float) -> None:
        """These chips were seen at `time`; of those that are missing since, the time until now counts."""
        before = self.at(time)
        self.chips, self.since = chips, since
        self.of_departed += max(0.0, before - self.at(time))


@dataclass
class AllocationCost:
    """Of one allocation, what its events say."""

    request: Record
    requested: float
    """when, the last time"""
    begun: float | None = None
    ended: float | None = None
    gone: float | None = None
    meter: ChipMeter | None = None
    """of a cloud that tells of machines one by one"""

    def read(self, name: str, event: Record) -> None:
        time = event["time"]
        since = event.get("since")
        known = time if since is None else since
        match name:
            case "ready" if self.begun is None:
                self.begun = _between(self.requested, self.requested if since is None else since, time)
            case "charged":
                self.meter = self.meter or ChipMeter()
                self.meter.read(event["chips"], _between(self.requested, known, time), time)
            case "lost" | "gone":
                until = _between(self.begun or 0.0, known, time)
                self.ended = until if self.ended is None else self.ended
                self.gone = until if name == "gone" else None

    @property
    def is_open(self) -> bool:
        if self.meter:
            return self.gone is None and self.meter.chips > 0
        return self.begun is not None and self.ended is None

    def chip_hours(self, now: float) -> float:
        if self.meter:
            return self.meter.at(now if self.gone is None else self.gone) / 3600
        if self.begun is None:
            return 0.0
        chips: int = self.request["num_chips"]
        return max(0.0, (now if self.ended is None else self.ended) - self.begun) / 3600 * chips


def usage(events: Iterable[Record], now: float) -> Usage | None:
    """From when machines were ready until they were lost or gone, as TPUs are charged (https://cloud.google.com/tpu/pricing: while READY).
    A cloud that tells of machines one by one (`allocation charged`): each from its start until it is no longer there, ready or not.

    When they were ready or lost is what the cloud says (`since`), and not when a launcher saw it, which may have been away for
    hours. Where the cloud does not say it, machines count from the request that was answered with them, which includes the wait for
    capacity, until a launcher saw that they were lost. They are gone from when a launcher first saw that, which is written down once the
    cloud has confirmed it. All of these are upper bounds; a launcher that follows the run is late by one poll of the cloud.

    None for a run that has requested no machines. `now`: Unix seconds.
    """
    allocations: dict[int, AllocationCost] = {}
    for event in events:
        kind, _, name = event["event"].partition(" ")
        if kind != "allocation":
            continue
        number = event["allocation"]
        if name == "requested":
            before = allocations.get(number)
            fresh = AllocationCost(event["request"], event["time"])
            allocations[number] = replace(before, requested=event["time"]) if before else fresh
        elif number in allocations:
            allocations[number].read(name, event)
    if not allocations:
        return None
    hours = 0.0
    costs = list[float | None]()
    sources = {}
    for each in allocations.values():
        if each.meter or each.begun is not None:
            chip_hours = each.chip_hours(now)
            price, source = _price(each.request["chip"], each.request["price"])
            sources[each.request["chip"]] = source
            hours += chip_hours
            costs.append(None if price is None else price * chip_hours)
    known = [cost for cost in costs if cost is not None]
    cost = sum(known) if len(known) == len(costs) else None
    return Usage(hours, cost, any(each.is_open for each in allocations.values()), sources)


def _between(low: float, time: float, high: float) -> float:
    """`time`, by the cloud's clock, among times by launchers' clocks."""
    return max(low, min(time, high))


def as_json(usage: Usage | None) -> dict[str, Any] | None:
    return asdict(usage) if usage else None


def of_chips(chip: str, chip_hours: float, price: float | None) -> float | None:
    """USD, by `price` per chip-hour where a target names it, else by the table; None where neither knows it."""
    known, _ = _price(chip, price)
    return None if known is None else known * chip_hours


def rate(request: Request) -> str:
    """The chips of a request and what they cost, as a phrase; "" for machines that cost nothing here."""
    if not request.num_chips or request.borrowed:
        return ""
    usd = of_chips(request.chip, request.num_chips, request.price)
    most = "up to " if request.price is None else ""
    price = "at a price that is not known" if usd is None else f"for {most}{usd:.2f} USD per hour"
    return f"{counted(request.num_chips, f'{request.chip} chip')} {price}"


def _price(chip: str, price: float | None) -> tuple[float | None, str]:
    """Per chip-hour, and where it is from."""
    if price is not None:
        return price, "price of the target"
    row = LIST_PRICES.get(chip)
    return (row.usd, f"on demand, {row}") if row else (None, "not known")
