"""What gcloud's refusals mean: which of them let another zone be tried, which let the same call be repeated, and which end a run.

Texts are told apart by what only they say. RESOURCE_EXHAUSTED and HTTP 429 say nothing by themselves: missing quota, missing capacity and
too many requests all carry them. What no row knows has an unknown outcome: the call may have done its work.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

NO_ACCOUNT = "do not currently have an active account selected"
"""What a gcloud without a login says; and now and then of one with a login, where several are started at once: calls that followed succeeded
(github.com/kubernetes/kubernetes/issues/23496; in other words, 3 of 6 in parallel: github.com/google/cadvisor/issues/1056)."""


class Consequence(enum.Enum):
    ABSENT = "absent"  # nothing of that name exists
    EXISTS = "exists"
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


@dataclass(frozen=True)
class ReplyRule:
    pattern: str
    consequence: Consequence
    reason: str
    """groups of the pattern are filled in"""
    fix: str = ""


_TABLE = (
    ReplyRule(
        r"Quota limit '(?P<quota>\w*PerZone\w*)' has been exceeded|Quota '(?P<quota2>\w*PerZone\w*)' exhausted",
        Consequence.ZONE,
        "Quota: the project has no more of {quota} in this zone",
    ),
    ReplyRule(
        r"Quota limit '(?P<quota>\w*PerRegion\w*)' has been exceeded|Quota '(?P<quota2>\w*PerRegion\w*)' exhausted",
        Consequence.REGION,
        "Quota: the project has no more of {quota} in this region",
    ),
    ReplyRule(
        r"Quota exceeded for quota metric|requests per minute|/qps/",
        Consequence.REPEAT,
        "RequestRate: the project sends more requests a minute than its quota allows",
    ),
    ReplyRule(
        r"Quota limit '(?P<quota>\w+)' has been exceeded|Quota '(?P<quota2>\w+)' exhausted",
        Consequence.ZONE,
        "Quota: the project has no more of {quota}",
    ),
    ReplyRule(r"There is no more capacity in the zone", Consequence.ZONE, "NoCapacity: the zone has no free capacity"),
    ReplyRule(
        r"Insufficient reserved capacity|Insufficient capacity",
        Consequence.ZONE,
        "NoCapacity: no free capacity of the requested kind",
    ),
    ReplyRule(
        r"update is not supported while in state PREEMPTED",
        Consequence.ZONE,
        "Preempted: the slice was taken while it was created",
    ),
    ReplyRule(
        r"FLEX_START provisioning model is not supported",
        Consequence.ZONE,
        "NotSold: the zone does not sell this type by flex-start",
    ),
    ReplyRule(
        r'The requested zone "(?P<zone>[^"]+)" is not supported|Location (?P<zone2>\S+) is not found or access is unauthorized',
        Consequence.FINAL,
        "BadZone: Cloud TPU is not in this zone, or the project may not use it",
        "correct zones of the target: gcloud compute tpus locations list --project={project} shows them",
    ),
    ReplyRule(
        r"accelerator \S+ was not found in zone|could not be found in the zonal accelerator configurations|invalid AcceleratorType",
        Consequence.FINAL,
        "NotSold: this zone has no slices of the type",
        "correct zones or accelerator_type of the target: "
        "gcloud compute tpus accelerator-types list --zone={zone} --project={project} shows what the zone has",
    ),
    ReplyRule(
        r"has not been used in project \S+ before or it is disabled",
        Consequence.FINAL,
        "ApiOff: the Cloud TPU API is off in the project",
        "type gcloud services enable tpu.googleapis.com --project={project}, and wait a few minutes",
    ),
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
    ReplyRule(
        r"Permission denied on 'locations/(?P<quota>[a-z][\w-]*)'",
        Consequence.FINAL,
        "BadZone: the account of gcloud has no permission for zone {quota} (or it may not exist)",
        "correct zones of the target: gcloud compute tpus locations list --project={project} shows them; "
        "if the zone is there, ask for the role TPU Admin (roles/tpu.admin)",
    ),
    ReplyRule(
        r"PERMISSION_DENIED|Permission '(?P<quota>[\w.]+)' denied|Permission denied on|does not have permission",
        Consequence.FINAL,
        "NoPermission: the account of gcloud may not do this in the project",
        "ask for the role TPU Admin (roles/tpu.admin) in {project}; podwright target check shows what is missing",
    ),
    ReplyRule(
        r"Failed to find attribute \[project\]",
        Consequence.FINAL,
        "NoProject: the target names no project",
        "set project of the target",
    ),
    ReplyRule(
        r"invalid choice|unrecognized arguments|argument --\S+: |Invalid value for \[",
        Consequence.FINAL,
        "OldGcloud: this gcloud does not know an option of the call",
        "type gcloud components update",
    ),
    ReplyRule(r"ALREADY_EXISTS|already exists", Consequence.EXISTS, "Exists: something of this name exists"),
    ReplyRule(r"NOT_FOUND", Consequence.ABSENT, "Absent: nothing of this name exists"),
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


def classify(text: str, project: str, zone: str) -> Reply:
    """`text`: stderr of a call that failed, or the message of an operation that did."""
    for row in _TABLE:
        if match := re.search(row.pattern, text):
            groups = [group for group in match.groups() if group]
            fields = {"project": project, "zone": zone, "quota": groups[0] if groups else ""}
            return Reply(row.consequence, row.reason.format(**fields), row.fix.format(**fields))
    return Reply(Consequence.UNKNOWN, f"Unclear: gcloud says {_summary(text)}")


def region_of(zone: str) -> str:
    """The beginning of the names of all its zones."""
    return zone.rpartition("-")[0] + "-"


def _summary(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    return repr(lines[-1][:300]) if lines else "nothing"
