"""What the cloud says of a target before anything is requested: login, API, zones, types, images, rights and the bucket.

Nothing is created. What the cloud tells only at a request is named as not checked.
"""

from __future__ import annotations

from collections.abc import Sequence

from podwright.rundir import Record
from podwright.targets.base import Remark
from podwright.targets.google.access import as_warning, bucket, failed, login
from podwright.targets.google.gcloud import Gcloud
from podwright.targets.machines import Allocation, AllocationState
from podwright.targets.settings.tpu_vm import TpuVmSettings
from podwright.targets.tpu_vm import calls


def check(own: TpuVmSettings, gcloud: Gcloud) -> list[Remark]:
    """Each remark says what was looked at; after an error that all further calls would repeat there are none. UserError without gcloud."""
    account, of_login = login(gcloud)
    if not account:
        return [of_login]
    locations, failure = gcloud.listed(calls.locations(own.project))
    if failure:
        return [of_login, failed(f"Cloud TPU of {own.project}", failure)]
    remarks = [of_login, *_zones(own, gcloud, locations), *_lists(own, gcloud, account)]
    return [*remarks, *bucket(gcloud, own.storage, own.project, own.zones, account)]


def node(own: TpuVmSettings, allocation: Allocation) -> Remark:
    """Of a slice that exists, from what the provisioner says of it."""
    zone = own.zones[0]
    match allocation.state:
        case AllocationState.REFUSED | AllocationState.LOST | AllocationState.GONE:
            return Remark("error", f"node {own.node} in {zone} cannot be used: {allocation.reason}")
        case AllocationState.READY:
            return Remark("info", f"node {own.node} in {zone} is ready; runs use it and never delete it")
    return Remark("inconclusive", f"node {own.node} in {zone} is not ready: {allocation.reason}", "check again later")


def expiry(own: TpuVmSettings, name: str) -> list[Remark]:
    """What ends a slice without its run, and what of that could not be checked. Nothing does for a slice that exists."""
    if own.node:
        return [Remark("info", f"node {own.node} is not deleted by anything of Podwright")]
    hours = own.life_s / 3600
    remarks = []
    if own.queued:
        what = f"a request that waits for capacity ends after {own.wait_s / 60:.0f} min, enforced by the cloud (--valid-until-duration)"
        remarks.append(Remark("info", what))
    what = f"the cloud enforces no end of a slice with provisioning={own.provisioning}: the slice deletes itself after {hours:g} h without a run, by its startup script, and only if its service account may delete TPUs"
    if own.provisioning == "flex-start":
        what = f"a slice ends {hours:g} h after its start, enforced by the cloud (--max-run-duration), whether or not a run uses it; its queued resource holds quota until podwright clean {name}"
    account = own.service_account or "the default service account of the project"
    unknown = f"not checked, since nothing was requested: the quota of {own.accelerator_type} in {own.project}, and whether you and {account} may create and delete TPUs"
    fix = f"give both the role TPU Admin (roles/tpu.admin) in {own.project}; else only podwright clean {name} ends a slice whose launcher is gone"
    return [*remarks, Remark("info", what), Remark("inconclusive", unknown, fix)]


def _zones(own: TpuVmSettings, gcloud: Gcloud, locations: Sequence[Record]) -> list[Remark]:
    """What a zone lacks is an error where no zone has all, and a warning where another has."""
    zones = own.zones[:1] if own.node else own.zones
    known = {row.get("locationId", "") for row in locations}
    usable, remarks = [], []
    for zone in zones:
        fault = _zone(own, gcloud, zone) if zone in known else _unknown_zone(own, zone)
        if fault is None:
            usable.append(zone)
        else:
            remarks.append(fault)
    if usable:
        what = f"{own.accelerator_type} with image {own.runtime} is offered in {', '.join(usable)}; offered is not free"
        remarks = [Remark("info", what), *(as_warning(r) for r in remarks)]
    return remarks


def _unknown_zone(own: TpuVmSettings, zone: str) -> Remark:
    fix = f"correct zones of the target: gcloud compute tpus locations list --project={own.project} shows them"
    return Remark("error", f"zone {zone} has no Cloud TPUs, or {own.project} may not use it", fix)


def _zone(own: TpuVmSettings, gcloud: Gcloud, zone: str) -> Remark | None:
    """What it lacks; None if nothing."""
    for what, wanted, argv, key in (
        ("slices of type", own.accelerator_type, calls.accelerator_types(own.project, zone), "type"),
        ("image", own.runtime, calls.runtime_versions(own.project, zone), "version"),
    ):
        rows, failure = gcloud.listed(argv, zone)
        if failure:
            return failed(f"what zone {zone} offers", failure)
        offered = {row.get(key) or row.get("name", "").rpartition("/")[2] for row in rows}
        if wanted not in offered:
            fix = f"leave {zone} out of zones of the target; {' '.join(argv[:-1])} shows what it offers"
            return Remark("error", f"zone {zone} offers no {what} {wanted}", fix)
    return None


def _lists(own: TpuVmSettings, gcloud: Gcloud, account: str) -> list[Remark]:
    remarks = []
    for what, argv in (
        ("queued resources", calls.list_queued(own.project)),
        ("TPU VMs", calls.list_nodes(own.project)),
    ):
        _, failure = gcloud.listed(argv)
        if failure:
            remarks.append(failed(f"the list of {what} of {own.project}", failure))
        else:
            remarks.append(Remark("info", f"{account} may list {what} of {own.project}"))
    return remarks
