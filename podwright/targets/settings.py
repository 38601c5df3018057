"""The user's own file of targets: what is true of machines and of nobody's recipe. Reads, checks and adds entries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from podwright import slices
from podwright.accelerators import GPUS
from podwright.errors import UserError, from_os, nearest
from podwright.shell import targets_file
from podwright.slices import Slice

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9][A-Za-z0-9_.-]*(?::\d{1,5})?")
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def seconds(time: str) -> float:
    """Of a time as SLURM writes it: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S. ValueError for anything else."""
    if time.lower() in ("infinite", "unlimited"):
        return float("inf")
    found = _TIME.fullmatch(time)
    if not found:
        raise ValueError(time)
    days, a, b, c = (int(part or 0) for part in found.groups())
    if found[1] is not None:
        return days * 86400 + a * 3600 + b * 60 + c
    return a * 3600 + b * 60 + c if found[4] is not None else a * 60 + b


class SlurmSettings(BaseModel):
    """A SLURM cluster, as one user uses it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["slurm"] = Field(description="what sort of target it is")
    partition: str = Field("", description="default: the cluster's own")
    account: str = ""
    qos: str = ""
    constraint: str = Field("", description="features that the nodes must have")
    nodes: int = Field(1, ge=1)
    gpus_per_node: int = Field(0, ge=0, description="0: the trainer uses the CPUs")
    accelerator: str = Field(
        "", description="what each GPU is, such as H100-80GB: a plan then knows its memory and the mesh"
    )
    tasks_per_node: int = Field(1, ge=1, description="processes on each node; with GPUs 1, or one for each of them")
    cpus_per_task: int = Field(1, ge=1)
    mem: str = Field("", description="memory of a node, such as 200G; 0: all of it")
    time: str = Field("", description="limit of one job, such as 24:00:00; a run goes on over many")
    setup: tuple[str, ...] = Field((), description="lines of shell before the trainer, such as module load cuda")
    python: str = Field(
        "", description="of an environment with podwright on the nodes; default: the one that runs this"
    )
    runs: str = Field("", description="a folder that the nodes share, for the directories of runs; default: --runs")
    warn_s: int = Field(
        120, ge=1, description="seconds before the time limit at which the trainer saves and the job is queued again"
    )
    sbatch: tuple[str, ...] = Field((), description="further options of sbatch, such as --exclusive")

    @field_validator("time")
    @classmethod
    def _is_a_time(cls, value: str) -> str:
        if value:
            try:
                seconds(value)
            except ValueError:
                raise ValueError("is no time of SLURM's; write it like 30, 24:00:00 or 2-00:00:00") from None
        return value

    @field_validator("sbatch")
    @classmethod
    def _are_options(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := next((v for v in value if not v.startswith("-") or "\n" in v), None):
            raise ValueError(f"has {wrong!r}, which is no option; write it like [--exclusive, --mail-type=END]")
        return value

    @field_validator("runs", "python")
    @classmethod
    def _is_absolute(cls, value: str) -> str:
        if value and not Path(value).expanduser().is_absolute():
            raise ValueError("must be an absolute path: it is used on other machines")
        return str(Path(value).expanduser()) if value else value

    @model_validator(mode="after")
    def _fits_together(self) -> SlurmSettings:
        if self.gpus_per_node and self.tasks_per_node not in (1, self.gpus_per_node):
            raise ValueError(
                f"tasks_per_node={self.tasks_per_node}: write 1, or one for each GPU ({self.gpus_per_node})"
            )
        if self.time and seconds(self.time) <= self.warn_s:
            raise ValueError(
                f"time={self.time} is not longer than warn_s={self.warn_s}; write a longer time, or a smaller warn_s"
            )
        self.devices()
        return self

    @property
    def num_tasks(self) -> int:
        return self.nodes * self.tasks_per_node

    def devices(self) -> Slice | None:
        """What jax will see; None where the kind of the GPUs is not said."""
        return _devices(self, self.nodes)


class SshSettings(BaseModel):
    """Machines that are reached over ssh, as one user uses them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["ssh"] = Field(description="what sort of target it is")
    hosts: tuple[str, ...] = Field(
        min_length=1, description="such as [gpu-1, me@gpu-2:2222]; on the first one is process 0"
    )
    address: str = Field("", description="of the first host, as the others reach it; default: its name in hosts")
    gpus_per_node: int = Field(0, ge=0, description="of each host; 0: the trainer uses the CPUs")
    accelerator: str = Field(
        "", description="what each GPU is, such as H100-80GB: a plan then knows its memory and the mesh"
    )
    tasks_per_node: int = Field(1, ge=1, description="processes on each host; with GPUs 1, or one for each of them")
    setup: tuple[str, ...] = Field(
        (), description="lines of shell before the trainer, such as source ~/venv/bin/activate"
    )
    python: str = Field(
        "",
        description="of an environment with what the trainer needs; default: python3, or with runs the one that runs this",
    )
    runs: str = Field(
        "", description="a folder that the hosts and this machine share: runs are made there, and nothing is copied"
    )
    folder: str = Field("~/.podwright", description="where a run is on hosts that share no folder")
    env: tuple[str, ...] = Field(
        ("HF_TOKEN",), description="variables of your shell that the processes get; they are never in a file"
    )
    ssh: tuple[str, ...] = Field((), description="further options of ssh, such as [-J, gate] for a jump host")

    @field_validator("hosts")
    @classmethod
    def _are_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := next((v for v in value if not _HOST.fullmatch(v)), None):
            raise ValueError(f"has {wrong!r}, which is no host; write it like [gpu-1, me@gpu-2:2222]")
        if wrong := next((v for v in value if ":" in v and not 0 < int(v.rpartition(":")[2]) < 1 << 16), None):
            raise ValueError(f"has {wrong!r}, and a port is from 1 to 65535; write it like [gpu-1, me@gpu-2:2222]")
        if twice := next((v for v in value if value.count(v) > 1), None):
            raise ValueError(f"has {twice} twice; write tasks_per_node for several processes on a host")
        return value

    @field_validator("env")
    @classmethod
    def _are_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(not v.isidentifier() for v in value):
            raise ValueError("takes names of variables, never their values; write it like [HF_TOKEN]")
        return value

    @field_validator("runs", "folder", "python")
    @classmethod
    def _is_found_from_anywhere(cls, value: str, info: ValidationInfo) -> str:
        if info.field_name == "python" and "/" not in value:
            return value
        home = info.field_name != "runs" and value.startswith("~/")
        if value and not home and not Path(value).is_absolute():
            raise ValueError("must be an absolute path: it is used on other machines")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> SshSettings:
        if self.gpus_per_node and self.tasks_per_node not in (1, self.gpus_per_node):
            raise ValueError(
                f"tasks_per_node={self.tasks_per_node}: write 1, or one for each GPU ({self.gpus_per_node})"
            )
        self.devices()
        return self

    @property
    def num_tasks(self) -> int:
        return len(self.hosts) * self.tasks_per_node

    def devices(self) -> Slice | None:
        """What jax will see; None where the kind of the GPUs is not said."""
        return _devices(self, len(self.hosts))


Settings = SlurmSettings | SshSettings
KINDS: dict[str, type[SlurmSettings] | type[SshSettings]] = {"slurm": SlurmSettings, "ssh": SshSettings}


def _devices(own: Settings, nodes: int) -> Slice | None:
    if own.accelerator and own.accelerator.lower() not in (known := [a.name.lower() for a in GPUS]):
        guess = nearest(own.accelerator.lower(), known)
        fix = f"did you mean {guess.upper()}?" if guess else "write one such as H100-80GB"
        raise ValueError(f"accelerator={own.accelerator}: no such GPU is known; {fix}")
    if not own.gpus_per_node:
        return slices.parse(f"cpu-{own.num_tasks}")
    if not own.accelerator:
        return None
    try:
        return slices.parse(f"{nodes * own.gpus_per_node}x{own.accelerator}")
    except UserError as e:
        raise ValueError(f"accelerator={own.accelerator}: {e.what}; {e.fix}") from None


def names() -> list[str]:
    return list(_entries())


def find(name: str) -> Settings | None:
    """The target called `name`; None when there is none. UserError when its entry is wrong."""
    entries = _entries()
    return _parse(name, entries[name], str(targets_file())) if name in entries else None


def require(name: str) -> Settings:
    found = find(name)
    if found is not None:
        return found
    known = names()
    guess = nearest(name, known)
    there = f"did you mean {guess}?" if guess else f"there are {', '.join(known)}" if known else "there is none yet"
    raise UserError(
        f"there is no target {name!r} in {targets_file()}", f"{there}; `podwright target add NAME kind=ssh` adds one"
    )


def add(name: str, pairs: Sequence[str]) -> Settings:
    """Write a new entry at the end of the file; what stands there stays as it is."""
    path = targets_file()
    if not _NAME.fullmatch(name) or name == "local" or _is_slice(name):
        raise UserError(
            f"{name!r} cannot be the name of a target", "use letters, digits, '.', '_' and '-', and no name of a slice"
        )
    if name in _entries():
        raise UserError(f"there is a target {name!r} already", f"change it in {path}, or take another name")
    entry: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UserError(f"{pair!r} sets nothing", "write KEY=VALUE, for example partition=gpu")
        if key in entry:
            raise UserError(f"{key}= is there twice", "leave one of them out")
        try:
            entry[key] = yaml.load(value, yaml.BaseLoader)
        except yaml.YAMLError:
            entry[key] = value
    found = _parse(name, entry, "what was typed")
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text() if path.exists() else ""
    gap = "" if not before or before.endswith("\n") else "\n"
    part = path.with_name(f"{path.name}.part")
    part.write_text(before + gap + yaml.safe_dump({name: entry}, sort_keys=False, allow_unicode=True))
    part.replace(path)
    return found


def _is_slice(name: str) -> bool:
    try:
        slices.parse(name)
    except UserError:
        return False
    return True


def _entries() -> dict[str, Any]:
    """Every entry as it stands, all values as text: YAML takes 24:00:00 for a number."""
    path = targets_file()
    try:
        found = yaml.load(path.read_text(), yaml.BaseLoader)
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as e:
        raise UserError(f"{path} is not text", "name another file in PODWRIGHT_TARGETS, or mend it") from e
    except OSError as e:
        raise from_os(e, path) or UserError(
            f"{path} cannot be read: {e}", "name another file in PODWRIGHT_TARGETS"
        ) from e
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        raise UserError(
            f"{path}{f' line {mark.line + 1}' if mark else ''} is not YAML: {getattr(e, 'problem', e)}",
            "mend that line",
        ) from e
    if found in (None, ""):
        return {}
    if not isinstance(found, dict):
        raise UserError(f"{path} holds no mapping of names", "write NAME:, and indented below it kind: slurm")
    return found


def _parse(name: str, entry: Any, where: str) -> Settings:
    if not isinstance(entry, dict) or entry.get("kind") not in KINDS:
        said = f"kind={entry['kind']!r}" if isinstance(entry, dict) and "kind" in entry else "no kind"
        raise UserError(f"target {name!r} in {where} has {said}", f"known: kind={', kind='.join(KINDS)}")
    model = KINDS[entry["kind"]]
    try:
        return model.model_validate(entry)
    except ValidationError as e:
        first = e.errors()[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            guess = nearest(key, list(model.model_fields))
            raise UserError(
                f"target {name!r} has no key {key!r}", f"did you mean {guess}?" if guess else _known(model)
            ) from e
        if first["type"] == "tuple_type":
            raise UserError(
                f"target {name!r}: {key}={first['input']} is no list",
                f"write {key}=[{first['input']}], commas between several",
            ) from e
        said = first["msg"].removeprefix("Value error, ")
        given = f"{key}={first['input']} " if key and isinstance(first["input"], str) else f"{key}: " if key else ""
        raise UserError(f"target {name!r}: {given}{said[0].lower()}{said[1:]}", f"mend it in {where}") from e


def _known(model: type[BaseModel]) -> str:
    return f"known: {', '.join(model.model_fields)}"
