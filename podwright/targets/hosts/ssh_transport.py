"""Hosts over ssh: the options of every call, one shared connection a host, and what ssh's own messages mean to a user."""

from __future__ import annotations

import re
import shlex
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from podwright.rundir import Ending, Record
from podwright.shell import Shell
from podwright.targets.hosts.transport import StderrRule, Trouble, explained

_OPTIONS = {
    "BatchMode": "yes",  # a question would never be answered
    "ConnectTimeout": "10",
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    "ControlMaster": "auto",
    "ControlPersist": "60",
}
_FIXED = tuple(f"-o{key}={value}" for key, value in _OPTIONS.items())
_THROUGH_A_JUMP_HOST = (
    StderrRule(
        r"Could not resolve|Name or service|refused|timed out|No route to host|unreachable|is down|Connection (closed|reset)|kex_exchange",
        "host {host} was not reached through jump host {jump}: {line}",
        "type ssh{jump_options} {jump} true; if that fails, correct the jump host in ssh of the target, else check that {host} answers from there",
        Ending.NO_CAPACITY,
    ),
)
_UNREACHED: tuple[StderrRule, ...] = (
    StderrRule(
        r"(?m)^usage: ssh ",
        "ssh on this machine does not accept ssh={options} of the target",
        "correct ssh of the target: man ssh lists the options",
    ),
    StderrRule(
        r"Could not resolve hostname|Name or service not known",
        "the name of host {host} cannot be resolved on this machine",
        "correct it in hosts of the target, or give it an entry in ~/.ssh/config",
    ),
    StderrRule(
        r"connect to host .* Connection refused",
        "host {host} refuses connections on port {port}",
        "start sshd there, or write the port of sshd in hosts of the target: {login}:PORT",
        Ending.NO_CAPACITY,
    ),
    StderrRule(
        r"Connection timed out|No route to host|Network is unreachable|Host is down|Operation timed out",
        "host {host} does not answer on port {port}",
        "check that it is switched on and that this machine has a network connection to it, then try again",
        Ending.NO_CAPACITY,
    ),
    StderrRule(
        r"Permission denied \((?=\w)",
        "host {host} accepts none of your SSH keys",
        "type: ssh-copy-id{copy_options}{port_option} {login}; if your key has a passphrase, type ssh-add first",
    ),
    StderrRule(
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "the SSH host key of {host} has changed",
        "if the host was reinstalled, type: ssh-keygen{keygen_options} -R {key_name}; if not, another machine may answer in its place",
    ),
    StderrRule(
        r"Host key verification failed",
        "the SSH host key of {host} is not in known_hosts of this machine",
        "type `ssh{ssh_options}{port_option} {login} true` once and compare the fingerprint that it shows",
    ),
    StderrRule(
        r"Bad owner or permissions on|Bad configuration option|Can't open user config",
        "ssh cannot use its configuration: {line}",
        "correct ~/.ssh/config, or ssh of the target",
    ),
    StderrRule(
        r"Connection (closed|reset)|Broken pipe|kex_exchange_identification|Timeout, server .* not responding|mux_client",
        "the SSH connection to host {host} was lost: {line}",
        "try again",
        Ending.NO_CAPACITY,
    ),
)


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
        rules = (*_THROUGH_A_JUMP_HOST, *_UNREACHED) if self.jump else _UNREACHED
        return explained(rules, stderr, fields)

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
