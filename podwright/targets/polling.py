"""Polls of a target and of its machines no more often than its traits say."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from podwright.targets.base import Handle, Polled, Process, Target
from podwright.targets.machines import Allocation, AllocationState, Request


class Poller:
    def __init__(self, target: Target):
        self.target = target
        self._answers: dict[str, tuple[Any, float, Any]] = {}

    def poll(self, handle: Handle) -> Polled:
        """The newest answer of the target; it may be `traits.poll_s` old unless the attempt is absent."""
        polled: Polled = self._recent("attempt", handle, lambda: self.target.poll(handle))
        if polled.process is Process.ABSENT:  # it may appear at any moment
            self._answers.pop("attempt")
        return polled

    def describe(self, request: Request, ready_since: float | None = None) -> Allocation:
        """The same of an allocation, see `Provisioner.describe`."""
        if self.target.provisioner is None:
            return Allocation(AllocationState.UNKNOWN, "the target no longer creates machines")
        describe = self.target.provisioner.describe
        answer: Allocation = self._recent("allocation", request, lambda: describe(request, ready_since))
        return answer

    def forget(self) -> None:
        """Ask anew next time: something was done that changes the answers."""
        self._answers.clear()

    def _recent(self, what: str, key: Any, ask: Callable[[], Any]) -> Any:
        known = self._answers.get(what)
        if known and known[0] == key and time.monotonic() - known[1] < self.target.traits.poll_s:
            return known[2]
        answer = ask()
        self._answers[what] = (key, time.monotonic(), answer)
        return answer
