"""What GKE says when a node pool cannot be created, each text with its source and with how it reaches the caller.

Sources: the list of errors in the cluster autoscaler's GKE provider (`gke/errors.go`) and its tests, the tests of xpk (`nodepool_test.py`),
and the issues named. How a text arrives (at the call, or at the operation's end) and the codes beside it are [?] where the source is no issue.
"""

from dataclasses import dataclass

CALL, OPERATION, STAYS = "call", "operation", "stays"


@dataclass(frozen=True)
class PoolRefusal:
    """`arrives`: at the CALL with HTTP `status`; at the OPERATION's end, the pool is then ERROR; or at its end while the pool STAYS and
    fills itself later. `after_retries`: the operation ends when GKE has given up creating instances (`times.pool_retry`)."""

    arrives: str
    text: str
    source: str
    status: int = 400
    code: str = ""  # of the condition: GCE_STOCKOUT, GCE_QUOTA_EXCEEDED
    canonical: str = "RESOURCE_EXHAUSTED"
    after_retries: bool = False
    instance: str = ""  # the code of each instance's error, where it is not that of the condition


_IGM = (
    "Google Compute Engine: Not all instances running in IGM after 35m5.9s. Expected {vms}, running 0, transitioning {vms}. "
    "Current errors: [{gce}]: Instance '{instance}' creation failed: "
)
_OWN = "Google Compute Engine: "

REFUSALS = {
    "stockout": PoolRefusal(
        OPERATION,
        _IGM
        + "The zone 'projects/{project}/zones/{zone}' does not have enough resources available to fulfill the request. "
        "Try a different zone, or try again later.",
        "github.com/AI-Hypercomputer/xpk issues; github.com/skypilot-org/skypilot #6110",
        code="GCE_STOCKOUT",
        after_retries=True,
    ),
    "zone": PoolRefusal(
        OPERATION,
        "Requested resource is exhausted: Zone '{zone}' is not available. Please try another zone.",
        "cluster autoscaler gke/errors.go",
        code="GCE_STOCKOUT",
    ),
    "zone-capacity": PoolRefusal(
        OPERATION,
        _OWN + "Zone does not currently have sufficient capacity for the requested resources.",
        "cluster autoscaler gke/errors.go",
        code="GCE_STOCKOUT",
    ),
    "atomic-resize": PoolRefusal(
        OPERATION,
        _OWN + "Atomic resize failed with [GCE_STOCKOUT]: Instance '{instance}' creation failed: The zone "
        "'projects/{project}/zones/{zone}' does not have enough resources available to fulfill the request.",
        "cluster autoscaler gke/errors.go",
        code="GCE_STOCKOUT",
    ),
    "later": PoolRefusal(
        STAYS,
        "TPU: the nodes (in pool {pool}) cannot be created now due to lack of capacity in your reservation. They will be created "
        "asynchronously once capacity is available. You can either wait for the nodes to be up, or delete the node pool and try "
        "re-creating it again later",
        "xpk nodepool_test.py",
    ),
    "reservation-short": PoolRefusal(
        CALL,
        'Reservation does not have enough resources for the request: specific reservation "{reservation}" is insufficient for node pool '
        '"{pool}" at zone "{zone}": required {vms} and short of {short} VM count of machine type {machine_type}',
        "github.com/GoogleCloudPlatform/gsutil #1000",
        status=429,
    ),
    "reservation-capacity": PoolRefusal(
        OPERATION,
        _OWN + "Reservation {reservation} does not have sufficient capacity for the requested resources.",
        "cluster autoscaler gke/errors.go",
    ),
    "reservation-incorrect": PoolRefusal(
        OPERATION,
        _OWN + "Reservation '{reservation}' is incorrect for the requested resources.",
        "cluster autoscaler gke/errors.go",
        canonical="INVALID_ARGUMENT",
    ),
    "reservation-not-ready": PoolRefusal(
        OPERATION,
        _IGM
        + "Cannot insert instance to a reservation with status: {status}, as it requires reservation to be in READY state.",
        "tests of the cluster autoscaler",
        canonical="FAILED_PRECONDITION",
        after_retries=True,
        instance="CONDITION_NOT_MET",
    ),
    "reservation-exceeded": PoolRefusal(
        OPERATION,
        _IGM + "Specified reservation '{reservation}' does not have available resources for the request.",
        "tests of the cluster autoscaler",
        after_retries=True,
        instance="CONDITION_NOT_MET",
    ),
    "reservation-incompatible": PoolRefusal(
        OPERATION,
        _IGM + "No available resources in specified reservations '{reservation}'.",
        "tests of the cluster autoscaler",
        after_retries=True,
        instance="CONDITION_NOT_MET",
    ),
    "reservation-unknown": PoolRefusal(
        OPERATION,
        _IGM + "Specified reservation '{reservation}' does not exist.",
        "tests of the cluster autoscaler",
        canonical="NOT_FOUND",
        instance="CONDITION_NOT_MET",
    ),
    "reservation-unnamed": PoolRefusal(
        OPERATION,
        _OWN
        + "Could not find the given reservation with the following name: '{reservation}'.",  # [?] from the colon on
        "cluster autoscaler gke/errors.go",
        canonical="NOT_FOUND",
    ),
    "reservation-absent": PoolRefusal(
        CALL,
        'Google Compute Engine: reservation "{reservation}" not found for node pool "{pool}" at zone "{zone}".',
        "github.com/GoogleCloudPlatform/cluster-toolkit #5043",
        status=404,
    ),
    "quota": PoolRefusal(
        OPERATION,
        _IGM + "Quota '{quota}' exceeded.  Limit: {limit} in region {region}.",  # [?] the sentence after the wrapper
        "cluster autoscaler gke/errors.go; form: gcloud 528, Operation of container v1",
        code="GCE_QUOTA_EXCEEDED",
    ),
    "regional-quota": PoolRefusal(
        CALL,
        "Insufficient regional quota to satisfy request: resource \"CPUS\": request requires '144.0' and is short '109.0'. project has a "
        "quota of '128.0' with '35.0' available. View and manage quotas at "
        "https://console.cloud.google.com/iam-admin/quotas?usage=USED&project={project}.",
        "github.com/m-lab/etl #798",
        status=403,
    ),
    "regional-quotas": PoolRefusal(
        CALL,
        "\n\t(1) insufficient regional quota to satisfy request: resource \"CPUS\": request requires '72.0' and is short '48.0'. project has a "
        "quota of '24.0' with '24.0' available. View and manage quotas at "
        "https://console.cloud.google.com/iam-admin/quotas?usage=USED&project={project}\n\t(2) insufficient regional quota to satisfy request: "
        "resource \"IN_USE_ADDRESSES\": request requires '9.0' and is short '1.0'. project has a quota of '8.0' with '8.0' available. "
        "View and manage quotas at https://console.cloud.google.com/iam-admin/quotas?usage=USED&project={project}.",
        "github.com/googlecodelabs/feedback #950",
        status=403,
    ),
    "cpu-quota": PoolRefusal(
        CALL,
        "Insufficient regional quota to satisfy request for resource: \"CPUS\". The request requires '9.0' and is short '1.0'. "
        "The regional quota is '8.0' with '8.0' available.",
        "github.com/kubeflow/kubeflow #842, github.com/amygdala/tensorflow-workshop #13",
        status=403,
    ),
    "many-operations": PoolRefusal(
        CALL,
        'Too many operations: cluster "{cluster}" hits the concurrent operations quota 5, please try again later.',
        "github.com/hashicorp/terraform-provider-google #15205, #15579",
        status=429,
    ),
    "exhausted": PoolRefusal(
        OPERATION,
        _IGM
        + "The zone 'projects/{project}/zones/{zone}' does not have enough resources available to fulfill the request.",
        "github.com/NVIDIA/aicr #2764; the sentence is that of GCE_STOCKOUT [?]",
        code="GCE_STOCKOUT",
        after_retries=True,
        instance="ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
    ),
    "gang": PoolRefusal(
        OPERATION,
        _OWN
        + "Invalid value for field 'resource.resizeBy': '{vms}'. Requested invalid target size '{vms}' for a Managed Instance Group in "
        "the gang mode of size '{needed}'. Should be equal to the gang size.",
        "github.com/AI-Hypercomputer/xpk #751",
        canonical="INVALID_ARGUMENT",
    ),
    "placement-policy": PoolRefusal(
        OPERATION,
        _OWN
        + "Creation of a managed instance group with {machine_type} machine type with placement policy is not supported. "
        "Use workload policy instead.",
        "github.com/vllm-project/ci-infra #547",
        canonical="INVALID_ARGUMENT",
    ),
    "queued-affinity": PoolRefusal(
        CALL, "Queued_provisioning requires reservation affinity to be set to none.", "github.com/AI-Hypercomputer/xpk"
    ),
    "flex-queued": PoolRefusal(
        CALL,
        "Flex start node pools don't support TPUs with queued provisioning.",
        "github.com/AI-Hypercomputer/xpk #900",
    ),
    "single-host-topology": PoolRefusal(
        CALL,
        "TPU topology can't be specified with single-host TPU slice pool; use a multi-host machine type.",  # [?] after the semicolon
        "github.com/AI-Hypercomputer/xpk #825",
    ),
    # [?] the rest: what GKE checks too, in words of our own
    "topology-count": PoolRefusal(
        CALL, "Node pool {pool}: TPU topology {topology} needs {needed} nodes of {machine_type}, not {vms}.", "[?]"
    ),
    "no-topology": PoolRefusal(
        CALL, "Node pool {pool}: {vms} nodes of {machine_type} need a TPU topology or a workload policy.", "[?]"
    ),
    "several-zones": PoolRefusal(CALL, "Node pool {pool}: a TPU slice is in one zone, not in {zones}.", "[?]"),
    "no-policy": PoolRefusal(
        CALL, "Resource policy projects/{project}/regions/{region}/resourcePolicies/{policy} was not found.", "[?]"
    ),
    "name": PoolRefusal(
        CALL,
        'Invalid value for field "node_pool.name": "{pool}": must match (?:[a-z](?:[-a-z0-9]{{0,38}}[a-z0-9])?).',
        "[?]",
    ),
    "label": PoolRefusal(CALL, 'Invalid value for field "node_pool.config.{field}": "{label}".', "[?]"),
    "zone-elsewhere": PoolRefusal(CALL, 'Location "{zone}" is not in the region of the cluster, {region}.', "[?]"),
}
