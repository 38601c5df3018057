"""What every target does: render a job (pure), then submit, poll, stop and release what was rendered.

A target whose machines are created for a run has a provisioner too. How a run ended is not decided here: a target knows
processes and machines, not what happened inside them.
"""

from __future__ import annotations

import contextlib
import enum
import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from podwright.errors import UserError
from podwright.rundir import TRAIN_COMMAND, Ending, Record
from podwright.slices import Slice
from podwright.targets.machines import Hosts, KeptResources, Provisioner, Request

if TYPE_CHECKING:
    from podwright.recipe.kinds import Recipe

Handle = dict[str, Any]
"""Plain JSON by which any process can find what was submitted; `kind` and `settings` say with which target."""

RUN_LABEL = "podwright-run"
"""of what is created for a run: the tag of the run, or its directory"""
_PLACEHOLDER = re.compile(r"\{(python|run_dir|attempt|storage)\}")


def run_tag(run_dir: Path, created: float | None) -> str:
    """Of a run in `run_dir` that was created at Unix time `created`; TAG for None, as a dry run prints it."""
    return "TAG" if created is None else f"{zlib.crc32(f'{run_dir} {created}'.encode()):08x}"


@dataclass(frozen=True)
class Traits:
    """What a target is, as data to decide by."""

    this_machine: bool = False
    """whether runs on it are processes of this machine"""
    queues: bool = False
    """whether it keeps runs out of each other's way"""
    ships_files: bool = False
    """whether it copies to its hosts the files that a recipe names"""
    pods: bool = False
    """whether runs on it are pods of a cluster"""
    slice_of_recipe: bool = False
    """whether a recipe that names a slice gets that one, and not the target's"""
    storage: str = ""
    """where its runs are kept: a bucket, a folder, or "" for their directories"""
    excludes_hosts: bool = False
    """whether it can leave out hosts by name (`Job.exclude`)"""
    poll_s: float = 0.5
    """seconds between two polls"""
    start_grace_s: float = 5.0
    """from the decision to submit until the attempt must have left a sign"""
    grace_s: float = 180.0
    """from an acknowledged stop until the attempt is killed: a step and a checkpoint fit in it"""
    lost_grace_s: float = 180.0
    """from the loss of machines until a process that still seems to run on them is given up"""
    zones: tuple[str, ...] = ()
    """where machines may be requested, in order; () where they need no request"""
    lag_s: float = 30.0
    """for how long the cloud may answer as if a creation or deletion had not happened yet"""
    repair_s: float = 600.0
    """for how long machines may be under maintenance, and their hosts silent, until others are requested"""
    silence_s: float = math.inf
    """for how long no host of a running attempt may answer while the cloud tells of its machines, until others are requested"""
    patience_s: float = 6 * 3600.0
    """how long a run waits for machines until it ends with NO_CAPACITY"""
    place_patience_s: float = 6 * 3600.0
    """how long of that for machines of a request that has been granted and is not filled"""
    borrowed: str = ""
    """name of machines in the first of `zones` that exist without runs, and are used and never deleted; "" where runs create theirs"""
    provisioning: str = ""
    """how requested machines are paid for: spot, on-demand, reserved or flex-start; "" where they need no request"""
    price: float | None = None
    """of a chip-hour in USD, where the settings name it"""
    preemptions_per_day: float = 0.0
    """that are expected of requested machines"""
    programs: Mapping[str, str] = field(default_factory=dict)
    """that runs need on this machine, each with what to do where it is missing"""
    inventory_scope: tuple[str, ...] = ()
    """project, and location and cluster where there is one: machines that were requested elsewhere are not in its inventory; () where runs
    create no machines"""


@dataclass(frozen=True)
class Job:
    """One attempt of one run."""

    run_dir: Path
    attempt: int
    cwd: Path
    """where relative paths of the recipe start"""
    created: float | None = 0.0
    """when the run was; None for a dry run"""
    command: tuple[str, ...] = TRAIN_COMMAND
    """words; the target fills `{python}`, `{run_dir}`, `{attempt}` and `{storage}`"""
    environment: Mapping[str, str] = field(default_factory=dict)
    """of every process; a variable that the target sets too has the target's value, and flags of both (XLA_FLAGS) are joined"""
    storage: str = ""
    """where checkpoints and records live: "" for the run directory, a shared folder, or a bucket URL"""
    exclude: tuple[str, ...] = ()
    """hosts to leave out, where the target can"""
    allocation: str = ""
    """name of the machines that were requested for it; "" where they need no request"""
    recipe: Record = field(default_factory=dict)
    """what recipe.json holds"""
    one_gpu_each: bool = False
    """whether each process uses one GPU, not all of its host"""

    @property
    def run_tag(self) -> str:
        """Tells the run from others of its name, and from an earlier one in its directory."""
        return run_tag(self.run_dir, self.created)

    def argv(self, python: str, run_dir: str) -> tuple[str, ...]:
        """The command with its placeholders filled; `run_dir` is the directory of the run as the host sees it."""
        values = {"python": python, "run_dir": run_dir, "attempt": str(self.attempt), "storage": self.storage}
        return tuple(_PLACEHOLDER.sub(lambda match: values[match[1]], word) for word in self.command)


@dataclass(frozen=True)
class Rendered:
    """What submit will do: what a dry run prints."""

    argv: tuple[str, ...]
    cwd: Path
    handle: Handle
    """known before anything is created, so that it can be written down first"""
    env: dict[str, str] = field(default_factory=dict)
    """additions to the environment"""
    files: dict[Path, str] = field(default_factory=dict)
    """what submit writes first"""


@dataclass(frozen=True)
class PlannedCall:
    """A command that creates, changes or deletes something, for a dry run."""

    argv: tuple[str, ...]
    manifest: Record = field(default_factory=dict)
    """that it reads from its stdin; {} where it reads nothing"""


class Process(enum.Enum):
    ABSENT = "absent"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True)
class Polled:
    process: Process
    returncode: int | None = None
    """exit code, negative for a signal; None while running or when nobody can know it"""
    waiting: str = ""
    """why a submitted attempt is not at work, as `Reason: what it means`"""
    silent: bool = False
    """of one that is taken to be running: whether no host of it has answered, or it has pods without a node, or no process that has begun"""
    barred: bool = False
    """of a silent one: whether nothing of it can be seen before a person acts, as `waiting` and `fix` say"""
    unseen: bool = False
    """whether no host was asked, since another launcher does: nothing may be concluded"""
    ending: Ending | None = None
    """of an ended one: what the scheduler of the machines says happened to them, if they did not just finish"""
    detail: str = ""
    """of one that is taken to be running: what keeps its end from being seen, if its trainer has ended"""
    fix: str = ""
    first: int = 0
    """of several processes the one whose end was that of the others, and whose `returncode` this is"""
    who: str = ""
    """that one, as a user knows it"""
    failed_hosts: tuple[str, ...] = ()
    """hosts on which processes failed first, as `Job.exclude` names them"""
    bootstrap: bool = False
    """whether it ended before a process of the job could start on its hosts"""
    inferred: bool = False
    """whether `ending` counts only where neither the trainer nor its log tells how it ended"""
    handle: Handle | None = None
    """the handle to use from now on, where polling has changed it"""

    @classmethod
    def ended(cls, ending: Ending | None, detail: str, fix: str = "") -> Polled:
        """What the scheduler of the machines says happened to them."""
        return cls(Process.ENDED, ending=ending, detail=detail, fix=fix)


@dataclass(frozen=True)
class Stopped:
    """The answer to a stop: acknowledged by whoever passes it on to the processes, or not delivered for `reason`."""

    acknowledged: bool
    reason: str = ""
    barred: bool = False
    """whether it cannot be delivered before a person acts, as `reason` says"""


@dataclass(frozen=True)
class Released:
    """Whether everything an ended attempt held is given back; else the reason, and it has to be asked for again."""

    done: bool
    reason: str = ""
    barred: bool = False
    """whether asking again does not help before a person acts, as `reason` says"""
    given_up: bool = False
    """whether a launcher no longer waits for it: a person has to act, as `reason` says"""


@dataclass(frozen=True)
class Remark:
    """What stands in the way of runs on a target, or is good to know of it."""

    level: Literal["error", "inconclusive", "warning", "info"]
    what: str
    fix: str = ""
    unanswered: bool = False
    """whether this machine lacks the login or the package to ask: a run cannot start, and a plan knows nothing of the target"""
    of_jax: bool = False
    """whether it stands in the way of recipes that jax trains alone"""


class Settings(Protocol):
    """What a target of one kind is told about its machines."""

    @property
    def kind(self) -> str: ...

    @property
    def runs(self) -> str:
        """The folder for the directories of runs; "" where any will do."""
        ...

    @property
    def gpus_per_node(self) -> int:
        """0 where the settings do not say."""
        ...

    def devices(self) -> Slice | None:
        """What jax will see; None where only the machines know."""
        ...

    def traits(self) -> Traits: ...

    def model_dump(self, *, mode: str, exclude_defaults: bool = ..., exclude_unset: bool = ...) -> Record: ...


class SlicedSettings(Settings, Protocol):
    """Of a target on which a recipe that names a slice gets that one (`Traits.slice_of_recipe`)."""

    def for_slice(self, name: str) -> SlicedSettings:
        """With the slice of a run in place of its own; UserError where the machines are not for it."""
        ...

    def as_used_by(self, recipe: Recipe) -> SlicedSettings:
        """With what a recipe names, or all of its kind do, where these settings name nothing."""
        ...

    def differences(self, recipe: Recipe) -> list[Remark]:
        """What a recipe says of machines, where these settings say something else."""
        ...


def identity(name: str, settings: Settings) -> Record:
    """Of a target, for handles and journals: it can be opened again from this without the user's file."""
    return {"target": name, "kind": settings.kind, "settings": settings.model_dump(mode="json")}


class MissingProgram(UserError):
    """Programs that a target needs, each with what to do, are not on this machine: nothing can be asked about its runs."""

    def __init__(self, programs: Mapping[str, str]):
        commands = "command" if len(programs) == 1 else "commands"
        fix = "; ".join(dict.fromkeys(programs.values()))
        super().__init__(f"{commands} {', '.join(programs)} not found on this machine", fix, "missing-program")


class Barred(UserError):
    """A refusal of the cloud or the cluster that no repetition changes before a person acts, such as by a new login."""


class MachinesBusy(UserError):
    """The machines of a target cannot be asked now, and a run would wait for them too."""


def facts_in(out: str) -> list[Record]:
    """Of machines that print them as a line each, between whatever else is printed."""
    facts = []
    for line in out.splitlines():
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict) and "host" in value:
                facts.append(value)
    return facts


class Target(Protocol):
    @property
    def identity(self) -> Record:
        """Name, kind and settings; part of every handle."""
        ...

    @property
    def traits(self) -> Traits: ...

    @property
    def provisioner(self) -> Provisioner | None:
        """None where the machines need no request."""
        ...

    def render(self, job: Job, hosts: Hosts | None = None) -> Rendered:
        """Pure, but for what a cluster is asked where the settings leave it open. `hosts`: of the allocation that the attempt is to run on; None
        where there is no provisioner."""
        ...

    def submit(self, rendered: Rendered) -> Handle: ...

    def poll(self, handle: Handle) -> Polled: ...

    def stop(self, handle: Handle, *, force: bool = False) -> Stopped:
        """Ask to save and leave (`force`: end at once), without waiting. Acknowledged too when there is nothing to stop."""
        ...

    def release(self, handle: Handle) -> Released:
        """Give back whatever an ended attempt still holds. Done too when it holds nothing."""
        ...

    def check(self) -> list[Remark]:
        """What stands in the way of runs as things are now; it may ask other machines."""
        ...

    def check_access(self) -> list[Remark]:
        """What of the user's rights and of the cloud stands in the way; slower than `check`, and not asked before each run. [] where
        machines need no request."""
        ...

    def probe_hosts(self, arguments: list[str]) -> list[Record]:
        """What `podwright.train facts ARGUMENTS` tells on each machine, which are asked together; UserError when they cannot be,
        MachinesBusy when a run would wait for them."""
        ...


@runtime_checkable
class KeepsObjects(Protocol):
    """A target without a provisioner of which attempts may leave something behind that nobody else deletes."""

    attempt_objects: KeptResources


@runtime_checkable
class PollsTogether(Protocol):
    """A target that tells of several attempts in one answer."""

    def poll_all(self, handles: Sequence[Handle]) -> list[Polled]:
        """`Target.poll` of each."""
        ...


@runtime_checkable
class ListsCalls(Protocol):
    """A target of which a dry run shows every call, and not the first one alone."""

    def planned_calls(self, rendered: Rendered, request: Request | None) -> list[PlannedCall]:
        """Those by which a run without faults creates and deletes what it needs, in order; what only the cloud knows has a name in capitals.
        `request`: of its machines, if it requests some."""
        ...
