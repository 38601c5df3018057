"""The settings of a cluster of GKE: where it is, what its queue and its node pools are, and what a run on it needs."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from podwright import slices
from podwright.errors import UserError, listed
from podwright.recipe.maxtext.schema import IMAGE
from podwright.recipe.schema import PathText
from podwright.recipe.wrong_values import in_words
from podwright.slices import Slice
from podwright.targets.base import Remark, Traits
from podwright.targets.gke import machine_types, xpk_shape
from podwright.targets.settings import programs
from podwright.targets.settings.env import DEFAULT_ENV, EnvSetting
from podwright.targets.settings.gcloud import GcloudSetting
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
    region_of,
    require_times,
    seconds,
)
from podwright.targets.settings.values import matching, require_distinct

if TYPE_CHECKING:
    from podwright.recipe.kinds import Recipe

PoolProvisioning = Literal["", "existing", "reserved", "spot", "on-demand", "flex-start"]

MACHINE_TYPE = "tpu7x-standard-4t"
START_GRACE_S = 60.0
"""from the decision to submit until a JobSet must exist that a launcher did not live to see created"""
GRACE_S = 240.0
"""from the deletion of a JobSet until its pods are ended by force: they have 180 s themselves"""
REPAIR_S = 600.0
"""for which nodes of a pool may be missing before other pools are requested, while no process can be at work: an assumption, as of Cloud TPU VMs"""
PYTHON_IMAGE = "python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea"
"""the multi-platform index that Docker Hub had under that tag in August 2026"""
_PYTHON = "3.12"  # of the wheels in targets/gke/requirements.txt
MOST_NODES = 65_000
"""of the largest cluster of GKE, from version 1.31 on, and 15,000 before: "Plan for large GKE clusters",
https://cloud.google.com/kubernetes-engine/docs/concepts/planning-large-clusters"""
NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
"""of a namespace, a queue or a PriorityClass"""
_NAME_RULE = "is no such name; write small letters, digits and -, beginning with a letter"
_Name = Annotated[str, matching(NAME.pattern, _NAME_RULE)]
_Cluster = Annotated[str, matching(r"[a-z](?:[-a-z0-9]{0,38}[a-z0-9])?", f"{_NAME_RULE}, at most 40")]
_Version = Annotated[
    str, matching(r"[A-Za-z0-9][A-Za-z0-9._+/-]*", "is no version; write it without blanks and quotes")
]
_Place = Annotated[
    str, matching(r"[a-z]+-[a-z]+\d+(?:-(?:ai\d+)?[a-z])?", "is no region and no zone; write it like us-central1")
]
_RESERVATION = re.compile(r"(?:projects/[a-z][a-z0-9-]*/reservations/)?[a-z](?:[-a-z0-9]*[a-z0-9])?(?:/reservation[A-Za-z]+/[a-z0-9-]+)*")  # fmt: skip
_ZONED = re.compile(r"projects/([^/]+)/zones/([^/]+)/reservations/(.+)")
"""a reservation by its full name: there may be others of its name in other zones; `gcloud container node-pools create` takes it without the zone"""
_BUCKET = re.compile(r"gs://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9](?:/[A-Za-z0-9._-]+)*/?")


def _without_zone(reservation: str) -> str:
    return _ZONED.sub(r"projects/\1/reservations/\3", reservation)


class GkeSettings(BaseModel):
    """A cluster with TPU node pools and the queue that a JobSet waits in, as one user uses it."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    kind: Literal["gke"] = Field(description="the kind of target")
    project: ProjectSetting
    cluster: _Cluster = Field(
        min_length=1, description="name of the cluster, as `gcloud container clusters list` shows it"
    )
    zones: ZonesSetting
    region: _Place = Field("", description="region or zone of the cluster; default: the region of `zones`")
    bucket: str = Field(
        "",
        description="bucket, and a folder in it if wanted, for checkpoints, records and the output of MaxText (base_output_directory): gs://BUCKET/runs",
    )
    image: str = Field(
        "",
        description="image with MaxText for the pods of MaxText recipes; `render` writes a script that builds it if it is missing",
    )
    reservations: tuple[str, ...] = Field(
        (),
        description="reservations for node pools, in order of preference: [NAME, OTHER]; none: as `provisioning` says",
    )
    provisioning: PoolProvisioning = Field(
        "",
        description="how node pools of a run are paid for; existing: none are created, runs wait in the queue for those of the cluster; "
        "default: reserved with reservations, else existing",
    )
    patience: DurationSetting = Field("6h", description="how long a run waits for node pools before it ends")
    zone_patience: DurationSetting = Field(
        "30m",
        description="how long a run waits for the nodes of its pools in one zone or reservation, if there are several; at most patience",
    )
    max_life: DurationSetting = Field(
        "",
        description="time after which the cluster ends an attempt, default 7d; with flex-start also the life of a node, default 24h",
    )
    price: PriceSetting = None
    preemptions_per_day: PreemptionsSetting = None
    machine_type: str = Field(
        MACHINE_TYPE, description="machine type of the nodes; default with a topology: that of its hosts"
    )
    gcloud: GcloudSetting = ()
    topology: str = Field(
        "", description="slice for recipes that name none, such as tpu7x-4x4x8; several slices: 2x tpu7x-4x4x8"
    )
    namespace: _Name = Field(
        "default", min_length=1, description="namespace of Kubernetes, in which runs are submitted"
    )
    queue: _Name = Field("multislice-queue", min_length=1, description="LocalQueue of Kueue in that namespace")
    priority: _Name = Field(
        "", description="a PriorityClass of the cluster; default: what the recipe says, else medium"
    )
    python_image: str = Field(PYTHON_IMAGE, description="image for the pods of other recipes, with Python 3.12")
    recipes: PathText = Field("", description="a checkout of tpu-recipes, in which a recipe is looked up by its name")
    maxtext: _Version = Field(
        "", description="a tag, branch or commit of MaxText, to build the image; default: what the recipe says"
    )
    jax: _Version = Field("", description="version for that image; default: what the recipe says")
    libtpu: _Version = Field("", description="version for that image; default: what the recipe says")
    env: EnvSetting = DEFAULT_ENV

    @model_validator(mode="before")
    @classmethod
    def _machines_of_topology(cls, values: dict[str, Any]) -> dict[str, Any]:
        if "machine_type" in values:
            return values
        with contextlib.suppress(UserError, TypeError, KeyError):  # a wrong topology is refused by its own validator
            devices = slices.parse(values["topology"])
            if devices.accelerator.pod:
                return values | {"machine_type": machine_types.of_slice(devices)}
        return values

    @field_validator("machine_type")
    @classmethod
    def _has_chips(cls, value: str) -> str:
        if value not in machine_types.MACHINE_TYPES:
            raise ValueError(f"is no machine type with TPUs; known are {listed(machine_types.MACHINE_TYPES)}")
        return value

    @field_validator("bucket")
    @classmethod
    def _is_a_bucket(cls, value: str) -> str:
        if value and (not _BUCKET.fullmatch(value) or {".", ".."} & set(value.split("/"))):
            raise ValueError("is no bucket; write it like gs://my-bucket/runs")
        return value.rstrip("/")

    @field_validator("image", "python_image")
    @classmethod
    def _is_an_image(cls, value: str, info: ValidationInfo) -> str:
        if not IMAGE.fullmatch(value) and not (value == "" and info.field_name == "image"):
            raise ValueError("is no image; write it like us-docker.pkg.dev/PROJECT/REPOSITORY/maxtext:TAG")
        tag = re.search(r"(?:^|/)python:(\d[\d.]*)", value) if info.field_name == "python_image" else None
        if tag and not f"{tag[1]}.".startswith(f"{_PYTHON}."):
            what = f"has Python {tag[1]}, and packages of pods are built for Python {_PYTHON}"
            raise ValueError(f"{what}; write python_image=python:{_PYTHON}-slim, or leave it out")
        return value

    @field_validator("reservations")
    @classmethod
    def _are_reservations(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        zones = info.data.get("zones", ())
        for match in filter(None, map(_ZONED.fullmatch, value)):
            if zones and match[2] not in zones:
                fix = f"add {match[2]} to zones, or leave {match[3]} out"
                raise ValueError(f"has {match[3]} in zone {match[2]}, and zones has {', '.join(zones)} alone; {fix}")
        wrong = [each for each in value if not _RESERVATION.fullmatch(_without_zone(each))]
        if wrong:
            raise ValueError(f"has {wrong[0]!r}, which is no reservation; write it like [NAME, OTHER]")
        require_distinct(value)
        return value

    @field_validator("topology")
    @classmethod
    def _are_slices(cls, value: str) -> str:
        if not value:
            return value
        try:
            devices = slices.of_tpus(value, "topology")
        except UserError as e:
            raise ValueError(f"is refused: {e.what.removeprefix(f'topology={value}: ')}; {e.fix}") from None
        if devices.num_slices > 1 and xpk_shape.vms_per_slice(devices) == 1:
            raise ValueError("has slices of one host, which GKE does not join; write one larger slice")
        if (nodes := xpk_shape.vms_per_slice(devices) * devices.num_slices) > MOST_NODES:
            raise ValueError(f"needs {nodes:,} nodes, and a cluster has at most {MOST_NODES:,}; write fewer slices")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> GkeSettings:
        require_times(self, self.capacity)
        region = self.location if self.location.count("-") == 1 else region_of(self.location)
        other = next((zone for zone in self.zones if region_of(zone) != region), "")
        if other:
            raise ValueError(
                f"zones: {other} is not in {region}, where the cluster is; leave it out, or correct region"
            )
        if self.provisioning == "reserved" and not self.reservations:
            raise ValueError("provisioning=reserved: reservations are missing; write reservations=[NAME]")
        if self.provisioning in ("spot", "on-demand", "flex-start") and self.reservations:
            raise ValueError(f"provisioning={self.provisioning} uses no reservations; leave one of the two out")
        devices = self.devices()
        if devices:
            fault = machine_types.fault(self.machine_type, devices)
            if fault:
                raise ValueError(fault)
        return self

    @property
    def location(self) -> str:
        """Of the cluster: a region, or a zone."""
        return self.region or region_of(self.zones[0])

    @property
    def capacity(self) -> str:
        """How node pools of a run are paid for; "existing": runs create none."""
        return self.provisioning or ("reserved" if self.reservations else "existing")

    @property
    def places(self) -> tuple[str, ...]:
        """Where node pools may be requested, in order: ZONE, or ZONE/RESERVATION; () where runs create none."""
        if self.capacity == "existing":
            return ()
        return self.reserved_places if self.capacity == "reserved" else self.zones

    @property
    def reserved_places(self) -> tuple[str, ...]:
        """ZONE/RESERVATION in order: a reservation that is named with its zone there alone, another one in each of `zones`."""
        places = []
        for reservation in self.reservations:
            named = _ZONED.fullmatch(reservation)
            zones = (named[2],) if named else self.zones
            places += [f"{zone}/{_without_zone(reservation)}" for zone in zones]
        return tuple(dict.fromkeys(places))

    @property
    def reservation_names(self) -> tuple[str, ...]:
        """As gcloud takes them, each once."""
        return tuple(dict.fromkeys(map(_without_zone, self.reservations)))

    @property
    def life_s(self) -> float:
        """Of an attempt; of flex-start, of a node too."""
        return seconds(self.max_life or ("24h" if self.capacity == "flex-start" else "7d"))

    def for_slice(self, name: str) -> GkeSettings:
        """With slice `name` in place of `topology`, and its machines where the user's file names none. UserError where they are not for it."""
        before = self.devices()
        values = self.model_dump(mode="json", exclude_unset=True) | {"topology": name}
        if self.machine_type == (machine_types.of_slice(before) if before else MACHINE_TYPE):
            values.pop("machine_type", None)
        try:
            return GkeSettings.model_validate(values)
        except ValidationError as e:
            what = f"{name}: {in_words(e.errors()[0])}"
            raise UserError(what, "change the target's file, or name another target", "wrong-value") from e

    def as_used_by(self, recipe: Recipe) -> GkeSettings:
        """With the PriorityClass that the pods of a recipe have; without one where the recipe names none that can be."""
        from podwright.recipe import load
        from podwright.recipe.maxtext.schema import MaxTextRecipe
        from podwright.targets.gke import jobset

        options = load.require(recipe, MaxTextRecipe).xpk if recipe.kind == "maxtext" else {}
        name = self.priority or options.get("priority") or jobset.PRIORITY
        return self.model_copy(update={"priority": name if NAME.fullmatch(name) else ""})

    def differences(self, recipe: Recipe) -> list[Remark]:
        """Of a MaxText recipe, whose options of xpk name machines; others name none."""
        from podwright.recipe import load
        from podwright.recipe.maxtext.schema import MaxTextRecipe
        from podwright.targets.gke import capacity

        if recipe.kind != "maxtext":
            return []
        return capacity.differences(load.require(recipe, MaxTextRecipe), self)

    @property
    def runs(self) -> str:
        return ""

    @property
    def gpus_per_node(self) -> int:
        return 0

    def devices(self) -> Slice | None:
        """None where the settings name no slice; a MaxText recipe names its own, and `for_slice` puts it here."""
        return slices.parse(self.topology) if self.topology else None

    def require_devices(self) -> Slice:
        """UserError where neither the target nor the recipe names a slice."""
        devices = self.devices()
        if devices is None:
            what = f"the target of cluster {self.cluster} has no topology, and the recipe names none"
            raise UserError(what, "set topology in the target's file, such as tpu7x-4x4x4", "no-topology")
        return devices

    def traits(self) -> Traits:
        return Traits(
            ships_files=True,
            pods=True,
            slice_of_recipe=True,
            start_grace_s=START_GRACE_S,
            grace_s=GRACE_S,
            storage=self.bucket,
            poll_s=POLL_S,
            zones=self.places,
            lag_s=LAG_S,
            repair_s=REPAIR_S,
            patience_s=seconds(self.patience),
            place_patience_s=place_patience_s(self, self.places),
            provisioning="" if self.capacity == "existing" else self.capacity,
            price=self.price,
            preemptions_per_day=preemptions_per_day(self, self.capacity),
            programs=(programs.GCLOUD if self.places else {}) | programs.KUBECTL,
            inventory_scope=(self.project, self.location, self.cluster),
        )
