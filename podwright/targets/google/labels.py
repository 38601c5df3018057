"""How what is created in a project is named and labelled, so that it is known again: by run, by creator, and by the end of its life."""

from __future__ import annotations

import os
import platform
import pwd
import re
import zlib
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

BY_LABEL = "podwright-by"
"""who requested it: `creator`"""
EXPIRES_LABEL = "podwright-expires"
"""Unix seconds at the time of the request"""
RUN_DIR_KEY = "podwright-run-dir"
"""in the metadata of machines, URL-quoted: of the run, on the machine that requested them"""
_LONGEST_RUN = 20
"""letters of a run's name in that of its machines: a node pool's name has 40 at most"""
_MACHINE_ID = Path("/etc/machine-id")


def request_name(run_name: str, tag: str, number: int | str) -> str:
    """Of the machines that a run requests as its `number`-th, or of its attempt `aN`."""
    letters = re.sub(r"[^a-z0-9]+", "-", run_name.lower()).strip("-")[:_LONGEST_RUN].strip("-") or "run"
    return f"pw-{letters}-{tag}-{number}"


def expires(created: float | None, life_s: float) -> str:
    """When a request of a run that was created at Unix time `created` is due to be deleted; EXPIRES for None, as a dry run prints it."""
    return "EXPIRES" if created is None else f"{created + life_s:.0f}"


def creator() -> str:
    """This user on this machine, as a label tells it: a checksum, since everybody in the project can read labels."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    try:
        machine = _MACHINE_ID.read_text().strip()
    except OSError:
        machine = ""
    return f"{zlib.crc32(f'{user}@{platform.node()} {machine}'.encode()):08x}"


def quoted_run_dir(run_dir: str) -> str:
    """As metadata has it: without blanks, commas and `~`, which separate entries."""
    return quote(run_dir).replace("~", "%7E")


def unix(timestamp: str) -> float | None:
    """Seconds, of a time in UTC as the cloud writes it; None of none."""
    return datetime.fromisoformat(timestamp[:19] + "+00:00").timestamp() if timestamp else None
