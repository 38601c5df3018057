"""What a rule is: a pattern of a log line, the ending that it stands for, why it came about, and what to type or do."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from podwright.rundir import Ending

RESUME = "then type podwright resume RUN"


class Role(enum.IntEnum):
    """How much a match explains of a failure; the least explains most."""

    CAUSE = 0
    SYMPTOM = 1
    """a failure in itself, but a cause in any log explains more"""
    CONSEQUENCE = 2
    """what others see of a failure elsewhere; it never decides how an attempt ended when the process that failed first is known"""


@dataclass(frozen=True)
class Rule:
    name: str
    pattern: re.Pattern[str]
    """A named group GROUP is the value of the word GROUP, in capitals, in the cause and the remedy."""
    ending: Ending
    cause: str
    remedy: str
    role: Role = Role.CAUSE
    passing: bool = False
    """whether it may pass by itself: a line that announces another try, or that progress follows in the same log, is no failure"""


def rule(
    name: str,
    pattern: str,
    ending: Ending,
    cause: str,
    remedy: str,
    role: Role = Role.CAUSE,
    passing: bool = False,
) -> Rule:
    return Rule(name, re.compile(pattern), ending, cause, remedy, role, passing)
