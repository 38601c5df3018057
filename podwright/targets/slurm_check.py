"""What stands in the way of a job on a SLURM cluster: its partition, what sbatch says of the options, the folders named."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from podwright import extras
from podwright.errors import UserError
from podwright.storage.folder import require_folder
from podwright.targets import slurm_states
from podwright.targets.base import MachinesBusy, Remark
from podwright.targets.settings.slurm import SlurmSettings, seconds

_GPUS = re.compile(r"\bgpu:(?:[^:,()]+:)?(\d+)")
_UNAVAILABLE = re.compile(r"node configuration is not available|node not available")
Ask = Callable[..., tuple[int, str, str]]
"""runs a command of SLURM: exit code, stdout, stderr"""


def check(own: SlurmSettings, ask: Ask, options: Sequence[str]) -> list[Remark]:
    """`options`: of sbatch, as a job would have them."""
    try:
        remarks, waits = _partition(own, ask)
        plugin = _gpu_plugin(own, ask)
        trial = _trial(own, ask, options, bool(waits))
        return [*remarks, *trial, *_places(own), *plugin, *_syntax(own, ask)]
    except MachinesBusy as e:
        return [Remark("inconclusive", e.what, e.fix), *_places(own), *_syntax(own, ask)]
    except UserError as e:
        return [Remark("error", e.what, e.fix)]


def sized(own: SlurmSettings, ask: Ask) -> SlurmSettings:
    """The settings with the cores of a process where they leave them open: with GPUs the share of a node that goes with them, else 1, as where
    the cluster does not say."""
    if own.cpus_per_task:
        return own
    shares = [1]
    if own.gpus_per_node:
        try:
            rows, names = _rows(own, ask)
        except UserError:  # which a check names
            rows, names = [], []
        able = []
        for row in rows:
            cores = int(row[4])
            gpus = _gpus(row[5])
            if row[0].rstrip("*") in names and gpus >= own.gpus_per_node:
                share = cores * own.gpus_per_node // gpus
                able.append(max(1, share // own.tasks_per_node))
        shares = able or shares
    return own.model_copy(update={"cpus_per_task": min(shares)})


def waiting(own: SlurmSettings, ask: Ask) -> str:
    """Why a job that is submitted now would wait until its partition or more nodes are in service; "" when it would not.

    MachinesBusy where the cluster does not answer.
    """
    return _partition(own, ask)[1]


def _rows(own: SlurmSettings, ask: Ask) -> tuple[list[list[str]], list[str]]:
    """What sinfo says of the nodes of every partition, and the partitions in which a job may start."""
    code, out, err = ask("sinfo", "--noheader", "--all", "--exact", "--format=%P|%a|%l|%D|%c|%G|%t")
    if code:
        unknown = slurm_states.failure("sinfo", code, err)
        raise MachinesBusy(unknown.what, unknown.fix, "no-answer")
    rows = [line.split("|") for line in out.splitlines()]
    default = next((row[0].rstrip("*") for row in rows if row[0].endswith("*")), "")
    wanted = own.partition or default
    return rows, [name for name in wanted.split(",") if name]


def _partition(own: SlurmSettings, ask: Ask) -> tuple[list[Remark], str]:
    """The remarks, and why a job would wait for what is out of service, in each of its partitions."""
    rows, names = _rows(own, ask)
    known = sorted({row[0].rstrip("*") for row in rows})
    absent = [name for name in names if name not in known]
    if absent or not names:
        what = f"the cluster has no partition {', '.join(absent)}" if absent else "the cluster has no default partition"
        return [Remark("error", what, f"set partition to one of {', '.join(known)}")], ""
    each = []
    for name in names:
        rows_of_partition = [row for row in rows if row[0].rstrip("*") == name]
        each.append(_one_partition(own, name, rows_of_partition))
    return _of_the_best(each)


def _of_the_best(each: list[tuple[list[Remark], str]]) -> tuple[list[Remark], str]:
    """Of several partitions: a job starts in any of them, so the faults of one are warnings where another has none."""
    usable = [waits for remarks, waits in each if all(r.level != "error" for r in remarks)]
    remarks = [remark for of_partition, _ in each for remark in of_partition]
    if not usable:
        return remarks, next((waits for _, waits in each if waits), "")
    remarks = [replace(remark, level="warning") if remark.level == "error" else remark for remark in remarks]
    if "" in usable:
        return remarks, ""
    return remarks, next((waits for _, waits in each if waits), "")


def _one_partition(own: SlurmSettings, wanted: str, mine: list[list[str]]) -> tuple[list[Remark], str]:
    """`mine`: rows of sinfo, at least one."""
    remarks, waits = [], ""
    _, up, limit, *_ = mine[0]
    if up == "down":  # which takes jobs, and starts none
        waits = f"partition {wanted} starts no jobs now (it is down)"
        remarks.append(Remark("warning", waits, "a job waits until it does; to start now, take another partition"))
    elif up != "up":
        what = f"partition {wanted} takes no jobs now (it is {up})"
        remarks.append(Remark("error", what, "take another partition, or wait"))
    if own.time and seconds(own.time) > seconds(limit):
        what = f"time={own.time}: partition {wanted} allows {limit}"
        remarks.append(Remark("error", what, f"set time={limit}; a longer run takes several jobs"))
    cores = own.cpus_per_task * own.tasks_per_node
    able = [row for row in mine if int(row[4]) >= cores and _gpus(row[5]) >= own.gpus_per_node]
    there = sum(int(row[3]) for row in able)
    left = sum(int(row[3]) for row in able if in_service(row[6]))
    each = f"node(s) of partition {wanted} with {cores} CPUs and {own.gpus_per_node} GPUs"
    if there < own.nodes:
        what = f"nodes={own.nodes}: there are {there} {each}"
        remarks.append(Remark("error", what, "lower nodes, gpus_per_node, tasks_per_node or cpus_per_task"))
    elif left < own.nodes:
        waits = f"nodes={own.nodes}: only {left} of the {there} {each} are in service"
        remarks.append(Remark("warning", waits, "a job waits until more are; `sinfo -R` says why they are not"))
    return remarks, waits


def in_service(state: str) -> bool:
    """By sinfo's short word for the state of a node; `*` stands for one that does not answer."""
    return not state.startswith(("down", "drain", "drng", "fail", "boot", "maint", "resv", "unk")) and "*" not in state


def _trial(own: SlurmSettings, ask: Ask, options: Sequence[str], waits: bool) -> list[Remark]:
    """`waits`: for what is out of service, of which sbatch itself makes a job that is queued, and its trial a refusal."""
    code, out, err = ask("sbatch", "--test-only", *options, "--wrap=true")
    answer = " ".join(f"{err} {out}".replace("sbatch: error: ", "").split())
    if code and waits and _UNAVAILABLE.search(answer):
        unchecked = [f"{key}={value}" for key in ("mem", "constraint", "sbatch") if (value := getattr(own, key))]
        if not unchecked:
            return []
        what = f"whether nodes have {', '.join(unchecked)} cannot be checked while they are out of service ({answer})"
        return [Remark("inconclusive", what, "sbatch refuses the job when the run starts, if none has")]
    if code:
        unknown = slurm_states.no_answer(answer)
        if unknown:
            return [Remark("inconclusive", unknown.what, unknown.fix)]
        return [Remark("error", f"sbatch refuses such a job: {answer}", slurm_states.remedy(answer))]
    return [Remark("info", answer.removeprefix("sbatch: "))]


def _places(own: SlurmSettings) -> list[Remark]:
    remarks: list[Remark] = []
    if own.python and not Path(own.python).exists():
        what = f"python={own.python}: there is no such file here"
        remarks.append(Remark("error", what, "make an environment that the nodes share"))
    if own.runs:
        try:
            require_folder(Path(own.runs), "runs")
        except UserError as e:
            remarks.append(Remark("error", e.what, e.fix))
    return remarks


def _gpu_plugin(own: SlurmSettings, ask: Ask) -> list[Remark]:
    """Whether jax of the environment, which the nodes share with this machine, has its plugin for GPUs. Lines of setup may bring another one."""
    python = own.python or sys.executable
    if not own.gpus_per_node or not Path(python).exists():
        return []
    program = f"import importlib.util; print(any(map(importlib.util.find_spec, {extras.GPU_PLUGINS})))"
    code, out, _ = ask(python, "-c", program)
    if code or out.strip() != "False":
        return []
    level: Literal["warning", "error"] = "warning" if own.setup else "error"
    return [Remark(level, f"python={python} has no jax for NVIDIA GPUs", extras.gpu_fix(" there"), of_jax=True)]


def _syntax(own: SlurmSettings, ask: Ask) -> list[Remark]:
    """Lines of setup that bash cannot parse; they are not run here."""
    remarks = []
    for line in own.setup:
        code, _, err = ask("bash", "-n", "-c", line)
        if code:
            reason = re.sub(r"^.*?line \d+: ", "", err.partition("\n")[0])
            what = f"a line of the target's setup has a syntax error: {line} ({reason})"
            remarks.append(Remark("error", what, "correct that line under setup of the target"))
    return remarks


def _gpus(gres: str) -> int:
    return sum(map(int, _GPUS.findall(gres)))
