"""`python -m podwright.train devices`: joins the other processes of an attempt, and tells what jax sees there. Trains nothing.

A line of JSON for each stage that was reached, so that of processes that wait for each other the one that is missing can be told.
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
import time
from typing import Any

from podwright.errors import UserError
from podwright.extras import installed_version

Facts = dict[str, Any]
STAGES = ("started", "joined", "devices", "storage")


def run(storage: str) -> Facts:
    """The last stage: devices of this process and of all, versions, free disk space in bytes, and what is wrong with `storage`."""
    _tell({"stage": STAGES[0], "host": socket.gethostname()})
    import jax

    from podwright.train.mesh import process_numbers, start_processes

    start_processes()
    _tell({"stage": STAGES[1], "time": time.time()})  # all processes come here at once
    number, expected = process_numbers()
    seen = {
        "process": number,
        "expected_process": expected,
        "platform": jax.default_backend(),
        "kind": jax.local_devices()[0].device_kind,
        "local": jax.local_device_count(),
        "all": jax.device_count(),
        "versions": {name: installed_version(name) for name in ("jax", "jaxlib", "libtpu")},
        "free_bytes": shutil.disk_usage(".").free,
    }
    _tell({"stage": STAGES[2], **seen})
    fault = _storage_fault(storage) if storage else {}
    return {"stage": STAGES[3], "storage": storage, **fault}


def _storage_fault(url: str) -> Facts:
    from podwright.storage import trial

    try:
        trial.require_usable(url)
    except UserError as e:
        return {"fault": e.what, "fix": e.fix}
    return {}


def _tell(facts: Facts) -> None:
    print(json.dumps(facts), file=sys.__stdout__, flush=True)
