"""What the simulated gcloud prints of GKE, reservations and workload policies is what the real one prints of the same answers."""

from pathlib import Path

import pytest

from lab.gcloud.control_gke import GkeKnobs
from lab.tests.test_gcloud_output import REAL, Server, differences
from lab.tests.test_gcloud_output import servers as servers

PLACE = ("--project=p", "--location=us-central1", "--format=json", "--quiet")
IN_CLUSTER = ("--cluster=c", *PLACE)
CLUSTERS, POOLS, OPERATIONS = (("container", group) for group in ("clusters", "node-pools", "operations"))
POLICIES = ("compute", "resource-policies")
REGION = ("--project=p", "--region=us-central1", "--format=json", "--quiet")
MACHINES = ("--node-locations=us-central1-c", "--machine-type=tpu7x-standard-4t", "--num-nodes=4")
RESERVED = ("--reservation-affinity=specific", "--reservation=r", "--placement-policy=w")
LABELS = ("--labels=podwright-run=t,podwright-expires=5", "--node-labels=podwright-run=t", "--max-pods-per-node=15")
SCOPES = ("--scopes=storage-full,gke-default,https://www.googleapis.com/auth/cloud-platform", "--enable-gvnic")
FLEX = ("--flex-start", "--num-nodes=0", "--enable-autoscaling", "--max-nodes=4", "--location-policy=ANY")
V6E = ("--node-locations=us-central1-b", "--machine-type=ct6e-standard-4t")
CALLS: list[tuple[str, ...]] = [
    (*CLUSTERS, "describe", "c", *PLACE),
    (*CLUSTERS, "describe", "absent", *PLACE),
    (*CLUSTERS, "describe", "c", "--project=p", "--location=us-east5", "--format=json"),
    (*CLUSTERS, "describe", "c", "--project=p", "--format=json"),
    (*CLUSTERS, "list", "--project=p", "--format=json"),
    (*CLUSTERS, "get-credentials", "c", *PLACE[:2]),
    (*CLUSTERS, "get-credentials", "absent", *PLACE[:2]),
    (*POLICIES, "create", "workload-policy", "w", "--type=HIGH_THROUGHPUT", "--accelerator-topology=2x2x4", *REGION),
    (*POLICIES, "create", "workload-policy", "w", "--type=HIGH_THROUGHPUT", "--accelerator-topology=2x2x4", *REGION),
    (*POLICIES, "create", "workload-policy", "w", "--type=HIGH_AVAILABILITY", "--accelerator-topology=4x4", *REGION),
    (*POLICIES, "create", "workload-policy", "w", "--type=HIGH", *REGION),
    (*POLICIES, "create", "workload-policy", "w", *REGION),
    (*POLICIES, "create", "workload-policy", "w", "--type=HIGH_THROUGHPUT", "--project=p"),
    (*POLICIES, "describe", "w", *REGION),
    (*POLICIES, "describe", "absent", *REGION),
    (*POLICIES, "list", "--project=p", "--format=json"),
    (*POLICIES, "list", "--project=p", "--filter=name~^w", "--format=json"),
    ("compute", "reservations", "list", "--project=p", "--format=json"),
    ("compute", "reservations", "list", "--project=p", "--zones=us-central1-c", "--format=json"),
    ("compute", "reservations", "describe", "r", "--project=p", "--zone=us-central1-c", "--format=json"),
    ("compute", "reservations", "describe", "absent", "--project=p", "--zone=us-central1-c", "--format=json"),
    ("compute", "machine-types", "describe", "tpu7x-standard-4t", "--project=p", "--zone=us-central1-c", "--format=json"),
    ("compute", "machine-types", "describe", "absent", "--project=p", "--zone=us-central1-c", "--format=json"),
    (*POOLS, "create", "a", *MACHINES, *RESERVED, *LABELS, *SCOPES, "--async", *IN_CLUSTER),
    (*POOLS, "create", "a", *MACHINES, *RESERVED, "--async", *IN_CLUSTER),
    (*POOLS, "create", "b", *MACHINES, *RESERVED, "--async", *IN_CLUSTER),
    (*POLICIES, "delete", "w", *REGION),
    (*POOLS, "describe", "a", *IN_CLUSTER),
    (*POOLS, "describe", "absent", *IN_CLUSTER),
    (*POOLS, "list", *IN_CLUSTER, "--filter=config.resourceLabels.podwright-run:*"),
    (*POOLS, "list", "--cluster=absent", *PLACE),
    (*OPERATIONS, "list", *PLACE, "--filter=status!=DONE"),
    (*OPERATIONS, "describe", "absent", *PLACE),
    (*POOLS, "delete", "a", "--cluster=c", *PLACE[:3]),
    (*POOLS, "delete", "absent", *IN_CLUSTER),
    (*POOLS, "delete", "a", "--async", *IN_CLUSTER),
    (*POOLS, "create", "f", *V6E, *FLEX, "--placement-type=COMPACT", "--tpu-topology=4x4", "--max-run-duration=86400s",
     "--no-enable-autorepair", "--reservation-affinity=none", *IN_CLUSTER),
    (*POOLS, "update", "f", "--labels=a=b", *IN_CLUSTER),
    (*POOLS, "delete", "f", *IN_CLUSTER),
    (*POOLS, "create", "s", *V6E, "--spot", "--num-nodes=4", "--tpu-topology=4x4", "--no-enable-autoupgrade",
     "--node-taints=a=b:NoSchedule", "--tags=x", "--disk-size=50GB", "--disk-type=pd-ssd", "--timeout=0", *IN_CLUSTER),
    (*POOLS, "describe", "s", *IN_CLUSTER),
    (*POOLS, "delete", "s", *IN_CLUSTER),
    (*POOLS, "create", "e", *V6E, "--spot", "--num-nodes=4", "--tpu-topology=4x4", *IN_CLUSTER),
    (*POOLS, "describe", "e", *IN_CLUSTER),
    (*POOLS, "create", "x", *V6E, "--reservation=r", *IN_CLUSTER),
    (*POOLS, "create", "x", *V6E, "--reservation-affinity=specific", *IN_CLUSTER),
    (*POOLS, "create", "x", *V6E, "--reservation-affinity=some", *IN_CLUSTER),
    (*POOLS, "create", "x", *V6E, "--num-nodes=x", *IN_CLUSTER),
    (*POOLS, "create", "x", *V6E, "--zone=us-central1-c", *IN_CLUSTER),
    (*POOLS, "create", "x", *V6E, "--labels=ab", *IN_CLUSTER),
    (*POOLS, "create", "x", *V6E, *PLACE),
    (*POOLS, "create", *V6E, *IN_CLUSTER),
    (*POOLS, "create", "x", *V6E, "--acceleratorTopology=4x4", *IN_CLUSTER),
    (*POOLS, "list", "--cluster=c", "--project=p", "--format=json"),
    ("alpha", "compute", "workload-policies", "list"),
    (*POOLS, "resize", "x"),
]  # fmt: skip


class Knobs(GkeKnobs):
    def __init__(self, root: Path) -> None:
        self.root = root


@pytest.mark.long  # the one call that waits for nothing sees an operation that a loaded machine has finished
@pytest.mark.skipif(not REAL, reason="gcloud is not installed")
def test_the_simulated_gcloud_prints_of_gke_what_the_real_one_prints(servers: list[Server], tmp_path: Path) -> None:
    for server in servers:
        knobs = Knobs(server.root)
        knobs.cluster("c", "us-central1", version="1.33.5-gke.1308000")
        knobs.reservation("r", "us-central1-c", 4)
        knobs.pool_outcome("", "s")
        knobs.pool_outcome("stockout", "e")
    assert not (wrong := differences(servers, CALLS, tmp_path)), wrong
