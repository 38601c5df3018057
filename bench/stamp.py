"""What every result says of when, of what and where it was measured."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any


def stamp(bench: str) -> dict[str, Any]:
    """`dirty`: whether files beside the results were changed since the commit, so that it is not what was measured."""
    commit = _git("rev-parse", "--short", "HEAD")
    dirty = bool(_git("status", "--porcelain", "--", ":/", ":(top,exclude)bench/results"))
    machine = f"{os.cpu_count()} cores, {platform.machine()}"
    date = time.strftime("%Y-%m-%d")
    return {"bench": Path(bench).stem, "date": date, "commit": commit, "dirty": dirty, "machine": machine}


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, cwd=Path(__file__).parent).stdout.strip()


def keep(result: dict[str, Any], out: Path | None) -> int:
    """Print a result, and write it to `out`; the exit code."""
    text = json.dumps(result, indent=1)
    print(text)
    if out:
        out.write_text(text + "\n")
    return 0
