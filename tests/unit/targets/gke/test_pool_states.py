"""What node pools, operations and nodes, as the cloud lists them, mean for a run."""

from pathlib import Path
from typing import Any

import pytest

from podwright.rundir import Ending, Record
from podwright.shell import Shell
from podwright.targets.base import RUN_LABEL
from podwright.targets.gke import pool_inventory, pool_states
from podwright.targets.gke.pool_inventory import RequestParts
from podwright.targets.gke.pool_replies import classifier
from podwright.targets.gke.pool_states import PoolSize, PoolView
from podwright.targets.gke.pools import NodePoolProvisioner
from podwright.targets.machines import Allocation, AllocationState, ChargedChips
from tests.unit.targets.gke.entry import gke
from tests.unit.targets.gke.test_pool_replies import IGM, LATER, PLACE

OWN = gke(reservations=["r-1"], topology="2x v6e-8")
REQUEST = NodePoolProvisioner(Shell(), OWN).describe_request(Path("/runs/r"), 1.0, 1, ())
FIRST, SECOND = REQUEST.details["pools"]
SIZE = PoolSize(2, 4)
LINK = "https://container.googleapis.com/v1/projects/1/locations/us-central1/clusters/my-cluster"


def pool(status: str = "RUNNING", **more: Any) -> Record:
    return {"name": "n", "status": status, "config": {"resourceLabels": dict(REQUEST.labels)}} | more


def operation(
    about: str = "", kind: str = "CREATE_NODE_POOL", status: str = "DONE", error: str = "", at: str = "07:00:00"
) -> Record:
    target = f"{LINK}/nodePools/{about}" if about else LINK
    failed = {"error": {"code": 8, "message": error}, "statusMessage": error} if error else {}
    start = f"2026-11-23T{at}.123456789Z"
    return {
        "name": "operation-1",
        "operationType": kind,
        "status": status,
        "targetLink": target,
        "startTime": start,
    } | failed


def node(
    of: str = FIRST, number: int = 0, *, ready: bool = True, chips: int = 4, created: str = "2026-11-23T07:00:00Z"
) -> Record:
    conditions = [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": str(ready)}]
    status = {"conditions": conditions, "allocatable": {"google.com/tpu": str(chips)}}
    status |= {
        "addresses": [{"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": f"10.0.0.{number}"}]
    }
    labels = {"cloud.google.com/gke-nodepool": of}
    return {"metadata": {"name": f"{of}-{number}", "labels": labels, "creationTimestamp": created}, "status": status}


NODES = [node(of, number) for of in (SECOND, FIRST) for number in (1, 0)]


def seen(
    pools: dict[str, Record] | None = None,
    operations: tuple[Record, ...] = (),
    nodes: list[Record] | None = None,
    ready_since: float | None = None,
    size: PoolSize = SIZE,
    pods_wait: bool = False,
) -> Allocation:
    both = {FIRST: pool(), SECOND: pool()} if pools is None else pools
    ordered = pool_states.of_cluster(operations, "my-cluster")
    there = NODES if nodes is None else nodes
    return PoolView(REQUEST, size, classifier(OWN), both, ordered, there, ready_since, pods_wait).allocation()


def test_pools_are_ready_once_every_node_has_its_chips() -> None:
    answer = seen()
    assert answer.state is AllocationState.READY
    assert [host.name for host in answer.hosts] == [f"{of}-{k}" for of in (FIRST, SECOND) for k in (0, 1)]
    assert answer.hosts[1].address == "10.0.0.1"


@pytest.mark.parametrize(
    "last", [[], [node(FIRST, 1, chips=0)], [node(FIRST, 1, ready=False)], [node("another-pool", 1)]]
)
def test_a_node_counts_when_it_is_ready_and_has_registered_its_chips(last: list[Record]) -> None:
    answer = seen(nodes=[*NODES[:2], node(FIRST, 0), *last])
    assert answer.state is AllocationState.FILLING
    assert answer.reason == f"Starting: 1 of 2 nodes of {FIRST} are ready, with their TPUs"


@pytest.mark.parametrize("untold", [{}, {"allocatable": {}}, {"allocatable": {"google.com/tpu": "0"}}])
def test_a_node_of_one_chip_counts_once_it_has_registered_its_chip(untold: Record) -> None:
    """A machine of one chip, as ct6e-standard-1t, is ready before its device plugin has told of the chip."""
    size, late = PoolSize(2, 1), node(SECOND, 1, chips=1)
    others = [node(FIRST, 0, chips=1), node(FIRST, 1, chips=1), node(SECOND, 0, chips=1)]
    late["status"] = {"conditions": late["status"]["conditions"]} | untold
    answer = seen(nodes=[*others, late], size=size)
    assert answer.state is AllocationState.FILLING
    assert answer.reason == f"Starting: 1 of 2 nodes of {SECOND} are ready, with their TPUs"
    assert answer.charged and answer.charged.chips == 4, "it costs before it is ready"
    answer = seen(nodes=[*others, node(SECOND, 1, chips=1)], size=size)
    assert answer.state is AllocationState.READY and len(answer.hosts) == 4


def test_machines_count_each_from_its_own_start() -> None:
    nodes = [node(of, k, created=f"2026-11-23T07:0{2 * k}:00Z") for of in (FIRST, SECOND) for k in (0, 1)]
    since = seen(nodes=nodes).since
    assert since == pool_states.mean_start([node(created="2026-11-23T07:01:00Z")])


FLEX = PoolSize(2, 4, by_pods=True)


def test_a_pool_of_flex_start_is_ready_without_nodes_until_pods_ask_for_them() -> None:
    for answer in (
        seen(nodes=[], size=FLEX),
        seen(nodes=[], size=FLEX, ready_since=1.0),
        seen(nodes=[], size=FLEX, pods_wait=True),
        seen(size=FLEX, ready_since=1.0, pods_wait=True),
    ):
        assert answer.state is AllocationState.READY and answer.hosts == () and answer.since is None
    waits = seen(nodes=NODES[:3], size=FLEX, ready_since=1.0, pods_wait=True)
    assert waits.state is AllocationState.FILLING
    assert waits.reason == f"Starting: 1 of 2 nodes of {FIRST} are ready, with their TPUs"
    stuck = (operation(FIRST, error=IGM),)
    answer = seen(operations=stuck, nodes=[], size=FLEX, ready_since=1.0, pods_wait=True)
    assert answer.state is AllocationState.FILLING and "NoCapacity" in answer.reason, "the autoscaler tries again"


def test_all_nodes_of_the_pools_cost_ready_or_not() -> None:
    other = node("another-pool", 1)
    unready = [node(FIRST, 0, created="2026-11-23T07:00:00Z"), node(SECOND, 0, ready=False, chips=0), other]
    start = pool_states.mean_start([node()])
    for pools in ({FIRST: pool("STOPPING"), SECOND: pool()}, {FIRST: pool("PROVISIONING"), SECOND: pool("ERROR")}):
        assert seen(pools, nodes=unready).charged == ChargedChips(8, start)
    assert seen(nodes=[]).charged == ChargedChips(0) and seen().charged == ChargedChips(16, start)
    ordered = pool_states.of_cluster((), "my-cluster")
    unread = PoolView(REQUEST, SIZE, classifier(OWN), {FIRST: pool("PROVISIONING")}, ordered, None, None)
    assert unread.allocation().charged is None


@pytest.mark.parametrize("status", ["PROVISIONING", "SOMETHING_NEW", ""])
def test_what_is_not_ready_yet_is_waited_for(status: str) -> None:
    assert seen({FIRST: pool(status), SECOND: pool()}).state is AllocationState.WAITING


@pytest.mark.parametrize("where", ["operation", "conditions", "statusMessage"])
def test_a_pool_that_failed_is_refused_by_whatever_says_why(where: str) -> None:
    failed, operations = pool("ERROR"), (operation(FIRST, error=IGM),) if where == "operation" else ()
    if where == "conditions":
        failed["conditions"] = [{"code": "GCE_STOCKOUT", "message": "x"}]
    if where == "statusMessage":
        failed["statusMessage"] = IGM
    answer = seen({FIRST: failed, SECOND: pool("PROVISIONING")}, operations)
    assert answer.state is AllocationState.REFUSED and answer.scope == PLACE


def test_a_pool_that_failed_for_an_unknown_reason_is_refused_there_alone() -> None:
    answer = seen({FIRST: pool("ERROR", statusMessage="something new"), SECOND: pool()})
    assert answer.state is AllocationState.REFUSED and answer.scope == PLACE and "something new" in answer.reason


@pytest.mark.parametrize("status", ["RUNNING", "RUNNING_WITH_ERROR"])
def test_a_pool_that_would_fill_itself_later_is_refused(status: str) -> None:
    answer = seen({FIRST: pool(status), SECOND: pool()}, (operation(FIRST, error=LATER),), nodes=NODES[:2])
    assert answer.state is AllocationState.REFUSED and "would fill itself later" in answer.reason


def test_a_pool_that_has_filled_itself_is_used() -> None:
    assert seen(operations=(operation(FIRST, error=LATER),)).state is AllocationState.READY


def test_a_missing_pool_is_requested_again_unless_its_own_operation_has_not_ended() -> None:
    one_pool = {FIRST: pool()}
    assert seen(one_pool).state is AllocationState.PARTIAL
    others = operation("theirs", status="RUNNING", kind="UPGRADE_NODES")
    assert seen(one_pool, (operation(SECOND, status="RUNNING"),)).state is AllocationState.WAITING
    answer = seen(one_pool, (others,))
    assert answer.state is AllocationState.PARTIAL
    assert answer.reason.startswith(
        "ClusterBusy: the cluster works on operation-1 (UPGRADE_NODES of theirs) since 2026-11-23T07:00:00Z"
    )
    other_cluster = others | {"targetLink": f"{LINK}-2/nodePools/theirs"}
    assert seen(one_pool, (other_cluster,)).state is AllocationState.PARTIAL


def test_a_pool_that_somebody_deletes_is_being_deleted() -> None:
    assert seen({FIRST: pool("STOPPING"), SECOND: pool()}).state is AllocationState.DELETING


def test_after_they_were_ready_missing_nodes_are_away_and_missing_pools_are_lost() -> None:
    away = seen(nodes=NODES[:3], ready_since=1.0)
    assert away.state is AllocationState.REPAIRING and "1 of 2 nodes" in away.reason
    gone = seen({FIRST: pool()}, ready_since=1.0)
    assert (gone.state, gone.ending) == (AllocationState.LOST, Ending.NODE_LOST)
    broken = seen({FIRST: pool("ERROR"), SECOND: pool()}, ready_since=1.0)
    assert (broken.state, broken.ending) == (AllocationState.LOST, Ending.NODE_LOST)


def test_only_the_newest_operation_about_a_pool_counts() -> None:
    failed, deleted = operation(FIRST, error=IGM), operation(FIRST, kind="DELETE_NODE_POOL", at="08:00:00")
    ordered = pool_states.of_cluster([deleted, failed], "my-cluster")
    assert pool_states.creation_of(ordered, FIRST) is None
    assert pool_states.failure_of(pool_states.creation_of(ordered[:1], FIRST)) == IGM
    assert pool_states.failure_of(operation(FIRST)) == "" == pool_states.failure_of(None)
    assert pool_states.failure_of(operation(FIRST, status="RUNNING", error=IGM)) == ""


def test_a_pool_is_ours_by_the_label_of_the_run() -> None:
    assert pool_states.is_ours(pool(), REQUEST)
    assert not pool_states.is_ours({"name": FIRST, "config": {}}, REQUEST)
    assert not pool_states.is_ours({"name": FIRST, "config": {"resourceLabels": {"podwright-run": "other"}}}, REQUEST)


def test_the_chips_of_a_request_are_those_of_its_pools_alone() -> None:
    """Another request of the same run may have nodes too."""
    machine = {"config": {"machineType": "ct6e-standard-4t"}}
    for names in ((FIRST,), (FIRST, SECOND)):
        parts = RequestParts({RUN_LABEL: "tag"}, [machine | {"name": name} for name in names])
        nodes = [
            each | {"metadata": each["metadata"] | {"labels": each["metadata"]["labels"] | {RUN_LABEL: "tag"}}}
            for each in NODES
        ]
        charged = pool_inventory._charged(parts, nodes)
        assert charged and charged.chips == 8 * len(names)
