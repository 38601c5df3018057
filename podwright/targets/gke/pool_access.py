"""What the cloud says of a target whose runs create node pools, before anything is requested: login, cluster, machine types, reservations
and bucket; and what ends node pools without their run.

Nothing is created. What a reservation has free now decides nothing: only a request tells.
"""

from __future__ import annotations

from typing import Literal

from podwright.errors import UserError, counted
from podwright.rundir import Record
from podwright.slices import Slice
from podwright.targets.base import RUN_LABEL, Remark
from podwright.targets.gke import pool_calls, pool_states, xpk_shape
from podwright.targets.gke.pool_calls import reservation_of, zone_of
from podwright.targets.google.access import as_warning, bucket, failed, login
from podwright.targets.google.gcloud import Gcloud
from podwright.targets.google.replies import Consequence
from podwright.targets.machines import Request
from podwright.targets.settings.gke import GkeSettings

_UPDATE = "type gcloud components update (528 has no --accelerator-network-profile), or correct gcloud of the target"


def check(own: GkeSettings, gcloud: Gcloud, name: str) -> list[Remark]:
    """Of target `name`. Each remark says what was looked at; after an error that all further calls would repeat there are none."""
    try:
        account, of_login = login(gcloud)
    except UserError as e:
        return [Remark("error", e.what, e.fix)]
    if not account:
        return [of_login]
    remarks = [of_login, *_cluster(own, gcloud)]
    creates_pools = bool(own.places) and all(r.level != "error" for r in remarks)
    if creates_pools:
        remarks += [*_machine_types(own, gcloud), *_reservations(own, gcloud), *_policies(own, gcloud)]
    remarks += bucket(gcloud, own.bucket, own.project, own.zones, account)
    return [*remarks, *expiry(own, name)] if creates_pools else remarks


def expiry(own: GkeSettings, name: str) -> list[Remark]:
    """What ends the machines of a run without its launcher, and what of that could not be checked."""
    hours = own.life_s / 3600
    ends = f"the cluster ends an attempt after {hours:g} h (activeDeadlineSeconds of its jobs, max_life of the target)"
    pools = f"nothing in the cloud ends node pools with provisioning={own.capacity}: they cost until the launcher of their run deletes them"
    level: Literal["info", "warning"] = "warning"
    if own.capacity == "flex-start":
        level = "info"
        pools = f"a node ends {hours:g} h after its start (--max-run-duration); its pool then costs nothing, and goes with its run"
    unknown = f"not checked, since nothing was requested: the quota of {own.machine_type} in {own.project}, and whether you may create and delete node pools and workload policies"
    roles = f"ask for the role Kubernetes Engine Cluster Admin (roles/container.clusterAdmin) in {own.project} if you lack it, and for tpu7x on several hosts for roles/compute.instanceAdmin.v1"
    return [
        Remark("info", ends),
        Remark(level, pools, f"if a launcher is gone for good, type podwright clean {name}"),
        Remark("inconclusive", unknown, roles),
    ]


def _cluster(own: GkeSettings, gcloud: Gcloud) -> list[Remark]:
    record, failure = gcloud.record(pool_calls.describe_cluster(own), own.zones[0])
    where = f"cluster {own.cluster} in {own.location}"
    if failure:
        return [failed(where, failure)]
    status = record.get("status", "")
    remarks = [Remark("info", f"{where} is {status}, version {record.get('currentMasterVersion', 'unknown')}")]
    if status in ("STOPPING", "ERROR"):
        return [Remark("error", f"{where} is {status}", "correct cluster of the target")]
    if not own.places:
        what = "runs create no node pools (provisioning=existing): they wait in the queue for nodes of the cluster"
        return [*remarks, Remark("info", what)]
    operations: list[Record] = []
    for what, call in (("node pools", pool_calls.list_pools), ("operations", pool_calls.list_operations)):
        operations, failure = gcloud.listed(call(own), own.zones[0])
        if failure:
            return [*remarks, failed(f"the {what} of {where}", failure)]
    if wait := pool_states.busy(pool_states.of_cluster(operations, own.cluster)):
        remarks.append(Remark("warning", wait.partition(": ")[2], "a run waits for it"))
    return remarks


def networks(own: GkeSettings, gcloud: Gcloud) -> list[Remark]:
    """What a cluster must have been created with for several slices, which talk to each other over the network of their hosts; and whether
    the gcloud of this machine knows the flags of node pools."""
    try:
        return _networks(own, gcloud)
    except UserError as e:  # gcloud is not on this machine
        what = f"the network of cluster {own.cluster} and the options of gcloud were not looked at: {e.what}"
        return [Remark("inconclusive", what, e.fix)]


def _networks(own: GkeSettings, gcloud: Gcloud) -> list[Remark]:
    slice_ = own.devices()
    if slice_ is None:
        return []
    if slice_.num_slices == 1:
        return _flags(own, gcloud, slice_, None)
    where = f"cluster {own.cluster} in {own.location}"
    record, failure = gcloud.record(pool_calls.describe_cluster(own), own.zones[0])
    if failure:
        what = f"the network of {where}, over which slices talk, was not read: {failure.reason}"
        return [Remark("inconclusive", what, failure.fix)]
    flags = _flags(own, gcloud, slice_, record)
    what = f"{where} can give hosts several network interfaces, which joins slices faster"
    if pool_calls.has_networks(record):
        return [Remark("info", what), *flags]
    what = (
        f"{where} gives each host one network interface, over which the {slice_.num_slices} slices of the target talk"
    )
    fix = "nothing, if that is enough; else create another cluster with --enable-dataplane-v2 --enable-multi-networking"
    return [Remark("warning", what, fix), *flags]


def _flags(own: GkeSettings, gcloud: Gcloud, slice_: Slice, cluster: Record | None) -> list[Remark]:
    """Whether the gcloud of this machine knows how node pools are requested, where that takes more than every gcloud has. It is asked itself:
    no version is compared."""
    networks = pool_calls.takes_networks(slice_) and cluster is not None and pool_calls.has_networks(cluster)
    if not own.places or not (own.gcloud or networks):
        return []
    request = Request("podwright-check", own.places[0], labels={RUN_LABEL: "check"}, details={"policy": ""})
    creation = pool_calls.create_pool(request, request.name, own, slice_, cluster)
    rows, failure = gcloud.listed(pool_calls.lint(creation), own.zones[0])
    if failure or not rows:
        what = f"whether gcloud knows all options of the node pools is unknown: {failure.reason if failure else 'no answer'}"
        return [Remark("inconclusive", what, _UPDATE)]
    row = rows[0]
    if row.get("success"):
        return [Remark("info", "the gcloud of this machine knows all options of the node pools")]
    message = " ".join(str(row.get("error_message")).partition("\n\n")[0].split())
    return [Remark("error", f"the gcloud of this machine refuses how node pools are requested: {message}", _UPDATE)]


def _machine_types(own: GkeSettings, gcloud: Gcloud) -> list[Remark]:
    """What a zone lacks is an error where no zone has it, and a warning where another has."""
    usable, remarks = [], []
    for zone in own.zones:
        _, failure = gcloud.record(pool_calls.describe_machine_type(own, zone), zone)
        if failure is None:
            usable.append(zone)
        elif failure.consequence is Consequence.ABSENT:
            fix = f"leave {zone} out of zones of the target, or correct machine_type"
            remarks.append(Remark("error", f"zone {zone} has no machine type {own.machine_type}", fix))
        else:
            remarks.append(failed(f"machine type {own.machine_type} in {zone}", failure))
    if usable:
        what = f"{own.machine_type} is offered in {', '.join(usable)}; offered is not free"
        remarks = [Remark("info", what), *map(as_warning, remarks)]
    return remarks


def _reservations(own: GkeSettings, gcloud: Gcloud) -> list[Remark]:
    """Of every place; a reservation that is in no zone is an error where there is no other."""
    if own.capacity != "reserved":
        return []
    remarks = [_reservation(own, gcloud, place) for place in own.places]
    usable = any(r.level == "info" for r in remarks)
    if not usable:
        return remarks
    return [as_warning(remark) for remark in remarks]


def _reservation(own: GkeSettings, gcloud: Gcloud, place: str) -> Remark:
    reservation, zone = reservation_of(place), zone_of(place)
    where = f"reservation {reservation} in {zone}"
    record, failure = gcloud.record(pool_calls.describe_reservation(own, reservation, zone), zone)
    if failure and failure.consequence is Consequence.ABSENT:
        return Remark("error", f"{where} does not exist", "correct reservations and zones of the target")
    if failure:
        return Remark("inconclusive", f"{where} was not read: {failure.reason}", "a run tries it all the same")
    specific = record.get("specificReservation", {})
    machine_type = specific.get("instanceProperties", {}).get("machineType", own.machine_type)
    if machine_type != own.machine_type:
        level: Literal["error", "warning"] = "error" if own.devices() else "warning"  # recipes may name other machines
        what = f"{where} is for {machine_type}, and nodes of the target are {own.machine_type}"
        return Remark(level, what, f"set machine_type={machine_type}, or leave the reservation out")
    status = record.get("status", "unknown")
    what = f"{where} is {status}"
    if "count" in specific:
        total = int(specific["count"])
        used = int(specific.get("inUseCount", 0))
        what += f", and {total - used} of {counted(total, 'machine')} were free when it was read"
    return Remark("info" if status == "READY" else "warning", f"{what}; a run tries it in any state")


def _policies(own: GkeSettings, gcloud: Gcloud) -> list[Remark]:
    """Whether workload policies, which several hosts of tpu7x need, can be listed."""
    slice_ = own.devices()
    if slice_ is None or not xpk_shape.placement_policy(slice_):
        return []
    _, failure = gcloud.listed(pool_calls.list_policies(own), own.zones[0])
    if failure:
        return [failed(f"the workload policies of {own.project}, of which {slice_.name} needs one", failure)]
    return [Remark("info", f"you may list workload policies of {own.project}, of which {slice_.name} needs one")]
