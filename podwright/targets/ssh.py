"""Machines that a user names and reaches over ssh: the entry of targets.yaml made into hosts, which run attempts (hosts/runner.py)."""

from __future__ import annotations

import sys

from podwright.rundir import Record
from podwright.shell import Shell
from podwright.targets.base import Job, Remark, Rendered, identity
from podwright.targets.hosts import probe, ssh_transport
from podwright.targets.hosts.runner import HostProfile, HostRunner
from podwright.targets.hosts.ssh_transport import SshTransport
from podwright.targets.machines import Hosts
from podwright.targets.settings import gpus
from podwright.targets.settings.ssh import SshSettings


class Ssh(HostRunner):
    def __init__(self, shell: Shell, name: str, settings: SshSettings):
        self.traits = settings.traits()
        super().__init__(shell, _profile(settings), ssh_transport.connect)
        self._name, self._settings = name, settings
        self.identity = identity(name, settings)

    def render(self, job: Job, hosts: Hosts | None = None) -> Rendered:
        per_node = gpus.with_tasks(self._settings, job.one_gpu_each).tasks_per_node
        return self.render_on(self.transports(()), job, self.identity, self._settings.rendezvous, per_node)

    def probe_hosts(self, arguments: list[str]) -> list[Record]:
        return probe.probe_hosts(self._profile, self.own_hosts(()), self._settings.rendezvous, arguments, self._name)

    def check_access(self) -> list[Remark]:
        return []

    def check(self) -> list[Remark]:
        return probe.check(self._profile, self.own_hosts(()), self._settings.storage)

    def transports(self, hosts: Hosts) -> list[SshTransport]:
        return [SshTransport(name, self._settings.ssh) for name in self._settings.hosts]


def _profile(settings: SshSettings) -> HostProfile:
    return HostProfile(
        setup=settings.setup,
        python=settings.python or (sys.executable if settings.runs else "python3"),
        runs=settings.runs,
        folder=settings.folder,
        env=settings.env,
        gpus_per_node=settings.gpus_per_node,
    )
