"""What kubectl's and gcloud's own configurations say of keys that an entry of a cluster lacks."""

from __future__ import annotations

import re
from collections.abc import Mapping

from podwright.shell import Shell
from podwright.targets.settings.google import region_of
from podwright.targets.tpu_vm import configuration

_CONTEXT = re.compile(r"gke_(?P<project>[^_]+)_(?P<region>[^_]+)_(?P<cluster>[^_]+)")
"""as `gcloud container clusters get-credentials` names it"""


def proposed(shell: Shell, given: Mapping[str, str]) -> dict[str, str]:
    """Values by key of the target, as they are typed: of the current context of kubectl, or of the only one that agrees with what is
    `given`; the zone of gcloud where it is in the cluster's region. {} without both."""
    of_gcloud = configuration.proposed(shell, given)
    context = _context(shell, given)
    if context is None:
        return of_gcloud
    location = context["region"]
    if location.count("-") > 1:  # a cluster of one zone
        return context | {"zones": f"[{location}]"}
    values = {"project": context["project"], "cluster": context["cluster"]}
    zones = of_gcloud.get("zones", "")
    if region_of(zones.strip("[]")) == location:
        values["zones"] = zones
    return values


def _context(shell: Shell, given: Mapping[str, str]) -> dict[str, str] | None:
    """Of the contexts of clusters of GKE that agree with what is given the current one, else the only one."""
    fitting = {}
    for name in _lines(shell, "get-contexts", "--output=name"):
        match = _CONTEXT.fullmatch(name)
        if match and all(given.get(key, value) == value for key, value in match.groupdict().items()):
            fitting[name] = match.groupdict()
    for name in _lines(shell, "current-context"):
        if name in fitting:
            return fitting[name]
    if len(fitting) != 1:
        return None
    return next(iter(fitting.values()))


def _lines(shell: Shell, *words: str) -> list[str]:
    try:
        code, stdout, _ = shell.ask(("kubectl", "config", *words))
    except FileNotFoundError:
        return []
    return stdout.split() if code == 0 else []
