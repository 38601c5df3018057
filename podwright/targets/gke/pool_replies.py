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
_QUOTA = "Quota: {project} has not enough quota {quota} for nodes in {zone}"
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
        r"|Reservation does not have enough resources|No available resources in specified reservations|[Ii]nsufficient reserved capacity",
        Consequence.PLACE,
        "NoCapacity: the reservation has not enough free machines",
    ),
    ReplyRule(
        r"Reservation '?(?P<quota>[^' ]+)'? is incorrect for the requested resources",
        Consequence.PLACE,
        "OtherReservation: reservation {quota} is for other machines than {machine_type} in {zone}: its zone, its machine type or its "
        "host maintenance interval differs",
        "type podwright target check {target}, which shows what the reservation is for",
    ),
    ReplyRule(
        r"Invalid value for field 'resource\.reservationAffinity'",
        Consequence.PLACE,
        "OtherReservation: GKE cannot use the reservation for {machine_type} in {zone}",
        "type podwright target check {target}, which shows what the reservation is for",
    ),
    ReplyRule(
        r"requires reservation to be in READY state",
        Consequence.PLACE,
        "ReservationNotReady: the reservation is not ready",
    ),
    ReplyRule(
        r"Could not find the given reservation|[Rr]eservation ['\"][^'\"]+['\"] (?:not found|does not exist)"
        r"|[Ss]pecified reservations \[[^\]]*\] do not exist|code=404, message=[^\n]*/reservations/[^' ]+' was not found",
        Consequence.PLACE,
        "NoReservation: there is no such reservation in {zone}",
        "correct reservations and zones of the target: gcloud compute reservations list --project={project} shows them",
    ),
    ReplyRule(
        r"Quota '(?P<quota>[\w-]+)' exceeded",
        Consequence.FINAL,
        _QUOTA,
        _QUOTAS,
    ),
    ReplyRule(
        r"GCE_QUOTA_EXCEEDED|[Ii]nsufficient (?:regional )?quota(?:[^\n]*?\b(?:resource|request for resource):? \"(?P<quota2>\w+)\")?",
        Consequence.FINAL,
        _QUOTA,
        _QUOTAS,
    ),
    REQUEST_RATE,
    ReplyRule(
        r"IP_SPACE_EXHAUSTED|IP space of '[^']+' is exhausted|does not have available private IP space",
        Consequence.FINAL,
        "NoAddresses: the network of cluster {cluster} has no IP addresses left for nodes or their pods",
        "have a larger range added to the subnetwork of the cluster, or node pools deleted that nobody uses",
    ),
    ReplyRule(
        r"Constraint (?P<quota>constraints/[\w.]+) violated|denied by custom org policy: \[\"(?P<quota2>[^\"]+)\"",
        Consequence.FINAL,
        "Forbidden: an organization policy of {project} does not allow nodes of this cluster ({quota})",
        "have whoever administers the organization allow it for {project}",
    ),
    ReplyRule(
        r"does not have access to service account \"(?P<quota>[^\"]+)\"",
        Consequence.FINAL,
        "NoPermission: the account of gcloud may not start nodes as service account {quota}",
        "ask for the role Service Account User (roles/iam.serviceAccountUser) on it",
    ),
    ReplyRule(
        r"\[PERMISSIONS_ERROR\]",
        Consequence.FINAL,
        "NoPermission: the service agent of GKE may not create machines in {project}, or the service account of the nodes is disabled",
        "have the role Kubernetes Engine Service Agent (roles/container.serviceAgent) given back to the service agent of GKE in {project}, and "
        "see whether that account is enabled",
    ),
    ReplyRule(
        r"Zone '[^']+' is not available",
        Consequence.ZONE,
        "NoCapacity: the zone has no free capacity",
    ),
    ReplyRule(
        r"GCE_STOCKOUT|does not have enough resources available|does not currently have sufficient capacity|Requested resource is exhausted"
        r"|ZONE_RESOURCE_POOL_EXHAUSTED|is currently unavailable in the \S+ zone",
        Consequence.PLACE,
        "NoCapacity: no free capacity of the requested kind",
    ),
    ReplyRule(
        r"Machine type with name '?(?P<quota>[\w-]+)'? does not exist in zone|machine type \"?(?P<quota2>[\w-]+)\"? (?:is not available|was not found|does not exist)"
        r"|Invalid machine type \"(?P<quota3>[\w-]+)\" in zone",
        Consequence.ZONE,
        "NotSold: zone {zone} has no machine type {quota}",
        "correct zones or machine_type of the target",
    ),
    ReplyRule(
        r"(?P<quota>Use workload policy instead|TPU topology can't be specified with single-host|Flex start node pools don't support"
        r"|Requested invalid target size '\d+' for a Managed Instance Group in the gang mode|[Qq]ueued_provisioning requires reservation affinity"
        r"|is not a valid size of TPU pod slice|Placement policy is not applicable|cannot be false when release_channel \w+ is set"
        r"|Invalid value for field '[\w.]+'|Request contains an invalid argument)",
        Consequence.FINAL,
        "WrongFlags: GKE refuses how the node pool is requested ({quota})",
        _FLAGS,
    ),
    ReplyRule(
        r"Node version \"(?P<quota>[\w.-]+)\" is unsupported",
        Consequence.FINAL,
        "OldVersion: GKE no longer creates nodes of version {quota}, which is that of cluster {cluster}",
        "type gcloud container clusters upgrade {cluster} --master --location={location} --project={project}, then resume the run",
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
        r"Autopilot node pools cannot be",
        Consequence.FINAL,
        "Autopilot: cluster {cluster} creates its nodes itself",
        "set cluster of the target to a Standard cluster, whose pods may have the rights that TPUs need",
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
    ReplyRule(r"code=404, message=(?P<quota>[^\n]{1,300})", Consequence.ABSENT, "Absent: {quota}"),
    ReplyRule(
        r"NOT_FOUND|[Nn]ot found|was not found|code=404", Consequence.ABSENT, "Absent: nothing of this name exists"
    ),
    ReplyRule(
        r"code=400, message=[^\n]*(?:try again|[Pp]lease wait|[Rr]etry|is currently|not (?:yet )?ready|unhealthy|[Ii]nternal error)",
        Consequence.REPEAT,
        BUSY_CLUSTER + ": cluster {cluster} does not take the request now",
    ),
    ReplyRule(
        r"code=400, message=(?P<quota>[^\n]{1,300})",
        Consequence.FINAL,
        "Refused: GKE does not accept the request, now or later (HTTP 400: {quota})",
        "correct that on cluster {cluster} or in target {target}, then resume the run; if both are right, report it with this line",
    ),
    *BUSY,
)


@dataclass(frozen=True)
class PoolReplies:
    """Classifies for one target."""

    own: GkeSettings
    target: str = "NAME"

    def classify(self, text: str, place: str) -> Reply:
        """`text`: stderr of a call that failed, or the message of an operation or a pool; `place`: that the request is for."""
        own = self.own
        fields = {"project": own.project, "location": own.location, "cluster": own.cluster}
        fields |= {"zone": zone_of(place), "machine_type": own.machine_type, "target": self.target}
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


def classifier(own: GkeSettings, target: str = "NAME") -> Classify:
    return PoolReplies(own, target).classify
