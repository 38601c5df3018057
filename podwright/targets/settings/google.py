"""Keys that targets of Google Cloud share: the project, and the zones in order of preference."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

_PROJECT = re.compile(r"(?:[a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-(?:ai\d+)?[a-z]")  # us-central1-ai1a is one for accelerators alone


def _is_a_project(value: str) -> str:
    if not _PROJECT.fullmatch(value):
        raise ValueError("is no id of a project; `gcloud config get-value project` prints yours")
    return value


def _are_zones(value: tuple[str, ...]) -> tuple[str, ...]:
    if wrong := next((zone for zone in value if not _ZONE.fullmatch(zone)), None):
        raise ValueError(f"has {wrong!r}, which is no zone; write it like [us-east5-b, us-east1-d]")
    if twice := next((zone for zone in value if value.count(zone) > 1), None):
        raise ValueError(f"has {twice} twice; leave one of them out")
    return value


ProjectSetting = Annotated[str, AfterValidator(_is_a_project), Field(description="that pays")]
ZonesSetting = Annotated[
    tuple[str, ...],
    AfterValidator(_are_zones),
    Field(min_length=1, description="where slices may be requested, in order of preference: [us-east5-b, us-east1-d]"),
]


def region_of(zone: str) -> str:
    return zone.rpartition("-")[0]
