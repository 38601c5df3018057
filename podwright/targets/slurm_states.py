"""SLURM's words as data: what the states of an ended job mean for a run, why a job waits, what sbatch refuses and what to do about it."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from podwright.rundir import Ending
from podwright.targets.base import Polled, Process


@dataclass(frozen=True)
class Meaning:
    ending: Ending | None
    """None: the trainer's own last word decides"""
    detail: str = ""
    fix: str = ""


ENDED: dict[str, Meaning] = {
    "COMPLETED": Meaning(None),
    "FAILED": Meaning(None),
    "CANCELLED": Meaning(Ending.STOPPED, "the job was cancelled"),
    "TIMEOUT": Meaning(
        Ending.TIMED_OUT,
        "the time limit of the job came before the trainer could save and leave",
        "raise warn_s of the target above the time of a step and a checkpoint, then resume the run",
    ),
    "DEADLINE": Meaning(Ending.TIMED_OUT, "the deadline of the job has passed"),
    "PREEMPTED": Meaning(Ending.PREEMPTED, "another job took the nodes"),
    "NODE_FAIL": Meaning(Ending.NODE_LOST, "a node of the job failed"),
    "BOOT_FAIL": Meaning(Ending.NODE_LOST, "a node of the job could not be booted"),
    "OUT_OF_MEMORY": Meaning(
        Ending.OUT_OF_MEMORY,
        "a process of the job wanted more memory than it may have",
        "raise mem of the target, then resume the run",
    ),
    "REVOKED": Meaning(Ending.STOPPED, "another cluster of the federation took the job"),
}
"""Every state in which a job stays; in all others it is queued, at work or about to be."""

LAUNCH_FAILED = Meaning(
    Ending.CRASHED,
    "SLURM could not start the job on its nodes (JobLaunchFailure): mostly, the folder of its log is not there",
    "put the run on a folder that the nodes share (`runs` of the target), then resume it",
)

WAITING: dict[str, str] = {
    "Resources": "the nodes it needs are busy",
    "Priority": "jobs of a higher priority are before it",
    "Queued": "SLURM has not looked at it yet",
    "BeginTime": "a job that was queued again is held for two minutes",
    "Dependency": "it waits for another job",
    "DependencyNeverSatisfied": "the job it waits for has failed; stop the run",
    "PartitionTimeLimit": "the target's time is more than the partition allows, so it never starts; lower time, stop and resume the run",
    "PartitionNodeLimit": "the target's nodes are more than the partition allows, so it never starts; lower nodes, stop and resume the run",
    "PartitionDown": "the partition takes no jobs now; another one may",
    "PartitionInactive": "the partition takes no jobs now; another one may",
    "PartitionConfig": "the partition does not allow such a job; `podwright target check {target}` says more",
    "ReqNodeNotAvail": "nodes that it needs are down or reserved; `sinfo -R` says why",
    "Reservation": "the nodes are reserved for others",
    "NodeDown": "a node that it needs is down; `sinfo -R` says why",
    "BadConstraints": "no node has what the target asks for, so it never starts; `podwright target check {target}` says more",
    "Licenses": "a licence that it asks for is in use",
    "JobHeldUser": "it is held; `scontrol release` releases it",
    "JobHeldAdmin": "an administrator holds it; ask them",
    "InvalidAccount": "the target's account may not use the cluster",
    "InvalidQOS": "the target's qos is not allowed for its account",
    "QOSMaxJobsPerUserLimit": "you have as many jobs as the qos allows",
    "QOSMaxWallDurationPerJobLimit": "the target's time is more than the qos allows, so it never starts",
    "QOSMaxGRESPerUser": "you use as many GPUs as the qos allows",
    "AssocGrpGRES": "your account uses as many GPUs as it may",
    "AssocMaxJobsLimit": "your account has as many jobs as it may",
    "Cleaning": "its nodes are being cleaned up after the last start",
    "launch_failed_requeued_held": "it could not be started and is held; `scontrol release` lets it go, `scontrol show job` says more",
    "Configuring": "its nodes are being started",
    "Suspended": "it is suspended, for jobs of a higher priority or by an administrator; it goes on when they let it",
    "Requeue_hold": "it is held after its last start; `scontrol release` releases it",
    "Special_exit": "it is held after its last start; `scontrol release` releases it",
}
"""by the reason of a job that is queued, or by another state"""

COMPLETING = "Completing: SLURM ends the job and frees its nodes"


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
    failures = [_failure(match) for match in _FAILED_TASK.finditer(log, _newest_start(log))]
    killed = (failure for failure, by_shell in failures if by_shell and (failure.returncode or 0) < 0)
    return next(killed, failures[0][0] if failures else None)


def _failure(match: re.Match[str]) -> tuple[TaskFailure, bool]:
    """And whether the shell around it has told its exit code, in which 128 and a signal's number stand for the signal."""
    host, tasks, first, how = match.groups()
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
    match = _FAILED_NODE.search(log, _newest_start(log))
    return (match[1],) if match else ()


def _newest_start(log: str) -> int:
    return max((match.start() for match in _STARTED.finditer(log)), default=0)


def is_busy(message: str) -> bool:
    """Whether srun gave up for want of free nodes: a job of sbatch waits for them."""
    return bool(_BUSY.search(message))


def waiting(state: str, reason: str, target: str) -> str:
    """Why a job of `target` that has not ended is not at work; "" when it is."""
    if state in ("RUNNING", "COMPLETING", "STAGE_OUT"):
        return ""
    if state == "PENDING":
        code = reason.partition(",")[0].strip().replace("None", "Queued").replace(_UNAVAILABLE, "ReqNodeNotAvail")
        return f"{code}: {WAITING.get(code, 'see JOB REASON CODES in `man squeue`').format(target=target)}"
    return f"{state.capitalize()}: {WAITING.get(state.capitalize(), 'SLURM keeps the job in that state')}"


REFUSED: dict[str, str] = {
    "invalid partition": "`sinfo -s` lists the partitions; set partition of the target",
    "invalid account": "`sacctmgr show assoc user=$USER` lists yours; set account and partition of the target",
    "invalid qos": "`sacctmgr show assoc user=$USER format=qos` lists yours; set qos of the target",
    "invalid feature": "`sinfo -o '%N %f'` lists the features of the nodes; set constraint of the target",
    "generic resource": "`sinfo -o '%N %G'` lists the GPUs of the nodes; set gpus_per_node of the target",
    "node configuration is not available": "no nodes have all that: lower nodes, gpus_per_node, cpus_per_task or mem of the target",
    "time limit": "`sinfo -o '%R %l'` lists the limits; lower time of the target",
}


@dataclass(frozen=True)
class NoAnswer:
    """Why a command of SLURM told nothing about the cluster."""

    what: str
    fix: str
    may_have_submitted: bool = True
    """whether a job can have come to be although sbatch said this"""

    def __str__(self) -> str:
        return f"{self.what}; {self.fix}"


_NO_ANSWER: dict[str, NoAnswer] = {
    r"unable to contact|connection (refused|timed out)|socket timed out|has not answered for|no route to host": NoAnswer(
        "the controller of the cluster (slurmctld) does not answer",
        "try again when `scontrol ping` says UP; if it stays down, ask the administrators",
    ),
    r"configuration (source|file)|slurm\.conf": NoAnswer(
        "the commands of SLURM on this machine are configured for no cluster",
        "type it on a login node, or set SLURM_CONF to the slurm.conf of the cluster",
        may_have_submitted=False,
    ),
    r"munge|authentication|credential": NoAnswer(
        "the cluster does not accept the credentials of this machine (munge)",
        "type `munge -n | unmunge`: munged must run here with the key of the cluster",
    ),
}


def no_answer(message: str) -> NoAnswer | None:
    """What it means if a command that said `message` did not reach the cluster; None of any other message."""
    return next((why for sign, why in _NO_ANSWER.items() if re.search(sign, message, re.IGNORECASE)), None)


def failure(command: str, code: int, message: str) -> NoAnswer:
    """Of a command that only reads, or that cancels, and ended with `code`."""
    last = message.strip().splitlines()[-1:] or ["no message"]
    other = NoAnswer(f"{command} ended with exit code {code} ({last[0].strip()})", f"type {command} to see the cause")
    return no_answer(message) or other


def remedy(message: str) -> str:
    return next(
        (fix for sign, fix in REFUSED.items() if sign in message.lower()), "change the target, then resume the run"
    )


BY_RECORD = {
    "fruitless": Polled(
        Process.ENDED,
        ending=Ending.TIMED_OUT,
        detail="three starts came to no checkpoint that the last one had not, so the job was not queued again",
        fix="raise time of the target, or lower checkpoint.every_n_steps, then resume the run",
    ),
    "refused": Polled(
        Process.ENDED,
        ending=Ending.TIMED_OUT,
        detail="the trainer saved and left as it was warned to; SLURM would not queue the job again",
    ),
}
"""by the `why` of ended.json, which the batch script writes"""
