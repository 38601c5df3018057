"""What is done about the machines of a run, moment by moment."""

from dataclasses import asdict, replace
from typing import Any

import pytest

from podwright.run.allocations import AllocationRecord, Capacity, Refusals, avoided, back_off, due, eligible
from podwright.run.decide import (
    MOST_UNANSWERED,
    REFUSED_DELETION_S,
    SILENT_STOP_S,
    Act,
    Observed,
    machines_away,
    next_action,
    outlived,
    past,
    settled,
)
from podwright.run.journal import RunState, fold
from podwright.run.states import AllocationPhase, Budget, Phase
from podwright.rundir import Ending
from podwright.targets.base import Process, Traits
from podwright.targets.machines import (
    GONE,
    Allocation,
    AllocationState,
    ChargedChips,
    HostAddress,
    Request,
    deleting,
    filling,
    lost,
    partial,
    ready,
    refused,
    repairing,
    unknown,
    waiting,
)

TRAITS = Traits(zones=("a-1", "a-2", "b-1"), grace_s=170.0, lost_grace_s=20.0, place_patience_s=1800.0)
NOW = 10_000.0
HOSTS = (HostAddress("h", "10.0.0.1"),)
P = AllocationPhase


def allocation(phase: AllocationPhase, **changes: Any) -> AllocationRecord:
    return AllocationRecord(1, phase, NOW, Request("pw-1", "a-1"), {}, called=NOW, **changes)


def state(phase: Phase, record: AllocationRecord | None, **changes: Any) -> RunState:
    usual: dict[str, Any] = {"attempt": 1, "ended_attempt": 1, "handle": {}, "attempt_allocation": 1, "released": True}
    return RunState(phase=phase, allocation=record, **{**usual, **changes})


def act(at: RunState, cloud: Allocation = GONE, process: Process = Process.ENDED, now: float = NOW, **seen: Any) -> Act:
    return next_action(at, Observed(process, cloud, **seen), TRAITS, now)


@pytest.mark.parametrize(
    ("phase", "cloud", "unchanged_s", "expected"),
    [
        (P.REQUESTED, ready(HOSTS), 0.0, Act.ALLOCATED),
        (P.REQUESTED, refused("a-1", "Stockout: x"), 0.0, Act.REFUSED),
        (P.REQUESTED, lost(Ending.NODE_LOST, "x"), 0.0, Act.LOST),
        (P.REQUESTED, deleting(), 0.0, Act.LOST),
        (P.REQUESTED, waiting("Queued: x"), 99.0, Act.WAIT),
        (P.REQUESTED, unknown("Timeout: x"), 99.0, Act.WAIT),
        (P.REQUESTED, partial("Requesting: x"), 0.0, Act.WAIT),
        (P.DELETING, partial("Incomplete: x"), 99.0, Act.WAIT),
        (P.READY, lost(Ending.PREEMPTED, "x"), 0.0, Act.LOST),
        (P.READY, deleting(), 0.0, Act.LOST),
        (P.READY, refused("", "Failed: x"), 0.0, Act.LOST),
        (P.REQUESTED, filling("Starting: x"), 1799.0, Act.WAIT),
        (P.REQUESTED, filling("Starting: x"), 1800.0, Act.REFUSED),
        (P.REQUESTED, waiting("Provisioning: x"), 9999.0, Act.WAIT),
        (P.READY, filling("Starting: x"), 1799.0, Act.SUBMIT),
        (P.READY, filling("Starting: x"), 1800.0, Act.REFUSED),
        (P.REFUSED, filling("Starting: x"), 1800.0, Act.DELETE),
        (P.READY, GONE, 29.0, Act.SUBMIT),
        (P.READY, GONE, 30.0, Act.LOST),
        (P.READY, GONE, 31.0, Act.LOST),
        (P.READY, unknown("Timeout: x"), 99.0, Act.SUBMIT),
        (P.REFUSED, refused("a-1", "Stockout: x"), 0.0, Act.DELETE),
        (P.LOST, lost(Ending.PREEMPTED, "x"), 0.0, Act.DELETE),
        (P.DELETING, GONE, 29.0, Act.WAIT),
        (P.DELETING, GONE, 30.0, Act.GONE),
        (P.DELETING, GONE, 31.0, Act.GONE),
        (P.DELETING, unknown("Timeout: x"), 99.0, Act.WAIT),
    ],
)
def test_a_run_that_waits_for_machines(phase: P, cloud: Allocation, unchanged_s: float, expected: Act) -> None:
    record = allocation(phase, lacking=cloud.state if cloud.state is AllocationState.FILLING else None)
    assert act(state(Phase.READY, record), cloud, unchanged_s=unchanged_s) is expected


def test_since_when_machines_are_missing_is_written_down_once_and_again_when_all_have_been_there() -> None:
    requested, ready_ = (state(Phase.READY, allocation(phase)) for phase in (P.REQUESTED, P.READY))
    for cloud in (filling("Starting: x"), repairing("Maintenance: x")):
        assert act(requested, cloud) is act(ready_, cloud) is Act.LACKING
        missing = replace(allocation(P.READY), lacking=cloud.state)
        assert act(state(Phase.READY, missing), cloud, unchanged_s=60.0) is not Act.LACKING
        assert act(state(Phase.READY, missing), unknown("x")) is not Act.LACKING, "no answer changes nothing"
        assert act(state(Phase.READY, missing), ready(HOSTS)) is Act.LACKING
        assert act(state(Phase.READY, replace(missing, lacking=None)), ready(HOSTS)) is Act.SUBMIT


def test_machines_that_exist_without_the_run_are_let_go_and_not_waited_for() -> None:
    own = allocation(P.DELETING)
    borrowed = replace(own, request=replace(own.request, borrowed=True))
    assert act(state(Phase.READY, own), ready(HOSTS)) is Act.WAIT
    assert act(state(Phase.READY, borrowed), ready(HOSTS)) is Act.GONE


def test_an_unknown_reply_leads_to_the_same_request_again_and_never_to_another() -> None:
    requested = state(Phase.READY, allocation(P.REQUESTED))
    assert act(requested, GONE, now=NOW + 29.0) is Act.WAIT
    assert act(requested, GONE, now=NOW + 31.0) is Act.CREATE
    assert act(requested, partial("Requesting: x"), now=NOW + 31.0) is Act.CREATE
    assert act(requested, unknown("x"), now=NOW + 9999.0) is Act.WAIT
    assert act(requested, waiting("x"), now=NOW + 9999.0) is Act.WAIT


def test_a_request_of_which_nothing_comes_leads_to_another_place_where_there_is_one() -> None:
    requested, fewer = (state(Phase.READY, allocation(P.REQUESTED, calls=calls)) for calls in (4, 3))
    for cloud in (GONE, partial("Incomplete: x")):
        assert act(requested, cloud, now=NOW + 1800.0) is Act.CREATE
        assert act(fewer, cloud, now=NOW + 86400.0) is Act.CREATE, "nobody followed the run"
        assert act(requested, cloud, now=NOW + 1801.0) is Act.REFUSED
        observed, alone = Observed(Process.ENDED, cloud), replace(TRAITS, zones=TRAITS.zones[:1])
        assert next_action(requested, observed, alone, NOW + 1801.0) is Act.CREATE
    assert act(requested, waiting("Requested: x"), now=NOW + 86400.0) is Act.WAIT


def test_a_deletion_is_repeated_while_the_machines_exist() -> None:
    asked = state(Phase.READY, allocation(P.DELETING, calls=3))
    assert act(asked, ready(HOSTS), now=NOW + 7.0) is Act.WAIT
    assert act(asked, ready(HOSTS), now=NOW + 9.0) is Act.DELETE
    assert act(asked, unknown("x"), now=NOW + 9.0) is Act.DELETE
    assert act(asked, deleting(), now=NOW + 9999.0) is Act.WAIT


def test_a_refused_deletion_is_repeated_sooner_because_machines_cost_until_it_succeeds() -> None:
    many = allocation(P.DELETING, calls=12)
    refused_once = replace(many, undeleted="HttpError: 403")
    for record, most_s in ((many, 300.0), (refused_once, REFUSED_DELETION_S)):
        asked = state(Phase.READY, record)
        assert act(asked, ready(HOSTS), now=NOW + most_s - 1.0) is Act.WAIT
        assert act(asked, ready(HOSTS), now=NOW + most_s + 1.0) is Act.DELETE


def test_machines_at_fault_are_replaced_and_others_kept() -> None:
    assert act(state(Phase.READY, allocation(P.READY)), ready(HOSTS)) is Act.SUBMIT
    assert act(state(Phase.READY, allocation(P.READY, at_fault=True)), ready(HOSTS)) is Act.DELETE


def test_where_and_when_the_next_request_goes() -> None:
    fresh = state(Phase.READY, None, attempt_allocation=0)
    assert act(fresh) is Act.REQUEST and act(state(Phase.READY, allocation(P.GONE))) is Act.REQUEST
    full = {zone: Refusals(1, NOW) for zone in TRAITS.zones}
    searching = replace(fresh, capacity=Capacity(NOW, full))
    assert act(searching, now=NOW + 29.0) is Act.WAIT and act(searching, now=NOW + 31.0) is Act.REQUEST
    assert act(replace(fresh, capacity=Capacity(NOW, {"a-": Refusals(9, NOW)}))) is Act.REQUEST
    assert act(replace(fresh, capacity=Capacity(NOW)), now=NOW + TRAITS.patience_s + 1) is Act.END
    assert act(replace(fresh, capacity=Capacity(NOW, final=Ending.BAD_INPUT))) is Act.END


def test_places_that_refuse_for_good_are_not_tried_again_and_end_a_run_that_has_no_other() -> None:
    def refusals(*scopes: str) -> dict[str, Refusals]:
        return {scope: Refusals(1, NOW, final=True) for scope in scopes}

    fresh = state(Phase.READY, None, attempt_allocation=0)
    assert avoided(Capacity(NOW, refusals("a-1")), TRAITS.zones, NOW + 9e9) == ["a-1"]
    others = refusals("a-1", "a-2") | {"b-1": Refusals(1, NOW)}
    assert act(replace(fresh, capacity=Capacity(NOW, others)), now=NOW + 29.0) is Act.WAIT
    assert act(replace(fresh, capacity=Capacity(NOW, others)), now=NOW + 31.0) is Act.REQUEST
    assert act(replace(fresh, capacity=Capacity(NOW, refusals("a-", "b-1")))) is Act.END


@pytest.mark.parametrize(("ending", "final"), [(Ending.BAD_INPUT, True), (Ending.NO_CAPACITY, False)])
def test_a_refusal_that_must_be_corrected_is_one_for_good(ending: Ending, final: bool) -> None:
    request = asdict(Request("pw-1", "a-1"))
    events = [
        {"event": "allocation requested", "allocation": 1, "time": NOW, "request": request, "target": {}},
        {"event": "allocation refused", "allocation": 1, "time": NOW, "scope": "a-1", "reason": "x", "ending": ending},
    ]
    assert fold([CREATED, *events]).capacity.refusals == {"a-1": Refusals(1, NOW, final=final)}


def test_patience_ends_while_a_request_waits_too() -> None:
    requested = state(Phase.READY, allocation(P.REQUESTED), capacity=Capacity(NOW))
    assert act(requested, waiting("x"), now=NOW + TRAITS.patience_s) is Act.WAIT
    assert act(requested, waiting("x"), now=NOW + TRAITS.patience_s + 1) is Act.END


def test_zones_that_refused_are_avoided_for_longer_each_time() -> None:
    capacity, zones = Capacity(0.0, {"a-1": Refusals(1, 100.0), "b": Refusals(3, 100.0)}), ("a-1", "b")
    assert avoided(capacity, zones, 120.0) == ["a-1", "b"] and avoided(capacity, zones, 131.0) == ["b"]
    assert avoided(capacity, zones, 219.0) == ["b"]
    assert eligible(TRAITS.zones, ["b-", "a-1"]) == ["a-2"]
    places = ("us-central1-a/r", "us-central1-a/r10", "us-central1-ai1a/r")
    assert eligible(places, ["us-central1-a/r"]) == list(places[1:]), "r10 is another reservation"
    assert eligible(places, ["us-central1-a"]) == ["us-central1-ai1a/r"], (
        "a zone covers its reservations, and no other zone"
    )
    assert eligible(places, ["us-central1-"]) == [] and eligible(places, []) == list(places)


def test_pauses_grow_to_a_limit_and_a_time_in_the_future_is_not_waited_for() -> None:
    assert [back_off(n) for n in (0, 1, 2, 20, 4000)] == [0.0, 2.0, 4.0, 300.0, 300.0]
    assert due(5, NOW + 9999.0, NOW) and not due(5, NOW, NOW)


def test_machines_under_maintenance_are_waited_for_and_given_up_once_they_stay_away() -> None:
    away, long = repairing("Maintenance: x"), {"unchanged_s": TRAITS.repair_s}
    missing = {phase: allocation(phase, lacking=away.state) for phase in (P.REQUESTED, P.READY)}
    training = state(Phase.RUNNING, missing[P.READY], ended_attempt=0)
    running = Process.RUNNING
    assert act(training, away, running, unchanged_s=TRAITS.repair_s - 1, silent_s=TRAITS.repair_s) is Act.WAIT
    assert act(training, away, running, **long, silent_s=TRAITS.repair_s - 1) is Act.WAIT, "they train all the same"
    assert act(training, away, running, **long, silent_s=TRAITS.repair_s) is Act.LOST
    there = replace(training, allocation=allocation(P.READY))
    assert act(there, ready(HOSTS), running, **long, silent_s=TRAITS.repair_s) is Act.WAIT, "not by the cloud"
    assert act(training, away, Process.ENDED, **long) is Act.END, "as what it ended is in its own words"
    for phase, before in ((Phase.READY, Act.WAIT), (Phase.ENDED, Act.RELEASE)):
        over = state(phase, missing[P.READY], released=False, ending=Ending.CRASHED)
        assert act(over, away) is before and act(over, away, **long) is Act.LOST
    assert act(state(Phase.READY, allocation(P.READY)), ready(HOSTS), **long) is Act.SUBMIT
    assert act(state(Phase.READY, missing[P.REQUESTED]), away, **long) is Act.WAIT


def test_machines_whose_hosts_are_silent_for_long_are_lost_whatever_the_cloud_calls_them() -> None:
    traits = replace(TRAITS, silence_s=1800.0)
    training = state(Phase.RUNNING, allocation(P.READY), ended_attempt=0)
    for cloud in (ready(HOSTS), waiting("MOVING: the cloud says no more")):
        heard = {unheard_s: Observed(Process.RUNNING, cloud, unheard_s=unheard_s) for unheard_s in (1799.0, 1800.0)}
        assert next_action(training, heard[1799.0], traits, NOW) is Act.WAIT
        assert next_action(training, heard[1800.0], traits, NOW) is Act.LOST
        assert next_action(training, heard[1800.0], TRAITS, NOW) is Act.WAIT, "not where the target names no limit"
    offline = Observed(Process.RUNNING, unknown("x"), unheard_s=1800.0)
    assert next_action(training, offline, traits, NOW) is Act.WAIT, "no network here is no fault of the hosts"


def test_a_stop_that_silent_hosts_do_not_hear_deletes_their_machines_soon() -> None:
    stopping = state(Phase.STOPPING, allocation(P.READY), ended_attempt=0, stop_wanted=True, called=NOW, calls=2)
    silent, running = {"unheard_s": SILENT_STOP_S}, Process.RUNNING
    for cloud in (ready(HOSTS), waiting("MOVING: x")):
        assert act(stopping, cloud, running, **silent) is Act.DELETE
        assert act(stopping, cloud, running, unheard_s=SILENT_STOP_S - 1) is Act.WAIT
        assert act(replace(stopping, calls=1), cloud, running, **silent) is Act.WAIT, "a call may be lost"
    assert act(stopping, unknown("x"), running, **silent) is Act.WAIT
    ended = state(Phase.ENDED, allocation(P.READY), released=False, ending=Ending.FINISHED, called=NOW, calls=2)
    assert act(ended, ready(HOSTS), **silent) is Act.WAIT, "nobody has stopped it"


def test_an_attempt_that_runs_on_lost_machines_may_save_and_is_then_given_up() -> None:
    taken = state(Phase.RUNNING, allocation(P.LOST), ended_attempt=0)
    assert act(taken, lost(Ending.PREEMPTED, "x"), Process.RUNNING, unchanged_s=TRAITS.lost_grace_s) is Act.WAIT
    assert act(taken, lost(Ending.PREEMPTED, "x"), Process.RUNNING, unchanged_s=TRAITS.lost_grace_s + 1) is Act.END
    assert act(taken, lost(Ending.PREEMPTED, "x"), Process.ENDED) is Act.END


def test_no_attempt_outlives_its_machines() -> None:
    for phase in AllocationPhase:
        expected = phase in (P.REFUSED, P.DELETING, P.GONE)
        assert outlived(state(Phase.RUNNING, allocation(phase)), TRAITS, 0.0) is expected
    assert outlived(state(Phase.RUNNING, allocation(P.READY), attempt_allocation=2), TRAITS, 0.0)
    assert not outlived(state(Phase.RUNNING, allocation(P.GONE), attempt_allocation=0), TRAITS, 0.0)
    assert not outlived(state(Phase.RUNNING, None), TRAITS, 0.0)
    late = state(Phase.READY, allocation(P.GONE))
    assert act(late, GONE, Process.RUNNING) is Act.REQUEST


def test_what_is_released_and_what_is_away_with_its_machines() -> None:
    for phase in AllocationPhase:
        expected = phase not in (P.REQUESTED, P.READY)
        held = state(Phase.ENDED, allocation(phase), released=False, ending=Ending.FINISHED)
        assert machines_away(held) is expected and settled(held) is expected
    assert not machines_away(state(Phase.ENDED, None)) and settled(state(Phase.READY, None))
    assert not machines_away(state(Phase.ENDED, allocation(P.GONE), attempt_allocation=0))
    assert machines_away(state(Phase.ENDED, allocation(P.READY), attempt_allocation=2))
    assert not settled(state(Phase.RUNNING, None)) and settled(state(Phase.ENDED, None))
    taken = state(Phase.ENDED, allocation(P.LOST), released=False, ending=Ending.FINISHED)
    assert act(taken, lost(Ending.PREEMPTED, "x")) is Act.DELETE
    held = state(Phase.ENDED, allocation(P.READY), released=False, ending=Ending.FINISHED)
    assert act(held, ready(HOSTS)) is Act.RELEASE


def test_an_attempt_is_past_when_it_has_ended_and_holds_nothing() -> None:
    released = state(Phase.READY, allocation(P.READY))
    assert past(released) and not past(replace(released, released=False))
    assert past(replace(released, released=False, allocation=allocation(P.LOST)))
    assert not past(replace(released, ended_attempt=0)), "the newest attempt is a later one"


def test_every_ending_deletes_then_reports_and_is_done_when_all_is_gone() -> None:
    ended = state(Phase.ENDED, allocation(P.READY), ending=Ending.FINISHED)
    assert act(ended, ready(HOSTS)) is Act.DELETE
    asked = replace(ended, allocation=allocation(P.DELETING))
    assert act(asked, deleting()) is Act.REPORT
    reported = replace(asked, reported=True)
    assert act(reported, deleting()) is Act.WAIT
    assert act(reported, ready(HOSTS), now=NOW + 5.0) is Act.DELETE
    assert act(reported, GONE, unchanged_s=31.0) is Act.GONE
    gone = replace(reported, allocation=allocation(P.GONE))
    assert act(gone) is Act.REPORT, "the first report could not say what they have cost in the end"
    assert act(replace(gone, report_final=True)) is Act.DONE


def test_a_report_is_final_when_nothing_is_allocated_any_more() -> None:
    over = (*GOT, ended(Ending.FINISHED), ("released", {"attempt": 1}))
    asked = (*over, ("allocation deleting", {"allocation": 1}), ("reported", {"attempt": 1}))
    assert fold(events(*asked)).reported and not fold(events(*asked)).report_final
    again = (*asked, ("allocation gone", {"allocation": 1}), ("reported", {"attempt": 1}))
    assert not fold(events(*again[:-1])).report_final and fold(events(*again)).report_final
    assert fold(events(*GOT[2:], ended(Ending.FINISHED), ("reported", {"attempt": 1}))).report_final
    assert not fold(events(*again, ("resumed", {"attempt": 1}), ("abandoned", {"ending": "STOPPED"}))).report_final


def charged(chips: int, since: float | None = None, number: int = 1) -> tuple[str, dict[str, Any]]:
    return "allocation charged", {"allocation": number, "chips": chips, "since": since}


def test_what_the_cloud_tells_of_costs_is_written_down_when_it_changes() -> None:
    for phase in (P.REQUESTED, P.READY, P.REFUSED, P.LOST, P.DELETING):
        record = allocation(phase, charged=ChargedChips(4, 1.0))
        for told, expected in ((ChargedChips(4, 1.0), False), (ChargedChips(8, 1.0), True), (None, False)):
            cloud = replace(waiting("Provisioning: x"), charged=told)
            assert (act(state(Phase.READY, record), cloud) is Act.CHARGED) is expected
    gone = replace(waiting("x"), charged=ChargedChips(4))
    assert act(state(Phase.READY, allocation(P.GONE)), gone) is Act.REQUEST
    record = fold(events(GOT[0], charged(4, 15.0))).allocation
    assert record and (record.charged, record.phase, record.since) == (ChargedChips(4, 15.0), P.REQUESTED, 10.0)


def test_machines_that_an_attempt_asked_for_and_that_do_not_come_are_requested_elsewhere_within_one_patience() -> None:
    request = {"allocation": 1, "request": asdict(Request("pw-1", "a-1", num_chips=8)), "target": {}}
    asked = (("allocation requested", request), charged(0), ("allocation ready", {"allocation": 1, "hosts": []}))
    submitted = (*asked, *GOT[2:])
    waits = fold(events(*submitted))
    assert waits.capacity.since == 10.0, "the search goes on while the attempt waits"
    assert fold(events(*submitted, charged(4))).capacity.since == 10.0
    assert fold(events(*submitted, charged(8))).capacity == Capacity()
    had_all = (asked[0], charged(4), GOT[1], *GOT[2:])
    assert fold(events(*had_all)).capacity == Capacity(), "one that left meanwhile is no search"
    turned_away = ("allocation refused", {"allocation": 1, "scope": "a-1", "ending": "NO_CAPACITY", "reason": "x"})
    refused_ = fold(events(*submitted, turned_away))
    assert refused_.capacity.refusals["a-1"].count == 1
    assert act(refused_, filling("x"), Process.ENDED) is Act.END
    over = fold(events(*submitted, turned_away, ended(Ending.NO_CAPACITY)))
    assert over.retries == {Budget.CAPACITY: 1} and over.short_attempts == 0 and not over.host_failures
    assert act(over, filling("x")) is Act.RETRY
    assert act(replace(over, stop_wanted=True), filling("x")) is Act.DELETE
    ready_again = fold(events(*submitted, turned_away, ended(Ending.NO_CAPACITY), ("retrying", {"attempt": 1})))
    assert ready_again.capacity.since == 10.0 and act(ready_again, filling("x")) is Act.DELETE
    kept = fold(events(*GOT, ended(Ending.NO_CAPACITY)))
    assert kept.retries == {Budget.NONE: 1} and not kept.unfilled


def test_a_handle_that_polling_has_changed_is_written_down() -> None:
    running = state(Phase.RUNNING, allocation(P.READY), ended_attempt=0)
    assert act(running, ready(HOSTS), Process.RUNNING, handle_changed=True) is Act.REFRESH
    assert act(running, ready(HOSTS), Process.RUNNING) is Act.WAIT
    assert (
        act(replace(running, phase=Phase.SUBMITTING), ready(HOSTS), Process.RUNNING, handle_changed=True) is Act.ADOPT
    )
    over = replace(running, phase=Phase.ENDED, ending=Ending.STOPPED)
    assert act(over, ready(HOSTS), Process.RUNNING, handle_changed=True) is Act.WAIT


def test_a_clock_that_was_set_back_does_not_keep_an_absent_attempt_waiting() -> None:
    begun = RunState(phase=Phase.SUBMITTING, submitted=NOW, attempt=1, handle={})
    assert next_action(begun, Observed(Process.ABSENT), TRAITS, NOW - 100.0) is Act.END
    assert next_action(replace(begun, phase=Phase.RUNNING), Observed(Process.ABSENT), TRAITS, NOW + 1) is Act.END
    again = replace(begun, phase=Phase.STOPPING, ended_attempt=1)
    assert next_action(again, Observed(Process.ABSENT), TRAITS, NOW + 1) is Act.END


CREATED = {"event": "created", "time": 0.0, "recipe": "r", "target": "t", "cwd": "/", "retries": 1}
REQUEST = asdict(Request("pw-1", "a-1"))


def events(*steps: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [CREATED, *({"event": name, "time": 10.0 * n, **fields} for n, (name, fields) in enumerate(steps, 1))]


GOT = (
    ("allocation requested", {"allocation": 1, "request": REQUEST, "target": {}}),
    ("allocation ready", {"allocation": 1, "hosts": [asdict(HOSTS[0])]}),
    ("submitting", {"attempt": 1, "handle": {}, "on_allocation": 1}),
    ("submitted", {"attempt": 1, "handle": {}}),
)


def ended(ending: Ending, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "ended", {"attempt": 1, "ending": ending, **fields}


def test_a_crash_keeps_the_machines_a_preemption_and_a_failed_start_do_not() -> None:
    for last, at_fault in (
        (ended(Ending.CRASHED), False),
        (ended(Ending.PREEMPTED), True),
        (ended(Ending.CRASHED, failed_hosts=["h"]), False),
        (ended(Ending.NODE_LOST, failed_hosts=["h"]), True),
        (ended(Ending.CRASHED, bootstrap=True), True),
        (ended(Ending.BAD_INPUT, bootstrap=True), False),
    ):
        record = fold(events(*GOT, last)).allocation
        assert record and record.hosts == HOSTS and record.at_fault is at_fault


def test_machines_of_which_a_host_fails_twice_are_replaced() -> None:
    def next_attempt(host: str) -> list[tuple[str, dict[str, Any]]]:
        began = {"attempt": 2, "handle": {}, "on_allocation": 1}
        return [
            ended(Ending.CRASHED, failed_hosts=["h"]),
            ("released", {"attempt": 1}),
            ("retrying", {"attempt": 1}),
            ("submitting", began),
            ("ended", {"attempt": 2, "ending": Ending.CRASHED, "failed_hosts": [host]}),
        ]

    for host, at_fault in (("h", True), ("another", False)):
        record = fold(events(*GOT, *next_attempt(host))).allocation
        assert record and record.at_fault is at_fault


def test_failures_are_counted_by_host_and_budget() -> None:
    state = fold(events(*GOT, ended(Ending.NO_CAPACITY, bootstrap=True, failed_hosts=["h"])))
    assert state.host_failures == {"h": 1} and state.retries == {Budget.BOOTSTRAP: 1}
    assert state.max_failures == 1 and state.short_attempts == 1


def test_places_that_refused_slowly_come_after_those_not_tried_yet() -> None:
    """Each refusal comes after half an hour, when all others have been left alone for long enough."""
    places, capacity, tried = ("z/r-1", "z/r-2", "y/r-3"), Capacity(0.0), list[str]()
    for number in range(1, 7):
        place = eligible(places, avoided(capacity, places, number * 2000.0))[0]
        tried.append(place)
        before = capacity.refusals.get(place, Refusals(0, 0.0))
        capacity = replace(capacity, refusals={**capacity.refusals, place: Refusals(before.count + 1, number * 2000.0)})
    assert tried == [*places, *places]
    zone = Capacity(0.0, {"z": Refusals(1, 0.0)})
    assert eligible(places, avoided(zone, places, 2000.0)) == ["y/r-3"], "a zone stands for all reservations in it"
    taken = Capacity(0.0, {"z/r-1": Refusals(1, 0.0, lost=1)})
    assert eligible(places, avoided(taken, places, 2000.0))[0] == "z/r-1", "machines that were taken had been given"


def test_an_event_about_another_allocation_changes_nothing() -> None:
    before = fold(events(*GOT))
    for name in ("ready", "lost", "deleting", "gone", "refused"):
        late = {"event": f"allocation {name}", "time": 99.0, "allocation": 2, "hosts": [], "scope": ""}
        assert fold([*events(*GOT), late]) == before
    second = {"event": "allocation requested", "time": 99.0, "allocation": 2, "request": REQUEST, "target": {}}
    assert fold([*events(*GOT), second]) == before, "no second allocation beside a live one"


def test_the_search_for_machines_begins_anew_with_each_submitted_attempt() -> None:
    turned_away = ("allocation refused", {"allocation": 1, "scope": "a-1", "ending": "NO_CAPACITY", "reason": "x"})
    searching = fold(events(GOT[0], turned_away)).capacity
    assert searching == Capacity(10.0, {"a-1": Refusals(1, 20.0)}) and fold(events(*GOT)).capacity == Capacity()
    taken = ("allocation lost", {"allocation": 1, "ending": "PREEMPTED", "reason": "x"})
    assert fold(events(GOT[0], GOT[1], taken)).capacity.refusals == {"a-1": Refusals(1, 30.0, lost=1)}
    for_good = ("allocation refused", {"allocation": 1, "scope": "", "ending": "BAD_INPUT", "reason": "x"})
    assert fold(events(GOT[0], for_good)).capacity.final is Ending.BAD_INPUT


def test_machines_whose_hosts_confirm_no_release_are_deleted_in_the_end() -> None:
    held = state(Phase.ENDED, allocation(P.READY), released=False, ending=Ending.FINISHED, called=NOW)
    silent = replace(held, calls=MOST_UNANSWERED)
    assert act(silent, ready(HOSTS), now=NOW + 299.0) is Act.DELETE
    assert act(silent, ready(HOSTS), now=NOW + 301.0) is Act.RELEASE, "the network may be back"
    assert act(silent, unknown("x"), now=NOW + 299.0) is Act.WAIT, "no network here is no fault of the hosts"
    assert act(replace(held, calls=MOST_UNANSWERED - 1), ready(HOSTS), now=NOW + 299.0) is Act.WAIT
    crashed = replace(silent, ending=Ending.CRASHED, retries={Budget.FAILURE: 1}, max_failures=1)
    assert act(crashed, ready(HOSTS), now=NOW + 299.0) is Act.DELETE, "another attempt could not use them"


def test_machines_whose_hosts_receive_no_stop_are_deleted_in_the_end() -> None:
    stopping = state(Phase.STOPPING, allocation(P.READY), ended_attempt=0, stop_wanted=True, called=NOW)
    silent = replace(stopping, calls=MOST_UNANSWERED)
    assert act(silent, ready(HOSTS), Process.RUNNING, now=NOW + 299.0) is Act.DELETE
    assert act(silent, ready(HOSTS), Process.RUNNING, now=NOW + 301.0) is Act.SIGNAL
    assert act(silent, unknown("x"), Process.RUNNING, now=NOW + 299.0) is Act.WAIT
    fewer = replace(stopping, calls=MOST_UNANSWERED - 1)
    assert act(fewer, ready(HOSTS), Process.RUNNING, now=NOW + 299.0) is Act.WAIT
