"""What is wrong with a MaxText recipe or its script, and what to type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class LintFinding:
    check: str
    level: Literal["error", "inconclusive", "warning", "info"]
    message: str
    fix: str = ""
