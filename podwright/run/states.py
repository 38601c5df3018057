"""What follows from a phase and from an ending: legal transitions, and by rows of podwright/failures status, retry budgets, advice."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import yaml

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

_TABLES = yaml.safe_load(Path(__file__).with_name("transitions.yaml").read_text())
_Phases = TypeVar("_Phases", Phase, AllocationPhase)


def _transitions(phases: type[_Phases], table: dict[str, dict[str, str]]) -> dict[tuple[_Phases, str], _Phases]:
    """(phase, event) -> phase."""
    transitions = {}
    for phase, row in table.items():
        for event, after in row.items():
            transitions[phases(phase), event] = phases(after)
    return transitions


TRANSITIONS = _transitions(Phase, _TABLES["run"])
ALLOCATION_TRANSITIONS = _transitions(AllocationPhase, _TABLES["allocation"])


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
