"""What the cloud's states lead to: nothing that is not known to be gone counts as gone."""

import pytest

from podwright.rundir import Ending
from podwright.targets.google.labels import unix
from podwright.targets.machines import AllocationState
from podwright.targets.tpu_vm import cloud_states
from podwright.targets.tpu_vm.replies import of_project

CREATED = "2026-11-20T10:00:00.123456789Z"
NOW = 1_795_168_800.0 + 3600  # an hour after it


def queued(state: str, expired_s: float = 0.0, **more: object):
    record = {"createTime": CREATED, "state": {"state": state, **more}}
    return cloud_states.of_queued(record, of_project("p", "vm"), "us-east5-b", expired_s)


@pytest.mark.parametrize(
    "state", ["CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "QUEUED", "SOMETHING_NEW", ""]
)
def test_a_request_that_has_not_been_refused_waits(state: str) -> None:
    assert queued(state).state is AllocationState.WAITING


def test_an_active_request_is_what_its_node_is() -> None:
    assert queued("ACTIVE") is None and cloud_states.of_node({"state": "READY"}) is None
    assert queued("DELETING").state is AllocationState.DELETING


@pytest.mark.parametrize(
    ("message", "scope", "ending"),
    [
        ("", "us-east5-b", Ending.NO_CAPACITY),
        ('There is no more capacity in the zone "us-east5-b"', "us-east5-b", Ending.NO_CAPACITY),
        ("Quota limit 'TPUV6EPerProjectPerRegionForTPUAPI' has been exceeded", "us-east5-", Ending.NO_CAPACITY),
        ("something that nobody has seen", "us-east5-b", Ending.NO_CAPACITY),
        ("Permission 'tpu.nodes.create' denied on x", "", Ending.BAD_INPUT),
    ],
)
def test_a_failed_request_refuses_its_zone_or_ends_the_run(message: str, scope: str, ending: Ending) -> None:
    answer = queued("FAILED", failedData={"error": {"code": 8, "message": message}})
    assert (answer.state, answer.scope, answer.ending) == (AllocationState.REFUSED, scope, ending)
    assert (ending is Ending.BAD_INPUT) == ("podwright target check vm shows what is missing" in answer.reason)


def test_suspended_machines_are_lost_and_why() -> None:
    assert queued("SUSPENDED", stateInitiator="SERVICE").ending is Ending.PREEMPTED
    assert queued("SUSPENDING").ending is Ending.PREEMPTED
    assert queued("SUSPENDED", stateInitiator="USER").ending is Ending.NODE_LOST
    assert queued("SUSPENDED", expired_s=7200.0).ending is Ending.TIMED_OUT


@pytest.mark.parametrize(
    ("state", "allocation", "ending"),
    [
        ("CREATING", AllocationState.WAITING, None),
        ("REPAIRING", AllocationState.REPAIRING, None),
        ("RESTARTING", AllocationState.REPAIRING, None),
        ("UNKNOWN", AllocationState.REPAIRING, None),
        ("SOMETHING_NEW", AllocationState.WAITING, None),
        ("PREEMPTED", AllocationState.LOST, Ending.PREEMPTED),
        ("TERMINATED", AllocationState.LOST, Ending.PREEMPTED),
        ("STOPPED", AllocationState.LOST, Ending.NODE_LOST),
        ("DELETING", AllocationState.DELETING, None),
    ],
)
def test_a_node_is_lost_only_in_states_it_does_not_come_back_from(state: str, allocation, ending) -> None:
    answer = cloud_states.of_node({"state": state})
    assert answer is not None and (answer.state, answer.ending) == (allocation, ending)


def test_addresses_are_in_the_clouds_order() -> None:
    points = [{"ipAddress": "10.0.0.2", "accessConfig": {"externalIp": "34.1.1.1"}}, {"ipAddress": "10.0.0.3"}]
    assert cloud_states.addresses({"networkEndpoints": points}) == [("10.0.0.2", "34.1.1.1"), ("10.0.0.3", "")]
    assert cloud_states.addresses({}) == []


def test_a_health_that_is_not_healthy_is_told_and_ends_nothing() -> None:
    node = {"state": "READY", "health": "UNHEALTHY_TENSORFLOW", "healthDescription": "no heartbeat"}
    assert cloud_states.of_node(node) is None
    assert cloud_states.remark_of(node) == "health UNHEALTHY_TENSORFLOW: no heartbeat"
    coming = {"upcomingMaintenance": {"maintenanceStatus": "PENDING", "windowStartTime": CREATED}}
    assert cloud_states.remark_of(coming) == f"maintenance is pending from {CREATED}"
    assert cloud_states.remark_of({"health": "HEALTHY"}) == ""


def test_times_of_the_cloud() -> None:
    assert unix(CREATED) == NOW - 3600 and unix("") is None
