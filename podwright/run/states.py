"""What follows from a phase and from an ending: legal transitions, and by rows of podwright/failures status, retry budgets, advice."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass

from podwright.failures.match import rows
from podwright.recipe.advice import GENERAL, RecipeAdvice
from podwright.rundir import Ending


class Phase(enum.StrEnum):
    READY = "ready"  # an attempt is wanted and none is under way
    SUBMITTING = "submitting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


class AllocationPhase(enum.StrEnum):
    """Of the newest allocation, by the journal alone; what the cloud says of it is `targets.machines.AllocationState`."""

    REQUESTED = "requested"  # it may or may not exist
    READY = "ready"
    REFUSED = "refused"
    LOST = "lost"
    DELETING = "deleting"  # its deletion was asked for
    GONE = "gone"


class Budget(enum.StrEnum):
    """What kind of ending uses up a retry."""

    NONE = "none"
    FAILURE = "failure"
    PREEMPTION = "preemption"
    BOOTSTRAP = "bootstrap"  # hosts on which no process of the attempt could start
    CAPACITY = "capacity"  # machines that were granted and did not come; ends with the patience for machines


BUDGETS = {Budget.NONE: 0, Budget.FAILURE: 0, Budget.PREEMPTION: 100, Budget.BOOTSTRAP: 2, Budget.CAPACITY: 1000}
"""Automatic retries; `run --retries N` sets that of failures."""

# (phase, event) -> phase. An event that is not in the table changes nothing: two launchers may both write down what they saw.
TRANSITIONS: dict[tuple[Phase, str], Phase] = {
    (Phase.READY, "submitting"): Phase.SUBMITTING,
    (Phase.READY, "moved"): Phase.READY,  # the next attempt starts in another folder
    (Phase.READY, "stopping"): Phase.STOPPING,
    (Phase.READY, "abandoned"): Phase.ENDED,  # no machines could be had, or no attempt can be prepared
    (Phase.SUBMITTING, "submitted"): Phase.RUNNING,
    (Phase.SUBMITTING, "stopping"): Phase.STOPPING,
    (Phase.SUBMITTING, "refreshed"): Phase.SUBMITTING,
    (Phase.SUBMITTING, "ended"): Phase.ENDED,
    (Phase.RUNNING, "stopping"): Phase.STOPPING,
    (Phase.RUNNING, "refreshed"): Phase.RUNNING,
    (Phase.RUNNING, "ended"): Phase.ENDED,
    (Phase.STOPPING, "stopping"): Phase.STOPPING,  # typed again
    (Phase.STOPPING, "submitting"): Phase.STOPPING,  # the stop came after the decision to submit
    (Phase.STOPPING, "submitted"): Phase.STOPPING,
    (Phase.STOPPING, "refreshed"): Phase.STOPPING,
    (Phase.STOPPING, "stop unanswered"): Phase.STOPPING,
    (Phase.STOPPING, "signalled"): Phase.STOPPING,
    (Phase.STOPPING, "killing"): Phase.STOPPING,
    (Phase.STOPPING, "ended"): Phase.ENDED,
    (Phase.ENDED, "stopping"): Phase.ENDED,  # no retry, then
    (Phase.ENDED, "release unanswered"): Phase.ENDED,
    (Phase.ENDED, "released"): Phase.ENDED,
    (Phase.ENDED, "reported"): Phase.ENDED,
    (Phase.ENDED, "retrying"): Phase.READY,
    (Phase.ENDED, "resumed"): Phase.READY,
}

_A = AllocationPhase
# (phase, event) -> phase of an allocation. Requesting and deleting may be repeated: the names are the same, and so is the outcome.
ALLOCATION_TRANSITIONS: dict[tuple[AllocationPhase, str], AllocationPhase] = {
    (_A.REQUESTED, "allocation requested"): _A.REQUESTED,
    (_A.REQUESTED, "allocation ready"): _A.READY,
    (_A.REQUESTED, "allocation refused"): _A.REFUSED,
    (_A.REQUESTED, "allocation lost"): _A.LOST,
    (_A.REQUESTED, "allocation deleting"): _A.DELETING,
    (_A.READY, "allocation refused"): _A.REFUSED,  # machines that an attempt asked for did not come
    (_A.READY, "allocation lost"): _A.LOST,
    (_A.READY, "allocation deleting"): _A.DELETING,
    (_A.REFUSED, "allocation deleting"): _A.DELETING,
    (_A.LOST, "allocation deleting"): _A.DELETING,
    (_A.DELETING, "allocation deleting"): _A.DELETING,
    (_A.DELETING, "allocation undeleted"): _A.DELETING,
    (_A.DELETING, "allocation gone"): _A.GONE,
    **{(phase, "allocation charged"): phase for phase in _A if phase is not _A.GONE},
    **{(phase, "allocation lacking"): phase for phase in (_A.REQUESTED, _A.READY)},
}


@dataclass(frozen=True)
class EndingFacts:
    status: str
    budget: Budget
    advice: str
    """what to do, for endings that brought no advice; {run} is what to type for the run, and what recipe/advice.py has is of its kind"""


ENDINGS = {row.ending: EndingFacts(row.status, Budget(row.retry), row.remedy) for row in rows("ending") if row.ending}


def advice(ending: Ending, fix: str, typed: str, keys: RecipeAdvice = GENERAL) -> str:
    """`fix`, or what follows from the ending; `keys`: what that names of the recipe."""
    return fix or ENDINGS[ending].advice.format(run=typed, **asdict(keys))
