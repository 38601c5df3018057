"""What refusals of node pools mean, said by the call, by its operation or by the pool: which of them let another place be tried, which let
the same call be repeated, and which end a run. Pure.

The texts are of the cluster autoscaler's list of errors of GKE, of the tests and issues of xpk, and of gcloud's own source.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from podwright.rundir import Ending
from podwright.targets.gke.pool_calls import zone_of
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
    region_of,
)
from podwright.targets.machines import Allocation, refused
from podwright.targets.settings.gke import GkeSettings

BUSY_CLUSTER = "ClusterBusy"
_FLAGS = "report it with this line: the flags are of podwright"
_QUOTAS = "ask for more: https://console.cloud.google.com/iam-admin/quotas?project={project}"
_ROLES = (
    "ask for the role Kubernetes Engine Cluster Admin (roles/container.clusterAdmin) in {project}, and for tpu7x Compute Instance Admin "
    "(roles/compute.instanceAdmin.v1), which creates workload policies"
)
_TABLE = (
    ReplyRule(
        r"incompatible operation (?P<quota>operation-[\w-]+)|[Oo]peration (?P<quota2>operation-[\w-]+) is currently",
        Consequence.REPEAT,
        BUSY_CLUSTER + ": cluster {cluster} is at work on {quota}, and takes no other request until that has ended",
    ),
    ReplyRule(
        r"concurrent operations quota",
        Consequence.REPEAT,
        BUSY_CLUSTER + ": cluster {cluster} is at work on as many operations as it takes at once",
    ),
    ReplyRule(
        r"due to lack of capacity in your reservation",
        Consequence.PLACE,
        "NoCapacity: the reservation has no room now; a pool that waits for it would fill itself later, and cost then",
    ),
    ReplyRule(
        r"is insufficient for node pool .*?(?P<quota>required \d+ and short of \d+ VM count)",
        Consequence.PLACE,
        "NoCapacity: the reservation has not enough free machines ({quota})",
    ),
    ReplyRule(
        r"[Rr]eservation \S+ does not have (?:sufficient capacity|enough resources|available resources)"
        r"|Reservation does not have enough resources|No available resources in specified reservations",
        Consequence.PLACE,
        "NoCapacity: the reservation has not enough free machines",
    ),
    ReplyRule(
        r"Reservation '?(?P<quota>[^' ]+)'? is incorrect for the requested resources",
        Consequence.PLACE,
        "OtherReservation: reservation {quota} is for other machines than {machine_type} in {zone}: its zone, its machine type or its "
        "host maintenance interval differs",
        "type podwright target check, which shows what the reservation is for",
    ),
    ReplyRule(
        r"requires reservation to be in READY state",
        Consequence.PLACE,
        "ReservationNotReady: the reservation is not ready",
    ),
    ReplyRule(
        r"Could not find the given reservation|[Rr]eservation ['\"][^'\"]+['\"] (?:not found|does not exist)",
        Consequence.PLACE,
        "NoReservation: there is no such reservation in {zone}",
        "correct reservations and zones of the target: gcloud compute reservations list --project={project} shows them",
    ),
    ReplyRule(
        r"GCE_QUOTA_EXCEEDED|Quota '(?P<quota>\w+)' exceeded|Insufficient (?:regional )?quota.* (?:resource|request for resource): \"(?P<quota2>\w+)\"",
        Consequence.FINAL,
        "Quota: the project has not enough quota {quota} in the region of {zone}",
        _QUOTAS,
    ),
    REQUEST_RATE,
    ReplyRule(
        r"Zone '[^']+' is not available",
        Consequence.ZONE,
        "NoCapacity: the zone has no free capacity",
    ),
    ReplyRule(
        r"GCE_STOCKOUT|does not have enough resources available|does not currently have sufficient capacity|Requested resource is exhausted"
        r"|ZONE_RESOURCE_POOL_EXHAUSTED",
        Consequence.PLACE,
        "NoCapacity: no free capacity of the requested kind",
    ),
    ReplyRule(
        r"(?P<quota>Use workload policy instead|TPU topology can't be specified with single-host|Flex start node pools don't support"
        r"|Requested invalid target size '\d+' for a Managed Instance Group in the gang mode|[Qq]ueued_provisioning requires reservation affinity)",
        Consequence.FINAL,
        "WrongFlags: GKE refuses how the node pool is requested ({quota})",
        _FLAGS,
    ),
    ReplyRule(
        r"Machine type with name '?(?P<quota>[\w-]+)'? does not exist in zone|machine type \"?(?P<quota2>[\w-]+)\"? (?:is not available|was not found|does not exist)",
        Consequence.ZONE,
        "NotSold: zone {zone} has no machine type {quota}",
        "correct zones or machine_type of the target",
    ),
    ReplyRule(
        r"has not been used in project \S+ before or it is disabled",
        Consequence.FINAL,
        "ApiOff: the Kubernetes Engine API is off in {project}",
        "type gcloud services enable container.googleapis.com --project={project}, and wait a few minutes",
    ),
    *LOGIN,
    ReplyRule(
        r"Required ['\"](?P<quota>[\w.]+)['\"] permission|Permission '(?P<quota2>[\w.]+)' denied",
        Consequence.FINAL,
        "NoPermission: the account of gcloud may not do this in {project} ({quota})",
        _ROLES,
    ),
    ReplyRule(
        r"PERMISSION_DENIED|does not have permission|code=403",
        Consequence.FINAL,
        "NoPermission: the account of gcloud may not do this in {project}",
        _ROLES,
    ),
    ReplyRule(
        r"resource is already being used by|is already being used by",
        Consequence.REPEAT,
        "InUse: something still uses it",
    ),
    ReplyRule(
        r"[Nn]ot found: \S*/clusters/(?P<quota>[\w-]+)\.?(?:\s|$)|No cluster named '(?P<quota2>[\w-]+)'",
        Consequence.FINAL,
        "NoCluster: {project} has no cluster {cluster} in {location}",
        "correct cluster, zones or region of the target: gcloud container clusters list --project={project} shows what there is",
    ),
    ReplyRule(
        r"is still running, check its status via",
        Consequence.UNKNOWN,
        "Running: gcloud no longer waits for the operation, which goes on",
    ),
    OLD_GCLOUD,
    ReplyRule(
        r"[Aa]lready [Ee]xists|ALREADY_EXISTS|code=409", Consequence.EXISTS, "Exists: something of this name exists"
    ),
    ReplyRule(
        r"NOT_FOUND|[Nn]ot found|was not found|code=404", Consequence.ABSENT, "Absent: nothing of this name exists"
    ),
    *BUSY,
)


@dataclass(frozen=True)
class PoolReplies:
    """Classifies for one target."""

    own: GkeSettings

    def classify(self, text: str, place: str) -> Reply:
        """`text`: stderr of a call that failed, or the message of an operation or a pool; `place`: that the request is for."""
        own = self.own
        fields = {"project": own.project, "location": own.location, "cluster": own.cluster}
        fields |= {"zone": zone_of(place), "machine_type": own.machine_type}
        reply = first_of(_TABLE, text, fields)
        return replace(reply, reason=reply.reason.replace("  ", " "))  # of a text that names no quota

    def refusal(self, reply: Reply, place: str) -> Allocation | None:
        """What a reply to a request refuses; None where the same request may be repeated, or may have done its work."""
        match reply.consequence:
            case Consequence.PLACE:
                return refused(place, reply.advice, reply.ending)
            case Consequence.ZONE:
                return refused(zone_of(place), reply.advice, reply.ending)
            case Consequence.REGION:
                return refused(region_of(zone_of(place)), reply.advice, reply.ending)
            case Consequence.FINAL:
                quota = reply.reason.startswith("Quota")
                return refused("", reply.advice, Ending.NO_CAPACITY if quota else Ending.BAD_INPUT)
        return None


def classifier(own: GkeSettings) -> Classify:
    return PoolReplies(own).classify
