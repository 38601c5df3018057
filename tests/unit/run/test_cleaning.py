"""The removal of what nobody needs, while the login of the cloud is refused."""

from types import SimpleNamespace
from typing import Any

import pytest

from podwright.errors import UserError
from podwright.run import cleaning
from podwright.run.cleaning import CloudSlice, Need
from podwright.targets.base import Barred, Traits
from podwright.targets.machines import AllocationState, Owned, Request

LEFT = CloudSlice("pod", Owned(Request("pw-r-1", "z"), "", AllocationState.READY), Need.LEFT, "")


@pytest.mark.parametrize(
    ("fault", "lasts_s", "most"),
    [
        (Barred("the cloud does not list what it has: NoLogin: expired", "type gcloud auth login"), 60, 1),
        (UserError("the cloud does not list what it has: NoNetwork: x", "try again"), 1200, 0),
    ],
)
def test_a_list_that_a_person_must_make_possible_is_waited_for_a_minute(
    monkeypatch: pytest.MonkeyPatch, fault: UserError, lasts_s: float, most: int
) -> None:
    clock = SimpleNamespace(now=1000.0, sleep=lambda s: setattr(clock, "now", clock.now + s))
    clock.time = clock.monotonic = lambda: clock.now

    def listed() -> Any:
        raise fault

    cloud = SimpleNamespace(delete=lambda _: None, list_owned=listed)
    monkeypatch.setattr(cleaning, "time", clock)
    monkeypatch.setattr(cleaning, "owning", lambda _: (SimpleNamespace(traits=Traits()), cloud))
    barred: list[UserError] = []
    left = cleaning.remove([LEFT], lambda _: None, barred=barred)
    assert list(left.values()) == [str(fault)] and len(barred) == most
    assert lasts_s <= clock.now - 1000.0 < lasts_s + 10


def test_a_deletion_that_a_person_must_make_possible_is_left_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def delete(_: Request) -> None:
        raise Barred("pw-r-1 in z cannot be deleted: NoLogin: expired", "type gcloud auth login")

    cloud = SimpleNamespace(delete=delete, list_owned=lambda: [LEFT.owned])
    monkeypatch.setattr(cleaning, "owning", lambda _: (SimpleNamespace(traits=Traits()), cloud))
    barred: list[UserError] = []
    left = cleaning.remove([LEFT], lambda _: None, barred=barred)
    assert "type gcloud auth login" in left[LEFT.key] and len(barred) == 1
