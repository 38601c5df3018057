from __future__ import annotations

from podwright.run.decide import Observed
from podwright.run.journal import RunState
from podwright.run.states import Phase
from podwright.run.waiting import reason
from podwright.targets.base import Process


def test_a_stop_says_which_command_kills_the_trainer() -> None:
    state = RunState(phase=Phase.STOPPING, signalled=True)
    text = reason(state, Observed(Process.RUNNING), "", 0.0, kill_at=1e9)
    assert "this command kills it; if it was left by then, the next podwright stop does" in text
    assert reason(state, Observed(Process.RUNNING), "", 0.0) == "", "not promised before a grace has begun"
