"""One host of an ssh target: how ssh is called, and what its words mean for a user."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import tarfile
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

from podwright.errors import UserError
from podwright.rundir import Ending
from podwright.shell import Shell

T = TypeVar("T")
PACKAGE = Path(__file__).resolve().parents[2]
_OPTIONS = {
    "BatchMode": "yes",  # a question would never be answered
    "ConnectTimeout": "10",
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    "ControlMaster": "auto",
    "ControlPersist": "60",
}


class Trouble(UserError):
    """Why a host could not do what it was asked to."""

    def __init__(self, what: str, fix: str, ending: Ending = Ending.BAD_INPUT, said: str = ""):
        super().__init__(what, fix)
        self.ending = ending
        self.said = said


@dataclass(frozen=True)
class Words:
    """What ssh, a shell, tar or Python say on stderr, and what that is for a user; {host} and {port} are filled in."""

    pattern: str
    what: str
    fix: str
    ending: Ending = Ending.BAD_INPUT


_SAID: tuple[Words, ...] = (
    Words(
        r"Could not resolve hostname|Name or service not known",
        "host {host} is not known here",
        "mend hosts of the target, or give {host} an entry in ~/.ssh/config",
    ),
    Words(
        r"connect to host .* Connection refused",
        "host {host} refuses connections at port {port}",
        "start sshd there, or write the right port: {host}:PORT",
        Ending.NO_CAPACITY,
    ),
    Words(
        r"Connection timed out|No route to host|Network is unreachable|Host is down|Operation timed out",
        "host {host} does not answer",
        "see whether it is switched on and the network leads there, then try again",
        Ending.NO_CAPACITY,
    ),
    Words(
        r"Permission denied \((?=\w)",
        "host {host} takes none of your keys",
        "type: ssh-copy-id{port_option} {login}; a key with a passphrase is loaded with ssh-add first",
    ),
    Words(
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "host {host} shows another key than it used to",
        "if you know why (it was set up anew), type: ssh-keygen -R {key_name}",
    ),
    Words(
        r"Host key verification failed",
        "the key of host {host} is not known here yet",
        "type `ssh{port_option} {login} true` once and compare what it shows",
    ),
    Words(
        r"Bad owner or permissions on|Bad configuration option|Can't open user config",
        "ssh refuses its settings",
        "mend what it names: {said}",
    ),
    Words(
        r"Connection (closed|reset)|Broken pipe|kex_exchange_identification|Timeout, server .* not responding|mux_client",
        "the connection to host {host} broke",
        "try again",
        Ending.NO_CAPACITY,
    ),
    Words(
        r"No space left on device|[Dd]isk quota exceeded",
        "the disk of host {host} is full",
        "free some space there, or set folder of the target",
    ),
    Words(r"a line of the target's setup failed", "{said} (on host {host})", "mend setup of the target"),
    Words(
        r"No module named '?([\w.]+)",
        "the Python of host {host} lacks {0}",
        "install there what the trainer needs, or set python of the target to an environment that has it",
    ),
    Words(
        r"(\S*python\S*|exec): .*(not found|No such file)|(\S*python\S*): No such file",
        "host {host} has no such Python",
        "set python of the target to one that is on every host",
    ),
    Words(
        r"Permission denied|Operation not permitted|Read-only file system|\[Errno 2\] No such file or directory",
        "folder cannot be written on host {host}: {said}",
        "set folder of the target to one that can",
    ),
    Words(r"(\S+): (command )?not found", "host {host} has no {0}", "install it there"),
)


@dataclass(frozen=True)
class Host:
    shell: Shell
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

    def argv(self, command: str) -> list[str]:
        # Of other options other connections: a shared one asks for no key.
        socket = f"{self.shell.sockets()}/{zlib.crc32(' '.join(self.options).encode()):08x}-%C"
        given = [f"-o{key}={value}" for key, value in _OPTIONS.items()]
        port = ["-p", self.port] if self.port else []
        return [
            "ssh",
            *self.options,
            *given,
            f"-oControlPath={socket}",
            *port,
            self.login,
            f"sh -c {shlex.quote(command)}",
        ]

    def call(self, command: str, given: str = "", seconds: float | None = 60.0) -> str:
        """What `command` prints; Trouble when it fails."""
        out = io.BytesIO()
        self.stream(command, lambda pipe: give(pipe, given), lambda pipe: _take(pipe, out), seconds)
        return out.getvalue().decode(errors="replace")

    def stream(
        self,
        command: str,
        write: Callable[[IO[bytes]], None] = lambda _: None,
        read: Callable[[IO[bytes]], None] = lambda _: None,
        seconds: float | None = None,
    ) -> None:
        try:
            code, said = self.shell.stream(self.argv(command), write, read, seconds)
        except FileNotFoundError:
            raise Trouble("ssh is not on this machine", "install an OpenSSH client") from None
        if code:
            raise self.trouble(code, said)

    def ship(self, folder: str, pack: Callable[[tarfile.TarFile], None]) -> None:
        """Have `folder` (of the user's home, or absolute) hold what `pack` puts into it, and nothing else."""

        def write(pipe: IO[bytes]) -> None:
            with tarfile.open(fileobj=pipe, mode="w|") as tar:
                pack(tar)

        place = shlex.quote(folder)
        self.stream(f"umask 077; rm -rf {place} && mkdir -p {place} && exec tar -xf - -C {place}", write)

    def trouble(self, code: int, said: str) -> Trouble:
        for words in _SAID:
            if found := re.search(words.pattern, said):
                groups = [group for group in found.groups() if group]
                told = self._told(said)
                return Trouble(
                    words.what.format(*groups, **told), words.fix.format(*groups, **told), words.ending, said
                )
        last = self._told(said)["said"]
        if code < 0:
            return Trouble(f"host {self.name} has not answered in time", "try again", Ending.NO_CAPACITY)
        return Trouble(f"host {self.name}: {last or f'exit code {code}'}", "mend that there", Ending.CRASHED, said)

    def _told(self, said: str) -> dict[str, str]:
        lines = [line.strip().strip("\r") for line in said.splitlines() if line.strip()]
        port = self.port or "22"
        return {
            "host": self.name,
            "login": self.login,
            "port": port,
            "port_option": f" -p {port}" if self.port else "",
            "key_name": f"'[{self.address}]:{port}'" if self.port and self.port != "22" else self.address,
            "said": lines[-1] if lines else "",
        }


def of_each(hosts: Sequence[Host], act: Callable[[int, Host], T]) -> list[T | Trouble]:
    """What `act` gives for every host, all at once, or why it could not."""

    def guarded(item: tuple[int, Host]) -> T | Trouble:
        try:
            return act(*item)
        except Trouble as e:
            return e

    with ThreadPoolExecutor(max_workers=min(32, len(hosts))) as pool:
        return list(pool.map(guarded, enumerate(hosts)))


def pack_code(tar: tarfile.TarFile) -> None:
    """The package as it is here, under code/."""
    for path in sorted(PACKAGE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            tar.add(path, f"code/podwright/{path.relative_to(PACKAGE)}")
    if (recipes := PACKAGE.parent / "recipes").is_dir():  # of a checkout; a wheel has them inside
        tar.add(recipes, "code/recipes")


def setup_failed(line: str) -> str:
    """A word of shell; `_SAID` knows it."""
    return shlex.quote(f"a line of the target's setup failed: {line}")


def give(pipe: IO[bytes], text: str) -> None:
    pipe.write(text.encode())


def _take(pipe: IO[bytes], out: io.BytesIO) -> None:
    with contextlib.suppress(OSError):
        out.write(pipe.read())
