"""Hosts over ssh: the options of every call, one shared connection a host, and what ssh's own messages mean to a user."""

from __future__ import annotations

import re
import shlex
import zlib
from collections.abc import Iterable, Sequence
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
        port = self.port or "22"
        fields = {
            "host": self.name,
            "login": self.login,
            "port": port,
            "port_option": f" -p {port}" if self.port else "",
            "key_name": f"'[{self.address}]:{port}'" if self.port and self.port != "22" else self.address,
        }
        fields |= {"jump": self.jump, "options": f"[{', '.join(self.options)}]"}
        fields |= {
            "ssh_options": _words(self.options),
            "copy_options": _words(w for key, value in self._settings("ioFJ") for w in _for_copying(key, value)),
            "jump_options": _words(w for key, value in self._settings("F") for w in (f"-{key}", value)),
            "keygen_options": _words(w for file in self._known_hosts() for w in ("-f", file)),
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

    def _settings(self, letters: str) -> list[tuple[str, str]]:
        """Of the options those with one of `letters` and their values, whether in the same word or in the next."""
        pairs = pairwise([*self.options, ""])
        matches = [(re.fullmatch(rf"-([{letters}])(.*)", word, re.DOTALL), following) for word, following in pairs]
        return [(match[1], match[2] or following) for match, following in matches if match]

    def _known_hosts(self) -> list[str]:
        """The file that the options name for host keys, if they do."""
        values = (re.fullmatch(r"\s*UserKnownHostsFile[= ]\s*(\S+)", v, re.IGNORECASE) for _, v in self._settings("o"))
        return [match[1] for match in values if match][:1]


def _words(words: Iterable[str]) -> str:
    """As words of shell, each with a space before it."""
    return "".join(f" {shlex.quote(word)}" for word in words)


def _for_copying(letter: str, value: str) -> tuple[str, str]:
    """An option of ssh as ssh-copy-id takes it."""
    return ("-o", f"ProxyJump={value}") if letter == "J" else (f"-{letter}", value)


def connect(record: Record) -> SshTransport:
    return SshTransport(record["name"], tuple(record["options"]))
