"""What the machines of a run have cost so far: a fold over the allocation events of its journal, at the price of the target or
the list price on demand, an upper bound for spot. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from podwright.plan.prices import LIST_PRICES, ListPrice
from podwright.rundir import Record


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


def usage(events: Iterable[Record], now: float, prices: Mapping[str, ListPrice] = LIST_PRICES) -> Usage | None:
    """From when machines were ready until they were lost or gone, as TPUs are charged (https://cloud.google.com/tpu/pricing: while READY).

    When they were ready or lost is what the cloud says (`since`), and not when a launcher saw it, which may have been away for
    hours. Where the cloud does not say it, machines count from the request that was answered with them, which includes the wait for
    capacity, until a launcher saw that they were lost. They are gone from when a launcher first saw that, which is written down once the
    cloud has confirmed it. All of these are upper bounds; a launcher that follows the run is late by one poll of the cloud.

    None for a run that has requested no machines. `now`: Unix seconds.
    """
    requests: dict[int, Record] = {}
    requested: dict[int, float] = {}
    begun: dict[int, float] = {}
    ended: dict[int, float] = {}
    for event in events:
        name, number, since = event["event"], event.get("allocation", 0), event.get("since")
        if name == "allocation requested":
            requests[number], requested[number] = event["request"], event["time"]
        elif name == "allocation ready":
            first, seen = requested[number], event["time"]
            begun.setdefault(number, _between(first, first if since is None else since, seen))
        elif name in ("allocation lost", "allocation gone"):
            seen = event["time"]
            ended.setdefault(number, _between(begun.get(number, 0.0), seen if since is None else since, seen))
    if not requests:
        return None
    hours = {n: max(0.0, ended.get(n, now) - time) / 3600 * requests[n]["num_chips"] for n, time in begun.items()}
    costs, sources = [], {}
    for n, chip_hours in hours.items():
        price, source = _price(requests[n], prices)
        sources[requests[n]["chip"]] = source
        costs.append(None if price is None else price * chip_hours)
    known = [cost for cost in costs if cost is not None]
    cost = sum(known) if len(known) == len(costs) else None
    return Usage(sum(hours.values()), cost, bool(set(begun) - set(ended)), sources)


def _between(low: float, time: float, high: float) -> float:
    """`time`, by the cloud's clock, among times by launchers' clocks."""
    return max(low, min(time, high))


def as_json(usage: Usage | None) -> dict[str, Any] | None:
    return asdict(usage) if usage else None


def of_chips(
    chip: str, chip_hours: float, price: float | None, prices: Mapping[str, ListPrice] = LIST_PRICES
) -> float | None:
    """USD, by `price` per chip-hour where a target names it, else by the table; None where neither knows it."""
    known = _price({"chip": chip, "price": price}, prices)[0]
    return None if known is None else known * chip_hours


def _price(request: Record, prices: Mapping[str, ListPrice]) -> tuple[float | None, str]:
    """Per chip-hour, and where it is from."""
    if request["price"] is not None:
        return request["price"], "price of the target"
    row = prices.get(request["chip"])
    return (row.usd, f"on demand, {row}") if row else (None, "not known")
