"""One worker of a slice as a host: ssh with the key and the host keys of ssh_key.py, directly or through IAP."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass

from podwright.rundir import Record
from podwright.targets.hosts.ssh_transport import SshTransport
from podwright.targets.hosts.transport import Trouble, explained
from podwright.targets.tpu_vm import calls, ssh_key

_THROUGH_IAP = "iap:"


@dataclass(frozen=True)
class Worker:
    name: str
    """as a user knows it: NODE-w-NUMBER, the number being that of the cloud's list"""
    address: str
    """by which the other workers reach it"""
    connect: str
    """by which this machine reaches it: an address, or iap:ZONE:INSTANCE"""
    project: str

    @property
    def record(self) -> Record:
        return asdict(self)

    @property
    def _ssh(self) -> SshTransport:
        node, _, number = self.name.rpartition("-w-")
        options = [
            f"-i{ssh_key.private_key()}",
            "-oIdentitiesOnly=yes",
            "-oStrictHostKeyChecking=yes",
            f"-oUserKnownHostsFile={ssh_key.known_hosts(node)}",
            "-oGlobalKnownHostsFile=none",
            f"-oHostKeyAlias={ssh_key.alias(node, int(number))}",
        ]
        if not self.connect.startswith(_THROUGH_IAP):
            return SshTransport(f"{ssh_key.USER}@{self.connect}", tuple(options))
        _, zone, instance = self.connect.split(":")
        options.append(f"-oProxyCommand={shlex.join(calls.tunnel(instance, self.project, zone))}")
        return SshTransport(f"{ssh_key.USER}@{instance}", tuple(options))

    def argv(self, command: str) -> list[str]:
        return self._ssh.argv(command)

    def forward(self, port: int) -> list[str]:
        return self._ssh.forward(port)

    def explain(self, stderr: str) -> Trouble | None:
        fields = {"host": self.name, "key": str(ssh_key.private_key())}
        if known := explained(stderr, fields, "tpu_ssh"):
            return known
        trouble = self._ssh.explain(stderr)
        if trouble is None:
            return None
        what, fix = (text.replace(self._ssh.name, self.name) for text in (trouble.what, trouble.fix))
        return Trouble(what, fix, trouble.ending, trouble.stderr)


def name(node: str, number: int) -> str:
    return f"{node}-w-{number}"


def through_iap(zone: str, instance: str) -> str:
    return f"{_THROUGH_IAP}{zone}:{instance}"


def connect(record: Record) -> Worker:
    return Worker(**record)
