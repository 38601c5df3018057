"""What a run waits for is said with its time, its price and what ends it."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from podwright.run.allocations import AllocationRecord, Capacity, Refusals
from podwright.run.decide import Observed
from podwright.run.journal import RunState
from podwright.run.states import AllocationPhase, Phase
from podwright.run.waiting import reason
from podwright.targets.base import Process
from podwright.targets.machines import Request, deleting, ready, repairing, waiting


def test_maintenance_is_named_only_where_no_host_answers() -> None:
    state, away = RunState(phase=Phase.RUNNING), repairing("Maintenance: the cloud restarts the machines")
    silent = Observed(Process.RUNNING, away, silent_s=1.0)
    text = "Maintenance: the cloud restarts the machines; if they stay away for long, others are requested"
    assert reason(state, silent, "Unreachable: host h", 0.0) == text
    assert reason(state, Observed(Process.RUNNING, away), "", 0.0) == ""
    assert reason(state, Observed(Process.RUNNING, silent_s=1.0), "Unreachable: host h", 0.0) == "Unreachable: host h"


def test_a_silence_says_since_when_at_which_price_until_when_and_what_ends_it() -> None:
    request = Request("pw-1", "a", chip="v6e", num_chips=16)
    state = RunState(phase=Phase.RUNNING, allocation=AllocationRecord(1, AllocationPhase.READY, 0.0, request, {}))
    seen = Observed(Process.RUNNING, ready(()), silent_s=600.0, unheard_s=600.0)
    since, until = (time.strftime("%H:%M", time.localtime(1e9 + s)) for s in (-600.0, 1200.0))
    text = reason(state, seen, "Unreachable: host h", 1e9, silence_s=1800.0, typed="r")
    assert text == (
        f"Unreachable: host h (since {since}, 16 v6e chips for up to 43.20 USD per hour); at {until} its machines count as lost, and "
        "others are requested; podwright stop r ends it now"
    )
    lent = reason(replace(state, allocation=None), seen, "Unreachable: host h", 1e9, typed="r")
    assert lent == f"Unreachable: host h (since {since})", "a stop does not reach it either"
    unknown_state = replace(seen, allocation=waiting("MOVING: the cloud says no more"))
    assert "; the cloud says of the machines: MOVING: " in reason(state, unknown_state, "Unreachable: host h", 1e9)
    barred = reason(state, replace(seen, unheard_s=0.0), "Unreachable: no key", 1e9, silence_s=1800.0, typed="r")
    assert barred.endswith("43.20 USD per hour); podwright stop r ends it now"), "a person has to act"
    priced = replace(state, allocation=replace(state.allocation, request=replace(request, price=1.0)))  # type: ignore[type-var]
    assert "16 v6e chips for 16.00 USD per hour" in reason(priced, seen, "Unreachable: host h", 1e9)
    stopping = replace(state, phase=Phase.STOPPING, calls=3, reason="host h does not answer")
    assert f"it is sent again (since {since}, 16 v6e chips" in reason(stopping, seen, "", 1e9)


def test_a_stop_says_which_command_kills_the_trainer() -> None:
    state = RunState(phase=Phase.STOPPING, signalled=True)
    text = reason(state, Observed(Process.RUNNING), "", 0.0, kill_at=1e9)
    assert "this command kills it; if it was left by then, the next podwright stop does" in text
    assert reason(state, Observed(Process.RUNNING), "", 0.0) == "", "not promised before a grace has begun"


@pytest.mark.parametrize("phase", [Phase.SUBMITTING, Phase.RUNNING, Phase.STOPPING])
def test_nothing_is_said_of_processes_of_an_attempt_that_has_ended(phase: Phase) -> None:
    """Its end is not in the journal yet: another launcher holds the lock."""
    unheard = RunState(phase=phase, attempt=1, calls=3, reason="host h does not answer")
    assert reason(unheard, Observed(Process.ENDED), "", 0.0, kill_at=1e9) == ""
    absent = reason(unheard, Observed(Process.ABSENT), "", 0.0, kill_at=1e9)
    starts = "Starting: no process of the attempt is running yet"
    assert absent == ("" if phase is Phase.RUNNING else starts), "one that was seen to run has gone"
    assert reason(RunState(phase=phase), Observed(Process.ABSENT), "", 0.0) == "", "stopped before there was an attempt"


def test_a_deletion_that_waits_says_for_what() -> None:
    record = AllocationRecord(1, AllocationPhase.DELETING, 0.0, Request("pw-1", "a"), {}, reason="Preempted: taken")
    state = RunState(phase=Phase.ENDED, released=True, allocation=record)
    busy = Observed(Process.ENDED, deleting("ClusterBusy: the cluster works on operation-1"))
    assert reason(state, busy, "", 0.0) == (
        "Deleting: pw-1 is not gone yet (ClusterBusy: the cluster works on operation-1)"
    )
    text = "Deleting: pw-1 is not gone yet (Preempted: taken)"
    assert reason(state, Observed(Process.ENDED, deleting()), "", 0.0) == text


def test_machines_that_are_ready_are_not_said_to_be_missing() -> None:
    """A launcher that died while they were created has left the journal at the request."""
    request = Request("pw-1", "a", chip="v6e", num_chips=16)
    state = RunState(phase=Phase.READY, allocation=AllocationRecord(1, AllocationPhase.REQUESTED, 0.0, request, {}))
    text = reason(state, Observed(Process.ENDED, ready(())), "", 0.0)
    assert text.startswith("Requested: pw-1 in a is ready and not used yet") and "43.20 USD per hour" in text
    assert reason(state, Observed(Process.ENDED, waiting("")), "", 0.0) == "Requested: pw-1 in a does not exist yet"


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


def test_machines_that_were_lent_are_not_said_to_be_deleted() -> None:
    request = Request("mine", "a", borrowed=True)
    record = AllocationRecord(1, AllocationPhase.DELETING, 0.0, request, {}, reason="OtherImage: node mine")
    state = RunState(phase=Phase.READY, allocation=record)
    assert reason(state, Observed(Process.ABSENT, ready(())), "", 0.0) == "OtherImage: node mine"
