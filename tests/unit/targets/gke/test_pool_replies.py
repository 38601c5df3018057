"""What GKE says of a node pool that it does not create, and where that leads."""

import pytest

from podwright.rundir import Ending
from podwright.targets.gke.pool_replies import classifier
from podwright.targets.google.replies import Consequence, refusal
from podwright.targets.machines import AllocationState
from tests.unit.targets.gke.entry import gke

ZONE = "us-central1-ai1a"
PLACE = f"{ZONE}/r-1"
OWN = gke(reservations=["r-1", "r-2"], topology="tpu7x-4x4x8")
IGM = (
    "Google Compute Engine: Not all instances running in IGM after 35m5.9s. Expected 1, running 0, transitioning 1. Current errors: "
    "[GCE_STOCKOUT]: Instance 'i' creation failed: The zone 'projects/p/zones/us-central1-ai1a' does not have enough resources available "
    "to fulfill the request. Try a different zone, or try again later."
)
WRAPPED = (
    "ERROR: (gcloud.beta.container.node-pools.create) Operation [<Operation\n clusterConditions: [<StatusCondition\n canonicalCode: "
    "CanonicalCodeValueValuesEnum(RESOURCE_EXHAUSTED, 9)\n code: CodeValueValuesEnum({code}, 3)\n message: \"{text}\">]\n>] finished with "
    "error: {text}"
)  # fmt: skip
LATER = (
    "TPU: the nodes (in pool P) cannot be created now due to lack of capacity in your reservation. They will be created asynchronously once "
    "capacity is available. You can either wait for the nodes to be up, or delete the node pool and try re-creating it again later"
)
BUSY = "ERROR: (gcloud.container.node-pools.create) ResponseError: code=400, message=Cluster is running incompatible operation operation-1763880000000-ab."
CASES = [
    (IGM, Consequence.PLACE, "NoCapacity"),
    (WRAPPED.format(code="GCE_STOCKOUT", text=IGM), Consequence.PLACE, "NoCapacity"),
    ("Requested resource is exhausted: Zone 'us-central1-ai1a' is not available. Please try another zone.", Consequence.ZONE, "NoCapacity"),
    ("Zone does not currently have sufficient capacity for the requested resources", Consequence.PLACE, "NoCapacity"),
    ("Atomic resize failed with [GCE_STOCKOUT]: Instance 'i' creation failed", Consequence.PLACE, "NoCapacity"),
    (LATER, Consequence.PLACE, "NoCapacity: the reservation has no room now"),
    (
        'ResponseError: code=429, message=Reservation does not have enough resources for the request: specific reservation "r" is '
        'insufficient for node pool "np" at zone "z": required 1 and short of 1 VM count of machine type tpu7x-standard-4t',
        Consequence.PLACE,
        "NoCapacity: the reservation has not enough free machines (required 1 and short of 1 VM count)",
    ),
    ("Reservation r does not have sufficient capacity for the requested resources.", Consequence.PLACE, "NoCapacity"),
    ("Reservation 'r' is incorrect for the requested resources.", Consequence.PLACE, "OtherReservation: reservation r is for other machines than tpu7x-standard-4t in us-central1-ai1a"),
    ("Cannot use it, it requires reservation to be in READY state", Consequence.PLACE, "ReservationNotReady"),
    ("Could not find the given reservation with the following name: r", Consequence.PLACE, "NoReservation"),
    ('ResponseError: code=404, message=Google Compute Engine: reservation "r" not found for node pool "p" at zone "z".', Consequence.PLACE, "NoReservation"),
    ("Specified reservation 'r' does not exist.", Consequence.PLACE, "NoReservation"),
    ("Specified reservations [r] do not exist", Consequence.PLACE, "NoReservation"),
    ("ResponseError: code=404, message=The resource 'projects/p/zones/z/reservations/r-1' was not found", Consequence.PLACE, "NoReservation"),
    ("ERROR: (gcloud.compute.reservations.describe) Could not fetch resource:\n - The resource 'projects/p/zones/z/reservations/r' was not found", Consequence.ABSENT, "Absent"),
    ("ResponseError: code=404, message=Not found: something new.", Consequence.ABSENT, "Absent: Not found: something new."),
    ("ResponseError: code=429, message=Insufficient reserved capacity. Contact customer support to increase your reservation.", Consequence.PLACE, "NoCapacity"),
    (WRAPPED.format(code="GCE_QUOTA_EXCEEDED", text="Insufficient quota to satisfy the request: Quota 'TPU_LITE_PODSLICE_V6' exceeded."), Consequence.FINAL, "Quota: my-project has not enough quota TPU_LITE_PODSLICE_V6 for"),
    ("Insufficient quota to satisfy the request: [GCE_QUOTA_EXCEEDED]: Instance 'i' creation failed: Quota 'TPU_LITE_PODSLICE_V6' exceeded.", Consequence.FINAL, "Quota: my-project has not enough quota TPU_LITE_PODSLICE_V6 for"),
    ("Specified reservation 'r' does not have available resources for the request.", Consequence.PLACE, "NoCapacity"),
    ("No available resources in specified reservations 'r'.", Consequence.PLACE, "NoCapacity"),
    (WRAPPED.format(code="GCE_QUOTA_EXCEEDED", text="Instance 'i' creation failed: Quota 'TPUS_PER_TPU_FAMILY' exceeded.  Limit: 0.0 in region us-central1."), Consequence.FINAL, "Quota: my-project has not enough quota TPUS_PER_TPU_FAMILY for"),
    ("ERROR: (gcloud.container.node-pools.list) ResponseError: code=400, message=Autopilot node pools cannot be accessed or modified.", Consequence.FINAL, "Autopilot: cluster my-cluster"),
    ("ResponseError: code=403, message=Insufficient regional quota to satisfy request for resource: \"CPUS\". The request requires", Consequence.FINAL, "Quota: my-project has not enough quota CPUS"),
    ("Creation of a managed instance group with tpu7x-standard-4t machine type with placement policy is not supported. Use workload policy instead.", Consequence.FINAL, "WrongFlags"),
    ("Queued_provisioning requires reservation affinity to be set to none.", Consequence.FINAL, "WrongFlags"),
    ("ResponseError: code=400, message=Flex start node pools don't support TPUs with queued provisioning.", Consequence.FINAL, "WrongFlags"),
    ("TPU topology can't be specified with single-host TPU slice pool; use", Consequence.FINAL, "WrongFlags"),
    ("Requested invalid target size '8' for a Managed Instance Group in the gang mode of size '4'", Consequence.FINAL, "WrongFlags"),
    ('ResponseError: code=429, message=Too many operations: cluster "my-cluster" hits the concurrent operations quota 5, please try again later.', Consequence.REPEAT, "ClusterBusy: cluster my-cluster is at work on as many"),
    (BUSY, Consequence.REPEAT, "ClusterBusy: cluster my-cluster is at work on operation-1763880000000-ab,"),
    ("ResponseError: code=409, message=Already exists: projects/p/locations/l/clusters/c/nodePools/n.", Consequence.EXISTS, "Exists"),
    ("ResponseError: code=404, message=Not found: projects/p/locations/l/clusters/my-cluster.", Consequence.FINAL, "NoCluster"),
    ("ResponseError: code=404, message=Not found: projects/p/locations/l/clusters/my-cluster.\nNo cluster named 'my-cluster' in my-project.", Consequence.FINAL, "NoCluster"),
    ("ResponseError: code=404, message=Not found: projects/p/locations/l/clusters/c/nodePools/n.", Consequence.ABSENT, "Absent"),
    ("Operation [..] is still running, check its status via 'gcloud container operations describe X'", Consequence.UNKNOWN, "Running"),
    (" - Required 'compute.resourcePolicies.create' permission for 'projects/p/regions/r/resourcePolicies/n'", Consequence.FINAL, "NoPermission: the account of gcloud may not do this in my-project (compute.resourcePolicies.create)"),
    ('ResponseError: code=403, message=Required "container.clusters.update" permission(s) for "projects/p".', Consequence.FINAL, "NoPermission: the account of gcloud may not do this in my-project (container.clusters.update)"),
    (
        "ResponseError: code=403, message=This API method requires billing to be enabled. Please enable billing on project #1234",
        Consequence.FINAL,
        "NoBilling",
    ),
    ("Kubernetes Engine API has not been used in project 123 before or it is disabled.", Consequence.FINAL, "ApiOff"),
    ("The resource_policy resource 'p' is already being used by 'q'", Consequence.REPEAT, "InUse"),
    ("You do not currently have an active account selected.", Consequence.FINAL, "NoLogin"),
    ("Quota exceeded for quota metric 'Requests' and limit 'Requests per minute' of service 'container.googleapis.com'", Consequence.REPEAT, "RequestRate"),
    ("ERROR: (gcloud.container.node-pools.create) ResponseError: code=400, message=The flux is not permitted.", Consequence.FINAL, "Refused: GKE does not accept the request, now or later (HTTP 400: The flux is not permitted.)"),
    ("ResponseError: code=400, message=Cluster is currently being created, deleted, updated or repaired and cannot be updated.", Consequence.REPEAT, "ClusterBusy: cluster my-cluster does not take"),
    ("ResponseError: code=400, message=The flux is away. Please try again in a minute.", Consequence.REPEAT, "ClusterBusy: cluster my-cluster does not take"),
    ("ERROR: (gcloud.compute.resource-policies.create) Invalid choice: 'workload-policy'.", Consequence.FINAL, "OldGcloud"),
    ("ERROR: (gcloud.container.node-pools.create) Missing required argument [--flux]: It is needed.", Consequence.FINAL, "OldGcloud"),
    ("ERROR: (gcloud.container.node-pools.create) argument (NAME : --flux=FLUX): Must be specified.\nUsage: gcloud container node-pools create NAME\n\nFor detailed information on this command and its flags, run:\n  gcloud container node-pools create --help", Consequence.FINAL, "OldGcloud"),
    ("gcloud crashed (ConnectionError): ('Connection aborted.', ConnectionResetError(104))", Consequence.UNKNOWN, "NoNetwork"),
    ("RESOURCE_EXHAUSTED", Consequence.UNKNOWN, "Unclear"),
    ("", Consequence.UNKNOWN, "Unclear"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "consequence", "reason"), CASES)
def test_each_text_leads_where_it_should(text: str, consequence: Consequence, reason: str) -> None:
    reply = classifier(OWN)(text, PLACE)
    assert (reply.consequence, reply.reason[: len(reason)]) == (consequence, reason), reply
    assert "{" not in reply.reason + reply.fix and "()" not in reply.reason and "  " not in reply.reason
    assert reply.fix or consequence is not Consequence.FINAL, "what to type"


@pytest.mark.parametrize(
    ("text", "scope"),
    [(LATER, PLACE), (IGM, PLACE), ("Zone 'us-central1-ai1a' is not available. Please try another zone.", ZONE)],
)
def test_a_refusal_covers_the_reservation_or_the_whole_zone(text: str, scope: str) -> None:
    classify = classifier(OWN)
    answer = refusal(classify(text, PLACE), PLACE)
    assert answer and answer.state is AllocationState.REFUSED and answer.scope == scope


def test_missing_quota_ends_a_run_and_says_what_to_ask_for() -> None:
    classify = classifier(OWN)
    answer = refusal(classify("GCE_QUOTA_EXCEEDED", PLACE), PLACE)
    assert answer and answer.scope == "" and answer.ending is Ending.NO_CAPACITY
    assert "console.cloud.google.com/iam-admin/quotas?project=my-project" in answer.reason


@pytest.mark.parametrize(
    ("text", "scope", "fix"),
    [
        ("Could not find the given reservation with the following name", PLACE, "gcloud compute reservations list"),
        (
            "Reservation 'r-1' is incorrect for the requested resources.",
            PLACE,
            "type podwright target check pod, which",
        ),
        ("Machine type with name 'tpu7x-standard-4t' does not exist in zone", ZONE, "correct zones or machine_type"),
    ],
)
def test_what_must_be_corrected_refuses_its_place_for_good_with_what_to_type(text: str, scope: str, fix: str) -> None:
    classify = classifier(OWN, "pod")
    answer = refusal(classify(text, PLACE), PLACE)
    assert answer and (answer.scope, answer.ending) == (scope, Ending.BAD_INPUT) and fix in answer.reason
    later = refusal(classify(LATER, PLACE), PLACE)
    assert later and later.ending is Ending.NO_CAPACITY


@pytest.mark.parametrize("text", [BUSY, "", "Internal error. Please try again", "Already exists: projects/p"])
def test_what_may_be_repeated_or_may_have_done_its_work_refuses_nothing(text: str) -> None:
    classify = classifier(OWN)
    assert refusal(classify(text, PLACE), PLACE) is None
