"""What kubectl's and gcloud's own configurations say of keys that an entry of a cluster lacks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from podwright.errors import UserError
from podwright.shell import Shell
from podwright.targets.base import MissingProgram
from podwright.targets.google.gcloud import Gcloud
from podwright.targets.settings.google import region_of
from podwright.targets.settings.programs import KUBECTL
from podwright.targets.tpu_vm import configuration, replies

_CONTEXT = re.compile(r"gke_(?P<project>[^_]+)_(?P<location>[^_]+)_(?P<cluster>[^_]+)")
"""as `gcloud container clusters get-credentials` names it"""
_LOGIN = "type gcloud container clusters get-credentials CLUSTER --location=LOCATION, or add {key}=... to the command"


def proposed(shell: Shell, given: Mapping[str, str]) -> dict[str, str]:
    """Values by key of the target, as they are typed: of the current context of kubectl, or of the only one that agrees with what is
    `given`; the zone of gcloud where it is in the cluster's region. {} without both."""
    of_gcloud = configuration.proposed(shell, given)
    chosen = _chosen(shell, _fitting(shell, given))
    if chosen is None:
        return of_gcloud
    location = chosen["location"]
    values = {"project": chosen["project"], "cluster": chosen["cluster"]}
    zone = of_gcloud.get("zones", "").strip("[]")
    if location.count("-") > 1:  # a cluster of one zone
        return values | {"zones": f"[{location}]", "region": location}
    return values | ({"zones": f"[{zone}]"} if zone and region_of(zone) == location else {})


def missing(shell: Shell, key: str, given: Mapping[str, str]) -> tuple[str, str]:
    """Of a key that neither was typed nor could be proposed: what the configurations say of it, and what to type. `given`: with what was
    proposed. Two empty texts where they say nothing of it."""
    if key in ("project", "cluster"):
        if not (contexts := _contexts(shell)):
            return _without_context(
                shell, key, "kubectl has no context of a cluster of GKE (kubectl config get-contexts)"
            )
        choices = " or ".join(f"project={each['project']} cluster={each['cluster']}" for each in contexts)
        return (
            f"kubectl has contexts of {', '.join(each['name'] for each in contexts)}",
            f"add {choices} to the command",
        )
    if key != "zones":
        return "", ""
    chosen = _chosen(shell, _fitting(shell, given))
    location = given.get("region") or (chosen["location"] if chosen else "")
    if not location:
        why = "kubectl has no context of this cluster, which would say its region (kubectl config get-contexts)"
        return _without_context(shell, key, why)
    where = f"cluster {given.get('cluster', '')} is in {location}" + (
        f" (context {chosen['name']} of kubectl)" if chosen else ""
    )
    zones, why = _zones_of(shell, given, location)
    if not zones:
        return (
            f"{where}, and its zones could not be read ({why})",
            f"add 'zones=[ZONE]' to the command, with zones of {location} that have your TPUs",
        )
    fix = f"add 'zones=[{', '.join(zones)}]' to the command, without those that do not have your TPUs"
    return f"{where}, and by gcloud its nodes may be in {', '.join(zones)}", fix


def _without_context(shell: Shell, key: str, why: str) -> tuple[str, str]:
    """Why no context of kubectl says what `key` is, and what to type."""
    if shell.has("kubectl"):
        return why, _LOGIN.format(key=key)
    missing = MissingProgram(KUBECTL)
    return f"{missing.what}, whose contexts would say it", f"{missing.fix}, or add {key}=... to the command"


def _zones_of(shell: Shell, given: Mapping[str, str], location: str) -> tuple[list[str], str]:
    """Where nodes of the cluster are by default, or why that is not known."""
    project, cluster = given.get("project", ""), given.get("cluster", "")
    options = (f"--project={project}", f"--location={location}", "--format=json")
    try:
        record, failure = Gcloud(shell, replies.of_project(project)).look(
            ("gcloud", "container", "clusters", "describe", cluster, *options), "-"
        )
    except UserError as e:
        return [], e.what
    if failure or not isinstance(record, dict):
        return [], failure.reason if failure else "the answer of gcloud was cut off"
    return sorted(map(str, record.get("locations") or [])), "gcloud names none"


def _fitting(shell: Shell, given: Mapping[str, str]) -> list[dict[str, str]]:
    """The contexts that agree with what is given."""
    known = {key: value for key, value in given.items() if key in ("project", "cluster", "region")}
    return [each for each in _contexts(shell) if known.items() <= {**each, "region": each["location"]}.items()]


def _chosen(shell: Shell, fitting: Sequence[dict[str, str]]) -> dict[str, str] | None:
    """The current one, else the only one."""
    current = _lines(shell, "current-context")
    return next((each for each in fitting if each["name"] in current), fitting[0] if len(fitting) == 1 else None)


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
