"""What a refusal by a tool of the cloud lets one conclude, and the refusals that all parts of gcloud have in common. Pure.

Texts are told apart by what only they say. RESOURCE_EXHAUSTED and HTTP 429 say nothing by themselves: missing quota, missing capacity and
too many requests all carry them. What no row knows has an unknown outcome: the call may have done its work.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from podwright.rundir import Ending
from podwright.targets.base import Barred
from podwright.targets.machines import Request

NO_ACCOUNT = "do not currently have an active account selected"
"""What a gcloud without a login says; and now and then of one with a login, where several are started at once: calls that followed succeeded
(github.com/kubernetes/kubernetes/issues/23496; in other words, 3 of 6 in parallel: github.com/google/cadvisor/issues/1056)."""


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


@dataclass(frozen=True)
class ReplyRule:
    pattern: str
    consequence: Consequence
    reason: str
    """groups of the pattern are filled in"""
    fix: str = ""


Classify = Callable[[str, str], Reply]
"""of what a call printed, and of the zone that it was about"""

LOGIN = (
    ReplyRule(
        NO_ACCOUNT,
        Consequence.FINAL,
        "NoLogin: gcloud has no account",
        "type gcloud auth login",
    ),
    ReplyRule(
        r"Reauthentication (?:failed|required)|problem reauthenticating|complete reauthentication|invalid_grant|(?:invalid|unauthorized|deleted)_client",
        Consequence.FINAL,
        "NoLogin: the login of gcloud has expired",
        "type gcloud auth login",
    ),
    ReplyRule(
        r"There was a problem refreshing (?:your current )?auth tokens",  # by a network or a token server that failed
        Consequence.UNKNOWN,
        "NoToken: the login of gcloud could not be renewed now",
    ),
)
REQUEST_RATE = ReplyRule(
    r"Quota exceeded for quota metric|requests per minute|/qps/",
    Consequence.REPEAT,
    "RequestRate: the project sends more requests a minute than its quota allows",
)
OLD_GCLOUD = ReplyRule(
    r"[Ii]nvalid choice|unrecognized arguments|argument --\S+: |Invalid value for \[|Missing required argument \["
    r"|For detailed information on this command and its flags|To search the help text of gcloud commands",  # below each usage error
    Consequence.FINAL,
    "OldGcloud: this gcloud does not know the call or an option of it",
    "type gcloud components update",
)
BUSY = (
    ReplyRule(
        r"Internal error|\b50[0234]\b|UNAVAILABLE|INTERNAL\b|Service Unavailable|Bad Gateway|Deadline",
        Consequence.REPEAT,
        "CloudBusy: the cloud could not answer",
    ),
    ReplyRule(
        r"Unable to find the server|Failed to establish a new connection|Connection (?:reset|refused|aborted)|Network is unreachable"
        r"|Temporary failure in name resolution|timed out|Max retries exceeded",
        Consequence.UNKNOWN,
        "NoNetwork: this machine does not reach the cloud",
    ),
)


def first_of(table: Iterable[ReplyRule], text: str, fields: Mapping[str, str]) -> Reply:
    """The first row of `table` that knows `text`, filled in with `fields`, and with `quota`: what the first group of its pattern that took
    part names."""
    for row in table:
        if match := re.search(row.pattern, text):
            groups = [group for group in match.groups() if group]
            known = {**fields, "quota": groups[0] if groups else ""}
            return Reply(row.consequence, row.reason.format(**known), row.fix.format(**known))
    return Reply(Consequence.UNKNOWN, f"Unclear: gcloud says {_summary(text)}")


def region_of(zone: str) -> str:
    """The beginning of the names of all its zones."""
    return zone.rpartition("-")[0] + "-"


def _summary(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    return repr(lines[-1][:300]) if lines else "nothing"
