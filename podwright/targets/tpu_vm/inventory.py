"""What the cloud has of podwright's in a project: its lists of queued resources and of nodes put together, and who created what."""

from __future__ import annotations

from urllib.parse import unquote

from podwright import slices
from podwright.errors import UserError
from podwright.rundir import Record
from podwright.targets.base import RUN_LABEL
from podwright.targets.google.gcloud import Gcloud
from podwright.targets.google.labels import BY_LABEL, EXPIRES_LABEL, RUN_DIR_KEY, creator, unix
from podwright.targets.machines import Allocation, AllocationState, ChargedChips, Owned, Request
from podwright.targets.settings.tpu_vm import TpuVmSettings
from podwright.targets.tpu_vm import calls, cloud_states, replies
from podwright.targets.tpu_vm.calls import Place


def listed(gcloud: Gcloud, own: TpuVmSettings) -> list[Owned]:
    """Of all zones of the project. UserError where the cloud does not list them."""
    queue = {_place(record): record for record in gcloud.rows(calls.list_queued(own.project))}
    nodes = {_place(record): record for record in gcloud.rows(calls.list_nodes(own.project))}
    of_queue = [owned(record, own, True, nodes.get(place)) for place, record in queue.items()]
    # A node outlives its queued resource where a deletion was cut off.
    others = [owned(record, own, False, record) for place, record in nodes.items() if place not in queue]
    created = [each for each in of_queue + others if each and each.request.name != own.node]
    return [*_borrowed(gcloud, own), *created]


def _place(record: Record) -> tuple[str, str]:
    """Zone and name; projects are named by id or by number."""
    parts = record["name"].split("/")
    return parts[3], parts[5]


def owned(record: Record, own: TpuVmSettings, queued: bool, node: Record | None) -> Owned | None:
    """Of a row of the list of queued resources, or of that of nodes; None for what no run of podwright has requested. `node`: the row of
    its node, if there is one."""
    spec = record
    if queued:
        spec = record.get("tpu", {}).get("nodeSpec", [{}])[0].get("node", {})
    labels = spec.get("labels", {})
    if RUN_LABEL not in labels:
        return None
    zone, name = _place(record)
    allocation = cloud_states.of_queued(record, replies.of_project(own.project), zone) if queued else None
    if allocation is None and node is not None:
        allocation = cloud_states.of_node(node)
    expires = labels.get(EXPIRES_LABEL, "")
    return _owned(
        _request(name, zone, own, spec, queued),
        allocation,
        record,
        node,
        run_dir=unquote(spec.get("metadata", {}).get(RUN_DIR_KEY, "")),
        mine=labels.get(BY_LABEL) == creator(),
        expires=float(expires) if expires.isdigit() else None,
    )


def _borrowed(gcloud: Gcloud, own: TpuVmSettings) -> list[Owned]:
    if not own.node:
        return []
    place = Place(own.node, own.project, own.zones[0], queued=False)
    record = gcloud.read(calls.describe_node(place), place.zone)
    if isinstance(record, Allocation):
        request = Request(own.node, place.zone, borrowed=True)
        return [Owned(request, "", record.state, mine=False, cloud_state=record.reason.partition(":")[0] or "absent")]
    request = _request(own.node, place.zone, own, record, queued=False, borrowed=True)
    return [_owned(request, cloud_states.of_node(record), record, record, run_dir="", mine=False, expires=None)]


def _owned(
    request: Request,
    allocation: Allocation | None,
    record: Record,
    machines: Record | None,
    *,
    run_dir: str,
    mine: bool,
    expires: float | None,
) -> Owned:
    """`allocation`: None for one that is ready; `machines`: the row of its node, if there is one."""
    state = allocation.state if allocation else AllocationState.READY
    own_state = record.get("state", "")
    created = unix(record.get("createTime", ""))
    return Owned(
        request,
        run_dir,
        state,
        created,
        mine,
        cloud_state=own_state if isinstance(own_state, str) else own_state.get("state", ""),
        remark=cloud_states.remark_of(machines or {}),
        expires=expires,
        charged=_charged(request, state, machines or {}),
        charged_at_most=True,
    )


def _charged(request: Request, state: AllocationState, machines: Record) -> ChargedChips:
    """A node costs while it is ready; the cloud names only the time of its creation, minutes earlier."""
    since = unix(machines.get("createTime", ""))
    ready = state in (AllocationState.READY, AllocationState.REPAIRING) and since is not None
    return ChargedChips(request.num_chips, since) if ready else ChargedChips(0)


def _request(
    name: str, zone: str, own: TpuVmSettings, spec: Record, queued: bool, *, borrowed: bool = False
) -> Request:
    try:
        devices = slices.parse(spec.get("acceleratorType", "").rpartition("/")[2])
        chip, num_chips = devices.accelerator.name, devices.num_chips
    except UserError:
        chip, num_chips = "", 0
    return Request(
        name,
        zone,
        labels=spec.get("labels", {}),
        chip=chip,
        num_chips=num_chips,
        price=own.price,
        details={"project": own.project, "queued": queued},
        borrowed=borrowed,
    )
