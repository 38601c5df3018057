"""Why a run waits, in one line, for those who watch it. Decides nothing."""

from __future__ import annotations

import time

from podwright.run.allocations import back_off
from podwright.run.decide import Observed
from podwright.run.journal import RunState
from podwright.run.states import AllocationPhase, Phase
from podwright.targets.base import Process
from podwright.targets.machines import AllocationState

RELEASING, DELETING = "Releasing:", "Deleting:"
"""how reasons begin that hold after the end of an attempt"""


def reason(
    state: RunState, seen: Observed, polled: str, now: float, kill_at: float = 0.0, place_patience_s: float = 0.0
) -> str:
    """`Reason: what it means`; "" for an attempt at work.

    `polled`: the target's own reason, or "". `kill_at`: Unix seconds, when an attempt that has acknowledged a stop is killed; 0 before.
    `place_patience_s`: of the target's traits, where `seen` says for how long machines have been missing; else 0.
    """
    if seen.allocation.state is AllocationState.FILLING and state.phase not in (Phase.STOPPING, Phase.ENDED):
        until = now - seen.unchanged_s + place_patience_s if place_patience_s else 0.0
        return f"{polled or seen.allocation.reason}{_given_up_at(until)}"
    if state.phase is Phase.STOPPING and state.calls and not state.signalled:
        return f"Stopping: the stop has not arrived ({state.reason}); it is sent again"
    if state.phase is Phase.ENDED and not state.released and state.calls:
        return f"{RELEASING} {state.reason}; it is tried again"
    if seen.process is Process.RUNNING:
        return (seen.silent_s and _repairing(seen)) or polled or _saving(state, kill_at)
    if state.phase in (Phase.READY, Phase.ENDED) and (text := _of_machines(state, seen, now)):
        return text
    if state.phase is Phase.READY and state.short_attempts > 1:
        return f"Retrying: {state.short_attempts} attempts in a row were short; the next one follows after a pause"
    if state.phase in (Phase.SUBMITTING, Phase.STOPPING, Phase.RUNNING):
        return polled or "Starting: no process of the attempt is running yet"
    return polled


def _given_up_at(until: float) -> str:
    return f"; if they have not come at {_clock(until)}, the request is given up" if until else ""


def _saving(state: RunState, kill_at: float) -> str:
    if state.phase is not Phase.STOPPING or not state.signalled or not kill_at:
        return ""
    until = _clock(kill_at)
    ends = (
        f"if it has not ended at {until}, this command kills it; if it was left by then, the next podwright stop does"
    )
    return f"Stopping: the trainer finishes its step and saves a checkpoint; {ends}"


def _of_machines(state: RunState, seen: Observed, now: float) -> str:
    record, cloud = state.allocation, seen.allocation
    if record is None or record.phase is AllocationPhase.GONE:
        return _capacity(state, now) if state.phase is Phase.READY else ""
    name = record.request.name
    if record.undeleted and cloud.state is not AllocationState.DELETING:
        return f"{DELETING} {name} is not deleted, and may cost ({record.undeleted}); it is tried again"
    if cloud.state is AllocationState.UNKNOWN:
        return f"Unreachable: the state of {name} is not known ({cloud.reason})"
    if record.phase is AllocationPhase.REQUESTED:
        return cloud.reason or f"Requested: {name} in {record.request.zone} does not exist yet"
    if record.phase is AllocationPhase.READY:
        return _repairing(seen)
    why = cloud.reason or record.reason
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
    next_s = min((r.last + back_off(r.count, 30.0, 600.0) for r in refusals.values() if not r.final), default=0.0)
    when = f"at {_clock(next_s)}" if next_s > now else "now"
    return f"Capacity: none in {', '.join(sorted(refusals))}; the next request follows {when}"
