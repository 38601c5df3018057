"""Where a user's runs are launched, as words of `podwright target add`: from a config.yaml with keys such as project_id, or from a script."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podwright.errors import UserError
from podwright.recipe import yaml_file

_KEYS = {
    "project_id": "project",
    "cluster_name": "cluster",
    "region": "region",
    "base_output_dir": "bucket",
    "workload_image": "image",
    "tpu_recipes_path": "recipes",
    "machine_type": "machine_type",
    "namespace": "namespace",
    "maxtext_branch": "maxtext",
    "maxtext_version": "maxtext",
    "jax_version": "jax",
    "libtpu_version": "libtpu",
}
"""key of the file -> key of a target of kind gke"""
_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-(?:ai\d+)?[a-z]")


@dataclass(frozen=True)
class LaunchConfig:
    target: list[str]
    """words to type"""
    notes: dict[str, str]
    """key of the file -> its key and value in the target, or why it is not used"""


def recognised(raw: Mapping[str, Any]) -> bool:
    """Whether the content of a YAML file says where to launch, and not what to train."""
    return ("cluster_name" in raw or "tpu_recipes_path" in raw) and "kind" not in raw


def read(path: Path) -> LaunchConfig:
    """UserError for a file without a cluster, a project or a zone, and for a key whose value is no text."""
    raw = yaml_file.read(path)
    missing = [key for key in ("project_id", "cluster_name", "default_zone") if not raw.get(key)]
    if missing:
        raise UserError(f"{path} has no {missing[0]}", f"add a line {missing[0]}: VALUE", "missing-key")
    default = str(raw["default_zone"])
    pairs = dict[str, str]()
    notes = dict[str, str]()
    reserved = list[tuple[str, str]]()
    for key, value in raw.items():
        ours = _KEYS.get(key, key)
        if key == "reservations":
            reserved = _reservations(value, default, path)
            pairs[ours] = f"[{', '.join(dict.fromkeys(name for name, _ in reserved))}]" if reserved else ""
        elif key not in _KEYS:
            notes[str(key)] = "a target has no such key: not used"
            continue
        elif isinstance(value, str | int | float) or value is None:
            pairs[ours] = "" if value is None else str(value)
        else:
            raise UserError(f"{path}: {key}={value!r} must be a text", f"write {key}: VALUE", "not-text")
        notes[key] = f"{ours} is {pairs[ours] or 'left out: it is empty'}"
    pairs["zones"] = f"[{', '.join(dict.fromkeys([default, *(zone for _, zone in reserved)]))}]"
    notes["default_zone"] = f"zones is {pairs['zones']}"
    return LaunchConfig(_words(pairs), notes)


def _reservations(value: Any, default_zone: str, path: Path) -> list[tuple[str, str]]:
    """Names with their zones, in order of preference. UserError for a zone that is none, and for one where the cluster cannot have nodes."""
    entries = value if isinstance(value, list) else [value]
    if isinstance(value, dict):
        entries = [{"name": name, "zone": zone} for name, zone in value.items()]
    reserved = []
    for entry in entries:
        name, zone = (entry.get("name"), entry.get("zone")) if isinstance(entry, dict) else (entry, None)
        if not isinstance(name, str):
            raise UserError(
                f"{path}: reservations has {entry!r}, which has no name",
                "write reservations: [NAME, OTHER]",
                "missing-key",
            )
        full = re.fullmatch(r"projects/[^/]+/zones/([^/]+)/reservations/.+", name)
        zone = str(zone or (full[1] if full else default_zone))
        # the nodes of a cluster are in one region
        if zone != default_zone and (
            not _ZONE.fullmatch(zone) or zone.rpartition("-")[0] != default_zone.rpartition("-")[0]
        ):
            what = f"{path}: reservation {name} is in {zone}, which is no zone of the region of default_zone={default_zone}"
            raise UserError(what, "leave it out, or correct its zone or default_zone", "zone-of-other-region")
        reserved.append((name, zone))
    return reserved


def words(options: Mapping[str, str]) -> list[str]:
    """Of the options of xpk, bucket and image that a script or its user has a value for; [] without a cluster."""
    if not options.get("cluster"):
        return []
    pairs = {
        name: options[name] for name in ("project", "cluster", "bucket", "image", "namespace") if options.get(name)
    }
    zone = options.get("zone", "")
    if zone:
        pairs |= {"zones": f"[{zone}]"} if _ZONE.fullmatch(zone) else {"region": zone}
    return _words(pairs)


def _words(pairs: Mapping[str, str]) -> list[str]:
    order = ("project", "cluster", "zones", "region", "bucket", "image", "reservations")
    keys = [key for key in order if key in pairs]
    keys += [key for key in pairs if key not in order]
    cluster = pairs.get("cluster", "")
    name = cluster if re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", cluster) else "cluster"
    return ["podwright", "target", "add", name, "kind=gke", *(f"{key}={pairs[key]}" for key in keys if pairs[key])]
