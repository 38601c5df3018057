"""The settings of a SLURM cluster."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from podwright.errors import expanded
from podwright.slices import Slice
from podwright.targets.base import Traits
from podwright.targets.settings import gpus, programs
from podwright.targets.settings.storage import StorageSetting
from podwright.targets.settings.values import decided_options, matching, require_distinct

_Size = Annotated[
    str,
    matching(r"(?i)\d+(\.\d+)?([KMGTP]i?B?)?", "is no size of memory; write it like 200G, or 0 for all of a node"),
]
_Word = Annotated[str, matching(r"\S+", "has a space or a line break in it, which no such name has")]
_OPTION = re.compile(r"(?!.*\s--[a-z])(?:--([a-z][a-z0-9-]*)(?:=.*)?|-([A-Za-z]).*)", re.DOTALL)
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def seconds(time: str) -> float:
    """Of a time as SLURM writes it: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S. ValueError for anything else."""
    if time.lower() in ("infinite", "unlimited"):
        return float("inf")
    match = _TIME.fullmatch(time)
    if not match:
        raise ValueError(time)
    days, a, b, c = (int(part or 0) for part in match.groups())
    if match[1] is not None:
        return days * 86400 + a * 3600 + b * 60 + c
    return a * 3600 + b * 60 + c if match[4] is not None else a * 60 + b


class SlurmSettings(BaseModel):
    """A SLURM cluster, as one user uses it."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    kind: Literal["slurm"] = Field(description="the kind of target")
    partition: _Word = Field(
        "",
        description="partition, or several (a,b): the job starts in the one that is free first; default: that of the cluster",
    )
    account: _Word = Field("", description="account that the job is charged to; default: that of the cluster")
    qos: _Word = Field("", description="quality of service of the job; default: that of the cluster")
    constraint: _Word = Field("", description="features that the nodes must have")
    nodes: int = Field(1, ge=1, description="nodes of a job")
    gpus_per_node: int = Field(0, ge=0, description="GPUs of each node; 0: the trainer uses the CPUs")
    accelerator: str = Field(
        "", description="what each GPU is, such as H100-80GB: a plan then knows its memory and the mesh"
    )
    tasks_per_node: int = gpus.TASKS
    cpus_per_task: int = Field(
        0,
        ge=0,
        description="CPU cores of each process; 0: with GPUs, its share of the cores of a node, as sinfo names them, else 1",
    )
    mem: _Size = Field("", description="memory of a node, such as 200G; 0: all of it")
    time: str = Field("", description="time limit of one job, such as 24:00:00; a longer run takes several jobs")
    setup: tuple[str, ...] = Field((), description="shell commands before the trainer starts, such as module load cuda")
    python: str = Field(
        "", description="interpreter of an environment with podwright on the nodes; default: the one that runs this"
    )
    runs: str = Field("", description="a folder that the nodes share, for the directories of runs; default: --runs")
    storage: StorageSetting = ""
    warn_s: int = Field(
        120, ge=1, description="seconds before the time limit at which the trainer saves and the job is queued again"
    )
    sbatch: tuple[str, ...] = Field(
        (),
        description="further options of sbatch, such as --exclusive, or --gres=gpu:a100:2 and --mem-per-gpu=40G in place of what gpus_per_node and mem say",
    )

    @field_validator("time")
    @classmethod
    def _is_a_time(cls, value: str) -> str:
        if value:
            try:
                seconds(value)
            except ValueError:
                raise ValueError("is no time of SLURM's; write it like 30, 24:00:00 or 2-00:00:00") from None
        return value

    @field_validator("partition")
    @classmethod
    def _are_partitions(cls, value: str) -> str:
        names = value.split(",")
        if value and not all(names):
            raise ValueError("has a comma with no partition on one side; write it like gpu, or gpu,backup")
        require_distinct(names)
        return value

    @field_validator("sbatch")
    @classmethod
    def _are_options(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            option = _OPTION.fullmatch(text)
            if option is None or "\n" in text:
                raise ValueError(f"has {text!r}, which is no option; write it like [--exclusive, --mail-type=END]")
            if (option[1] or option[2]) in decided_options("sbatch"):
                raise ValueError(
                    f"has {text!r}, which is set for each job; write the key of the target, or leave it out"
                )
        return value

    @field_validator("runs", "python")
    @classmethod
    def _is_absolute(cls, value: str) -> str:
        if value and not expanded(value).is_absolute():
            raise ValueError("must be an absolute path: it is used on other machines")
        return str(expanded(value)) if value else value

    @model_validator(mode="after")
    def _fits_together(self) -> SlurmSettings:
        gpus.require_tasks(self)
        if self.time and seconds(self.time) <= self.warn_s:
            raise ValueError(
                f"time={self.time} is not longer than warn_s={self.warn_s}; write a longer time, or a smaller warn_s"
            )
        memory = [option for option in (f"--mem={self.mem}", *self.sbatch) if re.match("--mem(-per-[cg]pu)?=.", option)]
        if len(memory) > 1:
            raise ValueError(f"{' and '.join(memory[:2])} exclude each other in SLURM; leave one of them out")
        self.devices()
        return self

    @property
    def num_tasks(self) -> int:
        return self.nodes * self.tasks_per_node

    def devices(self) -> Slice | None:
        """What jax will see; None where the kind of the GPUs is not said."""
        return gpus.devices(self, self.nodes)

    def traits(self) -> Traits:
        # The controller serves everybody: it is asked every 5 s.
        return Traits(queues=True, excludes_hosts=True, poll_s=5.0, storage=self.storage, programs=programs.SLURM)
