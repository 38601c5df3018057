"""Commands of GKE and of Compute Engine that gcloud 528 has, as far as they are simulated: `surface` adds them to its own."""

from lab.gcloud.table import ALL, ASYNC, LIST, Command

CONTAINER, COMPUTE = ("container",), ("compute",)
PLACES = ("location", "region", "zone")
PLACE, ONE_PLACE = dict.fromkeys(PLACES, 1), (PLACES,)
POOL = PLACE | {"cluster": 1}
# what a new pool has here
POOL_FLAGS = {"machine-type": 1, "num-nodes": 1, "node-version": 1, "node-locations": 1, "node-labels": 1, "labels": 1}
POOL_FLAGS |= {"scopes": 1, "enable-gvnic": 0, "max-pods-per-node": 1, "node-taints": 1, "tags": 1, "metadata": 1}
POOL_FLAGS |= {"service-account": 1, "disk-size": 1, "disk-type": 1, "image-type": 1, "spot": 0, "preemptible": 0}
POOL_FLAGS |= {"reservation": 1, "reservation-affinity": 1, "flex-start": 0, "max-run-duration": 1}
POOL_FLAGS |= {"enable-autoscaling": 0, "min-nodes": 1, "max-nodes": 1, "total-min-nodes": 1, "total-max-nodes": 1}
POOL_FLAGS |= {"location-policy": 1, "enable-autorepair": 0, "enable-autoupgrade": 0, "enable-queued-provisioning": 0}
POOL_FLAGS |= {"placement-type": 1, "placement-policy": 1, "tpu-topology": 1, "workload-metadata": 1, "timeout": 1}
# of the beta track; gcloud 528 has no network profile yet
NEWER = {"accelerator-network-profile": 1}
POOL_BETA = NEWER | {"host-maintenance-interval": 1}
NUMBERS = ("num-nodes", "min-nodes", "max-nodes", "total-min-nodes", "total-max-nodes", "timeout")
# what it has in the cloud and would not have here
WITH_VALUE = """accelerator additional-node-network additional-pod-network boot-disk-kms-key create-pod-ipv4-range data-cache-count
 local-ssd-count max-surge-upgrade max-unavailable-upgrade min-cpu-platform min-provision-nodes node-group node-pool-soak-duration
 opportunistic-maintenance pod-ipv4-range resource-manager-tags sandbox secondary-boot-disk system-config-from-file threads-per-core"""
WITHOUT_VALUE = """enable-autoprovisioning enable-best-effort-provision enable-blue-green-upgrade enable-confidential-nodes
 enable-image-streaming enable-nested-virtualization enable-private-nodes shielded-secure-boot"""
INERT = dict.fromkeys(WITH_VALUE.split(), 1) | dict.fromkeys(WITHOUT_VALUE.split(), 0)
POOL_CHOICES = {
    "reservation-affinity": ("any", "none", "specific"),
    "location-policy": ("BALANCED", "ANY"),
    "placement-type": ("UNSPECIFIED", "COMPACT"),
    "workload-metadata": ("GCE_METADATA", "GKE_METADATA"),
}
CREDENTIALS = PLACE | {"internal-ip": 0, "dns-endpoint": 0}
UPDATES = ("labels", "node-labels", "node-taints")
POLICIES = (*COMPUTE, "resource-policies")
POLICY = {"type": 1, "accelerator-topology": 1, "max-topology-distance": 1, "description": 1, "region": 1}
POLICY_CHOICES = {
    "type": ("HIGH_AVAILABILITY", "HIGH_THROUGHPUT"),
    "max-topology-distance": ("BLOCK", "CLUSTER", "SUBBLOCK"),
}
ANY_CASE = ("type", "max-topology-distance", "workload-metadata")  # gcloud takes these in small letters too

COMMANDS: dict[tuple[str, ...], Command] = {
    (*CONTAINER, "clusters", "describe"): Command(PLACE, "NAME", "", ALL, exclusive=ONE_PLACE),
    (*CONTAINER, "clusters", "list"): Command(PLACE | LIST, tracks=ALL, exclusive=ONE_PLACE),
    (*CONTAINER, "clusters", "get-credentials"): Command(
        CREDENTIALS, "NAME", "", ALL, exclusive=ONE_PLACE, unsimulated=("internal-ip", "dns-endpoint")
    ),
    (*CONTAINER, "node-pools", "create"): Command(
        POOL | ASYNC | POOL_FLAGS | INERT,
        "NAME",
        "",
        ALL,
        beta=POOL_BETA,
        exclusive=ONE_PLACE,
        choices=POOL_CHOICES,
        numbers=NUMBERS,
        unsimulated=tuple(INERT),
    ),
    (*CONTAINER, "node-pools", "describe"): Command(POOL, "NAME", "", ALL, exclusive=ONE_PLACE),
    (*CONTAINER, "node-pools", "list"): Command(POOL | LIST, tracks=ALL, exclusive=ONE_PLACE),
    (*CONTAINER, "node-pools", "delete"): Command(
        POOL | ASYNC | {"timeout": 1}, "NAME", "", ALL, exclusive=ONE_PLACE, numbers=("timeout",)
    ),
    (*CONTAINER, "node-pools", "update"): Command(
        POOL | ASYNC | dict.fromkeys(UPDATES, 1),
        "NAME",
        "",
        ALL,
        exclusive=ONE_PLACE,
        exactly_one=UPDATES,
        unsimulated=("async", "node-taints"),
    ),
    (*CONTAINER, "operations", "list"): Command(PLACE | LIST, tracks=ALL, exclusive=ONE_PLACE),
    (*CONTAINER, "operations", "describe"): Command(PLACE, "OPERATION_ID", "", ALL, exclusive=ONE_PLACE),
    (*COMPUTE, "reservations", "describe"): Command({"zone": 1}, "RESERVATION", "reservation", ALL),
    (*COMPUTE, "reservations", "list"): Command(LIST | {"zones": 1}, tracks=ALL),
    (*POLICIES, "create", "workload-policy"): Command(
        POLICY,
        "NAME",
        "",
        ALL,
        required=("type",),
        exclusive=(("accelerator-topology", "max-topology-distance"),),
        choices=POLICY_CHOICES,
        unsimulated=("max-topology-distance",),
    ),
    (*POLICIES, "describe"): Command({"region": 1}, "NAME", "", ALL),
    (*POLICIES, "delete"): Command({"region": 1}, "NAME", "", ALL),
    (*POLICIES, "list"): Command(LIST | {"regions": 1}, tracks=ALL),
    (*COMPUTE, "machine-types", "describe"): Command({"zone": 1}, "MACHINE_TYPE", "", ALL),
}
