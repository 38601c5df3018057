from __future__ import annotations

import time

from podwright.run.allocations import AllocationRecord, Capacity, Refusals
from podwright.run.decide import Observed
from podwright.run.journal import RunState
from podwright.run.states import AllocationPhase, Phase
from podwright.run.waiting import reason
from podwright.targets.base import Process
from podwright.targets.machines import Request, deleting, repairing


def test_maintenance_is_named_only_where_no_host_answers() -> None:
    state, away = RunState(phase=Phase.RUNNING), repairing("Maintenance: the cloud restarts the machines")
    silent = Observed(Process.RUNNING, away, silent_s=1.0)
    text = "Maintenance: the cloud restarts the machines; if they stay away for long, others are requested"
    assert reason(state, silent, "Unreachable: host h", 0.0) == text
    assert reason(state, Observed(Process.RUNNING, away), "", 0.0) == ""
    assert reason(state, Observed(Process.RUNNING, silent_s=1.0), "Unreachable: host h", 0.0) == "Unreachable: host h"


def test_a_stop_says_which_command_kills_the_trainer() -> None:
    state = RunState(phase=Phase.STOPPING, signalled=True)
    text = reason(state, Observed(Process.RUNNING), "", 0.0, kill_at=1e9)
    assert "this command kills it; if it was left by then, the next podwright stop does" in text
    assert reason(state, Observed(Process.RUNNING), "", 0.0) == "", "not promised before a grace has begun"


def test_a_deletion_that_waits_says_for_what() -> None:
    record = AllocationRecord(1, AllocationPhase.DELETING, 0.0, Request("pw-1", "a"), {}, reason="Preempted: taken")
    state = RunState(phase=Phase.ENDED, released=True, allocation=record)
    busy = Observed(Process.ENDED, deleting("ClusterBusy: the cluster works on operation-1"))
    assert reason(state, busy, "", 0.0) == (
        "Deleting: pw-1 is not gone yet (ClusterBusy: the cluster works on operation-1)"
    )
    text = "Deleting: pw-1 is not gone yet (Preempted: taken)"
    assert reason(state, Observed(Process.ENDED, deleting()), "", 0.0) == text


BEGIN = 1e9


def test_a_wait_for_capacity_names_the_zones_and_the_time_of_the_next_request() -> None:
    refused = {"zone-b": Refusals(1, BEGIN - 10.0), "zone-a": Refusals(3, BEGIN)}
    state = RunState(phase=Phase.READY, capacity=Capacity(since=BEGIN - 10.0, refusals=refused))
    at = time.strftime("%H:%M:%S", time.localtime(BEGIN + 20.0))
    sentence = f"Capacity: none in zone-a, zone-b; the next request follows at {at}"
    assert (
        reason(state, Observed(Process.ENDED), "", BEGIN)
        == reason(state, Observed(Process.ENDED), "", BEGIN + 5.0)
        == sentence
    )
    assert reason(state, Observed(Process.ENDED), "", BEGIN + 20.0).endswith("follows now")
