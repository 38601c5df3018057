"""A command on the hosts of a target: those that it names, or those of the slice that a run has now."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from podwright import targets
from podwright.errors import UserError
from podwright.run import journal, listing
from podwright.run.allocations import AllocationRecord
from podwright.run.states import AllocationPhase
from podwright.rundir import RunDir
from podwright.targets import entries
from podwright.targets.hosts.runner import HostRunner
from podwright.targets.hosts.transport import Host, Trouble

_UNREACHED = 255  # as ssh says it


@dataclass(frozen=True)
class OutputLine:
    """Of the standard output of one host, with its end of line."""

    host: str
    text: str


@dataclass(frozen=True)
class HostResult:
    """Of one host, when its command has ended."""

    host: str
    code: int
    stderr: str
    trouble: Trouble | None = None
    """why the host was not reached"""


def hosts_of(name: str, runs: Path, run_name: str = "", number: int | None = None) -> list[Host]:
    """In the order of process numbers; of several the one with `number`. UserError where there are none now."""
    entries.require(name)
    target = targets.resolve(name).open()
    if not isinstance(target, HostRunner):
        raise UserError(
            f"target {name} has no hosts that podwright reaches itself",
            "name a target of kind=ssh or kind=tpu-vm",
            "no-hosts",
        )
    if target.provisioner is None:
        if run_name:
            raise UserError(
                f"--run {run_name}: the hosts of {name} are the same for all runs",
                "leave --run out",
                "option-not-needed",
            )
        hosts = target.own_hosts(())
    else:
        record = _allocation(name, runs, run_name)
        target = targets.of_handle(record.target)
        assert isinstance(target, HostRunner)
        hosts = target.own_hosts(record.hosts)
    if number is not None and number >= len(hosts):
        raise UserError(
            f"--host {number}: there are {len(hosts)} hosts",
            f"type a number from 0 to {len(hosts) - 1}",
            "no-such-host",
        )
    return hosts if number is None else [hosts[number]]


def _allocation(name: str, runs: Path, run_name: str) -> AllocationRecord:
    """Of the run of that name, or of the newest run of target `name` that has machines."""
    candidates = [listing.find(runs, run_name)] if run_name else listing.run_dirs(runs)
    having = [known for run in candidates if (known := _machines_of(run, name))]
    if not having:
        what = f"no machines of target {name} for {run_name or 'a run'} in {runs} now"
        raise UserError(what, f"`podwright target show {name} --live` shows what the cloud has", "no-machines")
    return max(having, key=lambda pair: pair[0])[1]


def _machines_of(run: RunDir, name: str) -> tuple[float, AllocationRecord] | None:
    try:
        state = journal.read(run)
    except UserError:
        return None
    record = state.allocation
    ready = record is not None and record.phase is AllocationPhase.READY and state.target == name
    return (state.created, record) if record and ready else None


def forward_argv(run: RunDir, port: int) -> list[str]:
    """The command that forwards `port` of this machine to that of the first host of the run's newest attempt. UserError where there is none."""
    handle = journal.read(run).handle
    target = targets.of_handle(handle) if handle else None
    if handle is None or not isinstance(target, HostRunner):
        what = f"run {run.name} has no hosts that podwright reaches itself"
        raise UserError(what, "leave --forward out: on this machine no port has to be forwarded", "no-hosts")
    return target.hosts_of(handle)[0].transport.forward(port)


def execute(hosts: Sequence[Host], command: str) -> Iterator[OutputLine | HostResult]:
    """Run a line of shell on all hosts at once. What each prints comes in the order of the hosts, and of the first at once."""
    queues: list[queue.Queue[OutputLine | HostResult]] = [queue.Queue() for _ in hosts]
    for host, own in zip(hosts, queues, strict=True):
        threading.Thread(target=_execute, args=(host, command, own), daemon=True).start()
    for own in queues:
        while True:
            item = own.get()
            yield item
            if isinstance(item, HostResult):
                break


def _execute(host: Host, command: str, own: queue.Queue[OutputLine | HostResult]) -> None:
    def read(pipe: IO[bytes]) -> None:
        for line in pipe:
            own.put(OutputLine(host.name, line.decode(errors="replace")))

    try:
        argv = host.transport.argv(command)
        code, stderr = _streamed(host, argv, read)
    except (UserError, OSError) as e:
        fault = (e.what, e.fix) if isinstance(e, UserError) else (f"this machine: {e}", "type the command again")
        own.put(HostResult(host.name, _UNREACHED, "", Trouble(*fault)))
        return
    trouble = host.transport.explain(stderr) if code == _UNREACHED else None
    own.put(HostResult(host.name, code if code >= 0 else 128 - code, stderr, trouble))


def _streamed(host: Host, argv: Sequence[str], read: Callable[[IO[bytes]], None]) -> tuple[int, str]:
    try:
        return host.shell.stream(argv, read=read)
    except FileNotFoundError as e:
        raise Trouble(f"command {argv[0]} not found on this machine", f"install {argv[0]} here") from e
