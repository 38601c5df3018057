"""`podwright plan --compile --json` of this checkout, in a process of its own: how the plan_*.py ask the compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def command(recipe: str, on: str, overrides: Sequence[str], cache: Path, depth: str = "quick") -> list[str]:
    options = ["--on", on, f"--compile={depth}", "--cache", str(cache), "--json"]
    return [sys.executable, "-m", "podwright", "plan", recipe, *overrides, *options]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}


def document(recipe: str, on: str, overrides: Sequence[str], cache: Path, depth: str = "quick") -> dict[str, Any]:
    argv = command(recipe, on, overrides, cache, depth)
    plan: dict[str, Any] = json.loads(subprocess.run(argv, capture_output=True, text=True, env=environment()).stdout)
    return plan
