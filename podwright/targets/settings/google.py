"""What the settings of targets of Google Cloud share: the project, the zones in order of preference, durations, and how often the cloud is asked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field

from podwright.targets.settings.values import require_distinct

if TYPE_CHECKING:
    from podwright.targets.settings.gke import GkeSettings
    from podwright.targets.settings.tpu_vm import TpuVmSettings

POLL_S = 10.0
"""between two looks at the cloud: each start of gcloud costs about a second of a core"""
LAG_S = 30.0
"""three polls: for so long the cloud may not show what it was asked for, and a single NOT_FOUND proves nothing"""
SPOT_PREEMPTIONS_PER_DAY = 4.0
"""an assumption: no source states a rate, which differs by zone, size and hour"""
LONGEST_FLEX_S = 7 * 86400.0
"""that machines of flex-start may live"""
_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 600.0, 365 * 86400.0
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_PROJECT = re.compile(r"(?:[a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-(?:ai\d+)?[a-z]")  # us-central1-ai1a is one for accelerators alone


def _is_a_project(value: str) -> str:
    if not _PROJECT.fullmatch(value):
        raise ValueError("is no id of a project; `gcloud config get-value project` prints yours")
    return value


def _are_zones(value: tuple[str, ...]) -> tuple[str, ...]:
    for zone in value:
        if not _ZONE.fullmatch(zone):
            raise ValueError(f"has {zone!r}, which is no zone; write it like [us-east5-b, us-east1-d]")
    require_distinct(value)
    return value


ProjectSetting = Annotated[
    str, AfterValidator(_is_a_project), Field(description="project of Google Cloud that is billed")
]
ZonesSetting = Annotated[
    tuple[str, ...],
    AfterValidator(_are_zones),
    Field(min_length=1, description="where slices may be requested, in order of preference: [us-east5-b, us-east1-d]"),
]


PriceSetting = Annotated[
    float | None, Field(ge=0, allow_inf_nan=False, description="USD per chip-hour, for what a run costs")
]
PreemptionsSetting = Annotated[
    float | None,
    Field(
        ge=0,
        allow_inf_nan=False,
        description="preemptions of a slice that are expected each day, for the checkpoint interval; default: 4 with spot, else 0",
    ),
]


def _is_a_duration(value: str) -> str:
    """A time in which machines can start, of a year at most."""
    try:
        length = seconds(value)
    except ValueError:
        raise ValueError("is no duration; write it like 6h, 90m or 1d12h") from None
    if not _SHORTEST_WAIT_S <= length <= _LONGEST_WAIT_S:
        raise ValueError("is not from 10m to 365d; write it like 6h")
    return value


DurationSetting = Annotated[str, AfterValidator(_is_a_duration)]


def require_times(own: GkeSettings | TpuVmSettings, provisioning: str) -> None:
    """ValueError for a `zone_patience` that never ends, since the run ends before, and for a life that flex-start does not grant."""
    fields_set = own.model_fields_set  # the default of zone_patience may be longer
    if "zone_patience" in fields_set and seconds(own.zone_patience) > seconds(own.patience):
        what = f"zone_patience={own.zone_patience} is longer than patience={own.patience}, after which a run ends"
        raise ValueError(f"{what}; write {own.patience} or less")
    if provisioning == "flex-start" and own.life_s > LONGEST_FLEX_S:
        raise ValueError(f"max_life={own.max_life}: flex-start allows 7 days; write max_life=7d or less")


def place_patience_s(own: GkeSettings | TpuVmSettings, places: Sequence[str]) -> float:
    """How long a run waits in one of `places`."""
    patience_s = seconds(own.patience)
    if len(places) > 1:
        return min(patience_s, seconds(own.zone_patience))
    return patience_s


def preemptions_per_day(own: GkeSettings | TpuVmSettings, provisioning: str) -> float:
    """That are expected of the machines of a run."""
    if own.preemptions_per_day is not None:
        return own.preemptions_per_day
    return SPOT_PREEMPTIONS_PER_DAY if provisioning == "spot" else 0.0


def region_of(zone: str) -> str:
    return zone.rpartition("-")[0]


def seconds(duration: str) -> float:
    """Of a duration as gcloud writes it: 6h, 90m, 1d12h, 30s. ValueError for anything else."""
    match = _DURATION.fullmatch(duration)
    if not duration or not match:
        raise ValueError(duration)
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return float(days * 86400 + hours * 3600 + minutes * 60 + rest)
