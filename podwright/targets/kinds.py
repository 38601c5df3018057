"""The table of target kinds: where the settings and the class of each are, imported only when one is needed."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, create_model

from podwright.rundir import Record
from podwright.targets.base import Target


@dataclass(frozen=True)
class TargetKind:
    settings: str
    """MODULE:CLASS, a pydantic model with what `base.Settings` asks for"""
    target: str
    """MODULE:CLASS, made from a Shell, the name of the target and its settings"""
    in_file: bool = True
    """whether entries of the user's file may be of it"""
    proposals: str = ""
    """MODULE:FUNCTION of a Shell and of what is given: values by key, as they are typed, from the configuration of the cloud's own tools"""


KINDS = {
    "local": TargetKind("podwright.targets.settings.local:LocalSettings", "podwright.targets.local:Local", False),
    "slurm": TargetKind("podwright.targets.settings.slurm:SlurmSettings", "podwright.targets.slurm:Slurm"),
    "ssh": TargetKind("podwright.targets.settings.ssh:SshSettings", "podwright.targets.ssh:Ssh"),
    "tpu-vm": TargetKind(
        "podwright.targets.settings.tpu_vm:TpuVmSettings",
        "podwright.targets.tpu_vm.target:TpuVm",
        proposals="podwright.targets.tpu_vm.configuration:proposed",
    ),
    "gke": TargetKind(
        "podwright.targets.settings.gke:GkeSettings",
        "podwright.targets.gke.target:Gke",
        proposals="podwright.targets.gke.configuration:proposed",
    ),
}


def configured() -> list[str]:
    """The kinds that an entry of the user's file may name."""
    return [name for name, kind in KINDS.items() if kind.in_file]


def settings_class(kind: str) -> type[BaseModel]:
    return _imported(KINDS[kind].settings)


def recorded_settings(kind: str, record: Record) -> Any:
    """Settings as a journal or a handle has them. Types are checked; values and keys that settings no longer have are not: what has been refused
    only since the run began must not keep its resources from being released. ValueError for a record of another version."""
    model = settings_class(kind)
    values = _without_rules(model).model_validate(record)
    return model.model_construct(values.model_fields_set, **dict(values))


@functools.cache
def _without_rules(model: type[BaseModel]) -> type[BaseModel]:
    """A model with the keys and types of `model` alone, which leaves other keys out."""
    fields: dict[str, Any] = {
        name: (field.annotation, ... if field.is_required() else field.default)
        for name, field in model.model_fields.items()
    }
    return create_model(model.__name__, __config__=model.model_config | {"extra": "ignore"}, **fields)


def proposals(kind: str, given: Mapping[str, str]) -> dict[str, str]:
    """Values by key, as they are typed, from the configuration of the cloud's tools, which agree with what is `given`."""
    from podwright.shell import Shell

    where = KINDS[kind].proposals
    values: dict[str, str] = _imported(where)(Shell(), given) if where else {}
    return values


def open_target(kind: str, name: str, settings: Any) -> Target:
    from podwright.shell import Shell

    return _imported(KINDS[kind].target)(Shell(), name, settings)


def _imported(where: str) -> Any:
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(module), name)
