"""In which phase of its life a run on the simulated cloud is: what the journal says, and what happens on the hosts between two of its lines."""

import enum
from collections.abc import Callable
from pathlib import Path
from typing import Any

from podwright.errors import UserError
from podwright.run import journal
from podwright.run.decide import retries
from podwright.run.journal import RunState
from podwright.run.states import AllocationPhase
from podwright.run.states import Phase as RunPhase
from podwright.rundir import RunDir, read_jsonl
from tests.lab.gcloud import store
from tests.lab.gcloud.control import Gcloud


class LifePhase(enum.StrEnum):
    """In the order of an undisturbed life."""

    PREPARING = "preparing the run"
    REQUESTING = "requesting"
    WAITING = "waiting for capacity"
    CREATING = "creating"
    BOOTING = "booting"
    SHIPPING = "shipping"
    CHECKING = "checking"
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


CLOUDY = (LifePhase.WAITING, LifePhase.PREEMPTED, LifePhase.REPLACING)
"""they do not occur without a fault of the cloud"""
HOSTS = 4
Facts = Callable[[], list[dict[str, Any]]]


def facts_of_file(path: Path) -> list[dict[str, Any]]:
    """As a stand-in trainer writes them."""
    return list(read_jsonl(path))


def on_hosts(root: Path, name: str, host: str = "*") -> list[Path]:
    """The directories of a run on the disks of the hosts whose names match, those of machines that are gone among them."""
    return sorted(root.glob("/".join(("disks", host, ".podwright", "*", "work", "runs", name))))


class Observer:
    """Of one run; `facts` has what its trainer has done so far: {attempt, what, step}, `what` being started, step, saving, saved or ended."""

    def __init__(self, run: RunDir, gcloud: Gcloud, facts: Facts) -> None:
        self._run, self._gcloud, self.facts = run, gcloud, facts

    def state(self) -> RunState | None:
        if not self._run.journal.exists():
            return None
        try:
            return journal.read(self._run)
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
        if state.capacity.refusals:
            return LifePhase.WAITING
        if record is None or record.phase is not AllocationPhase.REQUESTED:
            return LifePhase.REQUESTING if record is None or not record.hosts else LifePhase.SHIPPING
        rows = {row["kind"]: row["state"] for row in self._gcloud.resources() if row["name"] == record.request.name}
        if rows.get("queued-resource") == "WAITING_FOR_RESOURCES":
            return LifePhase.WAITING
        if rows.get("node") == "READY":
            return LifePhase.BOOTING
        return LifePhase.CREATING if rows else LifePhase.REQUESTING

    def _is_preempted(self, state: RunState) -> bool:
        record = state.allocation
        if record is None:
            return False
        if record.phase is AllocationPhase.LOST:
            return True
        nodes = store.read(self._gcloud.root)["nodes"].values()
        own = [node for node in nodes if node["name"].endswith(f"/{record.request.name}")]
        return not any(node["state"] == "READY" and not node["preempt"] for node in own)

    def _of_attempt(self, state: RunState) -> LifePhase:
        own = [fact for fact in self.facts() if fact["attempt"] == state.attempt]
        if own and own[-1]["what"] == "ended":
            return LifePhase.COLLECTING
        if state.stop_wanted:
            return LifePhase.STOPPING
        if own:
            return LifePhase.SAVING if own[-1]["what"] == "saving" else LifePhase.TRAINING
        runs = on_hosts(self._gcloud.root, self._run.name)
        folders = [run / "attempts" / str(state.attempt) for run in runs]
        if any(any(folder.glob("host-?.json")) for folder in folders):
            return LifePhase.STARTING
        ready = sum((folder / "start.sh").exists() for folder in folders)
        return LifePhase.CHECKING if ready == HOSTS else LifePhase.SHIPPING


def _after_the_end(state: RunState) -> LifePhase:
    if state.ending is not None and retries(state):
        return LifePhase.REPLACING
    if state.reported:
        return LifePhase.DELETING
    record = state.allocation
    if record and record.phase in (AllocationPhase.DELETING, AllocationPhase.GONE):
        return LifePhase.REPORTING
    return LifePhase.RELEASING
