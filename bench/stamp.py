"""What every result says of when, of what and where it was measured."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any


def stamp(bench: str) -> dict[str, str]:
    argv = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(argv, capture_output=True, text=True, cwd=Path(__file__).parent).stdout.strip()
    machine = f"{os.cpu_count()} cores, {platform.machine()}"
    return {"bench": Path(bench).stem, "date": time.strftime("%Y-%m-%d"), "commit": commit, "machine": machine}


def keep(found: dict[str, Any], out: Path | None) -> int:
    """Print a result, and write it to `out`; the exit code."""
    text = json.dumps(found, indent=1)
    print(text)
    if out:
        out.write_text(text + "\n")
    return 0
