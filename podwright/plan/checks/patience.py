"""Questions to other machines: none about a check that --only leaves out, and none that a plan waits for longer than it says."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

_POLL_S = 0.1
_CHECKS: ContextVar[tuple[str, ...]] = ContextVar("checks", default=())
LEFT_OUT = "--only leaves it out"
WEIGHTS = "weights"
"""part of the check `model` that needs more than dimensions"""


@contextlib.contextmanager
def only_about(checks: Sequence[str]) -> Iterator[None]:
    """Inside, other machines are asked about these checks alone; about all for none."""
    token = _CHECKS.set(tuple(checks))
    try:
        yield
    finally:
        _CHECKS.reset(token)


def left_out(check: str) -> bool:
    """Whether no other machine is to be asked about `check`."""
    checks = _CHECKS.get()
    return bool(checks) and check not in checks


def soon(seconds: float, ask: Callable[[], T], tick: Callable[[float], None] = lambda elapsed: None) -> T | None:
    """What `ask` returns or raises; None where it takes longer. Clients of stores and hubs try again for minutes by themselves.

    `tick` is called with the seconds since the start, ten times a second.
    """
    outcomes: list[T | Exception] = []

    def asking() -> None:
        try:
            outcomes.append(ask())
        except Exception as e:
            outcomes.append(e)

    thread = threading.Thread(target=asking, daemon=True)
    thread.start()
    begin = time.monotonic()
    while thread.is_alive() and (elapsed := time.monotonic() - begin) < seconds:
        tick(elapsed)
        thread.join(min(_POLL_S, seconds - elapsed))
    if not outcomes:
        return None
    outcome = outcomes[0]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
