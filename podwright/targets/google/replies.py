"""What a refusal by a tool of the cloud lets one conclude: the texts are rows of podwright/failures. Pure.

A text that no row matches has an unknown outcome: the call may have done its work.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from podwright.failures.match import Failure, match
from podwright.rundir import Ending
from podwright.targets.base import Barred
from podwright.targets.machines import Request


class Consequence(enum.Enum):
    ABSENT = "absent"  # nothing of that name exists
    EXISTS = "exists"
    PLACE = "place"  # this reservation, or this zone without one, has none: try another
    ZONE = "zone"  # this zone has none: try another
    REGION = "region"  # no zone of this region
    REPEAT = "repeat"  # the same call, later
    FINAL = "final"  # no zone and no repetition helps
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Reply:
    consequence: Consequence
    reason: str
    """as `Reason: what it means`"""
    fix: str = ""
    """what somebody must correct; a place whose refusal has one refuses for good"""

    @property
    def advice(self) -> str:
        return f"{self.reason}; {self.fix}" if self.fix else self.reason

    @property
    def is_final(self) -> bool:
        """Whether no such call is answered before a person acts."""
        return self.consequence is Consequence.FINAL

    @property
    def ending(self) -> Ending:
        """Of a run that no place accepts for this reason."""
        return Ending.BAD_INPUT if self.fix else Ending.NO_CAPACITY


def require_deletable(failure: Reply | None, request: Request) -> None:
    """Barred where a deletion was refused until a person acts."""
    if failure and failure.is_final:
        raise Barred(f"{request.name} in {request.zone} cannot be deleted: {failure.reason}", failure.fix)


Classify = Callable[[str, str], Reply]
"""of what a call printed, and of the zone that it was about"""


def of_failure(failure: Failure, fields: Mapping[str, str]) -> Reply:
    """What a row concludes, with the values of the text and `fields`."""
    reason = f"{failure.row.name}: {failure.cause(fields)}"
    return Reply(Consequence(failure.row.retry), reason, failure.remedy(fields))


def of_gcloud(text: str, seen_in: str, fields: Mapping[str, str]) -> Reply:
    """Of what gcloud printed when a call failed."""
    if failure := match(text, seen_in):
        return of_failure(failure, fields)
    return Reply(Consequence.UNKNOWN, f"Unclear: gcloud says {_summary(text)}")


def region_of(zone: str) -> str:
    """The beginning of the names of all its zones."""
    return zone.rpartition("-")[0] + "-"


def _summary(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    return repr(lines[-1][:300]) if lines else "nothing"
