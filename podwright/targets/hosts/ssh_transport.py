"""Hosts over ssh: the options of every call, one shared connection a host, and what ssh's own messages mean to a user."""

from __future__ import annotations

import re
import shlex
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from podwright.rundir import Record
from podwright.shell import Shell
from podwright.targets.hosts.transport import Trouble, explained

_OPTIONS = {
    "BatchMode": "yes",  # a question would never be answered
    "ConnectTimeout": "10",
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    "ControlMaster": "auto",
    "ControlPersist": "60",
}
_FIXED = tuple(f"-o{key}={value}" for key, value in _OPTIONS.items())


@dataclass(frozen=True)
class SshTransport:
    name: str
    """as in the target: user@host:port"""
    options: Sequence[str] = ()

    @property
    def login(self) -> str:
        return self.name.partition(":")[0]

    @property
    def address(self) -> str:
        return self.login.rpartition("@")[2]

    @property
    def port(self) -> str:
        return self.name.partition(":")[2]

    @property
    def record(self) -> Record:
        return {"name": self.name, "options": list(self.options)}

    def argv(self, command: str) -> list[str]:
        # Of other options other connections: a shared one asks for no key.
        socket = f"{Shell.private_folder()}/{zlib.crc32(' '.join(self.options).encode()):08x}-%C"
        remote = f"sh -c {shlex.quote(command)}"
        return ["ssh", *self.options, *_FIXED, f"-oControlPath={socket}", *self._port_option, self.login, remote]

    def forward(self, port: int) -> list[str]:
        # Over a connection of its own: what a shared one forwards stays when this command ends.
        own = ("-oControlMaster=no", "-oControlPath=none", "-oExitOnForwardFailure=yes")
        listen = ("-N", "-L", f"127.0.0.1:{port}:127.0.0.1:{port}")
        return ["ssh", *self.options, *own, *_FIXED, *listen, *self._port_option, self.login]

    @property
    def _port_option(self) -> list[str]:
        return ["-p", self.port] if self.port else []

    def explain(self, stderr: str) -> Trouble | None:
        fields = {
            "host": self.name,
            "login": self.login,
            "port": self.port or "22",
            "jump": self.jump,
            "options": f"[{', '.join(self.options)}]",
            "command": shlex.join(["ssh", *self.options, *self._port_option, self.login, "true"]),
        }
        if self.jump:
            return explained(stderr, fields, "jump_host", "ssh")
        return explained(stderr, fields, "ssh")

    @property
    def jump(self) -> str:
        """The jump host that the options name; "" for none."""
        words = [*self.options, ""]
        for word, following in pairwise(words):
            if match := re.fullmatch(r"-J(.*)|(?:-o\s*)?ProxyJump[= ]\s*(.+)", word, re.IGNORECASE):
                return match[1] or match[2] or following
        return ""


def connect(record: Record) -> SshTransport:
    return SshTransport(record["name"], tuple(record["options"]))
