"""The command lines of gcloud by which node pools and workload policies of a run are created, looked at and deleted. Pure; every line
passes gcloud's own linter.

Which flags a pool has goes by its machines: one host takes no topology at all, several of tpu7x take a workload policy and no topology,
several of other generations take a topology with compact placement.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from podwright.rundir import Record
from podwright.slices import Slice
from podwright.targets.gke import xpk_shape
from podwright.targets.google.gcloud import Argv
from podwright.targets.google.labels import RUN_DIR_KEY, quoted_run_dir
from podwright.targets.machines import Request
from podwright.targets.settings.gke import GkeSettings
from podwright.targets.settings.google import region_of

MASTER_VERSION = "MASTER_VERSION"
"""in a dry run, which does not ask for the version of the cluster"""
DRA_LABEL = {"cloud.google.com/gke-networking-dra-driver": "true"}
"""of nodes whose further network interfaces GKE manages"""
_POOLS = ("container", "node-pools")
_POLICIES = ("gcloud", "compute", "resource-policies")
_SCOPES = "storage-full,gke-default,https://www.googleapis.com/auth/cloud-platform"


def _place(own: GkeSettings) -> Argv:
    """Where the cluster is: a region, or a zone."""
    return (f"--project={own.project}", f"--location={own.location}")


def _cluster(own: GkeSettings) -> Argv:
    return (f"--cluster={own.cluster}", *_place(own))


def zone_of(place: str) -> str:
    """Of a place, ZONE or ZONE/RESERVATION."""
    return place.partition("/")[0]


def reservation_of(place: str) -> str:
    """ "" for a zone alone."""
    return place.partition("/")[2]


def pool_names(name: str, slice_: Slice) -> list[str]:
    """Of a request: one pool for each slice."""
    return [f"{name}-{k}" for k in range(slice_.num_slices)]


def create_policy(request: Request, own: GkeSettings, slice_: Slice) -> Argv:
    """A policy has no labels: its description says whose it is, unless it is named after the slice, as by xpk, and belongs to no run."""
    policy = request.details["policy"]
    description = " ".join(f"{key}={value}" for key, value in request.labels.items()) if policy == request.name else ""
    return (
        *(*_POLICIES, "create", "workload-policy", policy),
        f"--project={own.project}",
        f"--region={region_of(own.zones[0])}",
        "--type=HIGH_THROUGHPUT",
        f"--accelerator-topology={slice_.topology}",
        *([f"--description={description}"] if description else []),
        "--quiet",
        "--format=json",
    )


def takes_networks(slice_: Slice) -> bool:
    """Whether hosts of the slices get further network interfaces where the cluster can have them: what xpk 1.16 requests for v6e. One slice
    does not need them."""
    return slice_.accelerator.name == "v6e" and slice_.num_slices > 1


def has_networks(cluster: Record) -> bool:
    """`cluster`: as gcloud describes it."""
    return bool(cluster.get("networkConfig", {}).get("enableMultiNetworking"))


def create_pool(request: Request, pool: str, own: GkeSettings, slice_: Slice, cluster: Record | None = None) -> Argv:
    """The only place that decides the flags of a pool: runs, dry runs and rendered scripts send what it returns.

    `cluster`: as gcloud describes it; None in a dry run, which does not ask and takes it to have what the slices can use.
    """
    vms = xpk_shape.vms_per_slice(slice_)
    networks = takes_networks(slice_) and (cluster is None or has_networks(cluster))
    run_dir = request.details.get("run_dir")
    # Only the beta track has the network profile, and some of the options that a user may want.
    track = ("beta",) if networks or own.gcloud else ()
    return (
        *("gcloud", *track, *_POOLS, "create", pool),
        *_cluster(own),
        f"--node-locations={zone_of(request.zone)}",
        f"--machine-type={own.machine_type}",
        f"--node-version={MASTER_VERSION if cluster is None else cluster.get('currentMasterVersion', '')}",
        f"--scopes={_SCOPES}",
        "--enable-gvnic",
        "--max-pods-per-node=15",
        f"--node-labels={_list_of({**request.labels, **(DRA_LABEL if networks else {})})}",
        f"--labels={_list_of(request.labels)}",
        *([f"--metadata={_list_of({RUN_DIR_KEY: quoted_run_dir(run_dir)})}"] if run_dir else []),
        *(["--accelerator-network-profile=auto"] if networks else []),
        *_placement(request, slice_, vms),
        *_capacity(request, own, vms),
        *own.gcloud,
        "--quiet",
        "--async",
        "--format=json",
    )


def _placement(request: Request, slice_: Slice, vms: int) -> Argv:
    if request.details["policy"]:
        return (f"--placement-policy={request.details['policy']}",)
    return ("--placement-type=COMPACT", f"--tpu-topology={slice_.topology}") if vms > 1 else ()


def _capacity(request: Request, own: GkeSettings, vms: int) -> Argv:
    """How many machines, and of which capacity. Machines of flex-start come when pods ask for them, and go one by one at the end of their
    life; without the autoscaler the pool would replace them."""
    match own.capacity:
        case "reserved":
            return ("--reservation-affinity=specific", f"--reservation={reservation_of(request.zone)}", f"--num-nodes={vms}")  # fmt: skip
        case "spot":
            return ("--spot", f"--num-nodes={vms}")
        case "flex-start":
            scaling = ("--num-nodes=0", "--enable-autoscaling", f"--max-nodes={vms}", "--location-policy=ANY")
            life = f"--max-run-duration={own.life_s:.0f}s"
            return ("--flex-start", *scaling, "--reservation-affinity=none", "--no-enable-autorepair", life)
    return (f"--num-nodes={vms}",)


def lint(argv: Argv) -> Argv:
    """Whether the gcloud of this machine knows the flags of a call: asks nothing of the cloud."""
    return ("gcloud", "meta", "lint-gcloud-commands", f"--command-string={shlex.join(argv)}")


def describe_cluster(own: GkeSettings) -> Argv:
    return ("gcloud", "container", "clusters", "describe", own.cluster, *_place(own), "--format=json")


def list_pools(own: GkeSettings) -> Argv:
    """All of the cluster: a pool of somebody else may have the name of one of ours."""
    return ("gcloud", *_POOLS, "list", *_cluster(own), "--format=json")


def list_operations(own: GkeSettings) -> Argv:
    """Of all clusters of the location, those of the last days that have ended among them."""
    return ("gcloud", "container", "operations", "list", *_place(own), "--format=json")


def delete_pool(own: GkeSettings, pool: str) -> Argv:
    return ("gcloud", *_POOLS, "delete", pool, *_cluster(own), "--quiet", "--async", "--format=json")


def list_policies(own: GkeSettings) -> Argv:
    """Of everybody, in the region of the target's zones."""
    return (*_POLICIES, "list", f"--project={own.project}", f"--regions={region_of(own.zones[0])}", "--format=json")


def delete_policy(own: GkeSettings, policy: str) -> Argv:
    return (
        *_POLICIES,
        "delete",
        policy,
        f"--project={own.project}",
        f"--region={region_of(own.zones[0])}",
        "--quiet",
        "--format=json",
    )


def describe_reservation(own: GkeSettings, reservation: str, zone: str) -> Argv:
    """`reservation`: as the target names it, perhaps of another project, perhaps with a block."""
    parts = reservation.split("/")
    project, name = (parts[1], parts[3]) if parts[0] == "projects" else (own.project, parts[0])
    place = (f"--project={project}", f"--zone={zone}")
    return ("gcloud", "compute", "reservations", "describe", name, *place, "--format=json")


def describe_machine_type(own: GkeSettings, zone: str) -> Argv:
    place = (f"--project={own.project}", f"--zone={zone}")
    return ("gcloud", "compute", "machine-types", "describe", own.machine_type, *place, "--format=json")


def _list_of(values: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in values.items())
