"""What to do next about a run: a pure function of its journal, of its process and its machines, and of the time. drive.py does it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from podwright.run.allocations import AllocationRecord, avoided, due, eligible, hopeless
from podwright.run.journal import RunState, budget_of
from podwright.run.states import BUDGETS, AllocationPhase, Budget, Phase
from podwright.targets.base import Process, Traits
from podwright.targets.machines import GONE, Allocation, AllocationState

_GIVEN_UP = (AllocationPhase.REFUSED, AllocationPhase.DELETING, AllocationPhase.GONE)
MOST_UNANSWERED = 10  # calls in a row to hosts, about a quarter of an hour; after that their machines are deleted
LEAST_REQUESTS = 4  # in a place, before it is left for giving no answer that is known
SILENT_STOP_S = 60.0
"""for which hosts must have been silent until the machines of a run that is to stop, which they do not hear of, are deleted"""
REFUSED_DELETION_S = 20.0
"""at most between two calls to delete machines, while these are refused"""


class Act(enum.Enum):
    WAIT = "wait"
    REQUEST = "request"  # machines, under a new name
    CREATE = "create"  # request the same again: nothing has come of it
    ALLOCATED = "allocated"  # write down that the machines are ready
    REFUSED = "refused"
    LOST = "lost"
    LACKING = "lacking"  # write down since when machines are missing, or that all are there
    CHARGED = "charged"  # write down of how many chips the machines cost
    DELETE = "delete"
    GONE = "gone"  # write down that nothing of the machines is left
    SUBMIT = "submit"
    ADOPT = "adopt"  # the launcher died between submitting and writing that it had
    REFRESH = "refresh"  # polling has changed the handle
    SIGNAL = "signal"
    KILL = "kill"
    END = "end"  # write down how the attempt ended
    RELEASE = "release"
    RETRY = "retry"
    REPORT = "report"
    DONE = "done"


@dataclass(frozen=True)
class Observed:
    """What a launcher sees of a run besides its journal."""

    process: Process
    allocation: Allocation = GONE
    """what the cloud says of the newest allocation"""
    handle_changed: bool = False
    stopping_s: float = 0.0
    """for how long this launcher has seen a stop acknowledged, by a clock that does not jump"""
    unchanged_s: float = 0.0
    """for how long it has seen the allocation in this state without doing anything about it, by the same clock; of one whose machines are
    missing, for how long any launcher has"""
    silent_s: float = 0.0
    """for how long no host of a running attempt has answered any launcher"""
    unheard_s: float = 0.0
    """how much of that without a pause of the cloud's own answers, and without anything in the way that a person has to correct"""


def next_action(state: RunState, seen: Observed, traits: Traits, now: float) -> Act:
    if news := _allocation_news(state, seen, traits):
        return news
    if seen.process is Process.RUNNING and not outlived(state, traits, seen.unchanged_s):
        return _alive(state, seen, traits, now)
    if state.phase is Phase.READY:
        return _start(state, seen, traits, now)
    if state.phase is Phase.ENDED:
        return _after_the_end(state, seen, now)
    if _may_still_appear(state, seen.process, traits, now):
        return Act.WAIT
    return Act.END


def _allocation_news(state: RunState, seen: Observed, traits: Traits) -> Act | None:
    """What the cloud says of the allocation and the journal does not say yet."""
    record, cloud = state.allocation, seen.allocation.state
    if record is None or record.phase is AllocationPhase.GONE:
        return None
    if seen.allocation.charged not in (None, record.charged):
        return Act.CHARGED
    if record.lacking is not _missing(record, cloud) and record.phase in (
        AllocationPhase.REQUESTED,
        AllocationPhase.READY,
    ):
        return Act.LACKING
    if cloud is AllocationState.FILLING and seen.unchanged_s >= traits.place_patience_s:
        return Act.REFUSED if record.phase in (AllocationPhase.REQUESTED, AllocationPhase.READY) else None
    if record.phase is AllocationPhase.REQUESTED:
        news = {
            AllocationState.READY: Act.ALLOCATED,
            AllocationState.REFUSED: Act.REFUSED,
            AllocationState.LOST: Act.LOST,
            AllocationState.DELETING: Act.LOST,
        }
        return news.get(cloud)
    if record.phase is AllocationPhase.READY:
        if cloud in (AllocationState.LOST, AllocationState.REFUSED, AllocationState.DELETING):
            return Act.LOST
        if cloud is AllocationState.REPAIRING and _stays_away(state, seen, traits):
            return Act.LOST
        if cloud is not AllocationState.UNKNOWN and seen.unheard_s >= traits.silence_s:
            return Act.LOST
        return Act.LOST if cloud is AllocationState.GONE and seen.unchanged_s >= traits.lag_s else None
    if record.phase is AllocationPhase.DELETING:
        gone = cloud is AllocationState.GONE and seen.unchanged_s >= traits.lag_s
        return Act.GONE if gone or record.request.borrowed else None
    return None


def _missing(record: AllocationRecord, cloud: AllocationState) -> AllocationState | None:
    """What `record.lacking` should be: how long machines are waited for must not depend on how long a launcher lives."""
    if cloud in (AllocationState.FILLING, AllocationState.REPAIRING):
        return cloud
    return record.lacking if cloud is AllocationState.UNKNOWN else None


def _stays_away(state: RunState, seen: Observed, traits: Traits) -> bool:
    """Whether machines are under maintenance for longer than a run waits for them, and nobody is at work on them."""
    if seen.unchanged_s < traits.repair_s:
        return False
    if seen.process is Process.RUNNING:
        return seen.silent_s >= traits.repair_s
    return state.phase in (Phase.READY, Phase.ENDED)


def outlived(state: RunState, traits: Traits, unchanged_s: float) -> bool:
    """Whether the machines of the newest attempt are no longer its own, whatever its process seems to do."""
    record = state.allocation
    if record is None or not state.attempt_allocation:
        return False
    if record.number != state.attempt_allocation or record.phase in _GIVEN_UP:
        return True
    return record.phase is AllocationPhase.LOST and unchanged_s > traits.lost_grace_s


def _alive(state: RunState, seen: Observed, traits: Traits, now: float) -> Act:
    if state.phase is Phase.SUBMITTING:
        return Act.ADOPT
    if seen.handle_changed and state.phase in (Phase.RUNNING, Phase.STOPPING):
        return Act.REFRESH
    if state.phase is not Phase.STOPPING:
        return Act.WAIT
    if not due(state.calls, state.called, now):
        return _delete_silent(state, seen)
    if not state.signalled:
        return Act.SIGNAL
    return Act.KILL if seen.stopping_s > traits.grace_s else Act.WAIT


def _delete_silent(state: RunState, seen: Observed) -> Act:
    """Delete machines of which no host, or whose cluster, has answered for long although the cloud tells of them. Comes only after
    a call of just now: this machine may have been without a network all the while. A person who stops the run waits less long."""
    there = seen.allocation.exists or seen.allocation.state is AllocationState.READY
    return Act.DELETE if (there and state.calls >= MOST_UNANSWERED) or _stops_unheard(state, seen) else Act.WAIT


def _stops_unheard(state: RunState, seen: Observed) -> bool:
    """Whether a stop cannot reach hosts, by two calls of it, that have been silent for some time while the cloud tells of their machines."""
    away = seen.allocation.state in (AllocationState.UNKNOWN, AllocationState.GONE, AllocationState.DELETING)
    exists = seen.allocation.exists or not away
    return exists and state.stop_wanted and state.calls > 1 and seen.unheard_s >= SILENT_STOP_S


def _start(state: RunState, seen: Observed, traits: Traits, now: float) -> Act:
    if not due(state.short_attempts - 1, state.since, now, most_s=600.0):
        return Act.WAIT
    record = state.allocation
    if not traits.zones:
        return Act.SUBMIT
    if record is None or record.phase is AllocationPhase.GONE:
        return _request(state, traits, now)
    if record.phase is AllocationPhase.READY and not record.at_fault:
        return Act.WAIT if seen.allocation.state is AllocationState.REPAIRING else Act.SUBMIT
    if record.phase is AllocationPhase.REQUESTED:
        if _out_of_patience(state, traits, now):
            return Act.END
        missing = seen.allocation.state in (AllocationState.GONE, AllocationState.PARTIAL)
        if missing and len(traits.zones) > 1 and _without_answer(record, traits, now):
            return Act.REFUSED  # another place may take it
        return Act.CREATE if missing and due(record.calls, record.called, now, first_s=traits.lag_s) else Act.WAIT
    return _delete(state, seen, now)


def _without_answer(record: AllocationRecord, traits: Traits, now: float) -> bool:
    """Whether requests have come to nothing for long, by no answer that is known. A run that nobody followed has requested less often."""
    return record.calls >= LEAST_REQUESTS and now - record.since > traits.place_patience_s


def _request(state: RunState, traits: Traits, now: float) -> Act:
    if state.capacity.final or hopeless(state.capacity, traits.zones) or _out_of_patience(state, traits, now):
        return Act.END
    return Act.REQUEST if eligible(traits.zones, avoided(state.capacity, traits.zones, now)) else Act.WAIT


def _out_of_patience(state: RunState, traits: Traits, now: float) -> bool:
    since = state.capacity.since
    return since is not None and now - since > traits.patience_s


def _delete(state: RunState, seen: Observed, now: float) -> Act:
    record = state.allocation
    assert record
    if record.phase is not AllocationPhase.DELETING:
        return Act.DELETE
    if seen.allocation.state in (AllocationState.GONE, AllocationState.DELETING):
        return Act.WAIT
    most_s = REFUSED_DELETION_S if record.undeleted else 300.0  # machines cost until somebody has logged in
    return Act.DELETE if due(record.calls, record.called, now, most_s=most_s) else Act.WAIT


def _may_still_appear(state: RunState, process: Process, traits: Traits, now: float) -> bool:
    submitted = state.attempt > state.ended_attempt
    return (
        process is Process.ABSENT
        and submitted
        and state.phase is not Phase.RUNNING
        and 0 <= now - state.submitted < traits.start_grace_s
    )


def _after_the_end(state: RunState, seen: Observed, now: float) -> Act:
    if not state.released and not machines_away(state):
        return Act.RELEASE if due(state.calls, state.called, now) else _delete_silent(state, seen)
    if retries(state):
        return Act.RETRY
    record = state.allocation
    live = None if record is None or record.phase is AllocationPhase.GONE else record
    if live and live.phase is not AllocationPhase.DELETING:
        return Act.DELETE
    if not state.reported:
        return Act.REPORT
    if live:
        return _delete(state, seen, now)
    return Act.DONE if state.report_final else Act.REPORT  # with what the machines have cost in the end


def settled(state: RunState) -> bool:
    """Whether nothing is left to find out about the attempts so far."""
    return state.phase is Phase.READY or (state.phase is Phase.ENDED and (state.released or machines_away(state)))


def past(state: RunState) -> bool:
    """Whether the newest attempt has ended and holds nothing any more: its target need not be asked."""
    return state.attempt == state.ended_attempt and (state.released or machines_away(state))


def machines_away(state: RunState) -> bool:
    """Whether there is nothing left to release the newest attempt from."""
    record = state.allocation
    if record is None or not state.attempt_allocation:
        return False
    kept = (AllocationPhase.REQUESTED, AllocationPhase.READY)
    return record.number != state.attempt_allocation or record.phase not in kept


def retries(state: RunState) -> bool:
    """Whether the run goes on by itself after the newest ending."""
    assert state.ending is not None
    kind = budget_of(state.ending, state.bootstrap, state.unfilled)
    most = state.max_failures if kind is Budget.FAILURE else BUDGETS[kind]
    return not state.stop_wanted and 0 < state.retries.get(kind, 0) <= most
