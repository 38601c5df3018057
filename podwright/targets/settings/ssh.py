"""The settings of machines that are reached over ssh."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from podwright.slices import Slice
from podwright.targets.base import Traits
from podwright.targets.settings import gpus, programs
from podwright.targets.settings.env import DEFAULT_ENV, EnvSetting
from podwright.targets.settings.storage import StorageSetting
from podwright.targets.settings.values import matching, require_distinct

_HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9][A-Za-z0-9_.-]*(?::\d{1,5})?")

_Address = Annotated[
    str,
    matching(r"[A-Za-z0-9][A-Za-z0-9_.-]*", "is no name and no IPv4 address; write it like 10.0.0.1, without a port"),
]
_LOOPBACK = "127.0.0.1"


class SshSettings(BaseModel):
    """Machines that are reached over ssh, as one user uses them."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    kind: Literal["ssh"] = Field(description="the kind of target")
    hosts: tuple[str, ...] = Field(
        min_length=1, description="the hosts, such as [gpu-1, me@gpu-2:2222]; process 0 runs on the first one"
    )
    address: _Address = Field(
        "",
        description="address at which the other hosts reach the first one; default: its name in `hosts`; not used with one host",
    )
    gpus_per_node: int = Field(0, ge=0, description="GPUs of each host; 0: the trainer uses the CPUs")
    accelerator: str = Field(
        "", description="what each GPU is, such as H100-80GB: a plan then knows its memory and the mesh"
    )
    tasks_per_node: int = gpus.TASKS
    setup: tuple[str, ...] = Field(
        (), description="shell commands before the trainer starts, such as source ~/venv/bin/activate"
    )
    python: str = Field(
        "",
        description="interpreter of an environment with what the trainer needs; default: python3, or with `runs` the one that runs this",
    )
    runs: str = Field(
        "",
        description="a folder that the hosts and this machine share, for the directories of runs; nothing is copied then",
    )
    folder: str = Field("~/.podwright", description="directory of a run on hosts that share no folder")
    storage: StorageSetting = ""
    env: EnvSetting = DEFAULT_ENV
    ssh: tuple[str, ...] = Field((), description="further options of ssh, such as [-J, gate] for a jump host")

    @field_validator("hosts")
    @classmethod
    def _are_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for host in value:
            port = host.partition(":")[2]
            if not _HOST.fullmatch(host) or (port and not 0 < int(port) < 1 << 16):
                raise ValueError(f"has {host!r}, which is no host; write it like [gpu-1, me@gpu-2:2222]")
        require_distinct(value, "write tasks_per_node for several processes on a host")
        return value

    @field_validator("runs", "folder", "python")
    @classmethod
    def _is_found_from_anywhere(cls, value: str, info: ValidationInfo) -> str:
        if info.field_name == "python" and re.search(r"\s-", value):
            raise ValueError("has an argument, and is to be an interpreter alone; leave the argument out")
        if info.field_name == "python" and "/" not in value:
            return value
        home = info.field_name != "runs" and value.startswith("~/")
        if value and not home and not Path(value).is_absolute():
            raise ValueError("must be an absolute path: it is used on other machines")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> SshSettings:
        gpus.require_tasks(self)
        self.devices()
        return self

    @property
    def num_tasks(self) -> int:
        return len(self.hosts) * self.tasks_per_node

    @property
    def rendezvous(self) -> str:
        """The address at which the processes reach process 0; "": the name of the first host. On one host neither `address` nor that
        name is used: both are for other machines, and need not lead to the host from itself."""
        return self.address if len(self.hosts) > 1 else _LOOPBACK

    def devices(self) -> Slice | None:
        """What jax will see; None where the kind of the GPUs is not said."""
        return gpus.devices(self, len(self.hosts))

    def traits(self) -> Traits:
        return Traits(ships_files=not self.runs, poll_s=2.0, storage=self.storage, programs=programs.SSH)
