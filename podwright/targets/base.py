"""What every target does: render a job (pure), then submit, poll, stop and release what was rendered.

How a run ended is not decided here: a target knows processes and machines, not what happened inside them.
"""

from __future__ import annotations

import contextlib
import enum
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from podwright.rundir import Ending, Record

Handle = dict[str, Any]
"""Plain JSON by which any process can find what was submitted."""


@dataclass(frozen=True)
class Job:
    """One attempt of one run."""

    run_dir: Path
    attempt: int
    cwd: Path
    """where relative paths of the recipe start"""
    created: float = 0.0
    """when the run was: tells it from an earlier one in the same place"""


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
    ending: Ending | None = None
    """of an ended one: what whoever schedules the machines says that happened to them, if they did not just do their work"""
    detail: str = ""
    fix: str = ""
    first: int = 0
    """of several processes the one whose end was that of the others, and whose `returncode` this is"""
    who: str = ""
    """that one, as a user knows it"""


@dataclass(frozen=True)
class Remark:
    """What stands in the way of runs on a target, or is good to know of it."""

    level: Literal["error", "warning", "info"]
    what: str
    fix: str = ""


def facts_in(out: str) -> list[Record]:
    """Of machines that print them as a line each, between whatever else is printed."""
    found = []
    for line in out.splitlines():
        with contextlib.suppress(ValueError):
            if isinstance(value := json.loads(line), dict) and "host" in value:
                found.append(value)
    return found


class Target(Protocol):
    def render(self, job: Job) -> Rendered: ...

    def submit(self, rendered: Rendered) -> Handle: ...

    def poll(self, handle: Handle) -> Polled: ...

    def logs(self, handle: Handle, since: int, process: int = 0) -> tuple[str, int]:
        """The log of a process from byte `since` on, and where to go on from."""
        ...

    def stop(self, handle: Handle, *, force: bool = False) -> None:
        """Ask to save and leave (`force`: end at once), without waiting. Harmless when there is nothing to stop."""
        ...

    def release(self, handle: Handle) -> None:
        """Give back whatever an ended attempt still holds. Harmless when it holds nothing."""
        ...

    def probe_hosts(self, arguments: list[str]) -> list[Record]:
        """What `podwright.train facts ARGUMENTS` tells on each machine, which are asked together; UserError when they cannot be."""
        ...
