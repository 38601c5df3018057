"""What every result says of when, of what and where it was measured."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path


def stamp(bench: str) -> dict[str, str]:
    argv = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(argv, capture_output=True, text=True, cwd=Path(__file__).parent).stdout.strip()
    machine = f"{os.cpu_count()} cores, {platform.machine()}"
    return {"bench": Path(bench).stem, "date": time.strftime("%Y-%m-%d"), "commit": commit, "machine": machine}
