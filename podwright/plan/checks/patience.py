"""Questions to other machines: none about a check that --only leaves out, and none that a plan waits for longer than it says."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import TypeVar
from urllib.parse import urlsplit

from podwright.shell import Shell

T = TypeVar("T")

_CONNECT_S = 3.0
_GCS, _EMULATOR = "https://storage.googleapis.com", "STORAGE_EMULATOR_HOST"
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


def no_connection(url: str) -> str:
    """Why nothing can be read from the server behind `url`, which is connected to for a moment; "" where it answers, or where only
    its client knows the server. Clients go on for minutes without a network."""
    scheme, server, *_ = urlsplit(url)
    if scheme in ("gs", "gcs"):
        emulator = Shell.variables([_EMULATOR]).get(_EMULATOR, "")
        address = urlsplit(emulator if "://" in emulator else f"http://{emulator}" if emulator else _GCS)
    elif scheme in ("http", "https"):
        address = urlsplit(f"{scheme}://{server}")
    else:
        return ""
    from urllib.request import getproxies

    if getproxies().keys() & {"http", "https", "all"}:
        return ""

    def connect() -> str:
        port = address.port or (443 if address.scheme == "https" else 80)
        with socket.create_connection((address.hostname or "", port), _CONNECT_S):
            return ""

    try:
        answer = soon(_CONNECT_S, connect)  # looking up the name has no limit of its own
    except (OSError, ValueError) as e:
        return f"no connection to {address.hostname} ({getattr(e, 'strerror', None) or e})"
    return f"{address.hostname} has not answered within {_CONNECT_S:.0f} s" if answer is None else ""
