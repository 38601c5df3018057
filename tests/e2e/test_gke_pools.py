"""Node pools of GKE on the simulated cloud: the product's own calls of gcloud and of the real kubectl, from nothing to machines and back to
nothing, past everything that a cloud may answer."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab import cloud
from lab.gcloud.control import Gcloud
from lab.kube.control import Kube
from podwright.errors import UserError
from podwright.recipe.load import load
from podwright.run import cleaning, cost, create, drive, journal, removal
from podwright.run.drive import Driver
from podwright.rundir import Ending, RunDir, read_jsonl
from podwright.shell import Shell
from podwright.targets.gke import pool_access, target
from podwright.targets.gke.pool_replies import classifier
from podwright.targets.gke.pools import NodePoolProvisioner
from podwright.targets.google import labels
from podwright.targets.google.gcloud import Gcloud as GcloudCalls
from podwright.targets.machines import Allocation, AllocationState, ChargedChips, Request
from podwright.targets.settings import gke as settings
from podwright.targets.settings import google
from tests.e2e import fork_server
from tests.e2e.gke_cluster import QUEUES, A, B

pytestmark = pytest.mark.skipif(bool(cloud.missing()), reason=cloud.missing() or "there is a lab")
PLACE = {"project": "my-project", "cluster": "my-cluster"}
SETTINGS: dict[str, Any] = PLACE | {"kind": "gke", "zones": [A, B], "topology": "v6e-16"}
KUEUE = "kueue.x-k8s.io"
BUSY = "ClusterBusy: the cluster works on operation-"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[cloud.Lab]:
    with cloud.Lab(tmp_path) as lab:
        yield lab


@pytest.fixture
def both(lab: cloud.Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The cloud and its cluster."""
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))
    monkeypatch.setattr(settings, "POLL_S", 0.0)
    monkeypatch.setattr(settings, "LAG_S", 0.5)
    monkeypatch.setattr(drive, "TICK_S", 0.02)
    with Gcloud(lab) as gcloud, Kube(lab.root, project="my-project", cluster="my-cluster") as kube:
        gcloud.cluster("my-cluster", "us-central1", project="my-project", zones=(A, B))
        for name, value in (gcloud.environment | kube.environment).items():
            monkeypatch.setenv(name, value)
        yield SimpleNamespace(gcloud=gcloud, kube=kube)


def provisioner(**given: object) -> NodePoolProvisioner:
    own = {"provisioning": "on-demand"} if "reservations" not in given else {}
    return NodePoolProvisioner(Shell(), settings.GkeSettings.model_validate(SETTINGS | own | given))


def until(own: NodePoolProvisioner, request: Request, *states: AllocationState, limit_s: float = 60.0) -> Allocation:
    limit = time.monotonic() + limit_s
    while (allocation := own.describe(request)).state not in states:
        assert time.monotonic() < limit, allocation
        time.sleep(0.05)
    return allocation


def remove(own: NodePoolProvisioner, request: Request) -> None:
    """As the driver does it: again until nothing of it is left."""
    limit = time.monotonic() + 900
    while True:
        state = own.describe(request).state
        if state is AllocationState.GONE:
            return
        assert time.monotonic() < limit, state
        if state is not AllocationState.DELETING:
            own.delete(request)
        time.sleep(0.05)


def ours(both: SimpleNamespace) -> list[str]:
    return sorted(row["name"] for row in both.gcloud.pools() if not row["foreign"])


def queue_objects(both: SimpleNamespace) -> list[str]:
    return [each["metadata"]["name"] for kind in QUEUES for each in both.kube.objects(kind)]


def test_pools_with_their_policy_and_queues_are_created_ready_by_their_chips_and_deleted(
    both: SimpleNamespace, tmp_path: Path
) -> None:
    both.gcloud.times(pool=600.0, node_apart=0.3, tpu_registration=0.5)
    own = provisioner(topology="tpu7x-2x2x4")
    request = own.describe_request(Path("/runs/r"), 1.0, 1, ())
    assert own.describe(request).state is AllocationState.GONE
    assert own.create(request).state is AllocationState.WAITING
    assert own.create(request).state is AllocationState.WAITING, "what exists is adopted"
    waiting = until(own, request, AllocationState.WAITING)
    assert waiting.reason.startswith("Provisioning: ")
    both.gcloud.times(pool=0.2)
    allocation = until(own, request, AllocationState.READY)
    assert len(allocation.hosts) == 4 and allocation.since is not None and abs(time.time() - allocation.since) < 30
    (row,) = [row for row in both.gcloud.pools() if not row["foreign"]]
    assert (row["policy"], row["labels"]) == (request.name, request.labels)
    nodes = both.kube.objects("nodes", labels=f"podwright-run={request.labels['podwright-run']}")
    assert sorted(node["metadata"]["name"] for node in nodes) == sorted(host.name for host in allocation.hosts)
    assert all(node["status"]["allocatable"]["google.com/tpu"] == "4" for node in nodes)
    assert queue_objects(both) == [request.name] * 3
    (owned,) = own.list_owned()
    assert (owned.request.name, owned.request.zone, owned.state, owned.mine) == (
        request.name,
        A,
        AllocationState.READY,
        True,
    )
    assert (owned.run_dir, owned.request.chip, owned.request.num_chips) == ("/runs/r", "tpu7x", 16)
    assert owned.created and owned.charged and owned.charged.chips == 16 and owned.expires is None
    own.delete(request)
    left = until(own, request, AllocationState.WAITING)
    assert (left.reason, left.charged) == (f"workload policy {request.name} still exists", ChargedChips(0))
    remove(own, request)
    own.delete(request)
    assert own.list_owned() == [] and both.gcloud.resources() == [] and queue_objects(both) == []
    assert [row["name"] for row in both.gcloud.pools()] == ["default-pool"]
    assert list((tmp_path / "gke").iterdir()) == [], "no lock is left"


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "scope", "ending"),
    [
        pytest.param("stockout", f"{A}/r-1", Ending.NO_CAPACITY, marks=pytest.mark.long),
        pytest.param("zone", A, Ending.NO_CAPACITY, marks=pytest.mark.long),
        pytest.param("zone-capacity", f"{A}/r-1", Ending.NO_CAPACITY, marks=pytest.mark.long),
        pytest.param("atomic-resize", f"{A}/r-1", Ending.NO_CAPACITY, marks=pytest.mark.long),
        ("later", f"{A}/r-1", Ending.NO_CAPACITY),
        ("reservation-short", f"{A}/r-1", Ending.NO_CAPACITY),
        pytest.param("reservation-capacity", f"{A}/r-1", Ending.NO_CAPACITY, marks=pytest.mark.long),
        pytest.param("reservation-incorrect", f"{A}/r-1", Ending.BAD_INPUT, marks=pytest.mark.long),
        pytest.param("reservation-not-ready", f"{A}/r-1", Ending.NO_CAPACITY, marks=pytest.mark.long),
        pytest.param("reservation-absent", f"{A}/r-1", Ending.BAD_INPUT, marks=pytest.mark.long),
        pytest.param("quota", "", Ending.NO_CAPACITY, marks=pytest.mark.long),
        pytest.param("cpu-quota", "", Ending.NO_CAPACITY, marks=pytest.mark.long),
        pytest.param("placement-policy", "", Ending.BAD_INPUT, marks=pytest.mark.long),
    ],
)
def test_every_refusal_is_known_and_leaves_nothing(
    both: SimpleNamespace, kind: str, scope: str, ending: Ending
) -> None:
    short = kind == "reservation-short"
    machines = {"machine_type": "ct6e-standard-4t", "project": "my-project"}
    both.gcloud.reservation("r-1", A, 8, in_use=7 if short else 0, **machines)
    if not short:
        both.gcloud.pool_outcome(kind)
    own = provisioner(reservations=["r-1"])
    request = own.describe_request(Path("/runs/r"), 1.0, 1, ())
    answer = own.create(request)
    if answer.state is not AllocationState.REFUSED:
        answer = until(own, request, AllocationState.REFUSED)
    assert (answer.scope, answer.ending, answer.uncreated) == (scope, ending, False)
    remove(own, request)
    assert both.gcloud.resources() == [] and queue_objects(both) == [] and both.gcloud.chip_hours() == 0


class PoolBench:
    """A run on a target of kind gke whose attempts cannot be prepared, so that it ends once its machines are ready."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **entry: object) -> None:
        own = {"provisioning": "on-demand"} if "reservations" not in entry else {}
        (folder / "targets.yaml").write_text(json.dumps({"pod": SETTINGS | own | entry}))
        monkeypatch.setattr(target.Gke, "render", _no_attempt)
        self.run: RunDir = create.create(folder / "r", load("qwen3-tiny-arithmetic-grpo"), "pod", {})
        self.reasons: list[str] = []

    def follow(self, until: Callable[["PoolBench"], bool], limit_s: float = 60.0) -> None:
        """A launcher, until something holds, or the limit is over."""
        driver = Driver(self.run, lambda *_: None, lambda _: None)
        limit = time.monotonic() + limit_s
        while not until(self):
            assert time.monotonic() < limit, self.events()
            driver.step()
            self.reasons += [driver._waiting] if driver._waiting not in self.reasons[-1:] else []
            time.sleep(0.02)

    def events(self, name: str = "allocation") -> list[dict[str, Any]]:
        return [event for event in read_jsonl(self.run.journal) if event["event"].startswith(name)]

    def happened(self, *names: str) -> bool:
        there = [event["event"].removeprefix("allocation ") for event in self.events("")]
        return all(there.count(name) >= names.count(name) for name in names)


def _no_attempt(*_: object) -> None:
    raise UserError("this test starts no attempt", "leave it", "a-code")


@pytest.mark.long
def test_a_pool_that_would_fill_itself_later_is_deleted_before_the_next_reservation_is_tried(
    both: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("r-1", "r-2"):
        both.gcloud.reservation(name, A, 8, machine_type="ct6e-standard-4t", project="my-project")
    both.gcloud.pool_outcome("later", fill_after_s=60.0)
    bench = PoolBench(tmp_path, monkeypatch, reservations=["r-1", "r-2"], zones=[A])
    bench.follow(
        lambda it: it.happened("requested", "refused", "deleting", "gone", "requested", "ready", "deleting", "gone")
    )
    places = [event["request"]["zone"] for event in bench.events("allocation requested")]
    assert list(dict.fromkeys(places)) == [f"{A}/r-1", f"{A}/r-2"]
    calls = [" ".join(row["argv"]) for row in both.gcloud.calls() if row["rc"] == 0]
    first, second = (
        next(k for k, call in enumerate(calls) if "node-pools create pw-r-" in call and f"={name} " in call)
        for name in ("r-1", "r-2")
    )
    deleted = next(k for k, call in enumerate(calls) if "node-pools delete" in call)
    lists = [k for k, call in enumerate(calls) if "node-pools list" in call and deleted < k < second]
    assert first < deleted < second and len(lists) >= 2, "its deletion was seen, and not only asked for"
    assert len(both.gcloud.ledger()) == 4, "the first one never had a node"
    assert both.gcloud.resources() == [] and queue_objects(both) == []


def chip_seconds(bench: PoolBench) -> float:
    used = cost.usage(read_jsonl(bench.run.journal), time.time())
    assert used and not used.open
    return used.chip_hours * 3600


CHIPS = 16


@pytest.mark.long
@pytest.mark.parametrize("kind", ["", pytest.param("later", marks=pytest.mark.long)])
def test_nodes_that_do_not_come_lead_to_the_next_place_and_those_that_came_are_paid_for(
    both: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """With and without a word of GKE: a pool that it calls running may have too few nodes."""
    monkeypatch.setattr(google, "_SHORTEST_WAIT_S", 1.0)
    for name in ("r-1", "r-2"):
        both.gcloud.reservation(name, A, 8, machine_type="ct6e-standard-4t", project="my-project")
    both.gcloud.pool_outcome(kind, nodes=2)
    both.gcloud.times(pool_deleting=3.0)
    bench = PoolBench(tmp_path, monkeypatch, reservations=["r-1", "r-2"], zones=[A], zone_patience="4s")
    bench.follow(
        lambda it: it.happened("requested", "refused", "deleting", "gone", "requested", "ready", "deleting", "gone")
    )
    (refused,) = bench.events("allocation refused")
    assert refused["scope"] == f"{A}/r-1"
    if not kind:
        waited = next(reason for reason in bench.reasons if reason.startswith("Starting: 2 of 4 nodes of pw-r-"))
        assert "; if they have not come at " in waited and ", for more than " in refused["reason"]
    ledger = both.gcloud.ledger()
    assert len(ledger) == 2 + 4, "two that came, and the pool of the next reservation"
    partly = sum(row["chips"] * (row["gone_at"] - row["ready_at"]) for row in ledger[:2])
    assert partly > 8 * 3.0, "also while it was deleted"
    assert chip_seconds(bench) == pytest.approx(
        both.gcloud.chip_hours() * 3600, abs=(8 + CHIPS) * both.gcloud.seen_late_s()
    )
    assert both.gcloud.resources() == [] and queue_objects(both) == []


@pytest.mark.long
def test_stockouts_lead_through_all_places_in_order(
    both: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both.gcloud.capacity(A, 0)
    bench = PoolBench(tmp_path, monkeypatch)
    bench.follow(lambda it: it.happened("requested", "refused", "gone", "requested", "ready", "gone"))
    assert [event["scope"] for event in bench.events("allocation refused")] == [A]
    assert "NoCapacity" in bench.events("allocation refused")[0]["reason"]
    assert {row["zone"] for row in both.gcloud.ledger()} == {B} and both.gcloud.resources() == []


@pytest.mark.long
def test_a_busy_cluster_is_waited_for_with_its_operation_shown(
    both: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both.gcloud.busy("my-cluster", 3600.0)
    bench = PoolBench(tmp_path, monkeypatch)
    bench.follow(lambda it: any(reason.startswith(BUSY) for reason in it.reasons))
    assert "(UPGRADE_MASTER of my-cluster)" in bench.reasons[-1]
    both.gcloud.idle("my-cluster")
    bench.follow(lambda it: it.happened("ready"))
    both.gcloud.busy("my-cluster", 2.5)
    bench.follow(lambda it: it.happened("ready", "deleting", "gone"))
    assert both.gcloud.resources() == [] and queue_objects(both) == []


def test_pools_of_others_are_refused_and_never_deleted(both: SimpleNamespace) -> None:
    own = provisioner()
    request = own.describe_request(Path("/runs/r"), 1.0, 1, ())
    (name,) = request.details["pools"]
    both.gcloud.foreign_pool(
        "my-cluster", name, 4, "ct6e-standard-4t", A, "4x4", project="my-project", labels={"podwright-run": "other"}
    )
    answer = own.create(request)
    assert answer.state is AllocationState.REFUSED and answer.uncreated and answer.ending is Ending.BAD_INPUT
    assert answer.reason.startswith(f"NameTaken: node pool {name} of cluster my-cluster is not of this run")
    own.delete(request)
    assert own.describe(request).state is AllocationState.GONE, "nothing of ours"
    assert [row["name"] for row in both.gcloud.pools()] == ["default-pool", name] and queue_objects(both) == []


@pytest.mark.long
def test_an_own_pool_in_error_is_removed_before_another_is_requested(both: SimpleNamespace) -> None:
    own = provisioner()
    request = own.describe_request(Path("/runs/r"), 1.0, 1, ())
    (name,) = request.details["pools"]
    both.gcloud.foreign_pool(
        "my-cluster",
        name,
        4,
        "ct6e-standard-4t",
        A,
        "4x4",
        project="my-project",
        labels=dict(request.labels),
        status="ERROR",
    )
    answer = own.describe(request)
    assert answer.state is AllocationState.REFUSED and answer.scope == A
    remove(own, request)
    assert [row["name"] for row in both.gcloud.pools()] == ["default-pool"]


@pytest.mark.long
@pytest.mark.parametrize("concurrent", [False, pytest.param(True, marks=pytest.mark.long)])
def test_several_slices_have_a_pool_each_and_come_together(both: SimpleNamespace, concurrent: bool) -> None:
    both.gcloud.set(concurrent_pools=concurrent)
    own = provisioner(topology="2x v6e-8")
    request = own.describe_request(Path("/runs/r"), 1.0, 1, ())
    limit = time.monotonic() + 900
    while (answer := own.describe(request)).state is not AllocationState.READY:
        assert time.monotonic() < limit, answer
        if answer.state in (AllocationState.GONE, AllocationState.PARTIAL):
            own.create(request)
    assert [host.name in str(both.kube.objects("nodes")) for host in answer.hosts] == [True] * 4
    assert ours(both) == request.details["pools"] and request.num_chips == 16
    both.gcloud.lose_node(request.details["pools"][1])
    away = until(own, request, AllocationState.FILLING)
    assert "1 of 2 nodes" in away.reason
    assert own.describe(request, ready_since=1.0).state is AllocationState.REPAIRING
    remove(own, request)
    assert both.gcloud.resources() == []


@pytest.mark.parametrize("networks", [True, False])
def test_hosts_of_several_slices_get_the_networks_that_their_cluster_has(both: SimpleNamespace, networks: bool) -> None:
    config = {"enableMultiNetworking": networks}
    both.gcloud.cluster("my-cluster", "us-central1", project="my-project", zones=(A, B), networkConfig=config)
    both.gcloud.set(concurrent_pools=True)
    own = provisioner(topology="2x v6e-8", gcloud=["--disk-size=200GB"] if networks else [])
    request = own.describe_request(Path("/runs/r"), 1.0, 1, ())
    own.create(request)
    calls = [row["argv"] for row in both.gcloud.calls() if "create" in row["argv"]]
    assert len(calls) == 2 and [argv[0] for argv in calls] == ["beta" if networks else "container"] * 2
    assert [("--accelerator-network-profile=auto" in argv, "--disk-size=200GB" in argv) for argv in calls] == [(networks, networks)] * 2  # fmt: skip
    assert ours(both) == request.details["pools"]
    remove(own, request)


@pytest.mark.parametrize(
    ("topology", "kind", "concurrent"),
    [
        pytest.param("2x tpu7x-4x4x8", "reservation-short", False, marks=pytest.mark.long),
        pytest.param("2x tpu7x-4x4x8", "stockout", True, marks=pytest.mark.long),
        pytest.param("2x v6e-8", "stockout", False, marks=pytest.mark.long),
    ],
)
def test_a_slice_that_cannot_be_had_takes_the_others_with_it(
    both: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topology: str, kind: str, concurrent: bool
) -> None:
    """Refused at the call, or later: both pools are gone, with their policy, before anything is requested elsewhere."""
    machine_type = "tpu7x-standard-4t" if "tpu7x" in topology else "ct6e-standard-4t"
    for name in ("r-1", "r-2"):
        both.gcloud.reservation(name, A, 64, machine_type=machine_type, project="my-project")
    both.gcloud.set(concurrent_pools=concurrent)
    both.gcloud.pool_outcome(kind, pool="*-1-1", message="" if kind == "stockout" else SHORT)
    bench = PoolBench(tmp_path, monkeypatch, topology=topology, reservations=["r-1", "r-2"], zones=[A])
    bench.follow(lambda it: it.happened("requested", "refused", "gone", "requested", "ready", "gone"), limit_s=120)
    assert [event["scope"] for event in bench.events("allocation refused")] == [f"{A}/r-1"]
    calls = [" ".join(row["argv"]) for row in both.gcloud.calls() if row["rc"] == 0]
    elsewhere = next(k for k, call in enumerate(calls) if "--reservation=r-2 " in call)
    words = [call.partition("node-pools delete pw-r-")[2].split() for call in calls[:elsewhere]]
    deleted = [each[0][-4:] for each in words if each]
    assert {"-1-0"} <= set(deleted) <= {"-1-0", "-1-1"}, "one that was never created needs no deletion"
    policies = [call for call in calls[:elsewhere] if "resource-policies delete" in call]
    assert len(policies) == ("tpu7x" in topology)
    assert both.gcloud.resources() == [] and queue_objects(both) == [] and both.gcloud.policies() == []


@pytest.mark.long
def test_a_pool_that_is_gone_costs_nothing_while_the_cluster_deletes_the_next_one(
    both: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both.gcloud.times(pool_deleting=12.0)
    bench = PoolBench(tmp_path, monkeypatch, topology="2x v6e-8")
    bench.follow(lambda it: it.happened("requested", "ready", "deleting", "gone"), limit_s=120)
    first, second = (max(row["gone_at"] for row in both.gcloud.ledger() if row["pool"].endswith(end)) for end in "01")
    assert second - first > 10.0, "one after the other"
    assert chip_seconds(bench) == pytest.approx(both.gcloud.chip_hours() * 3600, abs=CHIPS * both.gcloud.seen_late_s())
    assert both.gcloud.resources() == []


SHORT = (
    'Reservation does not have enough resources for the request: specific reservation "r-1" is insufficient for node pool "n" at zone "z": '
    "required 32 and short of 32 VM count of machine type m"
)


@pytest.mark.brief(1)
@pytest.mark.parametrize(
    ("fault", "verb"),
    [
        ({"kind": "killed"}, "node-pools create"),
        ({"kind": "cut"}, "node-pools create"),
        pytest.param({"status": 503}, "node-pools create", marks=pytest.mark.long),
        pytest.param({"status": 503, "before": False}, "node-pools create", marks=pytest.mark.long),
        pytest.param({"status": 503}, "node-pools list", marks=pytest.mark.long),
        pytest.param({"status": 503}, "node-pools delete", marks=pytest.mark.long),
        pytest.param({"kind": "killed"}, "node-pools delete", marks=pytest.mark.long),
        pytest.param({"status": 429}, "operations list", marks=pytest.mark.long),
    ],
)
def test_lost_replies_neither_double_a_pool_nor_leave_one(
    both: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: dict[str, Any], verb: str
) -> None:
    both.gcloud.fault(verb, **fault)
    bench = PoolBench(tmp_path, monkeypatch)
    bench.follow(lambda it: it.happened("ready", "deleting", "gone"))
    assert {event["allocation"] for event in bench.events()} == {1}
    assert len(both.gcloud.ledger()) == 4 and both.gcloud.resources() == [], "the nodes of one pool"


def test_a_refusal_that_is_not_known_is_shown_while_the_run_waits(both: SimpleNamespace) -> None:
    text = "ERROR: (gcloud.container.node-pools.create) ResponseError: code=412, message=The flux is not permitted."
    both.gcloud.fault("container node-pools create", text=text, status=1, calls=None)
    own = provisioner()
    request = own.describe_request(Path("/runs/r"), 1.0, 1, ())
    assert own.create(request).state is AllocationState.UNKNOWN
    waits = until(own, request, AllocationState.PARTIAL)
    assert "and no node pool" in waits.reason and "The flux is not permitted." in waits.reason
    remove(own, request)


@pytest.mark.long
@pytest.mark.parametrize("code", [412, pytest.param(404, marks=pytest.mark.long)])
def test_an_answer_that_is_not_known_leads_to_the_next_reservation_after_a_while(
    both: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(google, "_SHORTEST_WAIT_S", 1.0)
    for name in ("r-1", "r-2"):
        both.gcloud.reservation(name, A, 8, machine_type="ct6e-standard-4t", project="my-project")
    text = f"ERROR: (gcloud.container.node-pools.create) ResponseError: code={code}, message=The flux is not permitted."
    both.gcloud.fault("container node-pools create", text=text, status=1, calls=None)
    bench = PoolBench(tmp_path, monkeypatch, reservations=["r-1", "r-2"], zones=[A], zone_patience="3s")

    def ends(it: PoolBench) -> bool:
        if it.events("allocation refused"):
            both.gcloud.set(faults=[])
        return it.happened("refused", "deleting", "gone", "ready", "deleting", "gone")

    bench.follow(ends)
    (refused,) = bench.events("allocation refused")
    assert refused["scope"] == f"{A}/r-1" and "The flux is not permitted." in refused["reason"], refused
    places = [event["request"]["zone"] for event in bench.events("allocation requested")]
    assert list(dict.fromkeys(places)) == [f"{A}/r-1", f"{A}/r-2"]
    assert both.gcloud.resources() == [] and queue_objects(both) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ResponseError: code=400, message=The flux is not permitted.", "(HTTP 400: The flux is not permitted.)"),
        ("Missing required argument [--flux]: It is needed.", "type gcloud components update"),
    ],
)
def test_a_refusal_that_no_waiting_changes_ends_a_run_at_its_first_request(
    both: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    both.gcloud.fault(
        "container node-pools create", text=f"ERROR: (gcloud.container.node-pools.create) {text}", status=1, calls=None
    )
    bench = PoolBench(tmp_path, monkeypatch)
    bench.follow(lambda it: it.happened("requested", "refused", "gone", "abandoned"))
    (ended,) = bench.events("abandoned")
    assert ended["ending"] == "BAD_INPUT" and reason in ended["detail"] and "; " in ended["detail"], ended
    assert len([row for row in both.gcloud.calls() if "node-pools create" in " ".join(row["argv"])]) == 1
    assert both.gcloud.resources() == [] and queue_objects(both) == []


@pytest.mark.long
def test_a_creation_that_is_pending_is_neither_repeated_nor_given_up(
    both: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gcloud that has requested it is killed, the operation is queued, and the lists do not show the pool yet."""
    both.gcloud.fault("node-pools create", kind="killed")
    both.gcloud.times(operation_pending=4.0)
    both.gcloud.set(lag={"describe": 0.0, "list": 3.0})
    bench = PoolBench(tmp_path, monkeypatch)
    bench.follow(lambda it: any(row["status"] == "PENDING" for row in both.gcloud.gke_operations()))
    bench.follow(lambda it: it.happened("ready", "deleting", "gone"))
    assert any(reason.startswith(BUSY) for reason in bench.reasons)
    assert {event["allocation"] for event in bench.events()} == {1} and len(both.gcloud.ledger()) == 4
    created = [row for row in both.gcloud.gke_operations() if row["kind"] == "CREATE_NODE_POOL"]
    assert len(created) == 1 and both.gcloud.resources() == [] and queue_objects(both) == []


@pytest.mark.long
def test_a_creation_that_somebody_aborts_leads_to_the_next_place_when_it_has_ended(
    both: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both.gcloud.times(pool=600.0)
    bench = PoolBench(tmp_path, monkeypatch)
    bench.follow(lambda it: bool(ours(both)))
    both.gcloud.abort("pw-r-*", 2.0)
    both.gcloud.times(pool=0.2)
    bench.follow(lambda it: any(row["status"] == "ABORTING" for row in both.gcloud.gke_operations()))
    assert not bench.happened("refused"), "what is being aborted may still become a pool"
    bench.follow(lambda it: it.happened("refused", "deleting", "gone", "requested", "ready", "gone"))
    (refused,) = bench.events("allocation refused")
    assert refused["scope"] == A and "Operation was aborted." in refused["reason"]
    assert {row["zone"] for row in both.gcloud.ledger()} == {B}
    assert both.gcloud.resources() == [] and queue_objects(both) == []


@pytest.mark.long
def test_a_pool_that_was_deleted_while_nobody_looked_is_lost_whatever_else_is_left_of_it(both: SimpleNamespace) -> None:
    own = provisioner(provisioning="flex-start")
    request = own.describe_request(Path("/runs/r"), 1.0, 1, ())
    own.create(request)
    until(own, request, AllocationState.READY)
    (pool,) = request.details["pools"]
    deletion = ("container", "node-pools", "delete", pool, "--cluster=my-cluster", "--location=us-central1")
    assert both.gcloud.call(*deletion, "--project=my-project", "--quiet").returncode == 0
    assert ours(both) == []
    both.gcloud.busy("my-cluster", 600.0)
    for launcher in (own, provisioner(provisioning="flex-start")):
        answer = launcher.describe(request, ready_since=1.0)
        assert (answer.state, answer.ending) == (AllocationState.LOST, Ending.NODE_LOST), answer
        assert answer.reason == f"PoolLost: node pool {pool} no longer exists" and answer.charged == ChargedChips(0)
    both.gcloud.idle("my-cluster")
    remove(own, request)
    assert both.gcloud.resources() == [] and queue_objects(both) == []


@pytest.mark.long
def test_machines_of_flex_start_come_when_pods_ask_for_them(both: SimpleNamespace) -> None:
    own = provisioner(provisioning="flex-start")
    request = own.describe_request(Path("/runs/r"), 1.0, 1, ())
    own.create(request)
    answer = until(own, request, AllocationState.READY)
    assert answer.hosts == () and both.gcloud.chip_hours() == 0
    both.gcloud.scale(request.details["pools"][0])
    assert own.describe(request, ready_since=1.0).state is AllocationState.READY
    (owned,) = own.list_owned()
    assert owned.request.num_chips == 16 and owned.expires == float(request.labels["podwright-expires"])
    remove(own, request)
    assert both.gcloud.resources() == []


def test_a_cluster_that_does_not_answer_leaves_everything_open(both: SimpleNamespace) -> None:
    own = provisioner()
    request = own.describe_request(Path("/runs/r"), 1.0, 1, ())
    both.kube.unreachable(600)
    assert own.create(request).state is AllocationState.UNKNOWN and ours(both) == [], "before anything costs"
    assert own.describe(request).state is AllocationState.UNKNOWN
    both.kube.clear_faults()
    assert own.describe(request).state is AllocationState.GONE
    own.create(request)
    until(own, request, AllocationState.READY)
    both.kube.unreachable(600)
    answer = own.describe(request, ready_since=1.0)
    assert answer.state is AllocationState.UNKNOWN and answer.exists
    (owned,) = own.list_owned()
    assert "queues were not listed (Unreachable" in owned.remark
    own.delete(request)
    until(own, request, AllocationState.UNKNOWN)
    while ours(both):
        time.sleep(0.05)
    assert own.describe(request).state is AllocationState.UNKNOWN, "the queues may be there"
    both.kube.clear_faults()
    left = own.describe(request)
    assert (left.state, left.charged) == (AllocationState.WAITING, ChargedChips(0)) and "still exists" in left.reason
    remove(own, request)
    assert queue_objects(both) == []


def test_a_missing_login_for_the_cluster_is_told_before_anything_costs(
    both: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "empty"))
    own = provisioner()
    request = own.describe_request(Path("/runs/r"), 1.0, 1, ())
    answer = own.create(request)
    assert answer.state is AllocationState.REFUSED and answer.uncreated and answer.ending is Ending.BAD_INPUT
    assert (
        "type gcloud container clusters get-credentials my-cluster --location=us-central1 --project=my-project"
        in answer.reason
    )
    assert ours(both) == []


@pytest.mark.parametrize(
    ("knob", "reason"),
    [
        (lambda it: it.gcloud.set(account=""), "NoLogin"),
        (lambda it: it.gcloud.deny("container.clusters.update", "container.nodePools.create"), "NoPermission"),
        (lambda it: it.gcloud.set(api_enabled=False), "ApiOff"),
    ],
)
def test_what_no_repetition_mends_ends_a_run_with_what_to_type(both: SimpleNamespace, knob: Any, reason: str) -> None:
    knob(both)
    own = provisioner()
    answer = own.create(own.describe_request(Path("/runs/r"), 1.0, 1, ()))
    assert answer.state is AllocationState.REFUSED and answer.reason.startswith(reason) and "; " in answer.reason
    assert answer.ending is Ending.BAD_INPUT and ours(both) == []


GCLOUD_RIGHTS = (
    "container.clusters.get",
    "container.clusters.update",
    "container.operations.list",
    "compute.resourcePolicies.list",
    "compute.resourcePolicies.create",
)
KUBE_RIGHTS = (
    ("list", "nodes"),
    ("list", "localqueues"),
    ("create", "resourceflavors"),
    ("create", "clusterqueues"),
    ("create", "localqueues"),
)


@pytest.mark.brief(1)
@pytest.mark.parametrize(
    "missing",
    [
        *(pytest.param(right, marks=pytest.mark.long if n % 2 == 0 else ()) for n, right in enumerate(GCLOUD_RIGHTS)),
        *(pytest.param(right, marks=pytest.mark.long if n % 3 else ()) for n, right in enumerate(KUBE_RIGHTS)),
    ],
)
def test_a_missing_right_ends_a_run_before_machines_and_leaves_nothing(
    both: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str | tuple[str, str]
) -> None:
    if isinstance(missing, str):
        both.gcloud.deny(missing)
    else:
        both.kube.fault("forbidden", verb=missing[0], resource=missing[1])
    bench = PoolBench(tmp_path, monkeypatch, topology="tpu7x-2x2x4")
    bench.follow(lambda it: it.happened("refused", "gone", "abandoned"))
    (ended,) = bench.events("abandoned")
    assert ended["ending"] == "BAD_INPUT" and "NoPermission: " in ended["detail"], ended
    assert "roles/container." in ended["detail"], "what to ask for"
    assert len(bench.events("allocation refused")) == 1, "in no other zone either"
    assert both.gcloud.resources() == [] and queue_objects(both) == [] and both.gcloud.ledger() == []


@pytest.mark.long
def test_a_target_check_finds_missing_rights_to_read(both: SimpleNamespace) -> None:
    for right in GCLOUD_RIGHTS[:1] + GCLOUD_RIGHTS[2:4]:
        both.gcloud.deny(right)
        assert [line for level, line in remarks(topology="tpu7x-2x2x4") if level == "error" and right in line], right
    both.gcloud.deny()
    (unchecked,) = [line for level, line in remarks() if level == "inconclusive"]
    assert "whether you may create and delete node pools and workload policies" in unchecked


@pytest.mark.long
def test_a_cluster_that_is_not_there_is_named(both: SimpleNamespace) -> None:
    own = provisioner(cluster="other")
    request = own.describe_request(Path("/runs/r"), 1.0, 1, ())
    answer = own.create(request)
    assert answer.uncreated and answer.reason.startswith("NoCluster: my-project has no cluster other in us-central1")
    own.delete(request)
    assert own.describe(request).state is AllocationState.GONE


@pytest.mark.long
def test_a_cluster_without_kueue_gets_no_queues(both: SimpleNamespace) -> None:
    both.kube.set(absent_groups=[KUEUE])
    own = provisioner()
    request = own.describe_request(Path("/runs/r"), 1.0, 1, ())
    own.create(request)
    until(own, request, AllocationState.READY)
    remove(own, request)
    assert both.gcloud.resources() == []


def test_clean_removes_pools_policies_and_queues_that_no_run_needs(
    both: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both.gcloud.foreign_pool("my-cluster", "theirs", 1, "ct6e-standard-4t", A, project="my-project")
    both.gcloud.reservation("r-1", A, 4, project="my-project")
    bench = PoolBench(tmp_path, monkeypatch, topology="tpu7x-2x2x4", price=1.0, reservations=["r-1"])
    bench.follow(lambda it: it.happened("ready"))
    own = {"podwright-run": "1", "podwright-by": labels.creator(), "podwright-attempt": "1"}
    for name, of in (
        ("pw-x-1-a1", own),
        ("theirs", {}),
    ):  # that of a launcher which was killed before the JobSet, and another one
        both.kube.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": of}})
    left, alone = cleaning.inventory("pod", tmp_path).slices
    assert (alone.name, alone.need, alone.cost) == ("pw-x-1-a1", cleaning.Need.UNCLEAR, None), "no run is known"
    assert removal.remove([alone], lambda _: None, limit_s=60) == {}
    assert (left.need, left.removable) == (cleaning.Need.LEFT, True) and left.cost and left.cost > 0
    entry = json.loads((tmp_path / "targets.yaml").read_text())["pod"]
    entry = {key: value for key, value in entry.items() if key != "reservations"}
    (tmp_path / "targets.yaml").write_text(json.dumps({"pod": entry}))  # runs create no pools now
    name = left.name
    (left,) = cleaning.inventory("pod", tmp_path).slices
    assert (left.name, left.need, left.removable) == (name, cleaning.Need.LEFT, True)
    same = dict(left.owned.request.labels)
    both.gcloud.foreign_pool(
        "my-cluster", f"{left.name}-1", 4, zone=A, labels=same, topology="2x2x4", project="my-project"
    )
    assert removal.remove([left], lambda _: None, limit_s=60) == {}, "what a killed launcher's gcloud has created late"
    assert (
        cleaning.inventory("pod", tmp_path).slices == [] and both.gcloud.resources() == [] and queue_objects(both) == []
    )
    assert [row["name"] for row in both.gcloud.pools()] == ["default-pool", "theirs"]
    assert [each["metadata"]["name"] for each in both.kube.objects("configmaps")] == ["theirs"]
    record = journal.read(bench.run).allocation
    assert record and record.phase == "gone"
    assert list((tmp_path / "gke").iterdir()) == [], "no lock is left"


def clean(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return fork_server.podwright(["clean", *words, "--runs", str(folder)], folder, os.environ)


def with_other_cluster(both: SimpleNamespace, folder: Path, *names: str) -> None:
    """Another cluster of the region, and entries of the file in this order: `pod` as it is, the others with the new cluster."""
    both.gcloud.cluster("other-cluster", "us-central1", project="my-project", zones=(A, B))
    entry = json.loads((folder / "targets.yaml").read_text())["pod"]
    other = entry | {"cluster": "other-cluster"}
    (folder / "targets.yaml").write_text(json.dumps({n: entry if n == "pod" else other for n in names}))


@pytest.mark.long
def test_clean_keeps_the_policy_of_pools_in_a_cluster_that_the_entry_no_longer_names(
    both: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = PoolBench(tmp_path, monkeypatch, topology="tpu7x-2x2x4", price=1.0)
    bench.follow(lambda it: it.happened("ready"))
    name, before = bench.events("allocation requested")[0]["request"]["name"], both.gcloud.resources()
    with_other_cluster(both, tmp_path, "other")
    text = (tmp_path / "targets.yaml").read_text()
    (tmp_path / "targets.yaml").write_text(text.replace('"other":', '"pod":'))
    row = "run r has its machines in my-project/us-central1/my-cluster"
    for words in ((), ("--yes",), ("pod", "--yes")):
        done = clean(tmp_path, *words)
        assert done.returncode == 2 and f"; {row}" in done.stdout and "USD" not in done.stdout, done
        assert "target pod names my-project/us-central1/other-cluster now, and they were requested in" in done.stderr
        assert f"type podwright stop {tmp_path / 'r'}" in done.stderr and "nothing" not in done.stdout, done
    done = clean(tmp_path, "pod", name, "--yes")
    assert done.returncode == 2 and f"{name} is in use: {row}" in done.stderr, done
    (listed,) = cleaning.inventory("", tmp_path).slices
    assert (listed.need, listed.removable, listed.cost) == (cleaning.Need.ELSEWHERE, False, None)
    removal.remove([listed], lambda _: None, limit_s=3)
    assert both.gcloud.resources() == before and not bench.happened("gone")
    drive.stop(Driver(bench.run, lambda *_: None, lambda _: None))
    assert both.gcloud.resources() == [] and queue_objects(both) == [] and bench.happened("gone")


@pytest.mark.long
@pytest.mark.parametrize("names", [("pod", "other"), pytest.param(("other", "pod"), marks=pytest.mark.long)])
def test_clean_deletes_pools_through_the_target_of_their_cluster_where_another_one_lists_their_policy(
    both: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    bench = PoolBench(tmp_path, monkeypatch, topology="tpu7x-2x2x4", price=1.0)
    bench.follow(lambda it: it.happened("ready"))
    with_other_cluster(both, tmp_path, *names)
    (kept,) = cleaning.inventory("other", tmp_path).slices
    assert (kept.need, kept.cost) == (cleaning.Need.ELSEWHERE, None)
    known = cleaning.inventory("", tmp_path)
    (left,) = known.slices
    assert (left.target, left.need, known.unlisted) == ("pod", cleaning.Need.LEFT, []) and left.cost and left.cost > 0
    assert removal.remove([left], lambda _: None, limit_s=60) == {}
    assert both.gcloud.resources() == [] and queue_objects(both) == [] and bench.happened("gone")


@pytest.mark.long
def test_clean_writes_the_report_of_an_ended_run_again(
    both: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both.gcloud.times(pool_deleting=600.0)
    bench = PoolBench(tmp_path, monkeypatch, price=1.0)
    bench.follow(lambda it: it.happened("ready", "deleting", "reported"))
    report = bench.run.report / "result.json"
    assert json.loads(report.read_text())["usage"]["open"], "the launcher dies before the pool is gone"
    (left,) = cleaning.inventory("pod", tmp_path).slices
    both.gcloud.times(pool_deleting=0.2)
    assert removal.remove([left], lambda _: None, limit_s=60) == {}
    used = json.loads(report.read_text())["usage"]
    assert not used["open"] and used["cost"] == pytest.approx(chip_seconds(bench) / 3600)
    assert journal.read(bench.run).report_final


def remarks(**given: object) -> list[tuple[str, str]]:
    own = {"provisioning": "on-demand"} if "reservations" not in given else {}
    target_settings = settings.GkeSettings.model_validate(SETTINGS | own | given)
    checked = pool_access.check(target_settings, GcloudCalls(Shell(), classifier(target_settings)), "pod")
    return [(remark.level, f"{remark.what}; {remark.fix}") for remark in checked]


def test_a_target_check_shows_cluster_reservations_and_what_ends_pools_without_a_run(both: SimpleNamespace) -> None:
    machines = {"machine_type": "ct6e-standard-4t", "project": "my-project"}
    both.gcloud.reservation("r-1", A, 8, in_use=3, **machines)
    both.gcloud.reservation("r-2", A, 8, status="CREATING", **machines)
    both.gcloud.reservation("r-3", A, 8, machine_type="tpu7x-standard-4t", project="my-project")
    found = remarks(reservations=["r-1", "r-2", "r-3", "r-4"], zones=[A])
    text = "\n".join(f"{level}: {line}" for level, line in found)
    assert "info: cluster my-cluster in us-central1 is RUNNING, version 1.33.5-gke.1308000" in text
    assert "info: ct6e-standard-4t is offered in us-central1-a; offered is not free" in text
    assert (
        f"info: reservation r-1 in {A} is READY, and 5 of 8 machines were free when it was read; a run tries it in any state"
        in text
    )
    assert f"warning: reservation r-2 in {A} is CREATING" in text
    assert (
        f"warning: reservation r-3 in {A} is for tpu7x-standard-4t, and nodes of the target are ct6e-standard-4t"
        in text
    )
    assert f"warning: reservation r-4 in {A} does not exist; correct reservations and zones" in text
    assert "warning: nothing in the cloud ends node pools with provisioning=reserved" in text
    assert "type podwright clean pod" in text and not any(level == "error" for level, _ in found)
    assert both.gcloud.resources() == []
    assert ("error", f"reservation r-4 in {A} does not exist") in [
        (level, line.partition(";")[0]) for level, line in remarks(reservations=["r-4"], zones=[A])
    ]


@pytest.mark.long
def test_a_target_check_of_flex_start_names_the_end_that_the_cloud_enforces(both: SimpleNamespace) -> None:
    both.gcloud.busy("my-cluster", 30.0)
    text = "\n".join(line for _, line in remarks(provisioning="flex-start", topology="tpu7x-2x2x4"))
    assert "a node ends 24 h after its start (--max-run-duration)" in text
    assert "the cluster works on operation-" in text and "you may list workload policies of my-project" in text


@pytest.mark.long
def test_a_target_check_ends_at_what_all_calls_would_repeat(both: SimpleNamespace) -> None:
    ((level, line),) = [row for row in remarks(cluster="other") if row[0] != "info"]
    assert level == "error" and "NoCluster" in line
    both.gcloud.set(account="")
    assert remarks() == [("error", "gcloud has no login; type gcloud auth login")]
