"""Requests slices, looks at them and deletes them, through gcloud. No reply is believed but those of describe and list: a call whose reply
is lost or unclear may have done its work."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from podwright.rundir import Ending, Record
from podwright.shell import Shell
from podwright.targets import alive, clock
from podwright.targets.base import RUN_LABEL, run_tag
from podwright.targets.google.gcloud import Argv, Gcloud
from podwright.targets.google.labels import BY_LABEL, EXPIRES_LABEL, creator, expires, request_name, unix
from podwright.targets.google.replies import Consequence, refusal, require_deletable
from podwright.targets.machines import (
    GONE,
    Allocation,
    AllocationState,
    Owned,
    Request,
    first_place,
    lost,
    refused,
    repairing,
    unknown,
    waiting,
)
from podwright.targets.settings.tpu_vm import LAG_S, TpuVmSettings
from podwright.targets.tpu_vm import calls, cloud_states, inventory, replies, ssh_key
from podwright.targets.tpu_vm.calls import Place
from podwright.targets.tpu_vm.workers import Workers


class SliceProvisioner:
    def __init__(self, shell: Shell, settings: TpuVmSettings, target: str):
        self._shell = shell
        self._settings = settings
        self._classify = replies.of_project(settings.project, target)
        self._gcloud = Gcloud(shell, self._classify)
        self._workers = Workers(shell, self._gcloud, settings)
        self._absent_since: dict[str, float] = {}
        self._last_not_ready: dict[str, float] = {}
        self._ready_since: dict[str, float | None] = {}

    def describe_request(self, run_dir: Path, created: float | None, number: int, avoid: Sequence[str]) -> Request:
        own = self._settings
        chips = self._settings.devices()
        tag = run_tag(run_dir, created)
        request = Request(
            name=own.node or request_name(run_dir.name, tag, number),
            zone=first_place(own.zones, avoid),
            labels={RUN_LABEL: tag, BY_LABEL: creator(), EXPIRES_LABEL: expires(created, own.life_s)},
            chip=chips.accelerator.name,
            num_chips=chips.num_chips,
            price=own.price,
            details={"project": own.project, "queued": own.queued and not own.node, "run_dir": str(run_dir)},
            borrowed=bool(own.node),
        )
        if request.borrowed:
            return request
        key = "PUBLIC_KEY"  # a dry run creates none
        if created is not None:
            key = ssh_key.public_key(self._shell)
        return replace(request, argv=self._creation(request, key))

    def create(self, request: Request) -> Allocation:
        if request.borrowed:
            return self.describe(request)
        creation = self._creation(request, ssh_key.public_key(self._shell))
        log = ssh_key.creation_log(request.name)
        with alive.held(ssh_key.creating(request.name)) as lock:  # gcloud holds it too, and may outlive this process
            if not request.details["queued"]:  # whether a node can be had, gcloud says after a minute or more
                log.unlink(missing_ok=True)
                self._gcloud.start(creation, log, lock)
                return waiting("Requested: gcloud waits for the node")
            failure = self._gcloud.do(creation, request.zone, keep_open=[lock])
        if failure is None:
            return waiting("Requested: the cloud has taken the request")
        return refusal(failure, request.zone, uncreated=True) or unknown(failure.reason)

    def describe(self, request: Request, ready_since: float | None = None) -> Allocation:
        """Never GONE while a gcloud that an earlier launcher has started may still create it."""
        being_created = alive.is_held(
            ssh_key.creating(request.name)
        )  # before the cloud is asked: it may end between the two
        answer = self._describe(request, ready_since)
        if answer.state is AllocationState.GONE and being_created:
            return waiting("Requesting: gcloud, which creates it, has not ended yet")
        if being_created or answer.state not in (AllocationState.GONE, AllocationState.UNKNOWN):
            return answer
        return self._refused_by_log(request, answer) or answer

    def _refused_by_log(self, request: Request, seen: Allocation) -> Allocation | None:
        """What a gcloud that has ended was refused, where the cloud has `seen` nothing or does not tell; None where that is not certain."""
        log = ssh_key.creation_log(request.name)
        failure = self._gcloud.failure_in(log, request.zone)
        sent = self._gcloud.has_sent(log)
        if failure is None:
            return None
        absent = seen.state is AllocationState.GONE
        no_login = failure.reason.startswith("NoLogin")
        if not absent and (sent or failure.consequence is not Consequence.FINAL):
            return None
        if no_login and (absent or not seen.reason.startswith("NoLogin")):
            return None  # the login works now: nothing was requested, or it is gone, and it is requested again
        return refusal(failure, request.zone, uncreated=not sent)

    def _describe(self, request: Request, ready_since: float | None) -> Allocation:
        place = Place.of(request)
        if not place.queued:
            return self._node(request, place, ready_since)
        if self._workers.have_answered(request.name):  # then one call tells all, as long as the node is ready
            answer = self._node(request, place, ready_since)
            if answer.state is AllocationState.READY:
                return answer
        looked = time.time()
        record = self._gcloud.read(calls.describe_queued(place), request.zone)
        if isinstance(record, Allocation):
            return record
        life_s = self._settings.life_s if self._settings.provisioning == "flex-start" else 0.0
        lived_s = 0.0 if ready_since is None else clock.now() - ready_since
        expired_s = life_s if 0 < life_s <= lived_s else 0.0
        of_queue = cloud_states.of_queued(record, self._classify, place.zone, expired_s)
        if of_queue:
            self._not_ready(request.name, looked)
            return of_queue
        return self._of_active(request, place, ready_since)

    def delete(self, request: Request) -> None:
        """Barred where a person has to act first; the cloud may know nothing of it yet, or no longer, which is no failure."""
        if request.borrowed:
            return
        self._workers.forget(request.name)
        ssh_key.creation_log(request.name).unlink(missing_ok=True)
        require_deletable(self._gcloud.do(calls.delete(Place.of(request)), request.zone), request)

    def list_owned(self) -> list[Owned]:
        return inventory.listed(self._gcloud, self._settings)

    def _creation(self, request: Request, key: str) -> Argv:
        run_dir = request.details.get("run_dir", "")
        return calls.create(Place.of(request), self._settings, request.labels, ssh_key.USER, key, run_dir)

    def _of_active(self, request: Request, place: Place, ready_since: float | None) -> Allocation:
        """Of a queued resource that is active: what its node is. The cloud's lists lag, so a node is missed only after some polls."""
        answer = self._node(request, place, ready_since)
        if answer.state is not AllocationState.GONE:
            self._absent_since.pop(request.name, None)
            return answer
        absent_s = time.monotonic() - self._absent_since.setdefault(request.name, time.monotonic())
        if absent_s > LAG_S:
            what = "NodeLost: the cloud no longer lists the node of the queued resource"
            return lost(Ending.NODE_LOST, what, time.time() - absent_s)
        return unknown("Unclear: the queued resource is active, and its node is not listed")

    def _node(self, request: Request, place: Place, ready_since: float | None) -> Allocation:
        looked = time.time()
        record = self._gcloud.read(calls.describe_node(place), request.zone)
        if isinstance(record, Allocation):
            if request.borrowed and record is GONE:
                fix = f"correct node or zones of the target: gcloud compute tpus tpu-vm list --zone=- --project={place.project}"
                return refused(
                    "", f"Absent: there is no node {request.name} in {request.zone}; {fix}", Ending.BAD_INPUT
                )
            return record
        if answer := cloud_states.of_node(record):
            self._not_ready(request.name, looked)
            return answer
        if wrong := self._unusable(record, request):
            return refused("", wrong, Ending.BAD_INPUT)
        if cloud_states.in_maintenance(record) and self._workers.have_answered(request.name):
            return repairing("Maintenance: the cloud works on the machines")
        if request.name not in self._ready_since:  # its workers answer later than it is called ready, and paid for
            self._ready_since[request.name] = self._called_ready(record, request.name)
        is_new = ready_since is None or request.name in self._last_not_ready
        return self._workers.ready(record, place, self._ready_since[request.name], is_new)

    def _not_ready(self, name: str, looked: float) -> None:
        """`looked`: Unix seconds before the cloud was asked; it may be ready by the time that the answer is here."""
        self._last_not_ready[name] = looked
        self._ready_since.pop(name, None)

    def _called_ready(self, node: Record, name: str) -> float | None:
        """Unix seconds. The cloud names only the time of creation, minutes earlier; it counts where nobody has looked meanwhile."""
        seen = self._last_not_ready.get(name, 0.0)
        return seen if time.time() - seen < LAG_S else unix(node.get("createTime", ""))

    def _unusable(self, node: Record, request: Request) -> str:
        """Why a node of the right name is not to be used, as `Reason: what it means`; "" if it is."""
        own = self._settings
        if not request.borrowed:
            if node.get("labels", {}).get(RUN_LABEL) == request.labels[RUN_LABEL]:
                return ""
            return f"NameTaken: {request.name} in {request.zone} is not of this run; delete it, or start the run under another name"
        there = node.get("acceleratorType", "").rpartition("/")[2]
        if there != own.accelerator_type:
            return f"OtherSlice: node {own.node} is a {there}, not accelerator_type={own.accelerator_type}; set accelerator_type={there}"
        if node.get("runtimeVersion") == own.runtime:
            return ""
        image = node.get("runtimeVersion")
        return f"OtherImage: node {own.node} has the image {image}, and {own.runtime} is needed; set runtime_version={image}"
