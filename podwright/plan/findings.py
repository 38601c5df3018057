"""A finding: one fact about a recipe on a target, and what to type when it is a fault. The worst finding decides the verdict."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from podwright.errors import UserError

Level = Literal["error", "inconclusive", "warning", "info"]
MISSING_PACKAGE = "missing-package"
"""code of what could not be checked because a package is not installed here"""


class Verdict(enum.StrEnum):
    OK = "ok"
    REFUSED = "refused"
    INCONCLUSIVE = "inconclusive"

    @property
    def ok(self) -> bool | None:
        """As JSON has it beside the verdict: null where not everything could be checked."""
        return None if self is Verdict.INCONCLUSIVE else self is Verdict.OK


@dataclass(frozen=True)
class Finding:
    check: str
    level: Level
    """`inconclusive`: this could not be checked, so that a plan with it is never ok"""
    message: str
    fix: str = ""
    code: str = ""
    """which fault it is, whose words may change; "" where it has no code yet"""


class InconclusiveCheck(UserError):
    """Something cannot be checked here, because a package or the network is missing: a finding of the plan, not its end."""

    def finding(self, check: str) -> Finding:
        return Finding(check, "inconclusive", self.what, self.fix, self.code)


def of_error(check: str, fault: UserError) -> Finding:
    return Finding(check, "error", fault.what, fault.fix, fault.code)


def verdict_of(findings: Iterable[Finding]) -> Verdict:
    levels = {f.level for f in findings}
    if "error" in levels:
        return Verdict.REFUSED
    return Verdict.INCONCLUSIVE if "inconclusive" in levels else Verdict.OK


def missing_package(error: str) -> str:
    """The package that a process of the compute half did not find, by the last line that it wrote; "" for another error."""
    named = re.search(r"(?:No module named '|the package )(\w+)", error)
    return named[1] if named else ""
