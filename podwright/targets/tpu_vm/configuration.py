"""What gcloud's own configuration says of keys that an entry of a TPU VM lacks."""

from __future__ import annotations

from collections.abc import Mapping

from podwright.errors import UserError
from podwright.shell import Shell
from podwright.targets.google.gcloud import Gcloud
from podwright.targets.tpu_vm import calls, replies


def proposed(shell: Shell, given: Mapping[str, str]) -> dict[str, str]:
    """Values by key of the target, as they are typed: those that gcloud has, {} without gcloud."""
    try:
        sections, _ = Gcloud(shell, replies.of_project("")).record(calls.configuration(), "-")
    except UserError:
        return {}
    project = sections.get("core", {}).get("project", "")
    zone = sections.get("compute", {}).get("zone", "")
    return ({"project": project} if project else {}) | ({"zones": f"[{zone}]"} if zone else {})
