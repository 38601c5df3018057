"""The control plane's state: one JSON file under the lab's root, read and changed by several processes under a lock."""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

State = dict[str, Any]

KNOBS: State = {
    "times": {
        "creating": 0.1,
        "accepted": 0.1,
        "provisioning": 0.2,
        "suspending": 0.2,
        "deleting": 0.2,
        "stockout": 0.3,
        "ghost": 0.2,
        "operation": 0.0,
        "operation_pending": 0.0,
        "pool": 0.2,
        "node_apart": 0.0,
        "tpu_registration": 0.1,
        "pool_retry": 0.6,
        "pool_deleting": 0.2,
        "scale_down": 600.0,
    },
    "capacity": {},
    "quota": [],
    "lag": {"describe": 0.0, "list": 0.0},
    "name_taken_s": 0.0,
    "faults": [],
    "denied": [],
    "api_enabled": True,
    "account": "lab@example.com",
    "login_expired": False,
    "default_credentials": True,
    "properties": {},
    "buckets": {},
    "guests": [],
    "provisioning_errors": [],
    "endpoint_order": [],
    "num_hosts": {},
    "internal_reachable": False,
    "pool_outcomes": [],
    "concurrent_pools": False,
    "failing_deletions": 0,
}
EMPTY: State = {"requests": {}, "nodes": {}, "operations": {}, "ledger": [], "number": 0}
EMPTY |= {
    "clusters": {},
    "pools": {},
    "gke_operations": {},
    "reservations": [],
    "policies": {},
    "compute_operations": {},
}


def folder(root: Path) -> Path:
    return root / "gcloud"


def prepare(root: Path) -> None:
    """An empty cloud with no fault."""
    folder(root).mkdir()
    (folder(root) / "lock").touch()
    _save(root, {"knobs": KNOBS} | EMPTY)


@contextlib.contextmanager
def opened(root: Path) -> Iterator[State]:
    """The state, held against all others until the block ends; changes are kept when it ends without an error."""
    with (folder(root) / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        text = (folder(root) / "state.json").read_text()
        state: State = json.loads(text)
        yield state
        if json.dumps(state) != text:
            _save(root, state)


def read(root: Path) -> State:
    """The state as it is now, to look at."""
    state: State = json.loads((folder(root) / "state.json").read_text())
    return state


def _save(root: Path, state: State) -> None:
    part = folder(root) / "state.json.part"
    part.write_text(json.dumps(state))
    part.replace(folder(root) / "state.json")


def number(state: State) -> int:
    """Another number at each call, for names of operations and hosts."""
    state["number"] += 1
    return int(state["number"])


def timestamp(seconds: float) -> str:
    """As the API writes times: UTC with a fraction."""
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{text}.{int(seconds % 1 * 1e9):09d}Z"


def log_call(root: Path, row: State) -> None:
    """One line of `calls.jsonl`; a short append is written at once, so that lines of several processes do not mix."""
    descriptor = os.open(folder(root) / "calls.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, (json.dumps(row) + "\n").encode())
    os.close(descriptor)


def decode(line: str) -> State:
    row: State = json.loads(line)
    return row
