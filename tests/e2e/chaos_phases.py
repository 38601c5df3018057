"""In which phase of its life a run on a simulated cloud is: what the journal says, and what happens between two of its lines."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from podwright.errors import UserError
from podwright.run import journal
from podwright.run.decide import retries
from podwright.run.journal import RunState
from podwright.run.states import AllocationPhase
from podwright.run.states import Phase as RunPhase
from podwright.rundir import RunDir, read_jsonl

Row = dict[str, Any]
T = TypeVar("T")


class LifePhase(enum.StrEnum):
    """In the order of an undisturbed life. Shipping and checking are of Cloud TPU VMs, discarding and submitting of GKE."""

    PREPARING = "preparing the run"
    REQUESTING = "requesting"
    WAITING = "waiting for capacity"
    DISCARDING = "deleting what was refused"
    CREATING = "creating"
    BOOTING = "booting"
    SHIPPING = "shipping"
    CHECKING = "checking"
    SUBMITTING = "submitting"
    STARTING = "starting"
    TRAINING = "training"
    SAVING = "saving"
    STOPPING = "stopping"
    PREEMPTED = "preempted"
    REPLACING = "replacing"
    COLLECTING = "collecting"
    RELEASING = "releasing"
    REPORTING = "reporting"
    DELETING = "deleting"
    CLEANING = "cleaning"


_OF_GKE = (LifePhase.DISCARDING, LifePhase.SUBMITTING)
_OF_VMS = (LifePhase.SHIPPING, LifePhase.CHECKING)
VM_PHASES = tuple(phase for phase in LifePhase if phase not in _OF_GKE)
GKE_PHASES = tuple(phase for phase in LifePhase if phase not in _OF_VMS)
CLOUDY = (LifePhase.WAITING, LifePhase.DISCARDING, LifePhase.PREEMPTED, LifePhase.REPLACING)
"""they do not occur without a fault of the cloud"""
Facts = Callable[[], list[dict[str, Any]]]


@dataclass(frozen=True)
class SliceTime:
    """When the machines of a request were there; Unix seconds."""

    name: str
    ready_at: float
    gone_at: float | None


@dataclass(frozen=True)
class Disturbance:
    kind: str
    """for the table of them"""
    preemptions: tuple[tuple[float, float], ...] = ()
    """when notices came, and the seconds until the machines were off"""
    lasts_s: float = 0.0
    """until `undo` is to be called"""
    undo: Callable[[], int] | None = None
    """ends it, and says how many calls or requests it has had refused"""


class ChaosCloud(Protocol):
    """The simulated cloud of a life, with the target of its run."""

    target: str
    """its name"""

    @property
    def environment(self) -> Mapping[str, str]:
        """of launchers"""

    def existing(self) -> list[Row]:
        """What there is of runs: {"kind", "name", "state", "request": the name of what it was created for}."""

    def slices(self) -> list[SliceTime]:
        """All that were ever ready, in their order."""

    def disturb(self, what: str, how: dict[str, Any]) -> Disturbance: ...

    def killed(self) -> set[int]:
        """The launchers that calls of gcloud have killed, by their process numbers."""

    def before_an_attempt(self, state: RunState) -> LifePhase: ...

    def has_lost(self, request: str) -> bool:
        """Whether machines of a request that were ready were taken away."""

    def before_the_trainer(self, run: RunDir, attempt: int) -> LifePhase:
        """Of an attempt that is being submitted, or whose trainer has not begun."""

    def faults(self, run: RunDir, launchers: int) -> list[str]:
        """What is wrong in the end besides what a run of any cloud must come to."""


class Reading(Generic[T]):
    """What `read` makes of a file, read again when the file has changed: lives look many times a second."""

    def __init__(self, read: Callable[[], T], path: Callable[[], Path]) -> None:
        self._read, self._path = read, path
        self._kept: tuple[tuple[int, ...], T] | None = None

    def __call__(self) -> T:
        try:
            about = self._path().stat()
        except FileNotFoundError:
            return self._read()
        mark = about.st_ino, about.st_mtime_ns, about.st_size
        if self._kept is None or self._kept[0] != mark:
            self._kept = mark, self._read()
        return self._kept[1]


def facts_of_file(path: Path) -> Facts:
    """As a stand-in trainer writes them."""
    return Reading(lambda: list(read_jsonl(path)), lambda: path)


class Observer:
    """Of one run; `facts` has what its trainer has done so far: {attempt, what, step}, `what` being started, step, saving, saved or ended."""

    def __init__(self, run: RunDir, cloud: ChaosCloud, facts: Facts) -> None:
        self._run, self._cloud, self.facts = run, cloud, facts
        self._reading = Reading(lambda: journal.read(self._run), lambda: self._run.journal)

    def follow(self, run: RunDir) -> None:
        """The run as another machine has it."""
        self._run = run

    def state(self) -> RunState | None:
        if not self._run.journal.exists():
            return None
        try:
            return self._reading()
        except UserError:
            return None

    def phase(self, verb: str) -> LifePhase:
        """`verb`: what the launcher that is alive was started with."""
        state = self.state()
        if state is None:
            return LifePhase.PREPARING
        if verb == "clean":
            return LifePhase.CLEANING
        if state.phase is RunPhase.ENDED:
            return _after_the_end(state)
        if state.phase is RunPhase.READY:
            return self._before_an_attempt(state)
        if self._is_preempted(state):
            return LifePhase.PREEMPTED
        return self._of_attempt(state)

    def _before_an_attempt(self, state: RunState) -> LifePhase:
        record = state.allocation
        if state.attempt and (record is None or record.number == state.attempt_allocation):
            return LifePhase.REPLACING
        return self._cloud.before_an_attempt(state)

    def _is_preempted(self, state: RunState) -> bool:
        record = state.allocation
        if record is None:
            return False
        return record.phase is AllocationPhase.LOST or self._cloud.has_lost(record.request.name)

    def _of_attempt(self, state: RunState) -> LifePhase:
        own = [fact for fact in self.facts() if fact["attempt"] == state.attempt]
        if own and own[-1]["what"] in ("ended", "crashed"):
            return LifePhase.COLLECTING
        if state.stop_wanted:
            return LifePhase.STOPPING
        if own:
            return LifePhase.SAVING if own[-1]["what"] == "saving" else LifePhase.TRAINING
        return self._cloud.before_the_trainer(self._run, state.attempt)


def _after_the_end(state: RunState) -> LifePhase:
    if state.ending is not None and retries(state):
        return LifePhase.REPLACING
    if state.reported:
        return LifePhase.DELETING
    record = state.allocation
    if record and record.phase in (AllocationPhase.DELETING, AllocationPhase.GONE):
        return LifePhase.REPORTING
    return LifePhase.RELEASING
