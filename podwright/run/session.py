"""A person at a run: the driver, the view of it, and what Ctrl-C means, put together for each verb."""

from __future__ import annotations

import time
from typing import TextIO

from podwright import targets
from podwright.errors import UserError
from podwright.run import cost, drive, journal, mirror, strays
from podwright.run.attended import attending
from podwright.run.decide import retries
from podwright.run.finish import Mirror
from podwright.run.interrupts import STOPPING, Interrupts
from podwright.run.journal import RunState
from podwright.run.states import Phase
from podwright.run.waiting import DELETING, RELEASING
from podwright.rundir import Ending, RunDir, recipe_of
from podwright.targets.base import Traits
from podwright.watch.view import View, view

_STOP_ON_INTERRUPT = ("follow", "resume")


def require_attended(on: str, traits: Traits) -> None:
    """UserError where a run may not be left alone: machines that are created for it are deleted by its launcher."""
    if traits.zones:
        what = f"--detach: nothing would delete the machines that {on} creates for the run when it ends"
        raise UserError(what, "leave --detach out, and let the command run, for example in tmux", "needs-a-launcher")


def attend(run: RunDir, verb: str, out: TextIO) -> tuple[bool, bool]:
    """Carry `verb` out; whether the run now stands as that verb means it to, and whether nobody has pressed Ctrl-C."""
    fault = _fault_of_recipe(run)
    if fault and verb != "stop":
        raise fault
    looking = view(run, out)
    if fault:
        looking.say(f"warning: {fault}")
    try:
        with Interrupts(stops=verb in _STOP_ON_INTERRUPT, say=looking.say) as interrupts:
            state = _carry_out(run, verb, looking, interrupts)
    finally:
        looking.close()
    return verb not in _STOP_ON_INTERRUPT or state.ending is Ending.FINISHED, not interrupts.any


def _fault_of_recipe(run: RunDir) -> UserError | None:
    try:
        recipe_of(run)
    except UserError as e:
        return e
    return None


def _carry_out(run: RunDir, verb: str, looking: View, interrupts: Interrupts) -> RunState:
    def observe(state: RunState, waiting: str) -> None:
        status = str(state.ending or (f"waiting ({waiting})" if waiting else state.phase))
        if state.ending and waiting.startswith((RELEASING, DELETING)):  # another reason is from before the end
            status += f", waiting ({waiting})"
        looking.refresh(status, state.attempt)
        interrupts.first_says = _saving_or_left(state)

    def warn(message: str) -> None:
        looking.say(f"warning: {message}")

    if verb == "resubmit":
        state = journal.read(run)
        require_attended(state.target, targets.recorded(drive.identity_now(state)).traits)
    if mirror.observes(run):
        if verb == "watch":
            return _follow_from_the_storage(run, observe, Mirror(run, warn), interrupts)
        _require_driver(run, verb)
        mirror.take_over(run)
    driver = drive.Driver(run, observe, warn, starts=verb != "watch")
    with attending(run):
        try:
            return _drive(driver, verb, interrupts)
        except mirror.DrivenElsewhere:
            strays.leave(run, warn)
            raise


def _drive(driver: drive.Driver, verb: str, interrupts: Interrupts) -> RunState:
    if verb == "submit":
        return driver.submit()
    if verb == "stop":
        return drive.stop(driver, interrupts)
    if verb in ("resume", "resubmit"):
        return drive.resume(driver, interrupts, detach=verb == "resubmit")
    return driver.follow(interrupts)


def _saving_or_left(state: RunState) -> str:
    """What a first Ctrl-C comes to, where it stops the run."""
    record = state.allocation
    if state.phase is not Phase.ENDED or retries(state):
        return STOPPING
    what = f"the run has ended ({state.ending}); Ctrl-C again leaves it"
    if record is None or not record.may_exist or record.request.borrowed:
        return what
    return f"{what} before {record.request.name} is seen to be gone: it may go on costing, {cost.rate(record.request)}"


def _follow_from_the_storage(run: RunDir, observe: drive.Observe, update: Mirror, interrupts: Interrupts) -> RunState:
    """Show what another machine does, and do nothing, until the run is done."""
    while True:
        update()
        state = journal.read(run)
        observe(state, "")
        if interrupts.leave or (state.phase is Phase.ENDED and state.reported):
            return state
        time.sleep(drive.TICK_S)


def _require_driver(run: RunDir, verb: str) -> None:
    """UserError for a verb other than resume on a run that another machine drives."""
    if verb not in ("resume", "resubmit"):
        fix = f"type podwright {verb} there, or, if that machine is gone, podwright resume {run.typed} here"
        raise UserError(f"run {run.name} is only observed here: another machine drives it", fix, "driven-elsewhere")
