"""Cloud TPU VMs as a target: slices are requested by provisioner.py, attempts run on their workers as on any hosts (hosts/runner.py)."""

from __future__ import annotations

from pathlib import Path

from podwright.errors import UserError
from podwright.rundir import Record
from podwright.shell import Shell
from podwright.targets.base import Job, Remark, Rendered, identity
from podwright.targets.google.gcloud import Gcloud
from podwright.targets.hosts.runner import HostProfile, HostRunner
from podwright.targets.machines import HostAddress, Hosts
from podwright.targets.settings.tpu_vm import TpuVmSettings
from podwright.targets.tpu_vm import access, environment, replies, worker, worker_check
from podwright.targets.tpu_vm.provisioner import SliceProvisioner
from podwright.targets.tpu_vm.worker import Worker

CHECK_LIMIT_S = 180.0


class TpuVm(HostRunner):
    def __init__(self, shell: Shell, name: str, settings: TpuVmSettings):
        self.traits = settings.traits()
        super().__init__(shell, _profile(settings), worker.connect)
        self._settings = settings
        self.identity = identity(name, settings)
        self.provisioner = SliceProvisioner(shell, settings, name)

    def render(self, job: Job, hosts: Hosts | None = None) -> Rendered:
        """Without `hosts`, as a dry run has none, with names in their place."""
        own = self._settings
        shown = [
            HostAddress(worker.name("SLICE", k), f"WORKER-{k}", f"WORKER-{k}") for k in range(own.devices().num_hosts)
        ]
        return self.render_on(self.transports(hosts or tuple(shown)), job, self.identity)

    def transports(self, hosts: Hosts) -> list[Worker]:
        return [Worker(host.name, host.address, host.connect, self._settings.project) for host in hosts]

    def check(self) -> list[Remark]:
        """Nothing: whether machines can be had is what the cloud says when a run requests them."""
        return []

    def check_access(self) -> list[Remark]:
        own, name = self._settings, self.identity["target"]
        try:
            remarks = access.check(own, Gcloud(self._shell, replies.of_project(own.project, name)))
        except UserError as e:
            return [Remark("error", e.what, e.fix)]
        if own.node and self.provisioner and not any(r.level == "error" for r in remarks):
            request = self.provisioner.describe_request(Path(name), 0.0, 0, ())
            remarks.append(access.node(own, self.provisioner.describe(request)))
        return [*remarks, *access.expiry(own, name)]

    def probe_hosts(self, arguments: list[str]) -> list[Record]:
        """Of no machine: they exist only while a run has them, and are looked at before it starts on them."""
        return []


def _profile(settings: TpuVmSettings) -> HostProfile:
    return HostProfile(
        setup=settings.setup if settings.python else (*settings.setup, environment.setup_line()),
        python=settings.python or environment.python(),
        folder=settings.folder,
        env=settings.env,
        tpus_per_node=settings.devices().chips_per_host,
        notices=True,
        sign_of_life="/var/lib/podwright/alive",  # startup.sh looks at it
        check=worker_check.__name__,
        check_limit_s=CHECK_LIMIT_S,
    )
