"""Chip-hours and cost are what the allocation events add up to."""

from typing import Any

from podwright.plan.prices import ListPrice
from podwright.run.cost import usage

PRICES = {"v6e": ListPrice(2.0, "2026-01-01", "https://example.org/prices")}


def allocation(
    number: int,
    *moments: tuple[str, float],
    requested: float = 0.0,
    since: dict[str, float | None] | None = None,
    chip: str = "v6e",
    price: float | None = None,
) -> list[Any]:
    """`since`: what the cloud says of a moment, by its name."""
    request = {"chip": chip, "num_chips": 4, "price": price}
    first = {"event": "allocation requested", "time": requested, "allocation": number, "request": request}
    cloud = {name: {"since": time} for name, time in (since or {}).items()}
    seen = [(name, {"event": f"allocation {name}", "time": time, "allocation": number}) for name, time in moments]
    return [first, *(event | cloud.get(name, {}) for name, event in seen)]


def test_machines_cost_from_ready_until_they_are_lost_or_gone() -> None:
    events = allocation(
        1, ("ready", 3600.0), ("lost", 7200.0), ("deleting", 7300.0), ("gone", 9000.0), since={"ready": 3600.0}
    )
    events += allocation(2, ("ready", 10800.0), ("deleting", 14000.0), ("gone", 14400.0), since={"ready": 10800.0})
    events += allocation(3, ("refused", 14500.0), ("deleting", 14600.0), ("gone", 14700.0))
    found = usage(events, 1e6, PRICES)
    assert found and (found.chip_hours, found.cost, found.open) == (8.0, 16.0, False)
    assert found.prices == {"v6e": "on demand, https://example.org/prices, 2026-01-01"}


def test_hours_count_by_the_clouds_times_and_not_by_when_a_launcher_looked() -> None:
    away = {"ready": 3600.0, "lost": 7200.0}
    found = usage(allocation(1, ("ready", 30000.0), ("lost", 60000.0), since=away), 1e6, PRICES)
    assert found and found.chip_hours == 4.0


def test_machines_of_a_cloud_that_says_no_times_count_from_the_request_that_was_answered() -> None:
    again = allocation(1, requested=3600.0)
    never: dict[str, float | None] = {"ready": None, "lost": None}
    found = usage(
        [*again, *allocation(1, ("ready", 9000.0), ("lost", 10800.0), requested=7200.0, since=never)], 1e6, PRICES
    )
    assert found and found.chip_hours == 4.0


def test_a_cloud_whose_clock_is_off_adds_no_hours_before_the_request_or_after_the_loss_was_seen() -> None:
    off: dict[str, float | None] = {"ready": 0.0, "lost": 99999.0}
    found = usage(allocation(1, ("ready", 5000.0), ("lost", 7200.0), requested=3600.0, since=off), 1e6, PRICES)
    assert found and found.chip_hours == 4.0


def test_open_machines_cost_until_now() -> None:
    found = usage(allocation(1, ("ready", 0.0), ("deleting", 1800.0)), 3600.0, PRICES)
    assert found and (found.chip_hours, found.open) == (4.0, True)


def test_the_price_of_the_target_counts_before_the_list_and_an_unknown_one_is_not_guessed() -> None:
    ready = (("ready", 0.0), ("gone", 3600.0))
    own = usage(allocation(1, *ready, price=1.5), 0.0, PRICES)
    assert own and own.cost == 6.0 and own.prices == {"v6e": "price of the target"}
    unknown = usage(allocation(1, *ready) + allocation(2, *ready, chip="v9"), 0.0, PRICES)
    assert unknown and unknown.chip_hours == 8.0 and unknown.cost is None


def test_a_run_without_requests_has_no_usage() -> None:
    assert usage([{"event": "created", "time": 0.0}], 0.0) is None
