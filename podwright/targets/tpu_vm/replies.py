"""What gcloud's refusals mean: which of them let another zone be tried, which let the same call be repeated, and which end a run.

Texts are told apart by what only they say. RESOURCE_EXHAUSTED and HTTP 429 say nothing by themselves: missing quota, missing capacity and
too many requests all carry them. What no row knows has an unknown outcome: the call may have done its work.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass


class Verdict(enum.Enum):
    ABSENT = "absent"  # nothing of that name exists
    EXISTS = "exists"
    ZONE = "zone"  # this zone has none: try another
    REGION = "region"  # no zone of this region
    AGAIN = "again"  # the same call, later
    FINAL = "final"  # no zone and no repetition helps
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Reply:
    verdict: Verdict
    reason: str
    """as `Reason: what it means`"""
    fix: str = ""


@dataclass(frozen=True)
class Row:
    pattern: str
    verdict: Verdict
    reason: str
    """groups of the pattern are filled in"""
    fix: str = ""


_TABLE = (
    Row(
        r"Quota limit '(?P<quota>\w*PerZone\w*)' has been exceeded|Quota '(?P<quota2>\w*PerZone\w*)' exhausted",
        Verdict.ZONE,
        "Quota: the project has no more of {quota} in this zone",
    ),
    Row(
        r"Quota limit '(?P<quota>\w*PerRegion\w*)' has been exceeded|Quota '(?P<quota2>\w*PerRegion\w*)' exhausted",
        Verdict.REGION,
        "Quota: the project has no more of {quota} in this region",
    ),
    Row(
        r"Quota exceeded for quota metric|requests per minute|/qps/",
        Verdict.AGAIN,
        "RequestRate: the project sends more requests a minute than its quota allows",
    ),
    Row(
        r"Quota limit '(?P<quota>\w+)' has been exceeded|Quota '(?P<quota2>\w+)' exhausted",
        Verdict.ZONE,
        "Quota: the project has no more of {quota}",
    ),
    Row(r"There is no more capacity in the zone", Verdict.ZONE, "NoCapacity: the zone has no free capacity"),
    Row(
        r"Insufficient reserved capacity|Insufficient capacity",
        Verdict.ZONE,
        "NoCapacity: no free capacity of the requested kind",
    ),
    Row(
        r"update is not supported while in state PREEMPTED",
        Verdict.ZONE,
        "Preempted: the slice was taken while it was created",
    ),
    Row(
        r"FLEX_START provisioning model is not supported",
        Verdict.ZONE,
        "NotSold: the zone does not sell this type by flex-start",
    ),
    Row(
        r'The requested zone "(?P<zone>[^"]+)" is not supported|Location (?P<zone2>\S+) is not found or access is unauthorized',
        Verdict.FINAL,
        "BadZone: Cloud TPU is not in this zone, or the project may not use it",
        "correct zones of the target: gcloud compute tpus locations list --project={project} shows them",
    ),
    Row(
        r"accelerator \S+ was not found in zone|could not be found in the zonal accelerator configurations|invalid AcceleratorType",
        Verdict.FINAL,
        "NotSold: this zone has no slices of the type",
        "correct zones or accelerator_type of the target: "
        "gcloud compute tpus accelerator-types list --zone={zone} --project={project} shows what the zone has",
    ),
    Row(
        r"has not been used in project \S+ before or it is disabled",
        Verdict.FINAL,
        "ApiOff: the Cloud TPU API is off in the project",
        "type gcloud services enable tpu.googleapis.com --project={project}, and wait a few minutes",
    ),
    Row(
        r"do not currently have an active account selected",
        Verdict.FINAL,
        "NoLogin: gcloud has no account",
        "type gcloud auth login",
    ),
    Row(
        r"Reauthentication failed|There was a problem refreshing your current auth tokens|invalid_grant",
        Verdict.FINAL,
        "NoLogin: the login of gcloud has expired",
        "type gcloud auth login",
    ),
    Row(
        r"PERMISSION_DENIED|Permission '(?P<quota>[\w.]+)' denied|Permission denied on|does not have permission",
        Verdict.FINAL,
        "NoPermission: the account of gcloud may not do this in the project",
        "ask for the role TPU Admin (roles/tpu.admin) in {project}; podwright target check shows what is missing",
    ),
    Row(
        r"Failed to find attribute \[project\]",
        Verdict.FINAL,
        "NoProject: the target names no project",
        "set project of the target",
    ),
    Row(
        r"invalid choice|unrecognized arguments|argument --\S+: |Invalid value for \[",
        Verdict.FINAL,
        "OldGcloud: this gcloud does not know an option of the call",
        "type gcloud components update",
    ),
    Row(r"ALREADY_EXISTS|already exists", Verdict.EXISTS, "Exists: something of this name exists"),
    Row(r"NOT_FOUND", Verdict.ABSENT, "Absent: nothing of this name exists"),
    Row(
        r"Internal error|\b50[0234]\b|UNAVAILABLE|INTERNAL\b|Service Unavailable|Bad Gateway|Deadline",
        Verdict.AGAIN,
        "CloudBusy: the cloud could not answer",
    ),
    Row(
        r"Unable to find the server|Failed to establish a new connection|Connection (?:reset|refused|aborted)|Network is unreachable"
        r"|Temporary failure in name resolution|timed out|Max retries exceeded",
        Verdict.UNKNOWN,
        "NoNetwork: this machine does not reach the cloud",
    ),
)


def classify(text: str, project: str, zone: str) -> Reply:
    """`text`: stderr of a call that failed, or the message of an operation that did."""
    for row in _TABLE:
        if match := re.search(row.pattern, text):
            groups = [group for group in match.groups() if group]
            fields = {"project": project, "zone": zone, "quota": groups[0] if groups else ""}
            return Reply(row.verdict, row.reason.format(**fields), row.fix.format(**fields))
    return Reply(Verdict.UNKNOWN, f"Unclear: gcloud says {_summary(text)}")


def region_of(zone: str) -> str:
    """The beginning of the names of all its zones."""
    return zone.rpartition("-")[0] + "-"


def _summary(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    return repr(lines[-1][:300]) if lines else "nothing"
