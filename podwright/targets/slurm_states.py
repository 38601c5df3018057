"""What SLURM says: why a job waits, what sbatch refuses, which process of a job failed first. The texts are rows of podwright/failures."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podwright.failures.match import match
from podwright.targets.base import Polled

_BY_TRAINER = ("COMPLETED", "FAILED")
"""states of a job whose ending the trainer's last word decides"""
LAUNCH_FAILED = "JobLaunchFailure"
"""the row of a job that could not be started"""

_UNAVAILABLE = "Nodes required for job are DOWN"  # as the reason of some versions begins
_BUSY = re.compile(
    r"Requested nodes are busy|Immediate execution impossible|not available \(down, drained or reserved\)"
)
_STARTED = re.compile(r"^podwright: job \d+, start \d+", re.MULTILINE)
_FAILED_TASK = re.compile(r"^(?:srun: error|task\.sh): ([\w.-]+): tasks? ((\d+)[\d,-]*): (.+)$", re.MULTILINE)
_FAILED_NODE = re.compile(r"^srun: error: Node failure on ([\w.-]+)$", re.MULTILINE)
_EXITED = re.compile(r"Exited with exit code (\d+)")
_SIGNALS = {signal.strsignal(number): number for number in signal.valid_signals()}


@dataclass(frozen=True)
class TaskFailure:
    """What srun says of a process of the job that failed."""

    host: str
    process: int
    who: str
    returncode: int | None
    """negative for a signal; None where srun says neither code nor signal"""


def first_failure(log: str) -> TaskFailure | None:
    """The process whose end was that of the others: of all that srun, or task.sh, names since the newest start of the job, one that was killed by
    a signal while its shell (task.sh) lived, else the first. srun itself kills shell and process together.
    """
    failures = [_failure(line) for line in _FAILED_TASK.finditer(log, _newest_start(log))]
    killed = (failure for failure, by_shell in failures if by_shell and (failure.returncode or 0) < 0)
    return next(killed, failures[0][0] if failures else None)


def _failure(line: re.Match[str]) -> tuple[TaskFailure, bool]:
    """And whether the shell around it has told its exit code, in which 128 and a signal's number stand for the signal."""
    host, tasks, first, how = line.groups()
    who = f"process{'' if tasks == first else 'es'} {tasks} on {host}"
    if exited := _EXITED.fullmatch(how):
        code = int(exited[1])
        return TaskFailure(host, int(first), who, 128 - code if code > 128 else code), True
    number = _SIGNALS.get(how.removesuffix(" (core dumped)"))
    return TaskFailure(host, int(first), who, number and -number), False


def failed_hosts(log: str) -> tuple[str, ...]:
    """The node on which a process failed first since the newest start of the job, or that was lost; () where srun names none."""
    if failure := first_failure(log):
        return (failure.host,)
    lost = _FAILED_NODE.search(log, _newest_start(log))
    return (lost[1],) if lost else ()


def _newest_start(log: str) -> int:
    return max((line.start() for line in _STARTED.finditer(log)), default=0)


def has_ended(state: str) -> bool:
    """Returns whether a job stays in `state`; in all others it is queued, at work or about to be."""
    return state in _BY_TRAINER or match(state, "slurm_state") is not None


def is_busy(message: str) -> bool:
    """Whether srun gave up for want of free nodes: a job of sbatch waits for them."""
    return bool(_BUSY.search(message))


def waiting(state: str, reason: str, target: str) -> str:
    """Why a job of `target` that has not ended is not at work; "" when it is."""
    if state in ("RUNNING", "COMPLETING", "STAGE_OUT"):
        return ""
    if state != "PENDING":
        return explained(state.capitalize(), target, "SLURM keeps the job in that state")
    code = reason.partition(",")[0].strip().replace("None", "Queued").replace(_UNAVAILABLE, "ReqNodeNotAvail")
    return explained(code, target, "see JOB REASON CODES in `man squeue`")


def explained(code: str, target: str, unlisted: str = "") -> str:
    """`code: what it means`, by the table; `unlisted` stands for what it means where the table has no such code."""
    failure = match(code, "slurm_waiting")
    return f"{code}: {failure.cause({'target': target}) if failure else unlisted}"


@dataclass(frozen=True)
class NoAnswer:
    """Why a command of SLURM told nothing about the cluster."""

    what: str
    fix: str
    may_have_submitted: bool = True
    """whether a job can have come to be although sbatch said this"""

    def __str__(self) -> str:
        return f"{self.what}; {self.fix}"


def no_answer(message: str) -> NoAnswer | None:
    """What it means if a command that said `message` did not reach the cluster; None of any other message."""
    failure = match(message, "slurm_command")
    if failure is None:
        return None
    return NoAnswer(failure.row.cause, failure.row.remedy, may_have_submitted=failure.row.retry == "unknown")


def failure(command: str, code: int, message: str) -> NoAnswer:
    """Of a command that only reads, or that cancels, and ended with `code`."""
    last = message.strip().splitlines()[-1:] or ["no message"]
    other = NoAnswer(f"{command} ended with exit code {code} ({last[0].strip()})", f"type {command} to see the cause")
    return no_answer(message) or other


def remedy(message: str) -> str:
    """Returns what to type when sbatch refuses a job with `message`."""
    failure = match(message, "sbatch")
    return failure.row.remedy if failure else "change the target, then resume the run"


def recorded(record: Mapping[str, Any]) -> Polled | None:
    """Returns the end of an attempt by the `why` of ended.json, which the batch script writes; None where that has none."""
    failure = match(str(record.get("why", "")), "slurm_record")
    if failure is None:
        return None
    return Polled.ended(failure.row.ending, failure.row.cause, failure.row.remedy)
