"""Carry out what decide.py says, step by step, until a run is done: start, take up again, stop.

Everything that changes a run happens under the run's launcher lock, on a decision made under it, so that two
launchers of one run act as one.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from podwright import targets
from podwright.errors import UserError
from podwright.run import journal
from podwright.run.decide import Act, next_action
from podwright.run.finish import Mirror, write_report
from podwright.run.interrupts import Interrupts
from podwright.run.journal import RunState
from podwright.run.states import Phase
from podwright.rundir import Ending, RunDir
from podwright.targets import ResolvedTarget
from podwright.targets.base import Job, Polled, Process, Target
from podwright.watch.diagnose import AttemptOutcome, outcome

POLL_S = 0.5
LOCK_WAIT_S = 60.0

Observe = Callable[[RunState, str], None]
"""of how the run stands, and why it waits if it does"""
Warn = Callable[[str], None]


class Driver:
    """One launcher at work on one run. One that does not `start` attempts leaves them to others, and is done there."""

    def __init__(self, run: RunDir, observe: Observe, warn: Warn, *, starts: bool = True, target: Target | None = None):
        self.run = run
        self._starts = starts
        self._observe = observe
        self._warn = warn
        self._target = target or targets.resolve(journal.read(run).target).open()
        self._mirror = Mirror(run, warn)
        self._locked_out_since: float | None = None
        self._waiting = ""
        self._acts: dict[Act, Callable[[RunState, Polled], None]] = {
            Act.SUBMIT: self._submit,
            Act.ADOPT: lambda state, _: self._journal("submitted", state, handle=state.handle),
            Act.SIGNAL: self._signal,
            Act.KILL: self._kill,
            Act.END: self._end,
            Act.RELEASE: self._release,
            Act.RETRY: lambda state, _: self._journal("retrying", state),
            Act.REPORT: self._report,
        }

    def look(self) -> tuple[RunState, Polled]:
        state = journal.read(self.run)
        polled = self._target.poll(state.handle) if state.handle else Polled(Process.ABSENT)
        self._waiting = polled.waiting
        return state, polled

    def step(self) -> Act:
        """Do the next thing there is to do; what it was."""
        if (act := self._decide()[0]) in self._acts:
            with self._lock() as ours:
                if not ours:
                    return Act.WAIT
                act, state, polled = self._decide()
                if act in self._acts:
                    self._acts[act](state, polled)
        return act

    def follow(self, interrupts: Interrupts | None = None) -> RunState:
        """Step until the run is done or `interrupts` says to leave it."""
        act = Act.WAIT
        while act is not Act.DONE and not (interrupts and interrupts.leave):
            if interrupts and interrupts.stop:
                ask_to_stop(self.run)
            act = self.step()
            self._observe(journal.read(self.run), self._waiting)
            if act in (Act.WAIT, Act.SIGNAL, Act.KILL):
                self._mirror()
                time.sleep(POLL_S)
        return journal.read(self.run)

    def settle(self) -> RunState:
        """Bring what is past up to date without starting anything: until the run is ready or its end is written down."""
        while True:
            state, polled = self.look()
            past = state.phase is Phase.READY or (state.phase is Phase.ENDED and state.released)
            if past and polled.process is not Process.RUNNING:
                return state
            if self.step() is Act.WAIT:
                self._observe(state, self._waiting)
                time.sleep(POLL_S)

    def submit(self) -> RunState:
        """Step until there is an attempt under way (or the run is done)."""
        while journal.read(self.run).phase in (Phase.READY, Phase.SUBMITTING):
            if self.step() is Act.WAIT:
                time.sleep(POLL_S)
        return journal.read(self.run)

    def _decide(self) -> tuple[Act, RunState, Polled]:
        state, polled = self.look()
        act = next_action(state, polled.process, time.time())
        if act in (Act.SUBMIT, Act.RETRY) and not self._starts:
            act = Act.DONE
        return act, state, polled

    def _journal(self, event: str, state: RunState, **fields: object) -> None:
        journal.append(self.run, event, attempt=state.attempt, **fields)

    def _submit(self, state: RunState, _: Polled) -> None:
        job = Job(self.run.path.resolve(), state.attempt + 1, Path(state.cwd), state.created)
        if not job.cwd.is_dir():
            raise UserError(
                f"{job.cwd}, where run {self.run.name} was started, is gone",
                "bring it back: the recipe's paths start there",
            )
        rendered = self._target.render(job)
        journal.append(self.run, "submitting", attempt=job.attempt, handle=rendered.handle)
        handle = self._target.submit(rendered)
        journal.append(self.run, "submitted", attempt=job.attempt, handle=handle)

    def _kill(self, state: RunState, _: Polled) -> None:
        self._target.stop(state.handle or {}, force=True)

    def _signal(self, state: RunState, _: Polled) -> None:
        self._target.stop(state.handle or {})
        self._journal("signalled", state)

    def _end(self, state: RunState, polled: Polled) -> None:
        if state.attempt == state.ended_attempt:
            found = AttemptOutcome(Ending.STOPPED, "stopped before an attempt was started")
        else:
            found = outcome(self.run, state.attempt, polled, state.stop_wanted)
        self._journal("ended", state, **asdict(found))

    def _release(self, state: RunState, _: Polled) -> None:
        if state.handle:
            self._target.release(state.handle)
        self._journal("released", state)

    def _report(self, state: RunState, _: Polled) -> None:
        error = write_report(self.run)
        self._mirror(last=True)  # after the report, which a tracker may keep as an artifact
        if error:
            self._warn(f"the report could not be written: {error}; `podwright report {self.run.typed}` tries again")
        self._journal("reported", state, error=error)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[bool]:
        """Whether this launcher may act now. Raises UserError when another one has kept the run for too long."""
        with self.run.launcher_lock.open("w") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._locked_out()
                yield False
                return
            self._locked_out_since = None
            yield True

    def _locked_out(self) -> None:
        self._locked_out_since = self._locked_out_since or time.monotonic()
        if time.monotonic() - self._locked_out_since > LOCK_WAIT_S:
            raise UserError(
                f"another podwright has been busy with run {self.run.name} for {LOCK_WAIT_S:.0f} s",
                "wait for it, or end the process that holds launcher.lock",
            )


def ask_to_stop(run: RunDir) -> None:
    if not journal.read(run).stop_wanted:
        journal.append(run, "stopping")


def resume(driver: Driver, interrupts: Interrupts | None = None) -> RunState:
    """Follow the living attempt, or start the next one if it has ended. A run that FINISHED is only brought up to date."""
    state, polled = driver.look()
    if polled.process is Process.RUNNING and not state.stop_wanted:
        return driver.follow(interrupts)
    if driver.settle().ending is not Ending.FINISHED:
        journal.append(driver.run, "resumed")
    return driver.follow(interrupts)


def stop(driver: Driver, interrupts: Interrupts | None = None) -> RunState:
    """Ask the run to save and leave, and wait until it has. Harmless when it has ended."""
    ask_to_stop(driver.run)
    return driver.follow(interrupts)


def preview(path: Path, target: ResolvedTarget) -> dict[str, Any]:
    """What submitting the first attempt would start, as plain JSON."""
    rendered = target.open().render(Job(path.resolve(), 1, Path.cwd()))
    files = {str(path): text for path, text in rendered.files.items()}
    return {"argv": list(rendered.argv), "env": rendered.env, "cwd": str(rendered.cwd), "files": files}
