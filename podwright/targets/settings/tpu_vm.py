"""The settings of Cloud TPU VMs: which slice is requested, where, how it is paid for, and for how long it may live."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from podwright import slices
from podwright.errors import UserError
from podwright.slices import Slice
from podwright.targets.base import Traits
from podwright.targets.settings import programs
from podwright.targets.settings.env import DEFAULT_ENV, EnvSetting
from podwright.targets.settings.google import (
    LAG_S,
    POLL_S,
    DurationSetting,
    PreemptionsSetting,
    PriceSetting,
    ProjectSetting,
    ZonesSetting,
    place_patience_s,
    preemptions_per_day,
    require_times,
    seconds,
)
from podwright.targets.settings.storage import StorageSetting
from podwright.targets.settings.values import matching

Provisioning = Literal["spot", "on-demand", "reserved", "flex-start"]

REPAIR_S = 600.0
"""that machines under maintenance may stay away before others are requested: an assumption, no source states how long a restart takes"""
SILENCE_S = 1800.0
"""that all hosts of an attempt may be silent while the cloud calls their machines ready: longer than a boot, and than a gap in a network"""
SPOT_NOTICE_S = 25.0
"""of the 30 s between the notice of a preemption and the end of the machines"""
_RUNTIME = re.compile(r"[a-z0-9][a-z0-9.-]*")
_Node = Annotated[
    str,
    matching(
        r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?",
        "is no name of a TPU VM; `gcloud compute tpus tpu-vm list --zone=ZONE` shows yours",
    ),
]
_LABEL = re.compile(r"([a-z][a-z0-9_-]{0,62})=([a-z0-9_-]{0,63})")
_OTHERS_RUNTIME = re.compile(r"v2-alpha-tpuv\w+(?:-lite)?(?:-pod)?|tpu-(?:vm|ubuntu)\S*")


class TpuVmSettings(BaseModel):
    """Slices of TPU VMs in one project, as one user uses them."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    kind: Literal["tpu-vm"] = Field(description="the kind of target")
    project: ProjectSetting
    zones: ZonesSetting
    accelerator_type: str = Field(description="type of the slice, such as v6e-16")
    runtime_version: str = Field("", description="image of the machines; default: that of the TPU generation")
    provisioning: Provisioning = Field("spot", description="how capacity is requested and paid for")
    queued: bool = Field(True, description="request a queued resource, which waits for capacity; false: create a node")
    storage: StorageSetting = ""
    network: str = Field("", description="network of the machines; default: the network called default of the project")
    subnetwork: str = Field("", description="subnetwork of that network")
    internal_ips: bool = Field(False, description="machines without external addresses, reached through IAP")
    service_account: str = Field(
        "", description="service account of the machines; default: that of Compute Engine in the project"
    )
    labels: tuple[str, ...] = Field((), description="further labels of what is created: [team=nlp]")
    patience: DurationSetting = Field("6h", description="how long a run waits for capacity before it ends")
    zone_patience: DurationSetting = Field(
        "30m", description="how long a run waits in one zone, if there are several; at most patience"
    )
    max_life: DurationSetting = Field(
        "",
        description="time after which a slice without a run deletes itself, default 6h; with flex-start the life of a slice, default 24h",
    )
    node: _Node = Field("", description="name of a slice that exists in the first zone: it is used and never deleted")
    price: PriceSetting = None
    preemptions_per_day: PreemptionsSetting = None
    setup: tuple[str, ...] = Field((), description="shell commands before the trainer starts")
    python: str = Field(
        "",
        description="interpreter of an environment on the image; default: that of an environment which a run installs there",
    )
    folder: str = Field("~/.podwright", description="directory of a run on the machines")
    env: EnvSetting = DEFAULT_ENV

    @field_validator("accelerator_type")
    @classmethod
    def _is_sold(cls, value: str) -> str:
        name = _slice(value).names()["gcloud_accelerator_type"]
        if not name:
            raise ValueError("cannot be requested as a TPU VM; write a type such as v6e-16, v5litepod-16 or v5p-16")
        return name

    @field_validator("labels")
    @classmethod
    def _are_labels(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for label in value:
            if not _LABEL.fullmatch(label):
                raise ValueError(f"has {label!r}; write labels in small letters, digits, _ and -, like [team=nlp]")
            if label.startswith("podwright-"):
                what = f"has {label!r}, and labels that begin with podwright- are set for each slice; leave it out"
                raise ValueError(what)
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> TpuVmSettings:
        require_times(self, self.provisioning)
        if self.storage and not self.storage.startswith("gs://"):
            raise ValueError(f"storage={self.storage}: TPU VMs share no folder; write a bucket like gs://BUCKET/runs")
        if self.provisioning == "flex-start" and not self.queued:
            raise ValueError("queued=false: flex-start exists for queued resources only; leave queued out")
        own = self.devices().names()["runtime"]
        if self.runtime_version and not _RUNTIME.fullmatch(self.runtime_version):
            raise ValueError(f"runtime_version={self.runtime_version} is no name of an image; leave it out for {own}")
        if self.runtime_version not in ("", own) and _OTHERS_RUNTIME.fullmatch(self.runtime_version):
            what = f"runtime_version={self.runtime_version} has no driver for {self.accelerator_type}"
            raise ValueError(f"{what}; leave it out for {own}")
        return self

    @property
    def runtime(self) -> str:
        return self.runtime_version or str(self.devices().names()["runtime"])

    @property
    def wait_s(self) -> float:
        """For capacity in one zone."""
        return place_patience_s(self, self.zones)

    @property
    def life_s(self) -> float:
        return seconds(self.max_life or ("24h" if self.provisioning == "flex-start" else "6h"))

    @property
    def runs(self) -> str:
        return ""

    @property
    def gpus_per_node(self) -> int:
        return 0

    def devices(self) -> Slice:
        return _slice(self.accelerator_type)

    def traits(self) -> Traits:
        return Traits(
            ships_files=True,
            storage=self.storage,
            poll_s=POLL_S,
            lost_grace_s=SPOT_NOTICE_S,
            zones=self.zones[:1] if self.node else self.zones,
            lag_s=LAG_S,
            repair_s=REPAIR_S,
            silence_s=SILENCE_S,
            patience_s=seconds(self.patience),
            borrowed=self.node,
            provisioning=self.provisioning,
            price=self.price,
            preemptions_per_day=preemptions_per_day(self, self.provisioning),
            programs=programs.GCLOUD | programs.SSH | programs.SSH_KEYGEN,
            inventory_scope=(self.project,),
        )


def _slice(accelerator_type: str) -> Slice:
    """ValueError for what is no slice of TPUs."""
    try:
        devices = slices.parse(accelerator_type)
    except UserError as e:
        raise ValueError(f"{e.what.removeprefix('--on ')}; write it like v6e-16") from None
    if devices.accelerator.pod is None or devices.num_slices > 1:
        raise ValueError("is not one slice of TPUs; write it like v6e-16")
    return devices
