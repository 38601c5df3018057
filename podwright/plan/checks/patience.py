"""Questions to other machines that no plan waits for longer than it says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def soon(seconds: float, ask: Callable[[], T]) -> T | None:
    """What `ask` returns or raises; None where it takes longer. Clients of stores and hubs try again for minutes by themselves."""
    outcomes: list[T | Exception] = []

    def asking() -> None:
        try:
            outcomes.append(ask())
        except Exception as e:
            outcomes.append(e)

    thread = threading.Thread(target=asking, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcomes:
        return None
    outcome = outcomes[0]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
