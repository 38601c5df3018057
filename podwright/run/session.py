"""A person at a run: the driver, the view of it, and what Ctrl-C means, put together for each verb."""

from __future__ import annotations

from typing import TextIO

from podwright.errors import UserError
from podwright.run import drive
from podwright.run.interrupts import Interrupts
from podwright.run.journal import RunState
from podwright.rundir import Ending, RunDir
from podwright.targets.base import Traits
from podwright.watch.live import View, view

_STOP_ON_INTERRUPT = ("follow", "resume")


def require_attended(on: str, traits: Traits) -> None:
    """UserError where a run may not be left alone: machines that are created for it are deleted by its launcher."""
    if traits.zones:
        what = f"--detach: nothing would delete the machines that {on} creates for the run when it ends"
        raise UserError(what, "leave --detach out, and let the command run, for example in tmux")


def attend(run: RunDir, verb: str, out: TextIO) -> tuple[bool, bool]:
    """Carry `verb` out; whether the run now stands as that verb means it to, and whether nobody has pressed Ctrl-C."""
    looking = view(run, out)
    try:
        with Interrupts(stops=verb in _STOP_ON_INTERRUPT, say=looking.say) as interrupts:
            state = _carry_out(run, verb, looking, interrupts)
    finally:
        looking.close()
    return verb not in _STOP_ON_INTERRUPT or state.ending is Ending.FINISHED, not interrupts.any


def _carry_out(run: RunDir, verb: str, looking: View, interrupts: Interrupts) -> RunState:
    def observe(state: RunState, waiting: str) -> None:
        looking.refresh(str(state.ending or (f"waiting ({waiting})" if waiting else state.phase)), state.attempt)

    def warn(message: str) -> None:
        looking.say(f"warning: {message}")

    driver = drive.Driver(run, observe, warn, starts=verb != "watch")
    if verb == "submit":
        return driver.submit()
    if verb == "stop":
        return drive.stop(driver, interrupts)
    if verb == "resume":
        return drive.resume(driver, interrupts)
    return driver.follow(interrupts)
