"""Carry out what decide.py says, step by step, until a run is done: start, take up again, stop.

Everything that changes a run happens under the run's launcher lock, on a decision made under it, so that two
launchers of one run act as one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from podwright import targets
from podwright.errors import UserError
from podwright.recipe import kinds, load
from podwright.recipe.kinds import Recipe
from podwright.run import attended, journal, mirror, silence
from podwright.run.act import ACTS, Carrier, ObservedRun
from podwright.run.allocations import AllocationRecord
from podwright.run.attempt_job import job_of
from podwright.run.decide import Act, Observed, next_action, outlived, past, settled
from podwright.run.finish import Mirror
from podwright.run.interrupts import Interrupts
from podwright.run.journal import RunState
from podwright.run.states import AllocationPhase, Phase
from podwright.run.strays import Strays
from podwright.run.waiting import reason
from podwright.rundir import Ending, RunDir, recipe_of
from podwright.storage import url_of_run
from podwright.targets import ResolvedTarget, entries
from podwright.targets.base import ListsCalls, Polled, Process, Remark, Target, Traits
from podwright.targets.machines import GONE, AllocationState, HostAddress
from podwright.targets.polling import Poller
from podwright.watch import damage
from podwright.watch.diagnose import with_end

TICK_S = 0.5  # between two looks at the journal and at what the trainer has written
LOCK_WAIT_S = 60.0
CHECK_AGAIN_S = 86_400.0  # a day
OFFLINE_S = 60.0
"""for which the cloud must not have answered until hosts that are silent too say nothing: this machine may have no network"""
DELETION_LIMIT_S = 7200.0
"""for which a launcher waits until machines, or what attempts hold, are gone: it asks again all the while, and a deletion that was accepted may take an hour"""
UNANSWERED_LIMIT_S = 1800.0
"""the same for a stop that hosts or the cluster do not answer; machines of the run are deleted before (decide.py)"""
BARRED_S = 60.0
"""for which a stop waits for a look at what nobody can see before a person acts"""

Observe = Callable[[RunState, str], None]
"""of the state of the run, and why it waits if it does"""
Warn = Callable[[str], None]


@dataclass(frozen=True)
class Look:
    """A run at one moment: its journal, its process, its machines."""

    state: RunState
    polled: Polled
    seen: Observed


class Driver:
    """One launcher at work on one run. One that does not `start` attempts leaves them to others, and is done there."""

    def __init__(self, run: RunDir, observe: Observe, warn: Warn, *, starts: bool = True):
        self.run = run
        self._starts = starts
        self._observe = observe
        self._mirror = Mirror(run, warn)
        self._carrier = Carrier(run, self._mirror, warn)
        self._pollers: dict[str, Poller] = {}
        self._locked_out: tuple[float, int] | None = None
        self._stopping: tuple[int, float, float] | None = None
        self._barred: tuple[float, str] | None = None
        self._offline = -math.inf
        self._waits_since: dict[str, float] = {}
        self._strays = Strays(run, warn)
        self._cloud: tuple[tuple[int, AllocationPhase] | None, AllocationState, float] | None = None
        self._waiting = ""

    def look(self) -> Look:
        state = journal.read(self.run)
        record = state.allocation
        cloud = GONE
        if record and record.may_exist:
            cloud = self._poller(record.target).describe(record.request, record.ready_since)
        unchanged_s = self._unchanged_s(state, cloud.state)
        if cloud.state is AllocationState.GONE:
            cloud = replace(cloud, since=journal.now() - unchanged_s)
        polled = Polled(Process.ABSENT)
        if state.handle and past(state):
            polled = Polled(Process.ENDED)
        elif state.handle:
            away = outlived(state, self._poller(state.handle).target.traits, unchanged_s)
            polled = Polled(Process.ENDED) if away else self._poller(state.handle).poll(state.handle)
            polled = with_end(self.run, state.attempt, polled, state.stop_wanted)
        barred = polled.waiting if polled.barred else _undeleted(record)
        if not barred:
            self._barred = None
        elif self._barred is None:
            self._barred = time.monotonic(), barred
        changed = polled.handle is not None and polled.handle != state.handle
        silent_s = silence.silent_s(self.run, state.attempt, None if polled.unseen else polled.silent)
        if cloud.state is AllocationState.UNKNOWN and not cloud.exists and unchanged_s > OFFLINE_S:
            self._offline = time.monotonic()
        unheard_s = 0.0 if polled.barred else min(silent_s, time.monotonic() - self._offline)
        seen = Observed(polled.process, cloud, changed, self._stopping_s(state), unchanged_s, silent_s, unheard_s)
        traits = self._poller(record.target).target.traits if record else Traits(place_patience_s=0.0)
        limits = traits.place_patience_s, traits.silence_s
        at = self._kill_at(state)
        self._waiting = reason(state, seen, polled.waiting, journal.now(), at, *limits, self.run.typed)
        return Look(state, polled, seen)

    def step(self) -> Act:
        """Do the next thing there is to do; what it was. DrivenElsewhere when another machine has gone on with the run."""
        if mirror.observes(self.run):  # fetched since this launcher began: its journal is the storage's now
            raise mirror.DrivenElsewhere(self.run)
        act, _, _ = self._decide()
        if act not in ACTS:
            self._locked_out = None
            return act
        with self._lock() as ours:
            if not ours:
                return Act.WAIT
            act, look, target = self._decide()
            if act in ACTS:
                ACTS[act](self._carrier, ObservedRun(target, look.state, look.polled, look.seen.allocation))
                if act in (Act.CHARGED, Act.LACKING):  # which change nothing in the cloud
                    return act
                self._cloud = None
                for poller in self._pollers.values():
                    if poller.target is target:
                        poller.forget()
        return act

    def follow(self, interrupts: Interrupts | None = None) -> RunState:
        """Step until the run is done or `interrupts` says to leave it."""
        act = Act.WAIT
        while act is not Act.DONE and not (interrupts and interrupts.leave):
            if interrupts and interrupts.stop:
                ask_to_stop(self.run)
            act = self.step()
            self._observe(state := journal.read(self.run), self._waiting)
            self._require_seen(state)
            if act in (Act.WAIT, Act.SIGNAL, Act.KILL, Act.REFRESH):
                self._mirror()
                self._strays.look_now_and_then()
                time.sleep(TICK_S)
        if act is Act.DONE:
            self._strays.clear()
        return journal.read(self.run)

    def _require_seen(self, state: RunState) -> None:
        """UserError for a stop of which nobody can see before a person acts whether it has come to its end, and for calls and deletions that
        come to nothing for long."""
        self._require_answers(state)
        if not state.stop_wanted or self._barred is None or time.monotonic() - self._barred[0] < BARRED_S:
            return
        name, why = self.run.name, self._barred[1]
        sent = "was told to stop" if state.signalled else "is to stop"
        what = f"run {name} {sent}, and whether it has ended cannot be seen: {why}"
        if _undeleted(state.allocation):
            what = f"the machines of run {name} are not deleted, and may cost: {why}"
        raise UserError(what, f"then type podwright stop {self.run.typed}", "machines-unanswered")

    def _require_answers(self, state: RunState) -> None:
        """UserError for machines that the cloud does not delete, and for a stop or a release that nobody answers, for long."""
        deletes = bool(state.allocation and state.allocation.phase is AllocationPhase.DELETING)
        deletes |= state.phase is Phase.ENDED and bool(state.calls)
        stops = state.phase is Phase.STOPPING and bool(state.calls)
        limits = {
            f"what it has created is not gone {DELETION_LIMIT_S / 3600:.0f} h": DELETION_LIMIT_S if deletes else 0.0,
            f"it has not ended {UNANSWERED_LIMIT_S / 60:.0f} min": UNANSWERED_LIMIT_S if stops else 0.0,
        }
        for what, limit_s in limits.items():
            if not limit_s:
                self._waits_since.pop(what, None)
            elif time.monotonic() - self._waits_since.setdefault(what, time.monotonic()) > limit_s:
                why = f"run {self.run.name}: {what} after that was asked for: {self._waiting}"
                raise UserError(why, f"then type podwright stop {self.run.typed}", "machines-unanswered")

    def settle(self, interrupts: Interrupts | None = None) -> RunState:
        """Bring what is past up to date without starting anything: until the run is ready or its end is written down, or `interrupts` says
        to leave it."""
        while True:
            look = self.look()
            state = look.state
            if (interrupts and interrupts.leave) or (settled(state) and look.polled.process is not Process.RUNNING):
                return state
            self._require_seen(state)
            if self.step() in (Act.WAIT, Act.REFRESH):
                self._observe(state, self._waiting)
                time.sleep(TICK_S)

    def submit(self) -> RunState:
        """Step until there is an attempt under way (or the run is done)."""
        while journal.read(self.run).phase in (Phase.READY, Phase.SUBMITTING):
            if self.step() is Act.WAIT:
                self._observe(journal.read(self.run), self._waiting)
                time.sleep(TICK_S)
        return journal.read(self.run)

    def _decide(self) -> tuple[Act, Look, Target]:
        look = self.look()
        target = self._target(look.state)
        act = next_action(look.state, look.seen, target.traits, journal.now())
        if act in (Act.REQUEST, Act.CREATE, Act.SUBMIT, Act.RETRY) and not self._starts:
            act = Act.DONE
        return act, look, target

    def _target(self, state: RunState) -> Target:
        """What the next act is about: the live allocation's or attempt's target as it was then; for a new one as it is now."""
        record = state.allocation
        if record and record.phase is not AllocationPhase.GONE:
            return self._poller(record.target).target
        if state.handle and state.phase is not Phase.READY:
            return self._poller(state.handle).target
        return self._poller(identity_now(state)).target

    def _poller(self, identity: dict[str, Any]) -> Poller:
        key = f"{identity.get('target')} {identity.get('kind')} {identity.get('settings')}"
        if key not in self._pollers:
            self._pollers[key] = Poller(targets.of_handle(identity))
        return self._pollers[key]

    def _stopping_s(self, state: RunState) -> float:
        """Since the newest attempt has acknowledged a stop; where a launcher on another machine saw that, or before this machine was
        started, since this launcher first read of it: another clock may be off."""
        if not state.signalled or state.phase is not Phase.STOPPING:
            self._stopping = None
            return 0.0
        if self._stopping is None or self._stopping[0] != state.attempt:
            before_s = journal.since(state.signalled_clock)
            self._stopping = state.attempt, time.monotonic() - before_s, journal.now() - before_s
        return time.monotonic() - self._stopping[1]

    def _kill_at(self, state: RunState) -> float:
        """When an attempt that has acknowledged a stop is killed, in Unix seconds; 0 where there is none."""
        if self._stopping is None or not state.handle:
            return 0.0
        return self._stopping[2] + self._poller(state.handle).target.traits.grace_s

    def _unchanged_s(self, state: RunState, cloud: AllocationState) -> float:
        """Since this launcher first saw the allocation in this state, by the cloud and by the journal: another launcher writes there too.
        Since when machines are missing is in the journal, for launchers that live shorter than they are waited for."""
        record = state.allocation
        known = (record.number, record.phase) if record else None
        if self._cloud is None or self._cloud[:2] != (known, cloud):
            self._cloud = known, cloud, time.monotonic()
        if record and record.lacking is cloud:
            return max(0.0, journal.now() - record.lacking_since)
        return time.monotonic() - self._cloud[2]

    @contextlib.contextmanager
    def _lock(self) -> Iterator[bool]:
        """Whether this launcher may act now. Raises UserError when another one has kept the run for too long."""
        with self.run.launcher_lock.open("a+") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._wait_for_lock(f)
                yield False
                return
            self._locked_out = None
            f.truncate(0)
            print(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}), file=f, flush=True)
            yield True

    def _wait_for_lock(self, lock: TextIO) -> None:
        """A holder on this machine that lives, and is not suspended, is at work, perhaps for minutes; so is one that writes to the journal."""
        host, pid = attended.holder(lock)
        if host == socket.gethostname() and attended.is_at_work(pid):
            self._waiting = f"Busy: another podwright (process {pid}) is at work on the run"
            self._locked_out = None
            return
        written = self.run.journal.stat().st_size
        if self._locked_out is None or self._locked_out[1] != written:
            self._locked_out = time.monotonic(), written
        if time.monotonic() - self._locked_out[0] > LOCK_WAIT_S:
            holder = f"process {pid} on host {host}" if host else "what holds launcher.lock"
            what = f"another podwright has been busy with run {self.run.name} for {LOCK_WAIT_S:.0f} s"
            raise UserError(what, f"wait for it, or end {holder}", "run-is-busy")


def identity_now(state: RunState) -> dict[str, Any]:
    """The target's identity by its entry; where that is gone, in the newest attempt, or in the newest allocation of a run without attempts."""
    recorded = state.handle or (state.allocation.target if state.allocation else None)
    return targets.current(state.target, recorded, state.slice)


def _undeleted(record: AllocationRecord | None) -> str:
    """Why machines whose deletion was asked for exist until a person acts; "" where nothing is known to keep them."""
    return record.undeleted if record and record.phase is AllocationPhase.DELETING else ""


def ask_to_stop(run: RunDir, *, at_once: bool = False) -> None:
    """`at_once`: also where a stop is wanted already, and calls for it that were not answered put off the next one."""
    state = journal.read(run)
    if not state.stop_wanted or (at_once and state.calls):
        journal.append(run, "stopping")


def resume(driver: Driver, interrupts: Interrupts | None = None, *, detach: bool = False) -> RunState:
    """Follow the living attempt, or start the next one if it has ended; with `detach`, only see that there is one. A run that FINISHED is only
    brought up to date."""
    look = driver.look()
    if look.polled.process is Process.RUNNING and not look.state.stop_wanted:
        return driver.submit() if detach else driver.follow(interrupts)
    state = driver.settle(interrupts)
    if state.ending is not Ending.FINISHED and not (interrupts and interrupts.any):
        # What stands in the way of a next attempt is no ending of the run: before anything is written.
        kind = kinds.find(recipe_of(driver.run)["kind"]).name
        damage.require_recipe(driver.run)
        _require_target(driver.run, state, kind)
        journal.append(driver.run, "resumed")
        if detach:
            return driver.submit()
    return driver.follow(interrupts)


def _require_target(run: RunDir, state: RunState, kind: str) -> None:
    """UserError where the entry of the target cannot be read, where this machine lacks a program, or where the target would not take a next
    attempt: like before the start of the run, it is checked for the recipe where it has changed since the last attempt, or where that one was
    submitted (without one, where the run was created) more than CHECK_AGAIN_S ago."""
    last = state.handle
    now = identity_now(state)
    entries.require_accepted(now)
    target = targets.recorded(now)
    targets.require_programs(target.traits)
    days = (journal.now() - (state.submitted if last else state.created)) / CHECK_AGAIN_S
    changed = last is not None and any(now[key] != last.get(key) for key in ("kind", "settings"))
    if not changed and days <= 1:
        return
    if target.traits.slice_of_recipe:
        target = target.as_used_by(load.stored(recipe_of(run)))
    remarks = target.check(kind)
    if changed:
        _refuse(remarks, ("error", "inconclusive"), f"target {state.target} was changed since attempt {state.attempt}")
    else:
        before = "the last one was" if last else "the run was created"
        why = f"target {state.target} takes no attempt now; {before} {days:.0f} days ago"
        _refuse(remarks, ("error",), why)


def _refuse(remarks: Sequence[Remark], levels: Sequence[str], why: str) -> None:
    for remark in remarks:
        if remark.level in levels:
            raise UserError(f"{why}: {remark.what}", remark.fix, "target-refuses")


def stop(driver: Driver, interrupts: Interrupts | None = None) -> RunState:
    """Ask the run to save and leave, and wait until it has. Harmless when it has ended."""
    ask_to_stop(driver.run, at_once=True)
    return driver.follow(interrupts)


def preview(path: Path, resolved: ResolvedTarget, recipe: Recipe) -> dict[str, Any]:
    """What starting the first attempt of `recipe` would request and submit, as plain JSON."""
    target = resolved.open()
    where = path.resolve()
    shown: dict[str, Any] = {}
    request = target.provisioner.describe_request(where, None, 1, ()) if target.provisioner else None
    if request:
        shown["request"] = asdict(request)
    row = kinds.find(recipe.kind)
    name = request.name if request else ""
    base = target.traits.storage if row.uses_storage else ""
    storage = url_of_run(base, path.name, None) if base else ""
    raw = recipe.model_dump(mode="json")
    job = job_of(row, raw, where, 1, Path.cwd(), None, storage=storage, allocation=name)
    num_hosts = resolved.slice.num_hosts if resolved.slice else 1
    names = [f"HOST-{n}" for n in range(num_hosts)]  # those of the machines are known when they exist
    hosts = tuple(HostAddress(name, name) for name in names) if target.provisioner else None
    rendered = target.render(job, hosts)
    files = {str(path): text for path, text in rendered.files.items()}
    if isinstance(target, ListsCalls):  # the objects of its files are in them
        files = {}
        shown["calls"] = [asdict(call) for call in target.planned_calls(rendered, request)]
    return shown | {"argv": list(rendered.argv), "env": rendered.env, "cwd": str(rendered.cwd), "files": files}
