"""The command lines of gcloud by which slices are requested, looked at and deleted. Pure; every line passes gcloud's own linter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from podwright.rundir import Record
from podwright.targets.base import RUN_LABEL
from podwright.targets.google.gcloud import Argv
from podwright.targets.google.labels import RUN_DIR_KEY, quoted_run_dir
from podwright.targets.machines import Request
from podwright.targets.settings.tpu_vm import TpuVmSettings

_TPUS = ("gcloud", "compute", "tpus")
_TPUS_ALPHA = ("gcloud", "alpha", "compute", "tpus")
_SEPARATOR = "^~^"  # between entries of a list, so that values may hold commas


@dataclass(frozen=True)
class Place:
    """Of a slice, and of the queued resource that it was requested with."""

    name: str
    """of both"""
    project: str
    zone: str
    queued: bool

    @classmethod
    def of(cls, request: Request) -> Place:
        return cls(request.name, request.details["project"], request.zone, request.details["queued"])

    @property
    def resource(self) -> str:
        """As the REST interface calls what has to be deleted, with the query that deletes it whole."""
        kind = "queuedResources" if self.queued else "nodes"
        return f"projects/{self.project}/locations/{self.zone}/{kind}/{self.name}" + (
            "?force=true" if self.queued else ""
        )

    @property
    def options(self) -> Argv:
        return (f"--project={self.project}", f"--zone={self.zone}")


def startup_script() -> str:
    """Where the script lies that a slice runs at each start."""
    return str(resources.files("podwright.targets.tpu_vm") / "startup.sh")


def create(
    place: Place, own: TpuVmSettings, labels: Mapping[str, str], user: str, public_key: str, run_dir: str = ""
) -> Argv:
    """The key is part of the creation: gcloud would else add it by an update of the node, a minute or two after the first ssh."""
    metadata = {
        "ssh-keys": f"{user}:{public_key}",
        "podwright-life-s": f"{own.life_s:.0f}",
        "podwright-resource": place.resource,
    }
    if run_dir:
        metadata[RUN_DIR_KEY] = quoted_run_dir(run_dir)
    common = [
        *place.options,
        f"--accelerator-type={own.accelerator_type}",
        _list_of("labels", dict(label.split("=") for label in own.labels) | dict(labels)),
        _list_of("metadata", metadata),
        f"--metadata-from-file=startup-script={startup_script()}",
        *(f"--{name}={value}" for name, value in _network(own).items() if value),
        *(["--internal-ips"] if own.internal_ips else []),
        "--quiet",
    ]
    tier = {
        "spot": ["--spot"],
        "reserved": ["--reserved"],
        "flex-start": ["--provisioning-model=flex-start", f"--max-run-duration={own.life_s:.0f}s"],
    }.get(own.provisioning, [])
    if not place.queued:  # not --async: only whoever waits for the operation is told why there is no node
        return (*_TPUS, "tpu-vm", "create", place.name, f"--version={own.runtime}", *tier, *common)
    waiting = f"--valid-until-duration={own.wait_s:.0f}s"
    # Only the alpha track knows flex-start, and there --spot alone requests on-demand capacity.
    track = _TPUS_ALPHA if own.provisioning == "flex-start" else _TPUS
    verb = ("queued-resources", "create", place.name, f"--node-id={place.name}")
    return (*track, *verb, f"--runtime-version={own.runtime}", *tier, waiting, *common, "--async")


def describe_queued(place: Place) -> Argv:
    return (*_TPUS, "queued-resources", "describe", place.name, *place.options, "--format=json")


def describe_node(place: Place) -> Argv:
    return (*_TPUS, "tpu-vm", "describe", place.name, *place.options, "--format=json")


def guest_attributes(place: Place) -> Argv:
    """Host keys and names of all workers."""
    return (*_TPUS, "tpu-vm", "get-guest-attributes", place.name, *place.options, "--format=json")


def set_keys(place: Place, keys: str) -> Argv:
    """`keys`: lines USER:KEY, which take the place of those that the node has."""
    metadata = _list_of("update-metadata", {"ssh-keys": keys})
    return (*_TPUS, "tpu-vm", "update", place.name, *place.options, metadata, "--quiet")


def delete(place: Place) -> Argv:
    """Of a queued resource its node too, which has to go first."""
    quiet = ("--async", "--quiet")
    if place.queued:
        return (*_TPUS, "queued-resources", "delete", place.name, *place.options, "--force", *quiet)
    return (*_TPUS, "tpu-vm", "delete", place.name, *place.options, *quiet)


def list_queued(project: str) -> Argv:
    """Of all zones: a queued resource has no labels of its own to filter by."""
    return (*_TPUS, "queued-resources", "list", f"--project={project}", "--zone=-", "--format=json")


def list_nodes(project: str) -> Argv:
    return (
        *_TPUS,
        "tpu-vm",
        "list",
        f"--project={project}",
        "--zone=-",
        f"--filter=labels.{RUN_LABEL}:*",
        "--format=json",
    )


def configuration() -> Argv:
    """What gcloud takes for project and zone where a command names none."""
    return ("gcloud", "config", "list", "--format=json")


def locations(project: str) -> Argv:
    return (*_TPUS, "locations", "list", f"--project={project}", "--format=json")


def accelerator_types(project: str, zone: str) -> Argv:
    place = (f"--project={project}", f"--zone={zone}")
    return (*_TPUS, "tpu-vm", "accelerator-types", "list", *place, "--format=json")


def runtime_versions(project: str, zone: str) -> Argv:
    return (*_TPUS, "tpu-vm", "versions", "list", f"--project={project}", f"--zone={zone}", "--format=json")


def tunnel(instance: str, project: str, zone: str) -> Argv:
    """What ssh sends its bytes through to a machine without an external address."""
    place = (f"--project={project}", f"--zone={zone}")
    return ("gcloud", "compute", "start-iap-tunnel", instance, "22", "--listen-on-stdin", *place)


def _list_of(flag: str, values: Mapping[str, str]) -> str:
    return f"--{flag}={_SEPARATOR}{'~'.join(f'{key}={value}' for key, value in values.items())}"


def _network(own: TpuVmSettings) -> Record:
    return {"network": own.network, "subnetwork": own.subnetwork, "service-account": own.service_account}
