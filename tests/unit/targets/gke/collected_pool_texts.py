"""What GKE has said to people whose node pools were not created, collected from public issues and pages apart from the rules of `pool_replies`.

Names of projects, clusters and machines are shortened.
"""

from dataclasses import dataclass

from podwright.rundir import Ending
from podwright.targets.google.replies import Consequence

PLACE, ZONE, REPEAT, FINAL = Consequence.PLACE, Consequence.ZONE, Consequence.REPEAT, Consequence.FINAL
CALL, OPERATION = "call", "operation"
_CREATE = "ERROR: (gcloud.container.node-pools.create) ResponseError: code={}, message="


@dataclass(frozen=True)
class PoolText:
    name: str
    source: str
    arrives: str
    """at the CALL, or at the end of its OPERATION, which leaves a pool in state ERROR"""
    text: str
    consequence: Consequence
    sentence: str
    """beginning of the reason"""
    remedy: str = ""
    """part of what is to be typed or asked for"""
    ending: Ending = Ending.NO_CAPACITY
    """of a run that gets the same text in each place"""


TEXTS = (
    PoolText(
        "upgrade",
        "github.com/hashicorp/terraform-provider-google/issues/1451",
        CALL,
        _CREATE.format(400) + "Operation operation-1525805696523-5007b8e4 is currently upgrading cluster delivery-platform. Please wait and try "
        "again once it's done.",
        REPEAT,
        "ClusterBusy: cluster my-cluster is at work on operation-1525805696523-5007b8e4",
    ),
    PoolText(
        "deletion",
        "github.com/hashicorp/terraform-provider-google/issues/10366",
        CALL,
        _CREATE.format(400) + "Operation operation-1634231829541-b5e2c2a1 is currently deleting a node pool for cluster default-cluster. Please "
        "wait and try again once it is done.",
        REPEAT,
        "ClusterBusy: cluster my-cluster is at work on operation-1634231829541-b5e2c2a1",
    ),
    PoolText(
        "stockout",
        "github.com/akka/akka-core/issues/32992",
        OPERATION,
        "Google Compute Engine: Not all instances running in IGM after 35m4.033429035s. Expected 5, running 2, transitioning 3. Current errors: "
        "[GCE_STOCKOUT]: Instance 'gke-a-97da88a9-8gmv' creation failed: The zone 'projects/p/zones/us-central1-c' does not have enough resources "
        "available to fulfill the request. '(resource type:compute)'.",
        PLACE,
        "NoCapacity: no free capacity of the requested kind",
    ),
    PoolText(
        "unavailable",
        "github.com/kubernetes/k8s.io/issues/9834",
        OPERATION,
        "A n1-standard-4 VM instance with 1 nvidia-tesla-t4 accelerator(s) is currently unavailable in the us-central1-b zone. Consider trying your "
        "request in the us-central1-a, us-central1-f zone(s), which currently has capacity to accommodate your request.",
        PLACE,
        "NoCapacity: no free capacity of the requested kind",
    ),
    PoolText(
        "machine-type",
        "github.com/keras-team/kinetic/issues/305",
        CALL,
        _CREATE.format(400) + 'Invalid machine type "e2-standard-4" in zone "us-central2-b": GCE_NOT_FOUND',
        ZONE,
        "NotSold: zone us-central1-a has no machine type e2-standard-4",
        "correct zones or machine_type of the target",
        Ending.BAD_INPUT,
    ),
    PoolText(
        "reservation",
        "github.com/AI-Hypercomputer/xpk/issues/476",
        OPERATION,
        "Invalid value for field 'resource.reservationAffinity': '{ \"consumeReservationType\": \"SPECIFIC_ALLOCATION\", \"key\": "
        '"compute.googleapis.com/reservation-name"',
        PLACE,
        "OtherReservation: GKE cannot use the reservation for ct6e-standard-4t in us-central1-a",
        "type podwright target check pod, which shows what the reservation is for",
        Ending.BAD_INPUT,
    ),
    PoolText(
        "disks",
        "github.com/terraform-google-modules/terraform-google-kubernetes-engine/issues/1795",
        CALL,
        _CREATE.format(403) + "Insufficient regional quota to satisfy request: resource \"SSD_TOTAL_GB\": request requires '300.0' and is short "
        "'50.0'. project has a quota of '250.0' with '250.0' available. View and manage quotas at "
        "https://console.cloud.google.com/iam-admin/quotas?usage=USED&project=p.",
        FINAL,
        "Quota: my-project has not enough quota SSD_TOTAL_GB for nodes in us-central1-a",
        "https://console.cloud.google.com/iam-admin/quotas?project=my-project",
    ),
    PoolText(
        "tpu-quota",
        "docs.cloud.google.com/kubernetes-engine/docs/troubleshooting/tpus",
        CALL,
        _CREATE.format(403) + "Insufficient quota to satisfy the request",
        FINAL,
        "Quota: my-project has not enough quota for nodes in us-central1-a",
        "https://console.cloud.google.com/iam-admin/quotas?project=my-project",
    ),
    PoolText(
        "addresses",
        "github.com/hashicorp/terraform-cdk/issues/1964",
        OPERATION,
        "(1) requested resource is exhausted: Not all instances running in IGM after 24.159253228s. Expected 1, running 0, transitioning 1. Current "
        "errors: [IP_SPACE_EXHAUSTED]: Instance 'gke-c-4813919b-4f9v' creation failed: IP space of 'projects/p/regions/europe-west1/subnetworks/s' is "
        "exhausted.",
        FINAL,
        "NoAddresses: the network of cluster my-cluster has no IP addresses left",
        "have a larger range added to the subnetwork of the cluster",
        Ending.BAD_INPUT,
    ),
    PoolText(
        "pod-range",
        "github.com/GoogleCloudPlatform/spinnaker-for-gcp/issues/84",
        OPERATION,
        'Retry budget exhausted (5 attempts): The network "mynetwork" does not have available private IP space in 10.0.0.0/8 to reserve a /14 block '
        "for pods for cluster {us-west1-b, 620711858815, mynetwork, c, ",
        FINAL,
        "NoAddresses: the network of cluster my-cluster has no IP addresses left",
        "have a larger range added to the subnetwork of the cluster",
        Ending.BAD_INPUT,
    ),
    PoolText(
        "service-account",
        "a transcript of gcloud in a public repository",
        CALL,
        _CREATE.format(400) + 'The user does not have access to service account "887891891186-compute@developer.gserviceaccount.com". Ask a project '
        "owner to grant you the iam.serviceAccountUser role on the service account.",
        FINAL,
        "NoPermission: the account of gcloud may not start nodes as service account 887891891186-compute@developer.gserviceaccount.com",
        "roles/iam.serviceAccountUser",
        Ending.BAD_INPUT,
    ),
    PoolText(
        "service-agent",
        "github.com/hashicorp/terraform-provider-google/issues/16559",
        OPERATION,
        "Google Compute Engine: Not all instances running in IGM after 14.772498665s. Expected 1, running 0, transitioning 1. Current errors: "
        "[PERMISSIONS_ERROR]: Instance 'gke-a-1",
        FINAL,
        "NoPermission: the service agent of GKE may not create machines in my-project",
        "roles/container.serviceAgent",
        Ending.BAD_INPUT,
    ),
    PoolText(
        "organization",
        "github.com/2i2c-org/infrastructure/pull/489",
        OPERATION,
        "Not all instances running in IGM after 40.240072593s. Expected 1, running 0, transitioning 1. Current errors: [CONDITION_NOT_MET]: Instance "
        "'gke-a-65fa3508-485z' creation failed: Constraint constraints/compute.vmExternalIpAccess violated for project 291560455175. Add instance "
        "projects/p/zones/us-central1-b/instances/gke-a-65fa3508-485z to the constraint to use external IP with it.",
        FINAL,
        "Forbidden: an organization policy of my-project does not allow nodes of this cluster (constraints/compute.vmExternalIpAccess)",
        "have whoever administers the organization allow it for my-project",
        Ending.BAD_INPUT,
    ),
    PoolText(
        "custom-policy",
        "a transcript of gcloud in a public repository",
        CALL,
        _CREATE.format(400) + 'Operation denied by custom org policy: ["customConstraints/custom.requireCOSNode": "All cluster nodes must be COS."].',
        FINAL,
        "Forbidden: an organization policy of my-project does not allow nodes of this cluster (customConstraints/custom.requireCOSNode)",
        "have whoever administers the organization allow it for my-project",
        Ending.BAD_INPUT,
    ),
    PoolText(
        "version",
        "github.com/jetstack/terraform-google-gke-cluster/issues/28",
        CALL,
        _CREATE.format(400) + 'Node version "1.13.6-gke.5" is unsupported.',
        FINAL,
        "OldVersion: GKE no longer creates nodes of version 1.13.6-gke.5",
        "gcloud container clusters upgrade my-cluster --master --location=us-central1 --project=my-project",
        Ending.BAD_INPUT,
    ),
    PoolText(
        "slice-size",
        "github.com/vllm-project/ci-infra/pull/545",
        CALL,
        _CREATE.format(400) + "Maximum node count 0 is not a valid size of TPU pod slice with topology 2x2x2",
        FINAL,
        "WrongFlags: GKE refuses how the node pool is requested",
        "report it with this line",
        Ending.BAD_INPUT,
    ),
    PoolText(
        "argument",
        "github.com/jupyterhub/zero-to-jupyterhub-k8s/issues/2648",
        CALL,
        "ERROR: (gcloud.beta.container.node-pools.create) ResponseError: code=400, message=Request contains an invalid argument.",
        FINAL,
        "WrongFlags: GKE refuses how the node pool is requested",
        "report it with this line",
        Ending.BAD_INPUT,
    ),
    PoolText(
        "repair",
        "github.com/kaiwaehner/hivemq-mqtt-tensorflow-kafka-realtime-iot-machine-learning-training-inference/issues/47",
        CALL,
        _CREATE.format(400) + "Auto_upgrade and auto_repair cannot be false when release_channel REGULAR is set.",
        FINAL,
        "WrongFlags: GKE refuses how the node pool is requested",
        "report it with this line",
        Ending.BAD_INPUT,
    ),
    PoolText(
        "spot",
        "github.com/AI-Hypercomputer/xpk/issues/434",
        OPERATION,
        "Google Compute Engine: Invalid value for field 'resource.properties.scheduling.preemptible': 'false'. Scheduling must have preemptible be "
        "false when AutomaticRestart is true.",
        FINAL,
        "WrongFlags: GKE refuses how the node pool is requested",
        "report it with this line",
        Ending.BAD_INPUT,
    ),
)  # fmt: skip
BY_NAME = {text.name: text for text in TEXTS}
