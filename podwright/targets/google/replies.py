"""What a refusal by a tool of the cloud lets one conclude: the texts are rows of podwright/failures. Pure.

A text that no row matches has an unknown outcome: the call may have done its work.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from podwright.failures.match import Failure, match
from podwright.rundir import Ending
from podwright.targets.base import Barred
from podwright.targets.machines import Allocation, Request, refused


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
        raise Barred(
            f"{request.name} in {request.zone} cannot be deleted: {failure.reason}", failure.fix, "not-deletable"
        )


Classify = Callable[[str, str], Reply]
"""of what a call printed, and of the zone that it was about"""


def of_failure(failure: Failure, fields: Mapping[str, str]) -> Reply:
    """Returns what a row lets one conclude; `fields` are values for its texts besides those of the text that it matched."""
    reason = f"{failure.row.name}: {failure.cause(fields)}"
    return Reply(Consequence(failure.row.retry), reason, failure.remedy(fields))


def of_gcloud(text: str, seen_in: str, fields: Mapping[str, str]) -> Reply:
    """Returns what the stderr of a call of gcloud that failed lets one conclude."""
    if failure := match(text, seen_in):
        return of_failure(failure, fields)
    return Reply(Consequence.UNKNOWN, f"Unclear: gcloud says {summary(text)!r}")


def refusal(reply: Reply, place: str, *, uncreated: bool = False) -> Allocation | None:
    """What a reply to a request for machines in `place` refuses; None where the same request may be repeated, or may have done its work.
    `uncreated`: whether nothing was created before."""
    zone = place.partition("/")[0]
    match reply.consequence:
        case Consequence.PLACE:
            return refused(place, reply.advice, reply.ending)
        case Consequence.ZONE:
            return refused(zone, reply.advice, reply.ending)
        case Consequence.REGION:
            return refused(zone.rpartition("-")[0] + "-", reply.advice, reply.ending)
        case Consequence.FINAL:
            ending = Ending.NO_CAPACITY if reply.reason.startswith("Quota") else Ending.BAD_INPUT
            return replace(refused("", reply.advice, ending), uncreated=uncreated)
    return None


def summary(text: str, noise: str = "WARNING") -> str:
    """The last line that is a message, and does not begin with `noise`."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not re.match(noise, line)]
    return lines[-1][:300] if lines else "nothing"
