"""How a command reaches one host, and what can be done with any host once a command does: run, stream, ship a folder.

A transport (ssh, a command in a namespace, later kubectl) only builds a command line and explains its own messages.
"""

from __future__ import annotations

import contextlib
import io
import shlex
import tarfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Protocol, TypeVar

from podwright.errors import UserError
from podwright.failures.match import last_line, match
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
        super().__init__(what, fix, "host-trouble")
        self.ending = ending
        self.stderr = stderr


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
"""what `start.py` prints on a host whose start.sh ended without an error and without a keeper; a row of podwright/failures matches it, and the next"""
LATER_ATTEMPT = "podwright: the host has attempt"
"""what `start.py` prints, with the number, on a host where a later attempt of the run is"""


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
        known = self.transport.explain(stderr) or explained(stderr, {"host": self.name}, "host")
        if known:
            return known
        if code < 0:
            within = f" within {limit_s:.0f} s" if limit_s else ""
            what, fix = f"host {self.name} did not answer{within}", "check its load and its network, then try again"
            return Trouble(what, fix, Ending.NO_CAPACITY, stderr)
        message = last_line(stderr) or f"exit code {code}, without a message"
        what = f"a command of podwright failed on host {self.name}: {message}"
        return Trouble(what, "correct that on the host, then try again", Ending.CRASHED, stderr)


def explained(stderr: str, fields: Mapping[str, str], *seen_in: str) -> Trouble | None:
    """By the first row of the table of failures that matches `stderr`; None where none does."""
    failure = match(stderr, *seen_in)
    if failure is None:
        return None
    return Trouble(failure.cause(fields), failure.remedy(fields), failure.row.ending or Ending.BAD_INPUT, stderr)


def of_each(hosts: Sequence[Host], act: Callable[[int, Host], T]) -> list[T | Trouble]:
    """What `act` gives for every host, all at once, or why it could not."""

    def guarded(item: tuple[int, Host]) -> T | Trouble:
        try:
            return act(*item)
        except Trouble as e:
            return e

    with ThreadPoolExecutor(max_workers=min(32, len(hosts))) as pool:
        return list(pool.map(guarded, enumerate(hosts)))


def require_all(answers: Sequence[T | Trouble]) -> list[T]:
    """What all hosts have answered; the first Trouble where one has not."""
    answered = []
    for answer in answers:
        if isinstance(answer, Trouble):
            raise answer
        answered.append(answer)
    return answered


def setup_failed(line: str) -> str:
    """A word of shell that a row of podwright/failures matches in stderr."""
    return shlex.quote(f"a line of the target's setup failed: {line}")


def setup_ended(line: str) -> str:
    """A word of shell for `trap`, whose commands say that `line` ended the shell, which a row of podwright/failures matches, and fail."""
    text = shlex.quote(f"a line of the target's setup ended the shell: {line}")
    return shlex.quote(f"echo {text} >&2; exit 1")


def after_setup(setup: Sequence[str], command: str) -> str:
    """`command` after lines of setup, in the shell that they are for."""
    # eval: a line with a syntax error fails alone, where the script would otherwise end without naming it
    lines = (
        f"trap {setup_ended(line)} EXIT; eval {shlex.quote(line)} < /dev/null >&2 || "
        f"{{ trap - EXIT; echo {setup_failed(line)} >&2; exit 1; }}; trap - EXIT"
        for line in setup
    )
    return "\n".join([*lines, command])


def give(pipe: IO[bytes], text: str) -> None:
    pipe.write(text.encode())
