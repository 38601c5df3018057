"""What gcloud's refusals of Cloud TPU mean: which of them let another zone be tried, which let the same call be repeated, and which end a run."""

from __future__ import annotations

from podwright.targets.google.replies import (
    BUSY,
    LOGIN,
    OLD_GCLOUD,
    REQUEST_RATE,
    Classify,
    Consequence,
    Reply,
    ReplyRule,
    first_of,
)

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
    REQUEST_RATE,
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
        "correct zones or provisioning of the target",
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
        r"requires billing to be enabled|BILLING_DISABLED|billing account .*is (?:disabled|not active)",
        Consequence.FINAL,
        "NoBilling: project {project} has no billing account that is active",
        "type gcloud billing projects link {project} --billing-account=ACCOUNT; gcloud billing accounts list shows yours",
    ),
    ReplyRule(
        r"has not been used in project \S+ before or it is disabled",
        Consequence.FINAL,
        "ApiOff: the Cloud TPU API is off in the project",
        "type gcloud services enable tpu.googleapis.com --project={project}, and wait a few minutes",
    ),
    *LOGIN,
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
        "ask for the role TPU Admin (roles/tpu.admin) in {project}; podwright target check {target} shows what is missing",
    ),
    ReplyRule(
        r"Failed to find attribute \[project\]",
        Consequence.FINAL,
        "NoProject: the target names no project",
        "set project of the target",
    ),
    OLD_GCLOUD,
    ReplyRule(r"ALREADY_EXISTS|already exists", Consequence.EXISTS, "Exists: something of this name exists"),
    ReplyRule(r"NOT_FOUND", Consequence.ABSENT, "Absent: nothing of this name exists"),
    *BUSY,
)


def classify(text: str, project: str, zone: str, target: str = "NAME") -> Reply:
    """`text`: stderr of a call that failed, or the message of an operation that did."""
    return first_of(_TABLE, text, {"project": project, "zone": zone, "target": target})


def of_project(project: str, target: str = "NAME") -> Classify:
    """`classify` for calls about `project`, for `target`."""
    return lambda text, zone: classify(text, project, zone, target)
