"""What kubectl's and gcloud's own configurations say of keys that an entry of a cluster lacks."""

from __future__ import annotations

import re
from collections.abc import Mapping

from podwright.shell import Shell
from podwright.targets.settings.google import region_of
from podwright.targets.tpu_vm import configuration

_CONTEXT = re.compile(r"gke_(?P<project>[^_]+)_(?P<location>[^_]+)_(?P<cluster>[^_]+)")
"""as `gcloud container clusters get-credentials` names it"""


def proposed(shell: Shell, given: Mapping[str, str]) -> dict[str, str]:
    """Values by key of the target, as they are typed: of the current context of kubectl, or of the only one that agrees with what is
    `given`; the zone of gcloud where it is in the cluster's region. {} without both."""
    of_gcloud = configuration.proposed(shell, given)
    known = {key: value for key, value in given.items() if key in ("project", "cluster", "region")}
    fitting = [each for each in _contexts(shell) if known.items() <= {**each, "region": each["location"]}.items()]
    current = _lines(shell, "current-context")
    chosen = next((each for each in fitting if each["name"] in current), fitting[0] if len(fitting) == 1 else None)
    if chosen is None:
        return of_gcloud
    location = chosen["location"]
    values = {"project": chosen["project"], "cluster": chosen["cluster"]}
    zone = of_gcloud.get("zones", "").strip("[]")
    if location.count("-") > 1:  # a cluster of one zone
        return values | {"zones": f"[{location}]", "region": location}
    return values | ({"zones": f"[{zone}]"} if zone and region_of(zone) == location else {})


def _contexts(shell: Shell) -> list[dict[str, str]]:
    """Those of clusters of GKE."""
    names = _lines(shell, "get-contexts", "--output=name")
    return [match.groupdict() | {"name": name} for name in names if (match := _CONTEXT.fullmatch(name))]


def _lines(shell: Shell, *words: str) -> list[str]:
    try:
        code, stdout, _ = shell.ask(("kubectl", "config", *words))
    except FileNotFoundError:
        return []
    return stdout.split() if code == 0 else []
