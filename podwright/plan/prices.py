"""What a chip costs by dated sources, and what a run would cost by them and by the settings of its target. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from podwright import accelerators
from podwright.plan.document import CostEntry, Plan
from podwright.plan.options import Destination

ON_DEMAND, SPOT = "on-demand", "spot"


@dataclass(frozen=True)
class ListPrice:
    """Of one chip for an hour, on demand."""

    usd: float
    date: str
    """when it was read"""
    source: str

    def __str__(self) -> str:
        return f"{self.source}, {self.date}"


LIST_PRICES: Mapping[str, ListPrice] = {
    "v6e": ListPrice(
        2.70, "2024-12-11", "Google's price at general availability, as quoted by neowin.net, US and Europe"
    ),
}
"""By the name of the accelerator. A chip without a row has no cost until the settings of its target name a price. No dated source for
spot prices is known."""


def with_costs(plan: Plan, destination: Destination) -> Plan:
    """`plan` with what its run costs on demand, at spot, and as its target requests machines, where it predicts chip-hours of TPUs.

    `price` and `cost` of the run are at the price that its machines will be counted with (run/cost.py): the target's, else the list price.
    """
    totals = plan.step.run if plan.step else None
    if plan.step is None or plan.slice is None or totals is None or totals.chip_hours is None:
        return plan
    if all(plan.slice.accelerator != row.name for row in accelerators.TPUS):
        return plan
    listed = LIST_PRICES.get(plan.slice.accelerator)
    counted = listed.usd if listed else None
    if destination.price is not None:
        counted = destination.price
    ways = dict.fromkeys((ON_DEMAND, SPOT, destination.provisioning or SPOT))
    changes = {
        "price": counted,
        "cost": None if counted is None else counted * totals.chip_hours,
        "costs": tuple(_cost(way, destination, listed, totals.chip_hours) for way in ways),
    }
    run = totals.model_copy(update=changes)
    return plan.model_copy(update={"step": plan.step.model_copy(update={"run": run})})


def _cost(provisioning: str, destination: Destination, listed: ListPrice | None, chip_hours: float) -> CostEntry:
    price = None
    source = "not known: type --price USD, the price of a chip-hour"
    if provisioning == destination.provisioning and destination.price is not None:
        price, source = destination.price, f"price of target {destination.name}"
    elif provisioning == ON_DEMAND and listed:
        price = listed.usd
        source = str(listed)
    elif provisioning == destination.provisioning:
        source = f"not known: set price of target {destination.name}, in USD per chip-hour"
    elif destination.provisioning:
        source = f"not known: set provisioning={provisioning} and price of a target, in USD per chip-hour"
    cost = None if price is None else price * chip_hours
    return CostEntry(provisioning=provisioning, price=price, cost=cost, source=source)
