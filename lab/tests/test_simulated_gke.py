"""GKE of the simulated cloud itself: node pools, their nodes on an API server, and everything that can be set to go wrong."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.gcloud.control import Folder, Gcloud
from lab.kube import controllers
from lab.kube.control import Kube

A, B, C = "us-central1-a", "us-central1-b", "us-central1-c"
PLACE = ("--project=p", "--location=us-central1")
POOLS = ("container", "node-pools")
POLICIES = ("compute", "resource-policies")
LABELS = ("--labels=podwright-run=r", "--node-labels=podwright-run=r")
needs_kubectl = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")


class Client:
    """Calls `gcloud` as a program under test would."""

    def __init__(self, cloud: Gcloud) -> None:
        self.cloud = cloud

    def run(self, *argv: str) -> tuple[int, Any, str]:
        """(status, stdout as JSON, stderr)."""
        done = self.cloud.call(*argv, "--quiet", "--format=json")
        assert "Traceback" not in done.stderr and "lab:" not in done.stderr, done.stderr
        out = json.loads(done.stdout) if done.returncode == 0 and done.stdout else None
        return done.returncode, out, done.stderr

    def pool(self, verb: str, *argv: str) -> tuple[int, Any, str]:
        return self.run(*POOLS, verb, *argv, "--cluster=c", *PLACE)

    def create(
        self, name: str, *more: str, machine: str = "tpu7x-standard-4t", vms: int = 4, zone: str = C
    ) -> tuple[int, Any, str]:
        flags = (f"--machine-type={machine}", f"--num-nodes={vms}", f"--node-locations={zone}", *LABELS)
        return self.pool("create", name, *flags, *more, "--async")

    def reserved(self, name: str, *more: str, reservation: str = "r", vms: int = 4) -> tuple[int, Any, str]:
        affinity = ("--reservation-affinity=specific", f"--reservation={reservation}", "--placement-policy=w")
        return self.create(name, *affinity, *more, vms=vms)

    def spot(self, name: str, *more: str, vms: int = 4, zone: str = B) -> tuple[int, Any, str]:
        topology = ("--placement-type=COMPACT", "--tpu-topology=4x4") if vms > 1 else ()
        return self.create(name, "--spot", *topology, *more, machine="ct6e-standard-4t", vms=vms, zone=zone)

    def policy(self, name: str = "w", topology: str = "2x2x4") -> tuple[int, Any, str]:
        flags = ("--type=HIGH_THROUGHPUT", f"--accelerator-topology={topology}", "--region=us-central1", "--project=p")
        return self.run(*POLICIES, "create", "workload-policy", name, *flags)

    def status(self, name: str) -> str:
        status, shown, err = self.pool("describe", name)
        return str(shown["status"]) if status == 0 else err.partition("ResponseError: ")[2].partition(",")[0]

    def becomes(self, name: str, *wanted: str) -> None:
        until(lambda: self.status(name) in wanted)

    def error(self, name: str) -> str:
        """Of a pool that could not be created."""
        self.becomes(name, "ERROR")
        return str(self.pool("describe", name)[1]["statusMessage"])


def until(true: Callable[[], object], seconds: float = 30.0) -> None:
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.02)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with Folder(tmp_path) as folder, Gcloud(folder) as cloud:
        cloud.cluster("c", "us-central1")
        cloud.reservation("r", C, 4)
        yield Client(cloud)


@pytest.mark.long
def test_a_reserved_pool_goes_from_its_policy_to_its_deletion(client: Client) -> None:
    cloud = client.cloud
    cloud.times(pool=60.0, pool_deleting=60.0)
    assert client.policy()[1]["workloadPolicy"]["acceleratorTopology"] == "2x2x4"
    status, operation, _ = client.reserved("a")
    assert (status, operation["status"], operation["operationType"]) == (0, "RUNNING", "CREATE_NODE_POOL")
    assert client.status("a") == "PROVISIONING"
    assert client.run("container", "clusters", "describe", "c", *PLACE)[1]["status"] == "RECONCILING"
    status, _, err = client.pool("delete", "a")
    assert status == 1 and f"Cluster is running incompatible operation {operation['name']}." in err
    cloud.times(pool=0.0)
    client.becomes("a", "RUNNING")
    shown = client.run("container", "operations", "describe", operation["name"], *PLACE)[1]
    assert shown["status"] == "DONE" and shown["targetLink"].endswith("/nodePools/a") and "error" not in shown
    assert client.run("compute", "reservations", "describe", "r", "--project=p", f"--zone={C}")[1][
        "specificReservation"
    ] | {"instanceProperties": {}} == {"count": "4", "inUseCount": "4", "assuredCount": "4", "instanceProperties": {}}
    status, _, err = client.run(*POLICIES, "delete", "w", "--region=us-central1", "--project=p")
    assert status == 1 and "is already being used by" in err
    (row,) = client.pool("list", "--filter=config.resourceLabels.podwright-run=r")[1]
    assert row["config"]["taints"] == [{"key": "google.com/tpu", "value": "present", "effect": "NO_SCHEDULE"}]
    assert client.pool("delete", "a", "--async")[1]["operationType"] == "DELETE_NODE_POOL"
    assert client.status("a") == "STOPPING" and cloud.policies() == [
        {"name": "w", "region": "us-central1", "topology": "2x2x4"}
    ]
    cloud.times(pool_deleting=0.0)
    client.becomes("a", "code=404")
    assert client.run(*POLICIES, "delete", "w", "--region=us-central1", "--project=p")[0] == 0
    assert cloud.resources() == [] and [p["name"] for p in cloud.pools()] == ["default-pool"]
    ledger = cloud.ledger()
    assert len(ledger) == 4 and {(row["pool"], row["chips"]) for row in ledger} == {("a", 4)}
    assert all(row["gone_at"] > row["ready_at"] for row in ledger) and 0 < cloud.chip_hours() < 1


@pytest.mark.long
def test_a_zone_without_capacity_ends_in_error_after_the_retries(client: Client) -> None:
    cloud = client.cloud
    cloud.capacity(B, 16, model="spot")
    assert client.spot("first")[0] == 0
    client.becomes("first", "RUNNING")
    cloud.times(pool_retry=60.0)
    status, operation, _ = client.spot("second")
    time.sleep(0.5)
    assert status == 0 and client.status("second") == "PROVISIONING", "it retries"
    cloud.times(pool_retry=0.5)
    assert "[GCE_STOCKOUT]" in client.error("second")
    shown = client.run("container", "operations", "describe", operation["name"], *PLACE)[1]
    assert shown["status"] == "DONE" and shown["error"]["code"] == 8
    assert shown["clusterConditions"][0]["code"] == "GCE_STOCKOUT"
    status, _, err = client.spot("second")
    assert status == 1 and "code=409, message=Already exists: " in err
    assert client.pool("delete", "second")[0] == 0 and client.pool("delete", "first")[0] == 0
    cloud.times(pool_retry=60.0)
    cloud.capacity(B, 0)
    cloud.capacity(B, 16, after_s=0.4)
    assert client.spot("late")[0] == 0
    client.becomes("late", "RUNNING")
    assert [row["pool"] for row in cloud.ledger()].count("second") == 0


def test_a_reservation_without_room_now_leaves_a_pool_that_fills_itself(client: Client) -> None:
    cloud = client.cloud
    client.policy()
    cloud.reservation("r", C, 4, usable=3)
    status, operation, _ = client.reserved("a")
    assert status == 0
    client.becomes("a", "RUNNING_WITH_ERROR")
    shown = client.run("container", "operations", "describe", operation["name"], *PLACE)[1]
    assert shown["statusMessage"].startswith("TPU: the nodes (in pool a) cannot be created now due to lack of capacity")
    assert cloud.pools("a")[0]["nodes"] == 0 and cloud.chip_hours() == 0
    cloud.reservation("r", C, 4)
    until(lambda: cloud.pools("a")[0]["nodes"] == 4)
    assert client.status("a") == "RUNNING" and cloud.chip_hours() > 0
    client.pool("delete", "a")
    cloud.pool_outcome("later", fill_after_s=5.0)
    client.reserved("b")
    client.becomes("b", "RUNNING_WITH_ERROR")
    until(lambda: cloud.pools("b")[0]["nodes"] == 4)


@pytest.mark.long
def test_reservations_that_do_not_fit_are_refused_each_in_its_way(client: Client) -> None:
    cloud = client.cloud
    client.policy()
    cloud.reservation("short", C, 8, in_use=6)
    cloud.reservation("unchecked", C, 8, in_use=6, checked=False)
    cloud.reservation("other", C, 8, machine_type="tpu7x-ultranet-4t")
    cloud.reservation("ill", C, 8, status="DEGRADED")
    cloud.reservation("maintained", C, 8, maintenance="PERIODIC")
    status, _, err = client.reserved("a", reservation="short")
    assert status == 1 and "code=429" in err and "required 4 and short of 2 VM count of machine type" in err
    assert client.reserved("b", reservation="unchecked")[0] == 0
    client.becomes("b", "RUNNING_WITH_ERROR")
    texts = {
        "other": "is incorrect for the requested resources",
        "maintained": "is incorrect for the requested resources",
        "ill": "status: DEGRADED, as it requires reservation to be in READY state.",
    }
    status, _, err = client.reserved("c", reservation="absent")
    assert (
        status == 1
        and f'code=404, message=Google Compute Engine: reservation "absent" not found for node pool "c" at zone "{C}"'
        in err
    )
    for name, text in texts.items():
        assert client.reserved(name, reservation=name)[0] == 0
        assert text in client.error(name)
    assert {row["pool"] for row in cloud.ledger()} == set()
    listed = client.run("compute", "reservations", "list", "--project=p")[1]
    assert {row["name"]: row["status"] for row in listed}["ill"] == "DEGRADED" and len(listed) == 6


@pytest.mark.long
def test_flags_that_gke_refuses(client: Client) -> None:
    cloud = client.cloud
    client.policy()
    v6e = "ct6e-standard-4t"
    refused = {
        "single-host": (("--tpu-topology=2x2",), {"machine": v6e, "vms": 1}),
        "needs 4 nodes": (("--tpu-topology=4x4",), {"machine": v6e, "vms": 2}),
        "need a TPU topology": ((), {"machine": v6e}),
        "resourcePolicies/other was not found": (("--placement-policy=other",), {}),
        "queued provisioning": (("--flex-start", "--enable-queued-provisioning", "--reservation-affinity=none"), {}),
        "to be set to none": (("--spot", "--enable-queued-provisioning"), {}),
        "is not in the region": (("--placement-policy=w",), {"zone": "us-east5-a"}),
    }
    for text, (flags, more) in refused.items():
        status, _, err = client.create("a", *flags, **more)  # type: ignore[arg-type]
        assert status == 1 and text in err and "ResponseError: code=400" in err, (text, err)
    assert "must match" in client.spot("a" * 41)[2]
    single = ("create", "a", "--machine-type=ct6e-standard-4t", "--num-nodes=1")
    assert "a TPU slice is in one zone" in client.pool(*single)[2], (
        "without --node-locations it is in all of the cluster"
    )
    label = client.pool(*single, f"--node-locations={B}", "--labels=run=A")[2]
    assert 'resourceLabels": "run=A"' in label
    client.create("a", "--tpu-topology=2x2x4", "--placement-type=COMPACT")
    assert "Use workload policy instead." in client.error("a")
    client.create("b", "--placement-policy=w", vms=8)
    assert "target size '8' for a Managed Instance Group in the gang mode of size '4'" in client.error("b")
    assert [row["name"] for row in cloud.pools()] == ["default-pool", "a", "b"]


@pytest.mark.long
def test_quota_and_outcomes_that_a_test_chooses(client: Client) -> None:
    cloud = client.cloud
    cloud.quota("us-central1", 16)
    assert client.spot("a")[0] == 0
    client.becomes("a", "RUNNING")
    assert client.spot("b")[0] == 0
    assert "GCE_QUOTA_EXCEEDED" in client.error("b")
    cloud.pool_outcome("cpu-quota", "c*")
    assert (
        'code=403, message=Insufficient regional quota to satisfy request for resource: "CPUS"' in client.spot("c")[2]
    )
    cloud.set(quota=[])
    cloud.pool_outcome("atomic-resize", "d", message="something nobody has seen before")
    assert client.spot("d")[0] == 0 and client.error("d") == "something nobody has seen before"


@pytest.mark.long
def test_a_busy_cluster_takes_no_other_operation(client: Client) -> None:
    cloud = client.cloud
    cloud.busy("c", 2.0)
    status, _, err = client.spot("a")
    assert status == 1 and "code=400, message=Cluster is running incompatible operation operation-" in err
    (operation,) = client.run("container", "operations", "list", *PLACE, "--filter=status!=DONE")[1]
    assert operation["operationType"] == "UPGRADE_MASTER" and operation["name"] in err
    cloud.times(pool=60.0)
    until(lambda: client.spot("a")[0] == 0)
    cloud.set(concurrent_pools=True)
    assert [client.spot(name)[0] for name in "bcdef"] == [0, 0, 0, 0, 1]
    assert 'Too many operations: cluster "c" hits the concurrent operations quota 5' in client.spot("f")[2]
    assert client.pool("delete", "a")[0] == 1


def test_pools_of_others_are_listed_and_in_no_ledger(client: Client) -> None:
    cloud = client.cloud
    cloud.foreign_pool("c", "theirs", 4, zone=C, topology="2x2x4", reservation="r", labels={"team": "x"})
    cloud.foreign_pool("c", "failed", 4, "ct6e-standard-4t", B, "4x4", status="ERROR")
    client.policy()
    status, _, err = client.reserved("a")
    assert status == 1 and "short of 4 VM count" in err, "their nodes use the reservation"
    rows = {row["name"]: row for row in client.run("container", "clusters", "describe", "c", *PLACE)[1]["nodePools"]}
    assert rows["theirs"]["config"]["resourceLabels"] == {"team": "x"} and "STOCKOUT" in rows["failed"]["statusMessage"]
    assert cloud.ledger() == [] and [row["name"] for row in cloud.resources()] == ["w"]
    assert [row["nodes"] for row in cloud.pools("*e*")] == [1, 4, 0]


@pytest.mark.long
def test_faults_rights_and_readers_that_lag(client: Client) -> None:
    cloud = client.cloud
    cloud.set(lag={"describe": 5.0, "list": 5.0})
    cloud.fault("container node-pools create", "cut", keep=10)
    assert client.spot("a")[::2] == (1, "")
    assert client.status("a") == "code=404" and len(client.pool("list")[1]) == 1, "it took effect, and is seen later"
    assert "code=409" in client.spot("a")[2]
    cloud.set(lag={"describe": 0.0, "list": 0.0})
    client.becomes("a", "RUNNING")
    cloud.fault("container node-pools describe", status=503)
    assert "ResponseError: code=503, message=The service is currently unavailable." in client.pool("describe", "a")[2]
    cloud.fault("container *", status=429)
    assert "code=429, message=Quota exceeded for quota metric" in client.pool("list")[2]
    client.policy()
    cloud.fault("compute resource-policies list", status=403)
    status, shown, err = client.run(*POLICIES, "list", "--project=p")
    assert (status, shown) == (0, []) and "WARNING: Some requests did not succeed." in err, "as gcloud shows a refusal"
    cloud.deny("container.clusters.update", "compute.resourcePolicies.create", "compute.reservations.get")
    assert 'Required "container.clusters.update" permission(s) for "projects/p/' in client.pool("delete", "a")[2]
    assert "Required 'compute.resourcePolicies.create' permission for" in client.policy("v")[2]
    assert "HTTPError 403" in client.run("compute", "reservations", "describe", "r", "--project=p", f"--zone={C}")[2]
    cloud.deny()
    cloud.times(pool_deleting=0.5)
    cloud.fault("container node-pools delete", "timeout")
    status, _, err = client.pool("delete", "a")
    assert status == 1 and "is still running, check its status via 'gcloud container operations describe" in err
    client.becomes("a", "code=404")
    cloud.set(api_enabled=False)
    assert "Kubernetes Engine API has not been used in project p before" in client.pool("list")[2]


def test_a_deletion_that_was_accepted_may_fail_later(client: Client) -> None:
    cloud = client.cloud
    assert client.spot("a")[0] == 0
    client.becomes("a", "RUNNING")
    cloud.fail_deletions(1)
    assert client.pool("delete", "a", "--async")[0] == 0
    until(lambda: cloud.gke_operations()[-1]["done"])
    last = cloud.gke_operations()[-1]
    assert (last["kind"], last["error"]) == ("DELETE_NODE_POOL", "Internal error. Please try again")
    client.becomes("a", "RUNNING")
    assert [row["gone_at"] for row in cloud.ledger()] == [None] * 4, "its nodes cost as before"
    assert client.pool("delete", "a", "--async")[0] == 0
    client.becomes("a", "code=404")


@pytest.mark.parametrize("before", [True, False])
def test_a_call_may_kill_the_process_that_makes_it_and_take_effect_all_the_same(client: Client, before: bool) -> None:
    cloud = client.cloud
    cloud.fault("container node-pools create", "orphaned", before=before, delay_s=0.5 if before else 0.0)
    flags = ("--spot", "--machine-type=ct6e-standard-4t", "--num-nodes=1", f"--node-locations={B}", *LABELS)
    words = [*POOLS, "create", "a", *flags, "--cluster=c", *PLACE, "--quiet", "--async", "--format=json"]
    launcher = f"import subprocess; subprocess.run({[str(cloud.folder / 'gcloud'), *words]}); print('it lives')"
    process = subprocess.run(
        [sys.executable, "-c", launcher], env=os.environ | cloud.environment, capture_output=True, check=False
    )
    assert process.returncode == -9 and b"it lives" not in process.stdout and len(cloud.killed()) == 1
    client.becomes("a", "RUNNING")


def test_flags_without_effect_end_the_call(client: Client) -> None:
    done = client.cloud.call(*POOLS, "create", "a", "--cluster=c", *PLACE, "--accelerator=type=nvidia-l4,count=1")
    assert (done.returncode, done.stderr) == (70, "lab: --accelerator is not simulated\n")
    assert client.cloud.call(*POOLS, "list", "--cluster=c", *PLACE).returncode == 70, "no table is simulated"


@pytest.fixture
def kube(client: Client) -> Iterator[Kube]:
    with Kube(client.cloud.root) as kube:
        yield kube


def nodes(kube: Kube, labels: str = "podwright-run=r") -> dict[str, str]:
    """google.com/tpu of the nodes with a label."""
    rows = kube.objects("nodes", labels=labels)
    return {
        row["metadata"]["name"]: row.get("status", {}).get("allocatable", {}).get("google.com/tpu", "") for row in rows
    }


@pytest.mark.long
@needs_kubectl
def test_nodes_register_their_chips_some_time_after_they_are_ready(client: Client, kube: Kube) -> None:
    cloud = client.cloud
    cloud.times(node_apart=0.2, tpu_registration=0.6)
    client.policy()
    client.reserved("a")
    until(lambda: "0" in nodes(kube).values())
    until(lambda: sorted(nodes(kube).values()) == ["4"] * 4)
    (first, *_) = kube.objects("nodes", labels="podwright-run=r")
    wanted = {
        "gke-nodepool": "a",
        "gke-tpu-accelerator": "tpu7x",
        "gke-tpu-topology": "2x2x4",
        "placement-policy-name": "w",
    }
    assert {f"cloud.google.com/{key}": value for key, value in wanted.items()}.items() <= first["metadata"][
        "labels"
    ].items()
    assert first["spec"]["taints"] == [{"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}]
    before = set(nodes(kube))
    cloud.lose_node("a", notice_s=0.5, back_s=0.5)
    until(lambda: any("annotations" in node["metadata"] for node in kube.objects("nodes")))
    until(lambda: len(set(nodes(kube)) & before) == 3)
    until(lambda: len(nodes(kube)) == 4)
    config = cloud.root / "kubeconfig"
    argv = [str(cloud.folder / "gcloud"), "container", "clusters", "get-credentials", "c", *PLACE]
    environment = os.environ | {"KUBECONFIG": str(config)}
    assert subprocess.run(argv, env=environment, check=False, capture_output=True).returncode == 0
    argv = ["kubectl", "--context=gke_p_us-central1_c", "get", "nodes", "--output=name"]
    listed = subprocess.run(argv, env=environment, check=True, capture_output=True, text=True).stdout
    assert len(listed.split()) == 5 and set(nodes(kube)) <= {name.removeprefix("node/") for name in listed.split()}
    client.pool("delete", "a")
    until(lambda: nodes(kube) == {})
    assert len(cloud.ledger()) == 5 and all(row["gone_at"] for row in cloud.ledger())


@needs_kubectl
@pytest.mark.long
def test_a_flex_start_pool_grows_for_a_pod_and_its_nodes_expire(client: Client, kube: Kube) -> None:
    cloud = client.cloud
    flex = ("--flex-start", "--enable-autoscaling", "--max-nodes=4", "--location-policy=ANY", "--max-run-duration=1s")
    placed = ("--placement-type=COMPACT", "--tpu-topology=4x4", "--reservation-affinity=none", "--no-enable-autorepair")
    cloud.capacity(B, 0, model="flex")
    assert client.create("f", *flex, *placed, machine="ct6e-standard-4t", vms=0, zone=B)[0] == 0
    client.becomes("f", "RUNNING")
    selector = {"cloud.google.com/gke-nodepool": "f", "cloud.google.com/gke-tpu-topology": "4x4"}
    container = {
        "name": "c",
        "image": "i",
        "resources": {"requests": {"google.com/tpu": "4"}, "limits": {"google.com/tpu": "4"}},
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}}
    kube.create(pod | {"spec": {"nodeSelector": selector, "containers": [container]}})
    time.sleep(0.3)
    assert nodes(kube) == {}, "there is no capacity yet"
    cloud.capacity(B, 16, model="flex")
    until(lambda: sorted(nodes(kube).values()) == ["4"] * 4)
    kube.delete("pods", "pod")
    until(lambda: nodes(kube) == {})
    assert cloud.pools("f")[0]["status"] == "RUNNING" and client.pool("delete", "f")[0] == 0
    assert all(0.9 < row["gone_at"] - row["ready_at"] < 3 for row in cloud.ledger())


@pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")
def test_pods_of_a_deleted_pool_have_their_own_grace_period(client: Client, tmp_path: Path) -> None:
    """As GKE drains nodes: https://cloud.google.com/kubernetes-engine/docs/concepts/node-pools"""
    begun, saved = tmp_path / "begun", tmp_path / "saved"
    script = f"trap 'sleep 1; touch {saved}; exit 0' TERM; touch {begun}; while :; do sleep 0.1; done"
    container = {"name": "c", "image": "i", "command": ["sh", "-c", script]}
    spec = {"containers": [container], "nodeSelector": {"cloud.google.com/gke-nodepool": "a"}, "restartPolicy": "Never"}
    spec |= {"tolerations": [{"operator": "Exists"}], "terminationGracePeriodSeconds": 30}
    with Kube(client.cloud.root, controllers=True) as kube:
        assert client.spot("a", vms=1)[0] == 0
        kube.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec})
        until(begun.exists)
        assert client.pool("delete", "a")[0] == 0
        until(lambda: client.cloud.pools("a") == [])
        assert saved.exists()
