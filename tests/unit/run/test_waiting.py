from __future__ import annotations

from podwright.run.decide import Observed
from podwright.run.journal import RunState
from podwright.run.states import Phase
from podwright.run.waiting import reason
from podwright.targets.base import Process
from podwright.targets.machines import repairing


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
