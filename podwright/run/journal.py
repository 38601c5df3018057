"""The journal of a run and its fold: every decision is one line, and the state of the run is what the lines add up to."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from podwright.errors import UserError
from podwright.run.states import ENDINGS, TRANSITIONS, Budget, Phase
from podwright.rundir import Ending, Record, RunDir, append_jsonl, read_jsonl


@dataclass(frozen=True)
class RunState:
    recipe: str = ""
    target: str = ""
    cwd: str = ""
    created: float = 0.0
    phase: Phase = Phase.READY
    since: float = 0.0
    """when the phase began"""
    attempt: int = 0
    """the newest attempt; 0 before the first"""
    handle: dict[str, Any] | None = None
    signalled: bool = False
    """whether the newest attempt was told to stop"""
    stop_wanted: bool = False
    ended_attempt: int = 0
    """the newest attempt that is known to have ended"""
    ending: Ending | None = None
    detail: str = ""
    fix: str = ""
    step: int | None = None
    released: bool = False
    reported: bool = False
    retries: dict[Budget, int] = field(default_factory=dict)
    """endings of each kind since a person last started or resumed the run"""


def append(run: RunDir, event: str, **fields: Any) -> None:
    """Write one decision down, to the disk: what it allows may cost money."""
    append_jsonl(run.journal, {"event": event, "time": time.time(), **fields})
    with run.journal.open("rb") as f:
        os.fsync(f.fileno())


def read(run: RunDir) -> RunState:
    events = list(read_jsonl(run.journal))
    if not events:
        raise UserError(
            f"{run.journal} tells nothing", "this run cannot be taken up; start it again under another name"
        )
    return fold(events)


def fold(events: Iterable[Record]) -> RunState:
    state = RunState()
    for event in events:
        state = _after(state, event)
    return state


def _after(state: RunState, event: Record) -> RunState:
    name = event.get("event", "")
    if name == "created":
        return replace(
            state,
            recipe=event["recipe"],
            target=event["target"],
            cwd=event["cwd"],
            created=event["time"],
            since=event["time"],
        )
    if event.get("attempt", state.attempt) != state.attempt + (name == "submitting"):
        return state  # about an attempt that another launcher has gone past
    phase = TRANSITIONS.get((state.phase, name))
    if phase is None:
        return state
    if phase is not state.phase:
        state = replace(state, phase=phase, since=event["time"])
    return _FOLDS[name](state, event)


def _submitting(state: RunState, event: Record) -> RunState:
    return replace(state, attempt=event["attempt"], handle=event["handle"], signalled=False, ending=None)


def _ended(state: RunState, event: Record) -> RunState:
    ending = Ending(event["ending"])
    kind = ENDINGS[ending].budget
    return replace(
        state,
        ending=ending,
        detail=event.get("detail", ""),
        fix=event.get("fix", ""),
        step=event.get("step"),
        ended_attempt=state.attempt,
        released=False,
        reported=False,
        retries={**state.retries, kind: state.retries.get(kind, 0) + 1},
    )


_FOLDS = {
    "submitting": _submitting,
    "submitted": lambda s, e: replace(s, handle=e["handle"]),
    "stopping": lambda s, e: replace(s, stop_wanted=True),
    "signalled": lambda s, e: replace(s, signalled=True),
    "ended": _ended,
    "released": lambda s, e: replace(s, released=True),
    "reported": lambda s, e: replace(s, reported=True),
    "retrying": lambda s, e: s,
    "resumed": lambda s, e: replace(s, retries={}, ending=None, stop_wanted=False),
}
