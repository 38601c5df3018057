"""Chip-hours and cost are what the allocation events add up to."""

from typing import Any

import pytest

from podwright.plan.prices import ListPrice
from podwright.run import cost
from podwright.run.cost import usage


@pytest.fixture(autouse=True)
def prices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "LIST_PRICES", {"v6e": ListPrice(2.0, "2026-01-01", "https://example.org/prices")})


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
    found = usage(events, 1e6)
    assert found and (found.chip_hours, found.cost, found.open) == (8.0, 16.0, False)
    assert found.prices == {"v6e": "on demand, https://example.org/prices, 2026-01-01"}


def test_hours_count_by_the_clouds_times_and_not_by_when_a_launcher_looked() -> None:
    away = {"ready": 3600.0, "lost": 7200.0}
    found = usage(allocation(1, ("ready", 30000.0), ("lost", 60000.0), since=away), 1e6)
    assert found and found.chip_hours == 4.0


def test_machines_of_a_cloud_that_says_no_times_count_from_the_request_that_was_answered() -> None:
    again = allocation(1, requested=3600.0)
    never: dict[str, float | None] = {"ready": None, "lost": None}
    found = usage([*again, *allocation(1, ("ready", 9000.0), ("lost", 10800.0), requested=7200.0, since=never)], 1e6)
    assert found and found.chip_hours == 4.0


def test_a_cloud_whose_clock_is_off_adds_no_hours_before_the_request_or_after_the_loss_was_seen() -> None:
    off: dict[str, float | None] = {"ready": 0.0, "lost": 99999.0}
    found = usage(allocation(1, ("ready", 5000.0), ("lost", 7200.0), requested=3600.0, since=off), 1e6)
    assert found and found.chip_hours == 4.0


def test_open_machines_cost_until_now() -> None:
    found = usage(allocation(1, ("ready", 0.0), ("deleting", 1800.0)), 3600.0)
    assert found and (found.chip_hours, found.open) == (4.0, True)


def charged(*moments: tuple[float, int, float | None], gone: float | None = None) -> list[Any]:
    """Machines of a cloud that tells of them one by one: when it did, of how many chips, and the mean of their starts."""
    events = allocation(1, ("ready", 2 * 3600.0))[:1]
    events += [
        {"event": "allocation charged", "time": time, "allocation": 1, "chips": chips, "since": since}
        for time, chips, since in moments
    ]
    return events + ([{"event": "allocation gone", "time": gone, "allocation": 1, "since": gone}] if gone else [])


def hours(events: list[Any], now: float = 1e6) -> tuple[float, bool]:
    used = usage(events, now)
    assert used
    return used.chip_hours, used.open


HOUR = 3600.0


def test_machines_that_never_became_ready_cost_from_their_own_start() -> None:
    assert hours(charged((HOUR, 0, None), gone=2 * HOUR)) == (0.0, False)
    assert hours(charged((3 * HOUR, 2, 2 * HOUR), gone=4 * HOUR)) == (4.0, False)
    grown = charged((3 * HOUR, 2, 2 * HOUR), (4 * HOUR, 4, 3 * HOUR), gone=5 * HOUR)
    assert hours(grown) == (8.0, False), "two of 3 h, two of 1 h"


def test_machines_that_left_cost_until_they_were_missed() -> None:
    left = charged((2 * HOUR, 4, 2 * HOUR), (4 * HOUR, 2, 2 * HOUR), gone=5 * HOUR)
    assert hours(left) == (2 * 2.0 + 2 * 3.0, False)
    replaced = charged((2 * HOUR, 4, 2 * HOUR), (4 * HOUR, 4, 3 * HOUR), gone=5 * HOUR)
    assert hours(replaced) == (2 * 3.0 + 2 * 2.0 + 2 * 1.0, False)
    assert hours(charged((2 * HOUR, 4, 2 * HOUR), (4 * HOUR, 0, None)), 9 * HOUR) == (8.0, False), "none is left"


def test_machines_told_one_by_one_cost_past_their_loss_until_the_cloud_has_none() -> None:
    events = charged((2 * HOUR, 4, 2 * HOUR))
    events += [
        {"event": "allocation ready", "time": 2 * HOUR, "allocation": 1, "since": 2 * HOUR},
        {"event": "allocation lost", "time": 3 * HOUR, "allocation": 1, "since": 3 * HOUR},
    ]
    assert hours(events, 4 * HOUR) == (8.0, True)
    gone = {"event": "allocation gone", "time": 6 * HOUR, "allocation": 1, "since": 5 * HOUR}
    assert hours([*events, gone], 9 * HOUR) == (12.0, False)


def test_a_cloud_whose_clock_is_off_charges_no_machines_before_their_request() -> None:
    assert hours(charged((2 * HOUR, 4, -9 * HOUR), gone=3 * HOUR)) == (12.0, False)
    assert hours(charged((2 * HOUR, 4, 9 * HOUR), gone=3 * HOUR)) == (4.0, False)


def test_the_price_of_the_target_counts_before_the_list_and_an_unknown_one_is_not_guessed() -> None:
    ready = (("ready", 0.0), ("gone", 3600.0))
    own = usage(allocation(1, *ready, price=1.5), 0.0)
    assert own and own.cost == 6.0 and own.prices == {"v6e": "price of the target"}
    unknown = usage(allocation(1, *ready) + allocation(2, *ready, chip="v9"), 0.0)
    assert unknown and unknown.chip_hours == 8.0 and unknown.cost is None


def test_a_run_without_requests_has_no_usage() -> None:
    assert usage([{"event": "created", "time": 0.0}], 0.0) is None
