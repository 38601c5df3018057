"""How often a target is asked."""

from types import SimpleNamespace
from typing import Any

import pytest

from podwright.targets import polling
from podwright.targets.base import Polled, Process, Traits


@pytest.mark.parametrize(
    ("process", "polls"), [(Process.RUNNING, 2), (Process.ENDED, 2), (Process.ABSENT, 20)], ids=lambda value: str(value)
)
def test_only_an_absent_attempt_is_looked_for_at_each_tick(process: Process, polls: int, monkeypatch: Any) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(polling, "time", SimpleNamespace(monotonic=lambda: clock.now))
    calls = []

    def poll(handle: Any) -> Polled:
        calls.append(clock.now)
        return Polled(process)

    target: Any = SimpleNamespace(traits=Traits(poll_s=5.0), poll=poll)
    poller = polling.Poller(target)
    for _ in range(20):
        assert poller.poll({"attempt": 1}).process is process
        clock.now += 0.5
    assert len(calls) == polls
