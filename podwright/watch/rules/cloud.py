"""What Google Cloud says of a request for machines. A quota, a rate and a stockout all say RESOURCE_EXHAUSTED: other words tell them apart."""

from __future__ import annotations

from podwright.rundir import Ending
from podwright.watch.rules.rule import Role, rule

_QUOTA = "delete suspended and failed queued resources, which hold quota (gcloud compute tpus queued-resources list shows them)"

RULES = (
    rule(
        "request-rate",
        r"\brequests per (minute|second|day)|tpu\.googleapis\.com/qps|RATE_LIMIT_EXCEEDED",
        Ending.NO_CAPACITY,
        "the cloud takes no more requests of this project for the moment: too many were sent in a minute",
        "wait a minute, then type podwright resume RUN; another zone does not help",
        passing=True,
    ),
    rule(
        "quota-zone",
        r"Quota (?:limit )?'(?P<quota>\w*PerZone\w*)' (?:has been exceeded|exhausted)\. Limit:? (?P<limit>\d+) in zone (?P<zone>[\w-]+)",
        Ending.NO_CAPACITY,
        "the project's quota QUOTA of ZONE is LIMIT, and the request goes beyond it",
        f"take another zone, or a smaller slice, or {_QUOTA}",
    ),
    rule(
        "quota-region",
        r"Quota (?:limit )?'(?P<quota>\w*PerRegion\w*)' (?:has been exceeded|exhausted)\. Limit:? (?P<limit>\d+) in region (?P<region>[\w-]+)",
        Ending.NO_CAPACITY,
        "the project's quota QUOTA of REGION is LIMIT, and the request goes beyond it; other zones of the region share it",
        f"take a zone of another region, or a smaller slice, or {_QUOTA}",
    ),
    rule(
        "quota-other",
        r"GCE_QUOTA_EXCEEDED|Insufficient (regional )?quota to satisfy|Quota (limit )?'\w+' (has been exceeded|exhausted)|QUOTA_EXCEEDED",
        Ending.NO_CAPACITY,
        "a quota of the project is used up",
        f"ask for more on the Quotas page of the Cloud console, or {_QUOTA}",
    ),
    rule(
        "reservation-full",
        r"Insufficient reserved capacity|[Rr]eservation .{0,80}does not have (enough|sufficient)|specific reservation .{0,80} is insufficient"
        r"|lack of capacity in your reservation",
        Ending.NO_CAPACITY,
        "the reservation has too few free machines",
        "take another reservation, or wait until jobs that use this reservation have ended; of GKE delete the node pool, which fills later",
        passing=True,
    ),
    rule(
        "reservation-degraded",
        r"requires reservation to be in READY state|[Rr]eservation .{0,80}\bDEGRADED\b",
        Ending.NO_CAPACITY,
        "the reservation is degraded: its machines are being maintained, so free ones cannot be used",
        "take another reservation, or wait until its state is READY",
    ),
    rule(
        "reservation-wrong",
        r"[Rr]eservation .{0,80}is incorrect for the requested resources|Could not find the given reservation",
        Ending.BAD_INPUT,
        "the reservation is of another zone or machine type than the request, or has another name",
        "type gcloud compute reservations list, and give the zone and machine type of that reservation",
    ),
    rule(
        "no-capacity",
        r"There is no more capacity in the zone|GCE_STOCKOUT|does not have enough resources available to fulfill"
        r"|is not available\. Please try another zone|does not currently have sufficient capacity|No available resources",
        Ending.NO_CAPACITY,
        "the zone has no free machines of this kind",
        "take another zone, or type podwright resume RUN later",
        passing=True,
    ),
    rule(
        "taken-while-created",
        r"update is not supported while in state PREEMPTED",
        Ending.NO_CAPACITY,
        "the machines were preempted while they were created",
        "delete what is left, then type podwright resume RUN",
    ),
    rule(
        "accelerator-unknown",
        r"The requested zone .{0,40} is not supported|not be found in the zonal accelerator configurations|invalid AcceleratorType"
        r"|provisioning model is not supported for accelerator type",
        Ending.BAD_INPUT,
        "the zone does not offer this type of slice, or not in this way of provisioning",
        "type gcloud compute tpus accelerator-types list, and take a zone and a type of that list",
    ),
    rule(
        "runtime-version",
        r"([Rr]untime|[Tt]ensor[Ff]low|[Ss]oftware) ?[Vv]ersion\b.{0,60}(not be found|not found|not supported|[Ii]nvalid|does not exist)"
        r"|[Ii]nvalid ([Rr]untime|[Tt]ensor[Ff]low|[Ss]oftware) ?[Vv]ersion",
        Ending.BAD_INPUT,
        "the zone has no TPU image of that name",
        "type gcloud compute tpus tpu-vm versions list, and take the version for your generation (of v6e: v2-alpha-tpuv6e)",
    ),
    rule(
        "api-off",
        r"API has not been used in project|SERVICE_DISABLED|it is disabled\. Enable it by visiting",
        Ending.BAD_INPUT,
        "the project has not enabled the API that was called",
        "enable the API on the page whose address the line names, and try again in a few minutes",
    ),
    rule(
        "login-expired",
        r"do not currently have an active account selected|Reauthentication (failed|is needed)|invalid_grant"
        r"|default credentials were not found|problem refreshing your current auth tokens",
        Ending.BAD_INPUT,
        "there is no valid login to Google Cloud",
        "type gcloud auth login and gcloud auth application-default login, then podwright resume RUN",
    ),
    rule(
        "no-project",
        r"Failed to find attribute \[project\]|The required property \[project\] is not currently set",
        Ending.BAD_INPUT,
        "gcloud does not know which project to use",
        "type gcloud config set project and the project's name",
    ),
    rule(
        "cloud-permission",
        r"PERMISSION_DENIED: |Permission '[\w.]+' denied on|is not found or access is unauthorized|The caller does not have permission",
        Ending.BAD_INPUT,
        "the account that the line names may not do this in the project, or the project or zone has another name",
        "look at gcloud config list (account and project); have the owner of the project grant the role TPU Admin",
    ),
    rule(
        "tpu-preempted",
        r'has terminal state "(PREEMPTED|TERMINATED)"|\bstate\W+(PREEMPTED|SUSPENDING|SUSPENDED)\b|instance/preempted\W+TRUE'
        r"|[Pp]reemption notice (was )?received|[Ii]nstance (was|is being) preempted|that this task will be preempted",
        Ending.PREEMPTED,
        "the cloud took the spot machines back",
        "type podwright resume RUN: on other machines, it {resumes}",
    ),
    rule(
        "tpu-maintenance",
        r"TERMINATE_ON_HOST_MAINTENANCE|UNHEALTHY_MAINTENANCE|going through a maintenance event",
        Ending.PREEMPTED,
        "the cloud maintains a host of the slice, which ends what runs there",
        "type podwright resume RUN when the slice is READY and HEALTHY again, or on another slice",
    ),
    rule(
        "tpu-state",
        r'This TPU has state "\w+", so it cannot be currently connected to',
        Ending.NODE_LOST,
        "the slice is stopped or is being deleted",
        "type gcloud compute tpus tpu-vm describe and its name for its state, then podwright resume RUN",
    ),
    rule(
        "tpu-gone",
        r"NOT_FOUND: Resource 'projects/\S+/(nodes|queuedResources)/|HttpError.{0,200}'status': 404",
        Ending.NODE_LOST,
        "there is no slice of that name: it was preempted and removed, deleted, or is only being created",
        "type podwright resume RUN",
        role=Role.SYMPTOM,
        passing=True,
    ),
    rule(
        "delete-active",
        r"DeleteQueuedResource is not supported when state is|is not supported for queued resources",
        Ending.BAD_INPUT,
        "a queued resource that has machines is neither stopped, nor deleted without its machines",
        "type gcloud compute tpus queued-resources delete with its name and --force",
    ),
    rule(
        "name-taken",
        r"ALREADY_EXISTS|\b409\b.{0,40}[Aa]lready [Ee]xists|code=409|Already exists: projects/",
        Ending.BAD_INPUT,
        "something of that name exists already, often in state ERROR, FAILED or SUSPENDED after an earlier try",
        "delete it if it is yours and unused, or take another name",
        role=Role.SYMPTOM,
        passing=True,
    ),
    rule(
        "creation-unfinished",
        r"has not finished in (?P<seconds>\d+) seconds\. The operations may still be underway",
        Ending.UNKNOWN,
        "gcloud has stopped waiting after SECONDS s, and the operation continues: it may still succeed, and then costs money",
        "look with gcloud's list or describe before you create or delete anything",
        role=Role.SYMPTOM,
        passing=True,
    ),
    rule(
        "cloud-internal",
        r"Internal error\. Please try again|HttpError.{0,200}'status': 50[0234]|INTERNAL: Internal error encountered",
        Ending.NO_CAPACITY,
        "the cloud's own service failed",
        "look whether what was requested exists, then type podwright resume RUN",
        passing=True,
    ),
)
