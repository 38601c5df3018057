"""What to do next about a run: a pure function of its journal, of its process, and of the time. Doing it is drive.py."""

from __future__ import annotations

import enum

from podwright.run.journal import RunState
from podwright.run.states import BUDGETS, ENDINGS, Phase
from podwright.targets.base import Process

START_GRACE_S = 5.0  # from the decision to submit until the process must have left a sign
STOP_GRACE_S = 180.0  # from asking to stop until the process is killed: a step and a checkpoint fit in it


class Act(enum.Enum):
    WAIT = "wait"
    SUBMIT = "submit"
    ADOPT = "adopt"  # the launcher died between submitting and writing that it had
    SIGNAL = "signal"
    KILL = "kill"
    END = "end"  # write down how the attempt ended
    RELEASE = "release"
    RETRY = "retry"
    REPORT = "report"
    DONE = "done"


def next_action(state: RunState, process: Process, now: float) -> Act:
    if process is Process.RUNNING:
        return _alive(state, now)
    if state.phase is Phase.READY:
        return Act.SUBMIT
    if state.phase is Phase.ENDED:
        return _after_the_end(state)
    if _may_still_appear(state, process, now):
        return Act.WAIT
    return Act.END


def _alive(state: RunState, now: float) -> Act:
    if state.phase is Phase.SUBMITTING:
        return Act.ADOPT
    if state.phase is not Phase.STOPPING:
        return Act.WAIT
    if not state.signalled:
        return Act.SIGNAL
    return Act.KILL if now - state.since > STOP_GRACE_S else Act.WAIT


def _may_still_appear(state: RunState, process: Process, now: float) -> bool:
    submitted = state.attempt > state.ended_attempt
    return (
        process is Process.ABSENT
        and submitted
        and state.phase is not Phase.RUNNING
        and now - state.since < START_GRACE_S
    )


def _after_the_end(state: RunState) -> Act:
    assert state.ending is not None
    if not state.released:
        return Act.RELEASE
    kind = ENDINGS[state.ending].budget
    if not state.stop_wanted and 0 < state.retries.get(kind, 0) <= BUDGETS[kind]:
        return Act.RETRY
    return Act.DONE if state.reported else Act.REPORT
