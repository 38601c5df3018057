"""What a run has requested and nobody would delete: the journal that counts has it as gone, and it exists, since the request was still under
way when it was deleted. Whoever sees machines of this kind deletes them, or names them with their price.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from podwright import targets
from podwright.errors import UserError
from podwright.run import cost, journal, mirror
from podwright.run.allocations import due
from podwright.run.journal import RunState
from podwright.run.states import AllocationPhase
from podwright.rundir import Record, RunDir, read_jsonl
from podwright.targets.base import Barred, Target
from podwright.targets.machines import AllocationState, Owned, Provisioner, Request

LOOK_EVERY_S = 3600.0
"""between two looks of a launcher at what its run has had: each takes some calls to the cloud"""
LOOK_AGAIN_S = 60.0
LIMIT_S = 1200.0
"""until they must be gone"""
BARRED_S = 60.0
"""for which a login or a right that is missing is waited for"""
_DELETED = (AllocationPhase.DELETING, AllocationPhase.GONE)


@dataclass
class Requested:
    """Machines that were requested, by the journal here."""

    request: Request
    target: Record
    """the identity of the target"""
    calls: int = 0


def requested(run: RunDir) -> dict[str, Requested]:
    """By name, the newest last; without those of which nothing was created, and without borrowed machines."""
    by_number: dict[int, Requested] = {}
    for event in read_jsonl(run.journal):
        number = event.get("allocation", 0)
        if event.get("event") == "allocation requested":
            row = Requested(Request.of(event["request"]), event["target"])
            by_number.setdefault(number, row).calls += 1
        elif event.get("uncreated") and number in by_number and by_number[number].calls == 1:
            del by_number[number]
    return {row.request.name: row for row in by_number.values() if not row.request.borrowed}


def is_stray(run: RunDir, name: str) -> bool:
    """Whether machines of that name belong to a run which this machine drives, and which has had them deleted."""
    return not mirror.observes(run) and name in requested(run) and not _needs(journal.read(run), name)


def _needs(state: RunState, name: str, *, elsewhere: bool = False) -> bool:
    """Whether the journal counts on machines. It counts on a deletion that it waits for too, unless another launcher does."""
    record = state.allocation
    if record is None or record.request.name != name:
        return False
    return record.phase not in (_DELETED if elsewhere else (AllocationPhase.GONE,))


class Strays:
    """Of one run, as one launcher sees them. `elsewhere`: another machine has gone on with the run, and its journal counts."""

    def __init__(self, run: RunDir, warn: Callable[[str], None], *, elsewhere: bool = False):
        self._run = run
        self._warn = warn
        self._elsewhere = elsewhere
        self._next = -math.inf
        self._targets: dict[str, Target] = {}
        self._calls: dict[str, tuple[int, float]] = {}
        self._left: dict[str, str] = {}
        """by name, what there is to say of those that the last look saw, or could not exclude"""
        self._barred = False

    def look_now_and_then(self) -> None:
        """By a launcher at work."""
        if time.monotonic() >= self._next:
            self.look()
            self._next = time.monotonic() + (LOOK_AGAIN_S if self._left else LOOK_EVERY_S)

    def clear(self) -> None:
        """Look until they are gone; say which are not. Elsewhere for as long as the cloud may not show yet what it has taken from this machine."""
        begin = quiet = time.monotonic()
        while time.monotonic() - begin < (BARRED_S if self._barred else LIMIT_S):
            self.look()
            quiet = time.monotonic() if self._left else quiet
            traits = [target.traits for target in self._targets.values()]
            lag_s = max((each.lag_s for each in traits), default=0.0) if self._elsewhere else 0.0
            if not self._left and time.monotonic() - quiet >= lag_s:
                return
            time.sleep(max((each.poll_s for each in traits), default=1.0))
        for text in self._left.values():
            self._warn(text)

    def look(self) -> None:
        """Ask for the deletion of each that exists."""
        self._left, self._barred = {}, False
        rows = requested(self._run)
        try:
            state = self._state()
        except UserError as e:
            self._fault(rows, "which of them are needed is not known", e)
            return
        unneeded = {name: row for name, row in rows.items() if not self._needs(state, name)}
        for identity in {json.dumps(row.target, sort_keys=True): row.target for row in unneeded.values()}.values():
            of_target = {name: row for name, row in unneeded.items() if row.target == identity}
            try:
                if provisioner := self._target(identity).provisioner:
                    self._look_at(provisioner, of_target)
            except UserError as e:
                self._fault(of_target, "whether they exist could not be seen", e)

    def _look_at(self, provisioner: Provisioner, rows: Mapping[str, Requested]) -> None:
        listed = [owned for owned in provisioner.list_owned() if owned.request.name in rows]
        state = self._state()  # after the list: what a launcher requests it writes down first
        for owned in listed:
            if not self._needs(state, owned.request.name):
                self._delete(provisioner, owned, rows[owned.request.name])
        name, newest = list(requested(self._run).items())[-1]
        if self._elsewhere and name in rows and name not in self._left and not self._needs(state, name):
            cloud = provisioner.describe(newest.request)
            if cloud.state is not AllocationState.GONE:  # gcloud may be at work on it
                self._left[name] = f"{_named(newest)} may exist: {cloud.reason}; {_clean(newest)}"

    def _delete(self, provisioner: Provisioner, owned: Owned, row: Requested) -> None:
        name, why = owned.request.name, ""
        if name not in self._calls:
            self._warn(f"{_named(row)} exists, and its run has had it deleted: it is deleted again")
        count, last = self._calls.get(name, (0, 0.0))
        if owned.state is not AllocationState.DELETING and due(count, last, time.monotonic()):
            self._calls[name] = count + 1, time.monotonic()
            try:
                provisioner.delete(owned.request)
            except UserError as e:
                why, self._barred = f" ({e})", isinstance(e, Barred)
        self._left[name] = f"{_named(row)} is not deleted{why}; {_clean(row)}"

    def _fault(self, rows: Mapping[str, Requested], what: str, fault: UserError) -> None:
        """A launcher that drives the run has seen them gone, each by its name; any other one knows nothing of them."""
        if self._elsewhere:
            self._barred = isinstance(fault, Barred)
            self._left |= {name: f"{_named(row)}: {what} ({fault}); {_clean(row)}" for name, row in rows.items()}

    def _state(self) -> RunState:
        return mirror.newest(self._run) if self._elsewhere else journal.read(self._run)

    def _needs(self, state: RunState, name: str) -> bool:
        return _needs(state, name, elsewhere=self._elsewhere)

    def _target(self, identity: Record) -> Target:
        key = json.dumps(identity, sort_keys=True)
        self._targets[key] = self._targets.get(key) or targets.of_handle(identity)
        return self._targets[key]


def leave(run: RunDir, warn: Callable[[str], None]) -> None:
    """Before a launcher leaves the run to another machine: end what it has asked for and the journal of that one does not count on."""
    try:
        _release(run, warn)
    except UserError as e:
        warn(str(e))
    Strays(run, warn, elsewhere=True).clear()


def _release(run: RunDir, warn: Callable[[str], None]) -> None:
    """Of an attempt that may have been submitted after the other launcher had released it. Machines of its own end it with them."""
    own = journal.read(run)
    if mirror.observes(run) or not own.handle or own.attempt > mirror.newest(run).ended_attempt:
        return
    target = targets.of_handle(own.handle)
    if own.attempt_allocation and not target.traits.pods:
        return
    end = time.monotonic() + BARRED_S
    while not (answer := target.release(own.handle)).done:
        if time.monotonic() > end:
            warn(f"attempt {own.attempt} of run {run.name} may still be at work: {answer.reason}")
            return
        time.sleep(max(1.0, target.traits.poll_s))


def _named(row: Requested) -> str:
    rate = cost.rate(row.request)
    return f"{row.request.name} in {row.request.zone}{f' ({rate})' if rate else ''}"


def _clean(row: Requested) -> str:
    return f"type podwright clean {row.target['target']} {row.request.name} --yes"
