"""The journal of a run and its fold: every decision is one line, and the state of the run is what the lines add up to."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from podwright.errors import UserError
from podwright.run import allocations
from podwright.run.allocations import AllocationRecord, Capacity
from podwright.run.states import BUDGETS, ENDINGS, TRANSITIONS, AllocationPhase, Budget, Phase
from podwright.rundir import Ending, Record, RunDir, append_jsonl
from podwright.targets.clock import uptime

FAILURES_OF_HOST = 2  # after which no further attempt uses it
JUMP_S = 1.0  # by which two readings of one clock that was not set never differ
SHORT_ATTEMPT_S = 600.0  # attempts that end sooner, one after another, are started again after longer and longer


@dataclass(frozen=True)
class RunState:
    """What the journal adds up to. Times are Unix seconds by the clock as it is set when the journal is read."""

    recipe: str = ""
    target: str = ""
    slice: str = ""
    """the name of the devices that it runs on; "" for those of the target"""
    cwd: str = ""
    created: float = 0.0
    phase: Phase = Phase.READY
    since: float = 0.0
    """when the phase began"""
    attempt: int = 0
    """the newest attempt; 0 before the first"""
    handle: dict[str, Any] | None = None
    submitted: float = 0.0
    """when the newest attempt was"""
    attempt_allocation: int = 0
    """the number of the allocation that the newest attempt is on; 0 where machines need no request"""
    signalled: bool = False
    """whether the newest attempt has acknowledged a stop"""
    signalled_clock: tuple[str, float] = ("", 0.0)
    """`uptime` of the launcher's machine when it did"""
    calls: int = 0
    """unanswered ones to stop, to kill or to release the newest attempt, in a row"""
    called: float = 0.0
    """when the last of them was"""
    reason: str = ""
    """why the last of them was not answered"""
    stop_wanted: bool = False
    ended_attempt: int = 0
    """the newest attempt that is known to have ended"""
    ending: Ending | None = None
    detail: str = ""
    fix: str = ""
    step: int | None = None
    unfilled: bool = False
    """whether the newest attempt ended since the machines that it asked for did not come"""
    bootstrap: bool = False
    """whether the newest attempt ended before a process of it could start on its hosts"""
    released: bool = False
    reported: bool = False
    report_final: bool = False
    """whether the report was written after the last machines were gone"""
    retries: dict[Budget, int] = field(default_factory=dict)
    """endings of each kind since a person last started or resumed the run"""
    max_failures: int = BUDGETS[Budget.FAILURE]
    """failures that are retried automatically"""
    short_attempts: int = 0
    """in a row, up to the newest"""
    host_failures: dict[str, int] = field(default_factory=dict)
    """by host, attempts that ended by it"""
    allocation: AllocationRecord | None = None
    """the newest"""
    capacity: Capacity = field(default_factory=Capacity)


def now() -> float:
    return time.time()


def since(clock: tuple[str, float]) -> float:
    """Seconds since an `uptime`; 0 for that of another machine or boot."""
    boot, seconds = uptime()
    return max(0.0, seconds - clock[1]) if boot and boot == clock[0] else 0.0


def elapsed(clock: tuple[str, float], time_s: float) -> float:
    """Seconds since a moment by both clocks; of another machine or boot, since Unix time `time_s`."""
    return since(clock) or max(0.0, now() - time_s)


def append(run: RunDir, event: str, **fields: Any) -> None:
    """Write one decision down, to the disk: what it allows may cost money."""
    boot, seconds = uptime()
    append_jsonl(run.journal, {"event": event, "time": now(), "boot": boot, "uptime": seconds, **fields})
    with run.journal.open("rb") as f:
        os.fsync(f.fileno())


def read(run: RunDir) -> RunState:
    """UserError for a journal that is damaged or of another version: by a part of it nothing may be decided."""
    text = run.journal.read_bytes() if run.journal.exists() else b""
    state = parse(text, str(run.journal))
    if state.handle and "run_dir" in state.handle:  # the directory may have been moved, or fetched from another machine
        state = replace(state, handle=state.handle | {"run_dir": str(run.path.resolve())})
    return state


def dated(event: Record, clock: tuple[str, float] | None = None) -> Record:
    """An event with the times of a launcher's clock by that clock as it is set now. Of another boot or machine they are as written, and of the
    first line, after which machines are named; so are times that the cloud has told, and those of a clock that has not jumped, by which
    figures stay the same from look to look. `clock`: `uptime` now."""
    boot, seconds = clock or uptime()
    if not boot or event.get("boot") != boot or event.get("event") == "created":
        return event
    moved = now() - seconds + event["uptime"] - event["time"]
    if abs(moved) < JUMP_S:
        return event
    keys = ("time", "since") if event["event"] in ("allocation lost", "allocation gone") else ("time",)
    return event | {key: event[key] + moved for key in keys if event.get(key) is not None}


def parse(text: bytes, source: str) -> RunState:
    """Of the lines of a journal."""
    state = RunState()
    count = 0
    clock = uptime()
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if not line.endswith(b"\n"):
            break  # it is being written, or its launcher was killed
        try:
            event = json.loads(line)
            if not isinstance(event.get("attempt", 0), int):
                raise TypeError("an attempt is a number")
            event["time"] = float(event["time"])
            state, count = fold_into(state, dated(event, clock)), count + 1
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
            what = f"{source} line {number} is damaged or of another version: {line.decode(errors='replace')[:60]!r}"
            raise UserError(
                what, "restore the file from a copy, or start a run under another name", "damaged-file"
            ) from e
    if not count:
        fix = "restore the file from a copy, or start the run again under another name"
        raise UserError(f"{source} has no event: the state of the run is lost", fix, "damaged-file")
    return state


def fold(events: Iterable[Record]) -> RunState:
    state = RunState()
    for event in events:
        state = fold_into(state, event)
    return state


def fold_into(state: RunState, event: Record) -> RunState:
    name = event.get("event", "")
    if name == "created":
        return replace(
            state,
            recipe=event["recipe"],
            target=event["target"],
            slice=event.get("slice", ""),
            cwd=event["cwd"],
            created=event["time"],
            since=event["time"],
            max_failures=event.get("retries", BUDGETS[Budget.FAILURE]),
        )
    if "allocation" in event and name.startswith("allocation "):
        allocation = allocations.after(state.allocation, event)
        return replace(state, allocation=allocation, capacity=allocations.sought(state.capacity, allocation, event))
    if event.get("attempt", state.attempt) != state.attempt + (name == "submitting"):
        return state  # about an attempt that another launcher has gone past
    phase = TRANSITIONS.get((state.phase, name))
    if phase is None or (name == "retrying" and state.stop_wanted):
        return state
    if phase is not state.phase:
        state = replace(state, phase=phase, since=event["time"], calls=0, called=0.0, reason="")
    return _FOLDS[name](state, event)


def _submitting(state: RunState, event: Record) -> RunState:
    return replace(
        state,
        attempt=event["attempt"],
        handle=event["handle"],
        submitted=event["time"],
        attempt_allocation=event.get("on_allocation", 0),
        signalled=False,
        ending=None,
    )


def _ended(state: RunState, event: Record) -> RunState:
    ending = Ending(event["ending"])
    allocation = state.allocation
    used = allocation is not None and allocation.number == state.attempt_allocation
    started = state.attempt > state.ended_attempt
    unfilled = bool(started and used and allocation and allocation.phase is AllocationPhase.REFUSED)
    kind = budget_of(ending, event.get("bootstrap", False), unfilled)
    failures = dict(state.host_failures)
    for host in event.get("failed_hosts", ()):
        failures[host] = failures.get(host, 0) + 1
    failing = any(failures[host] >= FAILURES_OF_HOST for host in event.get("failed_hosts", ()))
    short = started and not unfilled and 0 <= event["time"] - state.submitted < SHORT_ATTEMPT_S
    if allocation and used and started and (failing or kind in (Budget.PREEMPTION, Budget.BOOTSTRAP)):
        allocation = replace(allocation, at_fault=True)
    return replace(
        state,
        allocation=allocation,
        host_failures=failures,
        short_attempts=state.short_attempts + 1 if short else 0,
        ending=ending,
        unfilled=unfilled,
        bootstrap=event.get("bootstrap", False),
        detail=event.get("detail", ""),
        fix=event.get("fix", ""),
        step=event.get("step"),
        ended_attempt=state.attempt,
        released=False,
        reported=False,
        report_final=False,
        retries={**state.retries, kind: state.retries.get(kind, 0) + 1},
    )


def budget_of(ending: Ending, bootstrap: bool, unfilled: bool = False) -> Budget:
    """Which retries an attempt uses up that ended so; `bootstrap`: before a process of it could start on its hosts; `unfilled`: since
    machines did not come."""
    if unfilled:
        return Budget.CAPACITY
    kind = ENDINGS[ending].budget
    by_hosts = kind is Budget.FAILURE or ending is Ending.NO_CAPACITY
    return Budget.BOOTSTRAP if bootstrap and by_hosts else kind


def _awaits(state: RunState) -> bool:
    """Whether machines of the newest attempt are still searched for."""
    return state.allocation is not None and state.allocation.awaited


def _nothing_allocated(state: RunState) -> bool:
    return state.allocation is None or state.allocation.phase is AllocationPhase.GONE


def _unanswered(state: RunState, event: Record) -> RunState:
    return replace(state, calls=state.calls + 1, called=event["time"], reason=event.get("reason", ""))


_FOLDS = {
    "submitting": _submitting,
    "submitted": lambda s, e: replace(s, handle=e["handle"], capacity=s.capacity if _awaits(s) else Capacity()),
    "moved": lambda s, e: replace(s, cwd=e["cwd"]),
    "refreshed": lambda s, e: replace(s, handle=e["handle"]),
    "stopping": lambda s, e: replace(s, stop_wanted=True, calls=0, called=0.0, reason=""),
    "stop unanswered": _unanswered,
    "signalled": lambda s, e: replace(
        s, signalled=True, signalled_clock=(e.get("boot", ""), e.get("uptime", 0.0)), calls=0, reason=""
    ),
    "killing": _unanswered,
    "release unanswered": _unanswered,
    "abandoned": _ended,
    "ended": _ended,
    "released": lambda s, e: replace(s, released=True, calls=0, reason=""),
    "reported": lambda s, e: replace(s, reported=True, report_final=_nothing_allocated(s)),
    "retrying": lambda s, e: s,
    "resumed": lambda s, e: replace(
        s, retries={}, ending=None, stop_wanted=False, short_attempts=0, capacity=Capacity()
    ),
}
