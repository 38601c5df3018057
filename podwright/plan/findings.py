"""A finding: one fact about a recipe on a target, and what to type when it is a fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    check: str
    level: Literal["error", "warning", "info"]
    message: str
    fix: str = ""
