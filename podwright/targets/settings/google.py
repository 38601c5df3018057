"""What the settings of targets of Google Cloud share: the project, the zones in order of preference, durations, and how often the cloud is asked."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from podwright.targets.settings.values import require_distinct

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
    if wrong := next((zone for zone in value if not _ZONE.fullmatch(zone)), None):
        raise ValueError(f"has {wrong!r}, which is no zone; write it like [us-east5-b, us-east1-d]")
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


def require_duration(value: str, starts: str, *, default: bool) -> str:
    """`value`, a duration in which a `starts` (what machines are) can start, and of a year at most; ValueError for another. `default`: whether
    "" stands for one."""
    if default and not value:
        return value
    try:
        length = seconds(value)
    except ValueError:
        raise ValueError("is no duration; write it like 6h, 90m or 1d12h") from None
    if length < _SHORTEST_WAIT_S:
        raise ValueError(f"is shorter than a {starts} takes to start; write 10m or more")
    if length > _LONGEST_WAIT_S:
        raise ValueError("is longer than a year; write 365d or less")
    return value


def require_within(zone_patience: str, patience: str) -> None:
    """ValueError for a `zone_patience` that never ends, since the run ends before."""
    if seconds(zone_patience) > seconds(patience):
        what = f"zone_patience={zone_patience} is longer than patience={patience}, after which a run ends"
        raise ValueError(f"{what}; write {patience} or less, or a longer patience")


def region_of(zone: str) -> str:
    return zone.rpartition("-")[0]


def seconds(duration: str) -> float:
    """Of a duration as gcloud writes it: 6h, 90m, 1d12h, 30s. ValueError for anything else."""
    match = _DURATION.fullmatch(duration)
    if not duration or not match:
        raise ValueError(duration)
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return float(days * 86400 + hours * 3600 + minutes * 60 + rest)
