"""A person at a run: the driver, the view of it, and what Ctrl-C means, put together for each verb."""

from __future__ import annotations

from typing import TextIO

from podwright.run import drive
from podwright.run.interrupts import Interrupts
from podwright.run.journal import RunState
from podwright.rundir import Ending, RunDir
from podwright.watch.live import View, view

_STOP_ON_INTERRUPT = ("follow", "resume")


def attend(run: RunDir, verb: str, out: TextIO) -> bool:
    """Carry `verb` out; whether the run now stands as that verb means it to."""
    looking = view(run, out)
    try:
        state = _carry_out(run, verb, looking)
    finally:
        looking.close()
    if verb in _STOP_ON_INTERRUPT:
        return state.ending is Ending.FINISHED
    return True


def _carry_out(run: RunDir, verb: str, looking: View) -> RunState:
    def observe(state: RunState, waiting: str) -> None:
        looking.refresh(str(state.ending or (f"waiting ({waiting})" if waiting else state.phase)), state.attempt)

    def warn(message: str) -> None:
        looking.say(f"warning: {message}")

    driver = drive.Driver(run, observe, warn, starts=verb != "watch")
    with Interrupts(stops=verb in _STOP_ON_INTERRUPT, say=looking.say) as interrupts:
        if verb == "submit":
            return driver.submit()
        if verb == "stop":
            return drive.stop(driver, interrupts)
        if verb == "resume":
            return drive.resume(driver, interrupts)
        return driver.follow(interrupts)
