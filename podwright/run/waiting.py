"""Why a run waits, in one line, for those who watch it. Decides nothing."""

from __future__ import annotations

import math
import time

from podwright.run import cost
from podwright.run.allocations import AllocationRecord, back_off
from podwright.run.decide import Observed
from podwright.run.journal import RunState
from podwright.run.states import AllocationPhase, Phase
from podwright.targets.base import Process
from podwright.targets.machines import AllocationState

RELEASING, DELETING = "Releasing:", "Deleting:"
"""how reasons begin that hold after the end of an attempt"""
SHOWN_AFTER_S = 60.0
"""for which nothing must have been heard of an attempt before its price is shown"""


def reason(
    state: RunState,
    seen: Observed,
    polled: str,
    now: float,
    kill_at: float = 0.0,
    place_patience_s: float = 0.0,
    silence_s: float = math.inf,
    typed: str = "",
) -> str:
    """`Reason: what it means`; "" for an attempt at work, or one that has ended.

    `polled`: the target's own reason, or "". `kill_at`: Unix seconds, when an attempt that has acknowledged a stop is killed; 0 before.
    `place_patience_s`: of the target's traits, where `seen` says for how long machines have been missing; else 0.
    `silence_s`: of the target's traits. `typed`: the run, as it is typed.
    """
    if seen.allocation.state is AllocationState.FILLING and state.phase not in (Phase.STOPPING, Phase.ENDED):
        until = now - seen.unchanged_s + place_patience_s if place_patience_s else 0.0
        return f"{polled or seen.allocation.reason}{_given_up_at(until)}"
    if state.phase not in (Phase.READY, Phase.ENDED) and seen.process is not Process.RUNNING:
        submitted = state.attempt > state.ended_attempt and state.phase is not Phase.RUNNING
        starts = submitted and seen.process is Process.ABSENT
        return polled or ("Starting: no process of the attempt is running yet" if starts else "")
    if state.phase is Phase.STOPPING and state.calls and not state.signalled:
        return _unheard(state, seen, f"Stopping: the stop has not arrived ({state.reason}); it is sent again", now)
    if state.phase is Phase.ENDED and not state.released and state.calls:
        return f"{RELEASING} {state.reason}; it is tried again"
    if seen.process is Process.RUNNING:
        away = _repairing(seen) if seen.silent_s else ""
        return _unheard(state, seen, away or polled, now, silence_s, typed) or _saving(state, kill_at)
    if state.phase in (Phase.READY, Phase.ENDED):
        text = _of_machines(state, seen, now)
        if text:
            return text
    if state.phase is Phase.READY and state.short_attempts > 1:
        return f"Retrying: {state.short_attempts} attempts in a row were short; the next one follows after a pause"
    return polled


def _unheard(
    state: RunState, seen: Observed, text: str, now: float, silence_s: float = math.inf, typed: str = ""
) -> str:
    """`text`, and of an attempt of which nothing is heard since when, what its machines cost meanwhile, and what ends the wait."""
    if not text or seen.silent_s < SHOWN_AFTER_S:
        return text
    began, cloud, record = now - seen.silent_s, seen.allocation, state.allocation
    parts = [f"{text} (since {_minute(began)}{_at_cost(record)})"]
    if cloud.state is AllocationState.WAITING:  # which may be a state that nobody knows
        parts.append(f"the cloud says of the machines: {cloud.reason}")
    if seen.unheard_s and silence_s < math.inf:
        parts.append(f"at {_minute(began + silence_s)} its machines count as lost, and others are requested")
    # A stop deletes machines; hosts that no run has created hear of it when they answer.
    if typed and record and record.may_exist:
        parts.append(f"podwright stop {typed} ends it now")
    return "; ".join(parts)


def _at_cost(record: AllocationRecord | None) -> str:
    rate = cost.rate(record.request) if record and record.may_exist else ""
    return f", {rate}" if rate else ""


def _minute(time_s: float) -> str:
    return time.strftime("%H:%M", time.localtime(time_s))


def _given_up_at(until: float) -> str:
    return f"; if they have not come at {_clock(until)}, the request is given up" if until else ""


def _saving(state: RunState, kill_at: float) -> str:
    if state.phase is not Phase.STOPPING or not state.signalled or not kill_at:
        return ""
    until = _clock(kill_at)
    ends = (
        f"if it has not ended at {until}, this command kills it; if it was left by then, the next podwright stop does"
    )
    # That it runs does not say that a trainer is at work in it: SLURM may be at the lines of setup, or end the job already.
    return f"Stopping: the attempt was told to stop, and saves a checkpoint first if it trains; {ends}"


def _of_machines(state: RunState, seen: Observed, now: float) -> str:
    record, cloud = state.allocation, seen.allocation
    if record is None or record.phase is AllocationPhase.GONE:
        return _capacity(state, now) if state.phase is Phase.READY else ""
    name = record.request.name
    if record.undeleted and cloud.state is not AllocationState.DELETING:
        why = f"{record.undeleted}{_at_cost(record)}"
        return f"{DELETING} {name} is not deleted, and may cost ({why}); it is tried again"
    if cloud.state is AllocationState.UNKNOWN:
        return f"Unreachable: the state of {name} is not known ({cloud.reason})"
    if record.phase is AllocationPhase.REQUESTED:
        there = (
            f"is ready and not used yet{_at_cost(record)}"
            if cloud.state is AllocationState.READY
            else "does not exist yet"
        )
        return cloud.reason or f"Requested: {name} in {record.request.zone} {there}"
    if record.phase is AllocationPhase.READY:
        return _repairing(seen)
    if record.request.borrowed:  # machines that are not deleted
        return cloud.reason or record.reason
    why = f"{cloud.reason or record.reason}{_at_cost(record)}".removeprefix(", ")
    return f"{DELETING} {name} is not gone yet{f' ({why})' if why else ''}"


def _clock(time_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(time_s))


def _repairing(seen: Observed) -> str:
    cloud = seen.allocation
    if cloud.state is not AllocationState.REPAIRING:
        return ""
    return f"{cloud.reason}; if they stay away for long, others are requested"


def _capacity(state: RunState, now: float) -> str:
    refusals = state.capacity.refusals
    if not refusals:
        return ""
    passing = [refusal for refusal in refusals.values() if not refusal.final]
    next_s = min((each.last + back_off(each.count, 30.0, 600.0) for each in passing), default=0.0)
    when = f"at {_clock(next_s)}" if next_s > now else "now"
    return f"Capacity: none in {', '.join(sorted(refusals))}; the next request follows {when}"
