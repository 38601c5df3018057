"""A target whose hosts are created for a run in the lab's cloud: what a target with machines of its own has to bring, and no more."""

import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from lab import cloud
from podwright import slices
from podwright.rundir import Ending, Record
from podwright.shell import Shell
from podwright.slices import Slice
from podwright.targets.base import Job, Remark, Rendered, Traits, identity
from podwright.targets.hosts import ssh_transport
from podwright.targets.hosts.runner import HostProfile, HostRunner
from podwright.targets.hosts.ssh_transport import SshTransport
from podwright.targets.machines import (
    GONE,
    Allocation,
    HostAddress,
    Hosts,
    Owned,
    Request,
    deleting,
    lost,
    ready,
    refused,
    waiting,
)
from podwright.targets.settings.storage import StorageSetting


class LabSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["lab"] = "lab"
    root: str
    """of the lab"""
    num_hosts: int = 4
    zones: tuple[str, ...] = ("zone-a", "zone-b")
    python: str = sys.executable
    env: tuple[str, ...] = ()
    runs: str = ""
    storage: StorageSetting = ""
    gpus_per_node: int = 0

    def devices(self) -> Slice | None:
        return slices.parse(f"cpu-{self.num_hosts}")

    def traits(self) -> Traits:
        return Traits(
            ships_files=True,
            storage=self.storage,
            poll_s=0.2,
            grace_s=3.0,
            lost_grace_s=3.0,
            zones=self.zones,
            lag_s=1.0,
            patience_s=60.0,
        )


class LabProvisioner:
    def __init__(self, settings: LabSettings):
        self._settings = settings
        self._root = Path(settings.root)

    def describe_request(self, run_dir: Path, created: float, number: int, avoid: Sequence[str]) -> Request:
        free = [zone for zone in self._settings.zones if not any(zone.startswith(scope) for scope in avoid)]
        zone = (free or self._settings.zones)[0]
        name = f"pw-{run_dir.name}-{zlib.crc32(f'{run_dir} {created}'.encode()):08x}-{number}"
        return Request(name, zone, ("lab", "create", name, zone), {"podwright-run": str(run_dir)})

    def create(self, request: Request) -> Allocation:
        if reason := cloud.create(self._root, request.name, dict(request.labels), request.zone):
            return refused(request.zone, f"NoCapacity: {reason}")
        return waiting("Creating: the hosts are being started")

    def describe(self, request: Request, ready_since: float | None = None) -> Allocation:
        return _allocation(cloud.describe(self._root, request.name))

    def delete(self, request: Request) -> None:
        cloud.delete(self._root, request.name)

    def list_owned(self) -> list[Owned]:
        owned = []
        for folder in sorted((self._root / "allocations").iterdir()):
            if state := cloud.describe(self._root, folder.name):
                request = Request(folder.name, state["zone"], labels=state["labels"])
                run_dir = state["labels"].get("podwright-run", "")
                owned.append(Owned(request, run_dir, _allocation(state).state, state["created"]))
        return owned


def _allocation(state: Record | None) -> Allocation:
    if state is None:
        return GONE
    match state["state"]:
        case "creating":
            return waiting("Creating: the hosts are being started")
        case "ready":
            return ready(tuple(HostAddress(host["name"], host["address"]) for host in state["hosts"]), state["since"])
        case "preempted":
            return lost(Ending.PREEMPTED, "Preempted: the lab took the hosts away", state["since"])
        case "broken":
            return lost(Ending.NODE_LOST, "NodeLost: a host has ended", state["since"])
    return deleting()


class LabTarget(HostRunner):
    def __init__(self, shell: Shell, name: str, settings: LabSettings):
        profile = HostProfile(python=settings.python, env=settings.env)
        self.traits = settings.traits()
        super().__init__(shell, profile, ssh_transport.connect)
        self._settings = settings
        self.identity = identity(name, settings)
        self.provisioner = LabProvisioner(settings)

    def render(self, job: Job, hosts: Hosts | None = None) -> Rendered:
        addresses = [host.address for host in hosts or ()] or [f"w-{n}" for n in range(self._settings.num_hosts)]
        named = tuple(HostAddress(address, address) for address in addresses)
        return self.render_on(self.transports(named), job, self.identity)

    def transports(self, hosts: Hosts) -> list[SshTransport]:
        options = ("-F", str(cloud.ssh_config(Path(self._settings.root))))
        return [SshTransport(host.address, options) for host in hosts]

    def probe_hosts(self, arguments: list[str]) -> list[Record]:
        return []

    def check_access(self) -> list[Remark]:
        return []

    def check(self) -> list[Remark]:
        return []
