"""A finding: one fact about a recipe on a target, and what to type when it is a fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class Finding:
    check: str
    level: Level
    message: str
    fix: str = ""
