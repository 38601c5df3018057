"""How a command reaches one host, and what can be done with any host once a command does: run, stream, ship a folder.

A transport (ssh, a command in a namespace, later kubectl) only builds a command line and explains its own messages.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import tarfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Protocol, TypeVar

from podwright.errors import UserError
from podwright.rundir import Ending, Record
from podwright.shell import Shell

PORTS = range(12_000, 32_000)
"""of which an attempt uses two on its first host: one for its processes, the next one for its keepers"""
T = TypeVar("T")
Pack = Callable[[tarfile.TarFile], None]
"""adds files to an archive"""


class Trouble(UserError):
    """Why a host could not do what it was asked to, and how an attempt that needs it ends."""

    def __init__(self, what: str, fix: str, ending: Ending = Ending.BAD_INPUT, stderr: str = ""):
        super().__init__(what, fix)
        self.ending = ending
        self.stderr = stderr


@dataclass(frozen=True)
class StderrRule:
    """A pattern of stderr and what it means to a user; the fields of `explain`, the pattern's groups and the `line` that has it are
    filled in."""

    pattern: str
    what: str
    fix: str
    ending: Ending = Ending.BAD_INPUT


class Transport(Protocol):
    """One host."""

    @property
    def name(self) -> str:
        """as the user knows it"""
        ...

    @property
    def address(self) -> str:
        """by which the other hosts reach it"""
        ...

    @property
    def record(self) -> Record:
        """Plain JSON from which `connect` of the transport's module makes it again, in any process."""
        ...

    def argv(self, command: str) -> list[str]:
        """Runs `command` in sh on the host, in the user's home, with stdin, stdout, stderr and exit code passed through."""
        ...

    def forward(self, port: int) -> list[str]:
        """Forwards a port of this machine to the same one of the host until it is ended."""
        ...

    def explain(self, stderr: str) -> Trouble | None:
        """Why the host was not reached; None when it was and the command itself failed."""
        ...


Connect = Callable[[Record], Transport]
"""the function `connect` of a transport's module, which is found by `__module__`"""

NOT_STARTED = "podwright: the keeper of the attempt was not started"
"""what `start.py` prints on a host whose start.sh ended without an error and without a keeper"""
LATER_ATTEMPT = "podwright: the host has attempt"
"""what `start.py` prints, with the number, on a host where a later attempt of the run is"""

_ON_HOST: tuple[StderrRule, ...] = (
    StderrRule(
        r"podwright: no Python interpreter: (.+)",
        "python={0} of the target is no Python interpreter on host {host}",
        "set python of the target to a Python interpreter",
    ),
    StderrRule(
        r"a line of the target's setup ended the shell: (.+)",
        "a line of the target's setup ends the shell on host {host}: {0}",
        "remove exit, exec or return from that line under setup of the target, or what ends the script that it reads",
    ),
    StderrRule(
        rf"{LATER_ATTEMPT} (\d+)",
        "another machine has gone on with the run: attempt {0} of it is on host {host}",
        "follow the run there; podwright resume on this machine brings it back here",
    ),
    StderrRule(
        r"No space left on device|[Dd]isk quota exceeded",
        "the disk of host {host} is full: {line}",
        "free some space there, or set folder of the target to a folder on another disk",
    ),
    StderrRule(
        NOT_STARTED,
        "the attempt was not started on host {host}: setup of the target ends the shell, or python of the target is no Python interpreter",
        "type podwright target check TARGET, which tells which of the two, then resume the run",
    ),
    StderrRule(
        r"eval: line \d+: ((?:syntax error|unexpected EOF).*)\n(?:.*\n)*?a line of the target's setup failed: (.+)",
        "a line of the target's setup has a syntax error on host {host}: {1} ({0})",
        "correct that line under setup of the target: each line must be a complete command of bash",
    ),
    StderrRule(
        r"(?:FileExistsError|NotADirectoryError): .*'(.+)'",
        "{0} is a file on host {host}, and a folder is needed there",
        "set folder of the target to a folder",
    ),
    StderrRule(
        r"a line of the target's setup failed: (.+)",
        "a line of the target's setup failed on host {host}: {0}",
        "correct that line under setup of the target",
    ),
    StderrRule(
        r"No module named '?([\w.]+)",
        "the Python of host {host} lacks {0}",
        "install there what the trainer needs (pip install -e '.[jax]' or '.[torch]' in podwright's clone), or set python of the target "
        "to an environment that has it",
    ),
    StderrRule(
        r"(\S*python\S*|exec): .*(not found|No such file|cannot execute)|(\S*python\S*): No such file",
        "host {host} cannot start Python: {line}",
        "set python of the target to an interpreter that is on every host",
    ),
    StderrRule(
        r"\w+Error: \[Errno \d+\] ([^:\n]+): '([^'\n]+)'",
        "folder of the target cannot be written on host {host}: {1} ({0})",
        "set folder of the target to one that you may write there",
    ),
    StderrRule(
        r"Permission denied|Operation not permitted|Read-only file system|\[Errno 2\] No such file or directory",
        "folder of the target cannot be written on host {host}: {line}",
        "set folder of the target to one that you may write there",
    ),
    StderrRule(r"(\S+): (command )?not found", "command {0} not found on host {host}", "install {0} there"),
)


@dataclass(frozen=True)
class Host:
    shell: Shell
    transport: Transport

    @property
    def name(self) -> str:
        return self.transport.name

    @property
    def address(self) -> str:
        return self.transport.address

    def call(self, command: str, stdin: str = "", limit_s: float | None = 60.0) -> str:
        """What `command` prints; Trouble when it fails or takes longer."""
        out = io.BytesIO()

        def read(pipe: IO[bytes]) -> None:
            with contextlib.suppress(OSError):
                out.write(pipe.read())

        self.stream(command, lambda pipe: give(pipe, stdin), read, limit_s)
        return out.getvalue().decode(errors="replace")

    def stream(
        self,
        command: str,
        write: Callable[[IO[bytes]], None] = lambda _: None,
        read: Callable[[IO[bytes]], None] = lambda _: None,
        limit_s: float | None = None,
    ) -> None:
        """Run `command` with what `write` gives it and `read` takes from it; Trouble when it fails or takes longer."""
        argv = self.transport.argv(command)
        try:
            code, stderr = self.shell.stream(argv, write, read, limit_s)
        except FileNotFoundError:
            raise Trouble(f"command {argv[0]} not found on this machine", f"install {argv[0]} here") from None
        if code:
            raise self.trouble(code, stderr, limit_s)

    def ship(self, folder: str, pack: Pack) -> None:
        """Have `folder` (of the user's home, or absolute) hold what `pack` puts into it, and nothing else."""

        def write(pipe: IO[bytes]) -> None:
            with tarfile.open(fileobj=pipe, mode="w|") as tar:
                pack(tar)

        place = shlex.quote(folder)
        self.stream(f"umask 077; rm -rf {place} && mkdir -p {place} && exec tar -xf - -C {place}", write)

    def trouble(self, code: int, stderr: str, limit_s: float | None = None) -> Trouble:
        """`code` is the transport's exit code, negative for a signal (of ours, when it took longer than `limit_s`)."""
        known = self.transport.explain(stderr) or explained(_ON_HOST, stderr, {"host": self.name})
        if known:
            return known
        if code < 0:
            within = f" within {limit_s:.0f} s" if limit_s else ""
            what, fix = f"host {self.name} did not answer{within}", "check its load and its network, then try again"
            return Trouble(what, fix, Ending.NO_CAPACITY, stderr)
        message = last_line(stderr) or f"exit code {code}, without a message"
        what = f"a command of podwright failed on host {self.name}: {message}"
        return Trouble(what, "correct that on the host, then try again", Ending.CRASHED, stderr)


def explained(rules: Sequence[StderrRule], stderr: str, fields: Mapping[str, str]) -> Trouble | None:
    """By the first of `rules` whose pattern is in `stderr`."""
    for rule in rules:
        if match := re.search(rule.pattern, stderr):
            groups = [group.strip() for group in match.groups() if group]
            values = {**fields, "line": last_line(stderr[: match.end()] + stderr[match.end() :].partition("\n")[0])}
            return Trouble(rule.what.format(*groups, **values), rule.fix.format(*groups, **values), rule.ending, stderr)
    return None


def last_line(stderr: str) -> str:
    lines = [line.strip().strip("\r") for line in stderr.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def of_each(hosts: Sequence[Host], act: Callable[[int, Host], T]) -> list[T | Trouble]:
    """What `act` gives for every host, all at once, or why it could not."""

    def guarded(item: tuple[int, Host]) -> T | Trouble:
        try:
            return act(*item)
        except Trouble as e:
            return e

    with ThreadPoolExecutor(max_workers=min(32, len(hosts))) as pool:
        return list(pool.map(guarded, enumerate(hosts)))


def setup_failed(line: str) -> str:
    """A word of shell that the table above recognizes in stderr."""
    return shlex.quote(f"a line of the target's setup failed: {line}")


def setup_ended(line: str) -> str:
    """A word of shell for `trap`, whose commands say that `line` ended the shell, which the table above recognizes, and fail."""
    text = shlex.quote(f"a line of the target's setup ended the shell: {line}")
    return shlex.quote(f"echo {text} >&2; exit 1")


def give(pipe: IO[bytes], text: str) -> None:
    pipe.write(text.encode())
