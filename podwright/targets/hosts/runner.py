"""Attempts on hosts, for any target that has some: each host has a keeper of its own (keeper.py), so that an attempt ends as a
unit whether or not a launcher is alive.

Hosts share a folder with this machine (`runs`), or the run is brought to each of them and what it writes comes back (gather.py).
"""

from __future__ import annotations

import json
import shlex
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from podwright.rundir import Ending, Record, RunDir, read_json, write_json
from podwright.shell import Shell
from podwright.targets import alive, scripts
from podwright.targets.base import Handle, Job, Polled, Process, Released, Rendered, Stopped
from podwright.targets.handles import attempt_of, folder_of
from podwright.targets.hosts import gather, status
from podwright.targets.hosts.transport import (
    PORTS,
    Connect,
    Host,
    Transport,
    Trouble,
    of_each,
    setup_ended,
    setup_failed,
)
from podwright.targets.machines import Hosts, Provisioner

GATHER_EVERY_S = 15.0  # for complete files
STOP_LIMIT_S = 20.0  # for a host to confirm a stop


@dataclass(frozen=True)
class HostProfile:
    """How hosts are used; the keys are those of a target's settings."""

    setup: Sequence[str] = ()
    """lines of shell before the command"""
    python: str = "python3"
    runs: str = ""
    """a folder that hosts and this machine share; "": the run is brought to each host"""
    folder: str = "~/.podwright"
    """where a run is on hosts that share none"""
    env: Sequence[str] = ()
    """names of variables of this shell that the processes get"""
    gpus_per_node: int = 0
    tpus_per_node: int = 0
    notices: bool = False
    """whether hosts are told beforehand that they will be taken"""
    sign_of_life: str = ""
    """a file on each host that is touched while an attempt lives there; "": none"""
    check: str = ""
    """a module whose `check` looks at all hosts together before an attempt is started on them; "": none"""
    check_limit_s: float = 180.0

    @property
    def python_word(self) -> str:
        """A word of shell."""
        home = self.python.startswith("~/")
        return f'"$HOME"/{shlex.quote(self.python[2:])}' if home else shlex.quote(self.python)


class HostRunner:
    """All of a target but what its hosts are: `render` of a subclass says that, by `render_on`, and `transports` does."""

    provisioner: Provisioner | None = None

    def __init__(self, shell: Shell, profile: HostProfile, connect: Connect):
        self._shell = shell
        self._profile = profile
        self._connect = connect
        self._last_gather = 0.0

    def transports(self, hosts: Hosts) -> Sequence[Transport]:
        """Of an allocation; of a target that creates no machines its own, whatever `hosts` is."""
        raise NotImplementedError

    def own_hosts(self, hosts: Hosts) -> list[Host]:
        return [Host(self._shell, transport) for transport in self.transports(hosts)]

    def render_on(
        self, transports: Sequence[Transport], job: Job, target: Record, address: str = "", per_node: int = 1
    ) -> Rendered:
        """`target`: its `identity`, for the handle. `address`: of the first host as the others reach it; "": as this machine does.
        `per_node`: processes on each host."""
        run = RunDir(job.run_dir)
        profile = self._profile
        folder = run.attempt(job.attempt)
        shared = bool(profile.runs)
        home = f"{profile.folder.removeprefix('~/')}/{run.name}-{job.run_tag}"
        first = PORTS.start + 2 * (zlib.crc32(f"{home} {job.attempt}".encode()) % (len(PORTS) // 2))
        port, control = ("PORT", "CONTROL_PORT") if job.created is None else (first, first + 1)
        address = address or transports[0].address
        num_processes = per_node * len(transports)
        values = {
            "number": job.attempt,
            "name": run.name,
            "shared": shared,
            "cwd": shlex.quote(str(job.cwd)),
            "setup": profile.setup,
            "address": shlex.quote(address),
            "port": port,
            "python": profile.python_word,
            "tasks": num_processes,
            "per_node": per_node,
            "cpus": f"$(( ($(nproc) + {per_node - 1}) / {per_node} ))" if per_node > 1 else "$(nproc)",
            "several": num_processes > 1,
            "gpus": profile.gpus_per_node,
            "tpus": profile.tpus_per_node,
            "check": scripts.train_command("devices", "--storage", job.storage) if profile.check else "",
            "environment": scripts.exports(job.environment),
            "command": scripts.command_line(job),
        }
        files = {
            folder / script: scripts.filled(
                script, values, failed=lambda line: f"echo {setup_failed(line)} >&2", ended=setup_ended
            )
            for script in ("start.sh", "process.sh")
        }
        plan = {
            "hosts": [transport.name for transport in transports],
            "address": address,
            "control": control,
            "per_node": per_node,
            "shared": shared,
            "notices": profile.notices,
            "sign_of_life": profile.sign_of_life,
        }
        files[folder / "job.json"] = json.dumps(plan, indent=1) + "\n"
        on_host = folder if shared else RunDir(Path(home, "work", "runs", run.name)).attempt(job.attempt)
        handle = {
            "run_dir": str(job.run_dir),
            "attempt": job.attempt,
            "processes": num_processes,
            "hosts": [transport.record for transport in transports],
            "shared": shared,
            "home": home,
            "attempt_dir": str(on_host),
            **target,
        }
        argv = (sys.executable, "-m", "podwright.targets.hosts.start", str(folder))
        return Rendered(argv, job.cwd, handle, files=files)

    def submit(self, rendered: Rendered) -> Handle:
        run, number = attempt_of(rendered.handle)
        folder = folder_of(rendered)
        order = {
            "handle": rendered.handle,
            "transport": self._connect.__module__,
            "cwd": str(rendered.cwd),
            "env": list(self._profile.env),
            "files": [path.name for path in rendered.files],
            "check": self._profile.check,
            "check_limit_s": self._profile.check_limit_s,
            "devices_per_host": self._profile.tpus_per_node,
        }
        write_json(folder / "order.json", order)
        _point_at(run, number)
        with alive.held(run.alive(number)) as lock:
            child = self._shell.start(
                rendered.argv, cwd=rendered.cwd, env=rendered.env, log=folder / "start.txt", keep_open=(lock,)
            )
        self._shell.wait(child)
        return rendered.handle

    def poll(self, handle: Handle) -> Polled:
        run, number = attempt_of(handle)
        folder = run.attempt(number)
        if not folder.is_dir():
            return Polled(Process.ABSENT)
        if alive.is_held(run.alive(number)):
            return Polled(Process.RUNNING, waiting="Starting: the attempt is being started on its hosts")
        if ended := read_json(folder / "ended.json"):
            return status.from_record(ended)
        if "ending" in (refused := read_json(folder / "submit.json")):
            return replace(status.from_record(refused), bootstrap=True)
        with alive.acquired(folder / "gather.lock") as acquired:
            if not acquired:
                why = "Gathering: another podwright is copying results from the hosts"
                return Polled(Process.RUNNING, waiting=why, unseen=True)
            return self._query(handle)

    def stop(self, handle: Handle, *, force: bool = False) -> Stopped:
        """Acknowledged when every host has the order, or nothing was started."""
        run, number = attempt_of(handle)
        signs = ["stop", "kill"] if force else ["stop"]
        if not run.attempt(number).is_dir():
            return Stopped(True)
        for sign in signs:
            (run.attempt(number) / sign).touch()  # by which start.py knows, if it is still at work
        attempt = shlex.quote(handle["attempt_dir"])
        command = f"cd {attempt} 2> /dev/null || exit 0; touch {' '.join(signs)}"
        answers = of_each(self.hosts_of(handle), lambda _, host: host.call(command, limit_s=STOP_LIMIT_S))
        reason = _reason(answers)
        return Stopped(not reason, reason, status.is_barred(answers))

    def release(self, handle: Handle) -> Released:
        """End what is left and remove what was brought; done when every host has confirmed.

        A host that was lost, or never reached, is not waited for: its keeper ends by itself, and the next start on it ends what is left.
        Its copy of the run stays there, since its results have not come back.
        """
        run, number = attempt_of(handle)
        folder = run.attempt(number)
        lost = {
            *read_json(folder / "ended.json").get("lost", []),
            *read_json(folder / "submit.json").get("unreached", []),
        }
        attempt = shlex.quote(handle["attempt_dir"])
        home = shlex.quote(handle["home"])
        siblings = f"{shlex.quote(str(Path(handle['attempt_dir']).parent))}/*"
        # Where another attempt is, it came later and has replaced what this one left.
        other = f'for each in {siblings}; do [ ! -d "$each" ] || [ "$each" = {attempt} ] || exit 0; done'
        remove = "" if handle["shared"] else f"; cd || exit; {other}; rm -rf {home}"

        def free(host_number: int, host: Host) -> None:
            if host.name in lost:
                return
            end = f"[ ! -e host-{host_number}.sh ] || sh host-{host_number}.sh end"
            host.call(f"if cd {attempt} 2> /dev/null; then {end}; fi{remove}")

        answers = of_each(self.hosts_of(handle), free)
        reason = _reason(answers)
        return Released(not reason, reason, status.is_barred(answers))

    def hosts_of(self, handle: Handle) -> list[Host]:
        return [Host(self._shell, self._connect(record)) for record in handle["hosts"]]

    def _query(self, handle: Handle) -> Polled:
        run, number = attempt_of(handle)
        hosts = self.hosts_of(handle)
        with_files = not handle["shared"] and time.monotonic() - self._last_gather > GATHER_EVERY_S
        answers = of_each(hosts, lambda n, host: self._bring_back(handle, n, host, with_files))
        if with_files:
            self._last_gather = time.monotonic()
        names = [host.name for host in hosts]
        polled = status.combined(names, answers)
        folder = run.attempt(number)
        if polled.process is Process.ABSENT and (folder / "submit.json").exists() and not (folder / "stop").exists():
            polled = status.deleted(", ".join(names), handle["attempt_dir"])  # every host had started it
        if polled.process is not Process.ENDED:
            return polled
        lost = [host.name for host, answer in zip(hosts, answers, strict=True) if isinstance(answer, Trouble)]
        if not handle["shared"]:

            def last(n: int, host: Host) -> None:
                if host.name not in lost:
                    self._bring_back(handle, n, host, True)

            if reason := _reason(of_each(hosts, last)):
                return Polled(Process.RUNNING, waiting=f"Gathering: {reason}")
        write_json(run.attempt(number) / "ended.json", status.to_record(polled) | {"lost": lost})
        return polled

    def _bring_back(self, handle: Handle, host_number: int, host: Host, with_files: bool) -> Record:
        """The answer of the host's keeper; of hosts that share no folder, everything that is new there comes here."""
        run, number = attempt_of(handle)
        query = _query_to(handle, host_number, host)
        if handle["shared"]:
            return query({"from": None, "list": False})
        answer = gather.ends(run, number, query, with_files)
        if with_files and answer["record"]:
            gather.files(run, number, host_number, host, str(Path(handle["attempt_dir"]).parents[1]), answer, query)
        return answer


def _query_to(handle: Handle, host_number: int, host: Host) -> Callable[[Record], Record]:
    known = f"cd {shlex.quote(handle['attempt_dir'])} 2> /dev/null && [ -e host-{host_number}.sh ]"
    command = f"{known} || {{ echo '{{\"record\": null}}'; exit; }}; exec sh host-{host_number}.sh status"

    def query(question: Record) -> Record:
        text = host.call(command, json.dumps(question) + "\n")
        try:
            answer: Record = json.loads(text)
        except ValueError:
            what = f"host {host.name} answered a question about the attempt with no JSON: {text[-200:]!r}"
            fix = f"type `df` there (its disk may be full) and read {handle['attempt_dir']}/host-{host_number}.txt"
            raise Trouble(what, fix, Ending.CRASHED) from None
        return answer

    return query


def _reason(answers: Sequence[object]) -> str:
    """Why hosts have not answered; "" when all have."""
    return "; ".join(f"{answer.what}; {answer.fix}" for answer in answers if isinstance(answer, Trouble))


def _point_at(run: RunDir, number: int) -> None:
    part = run.path / f"latest.{number}.part"
    part.unlink(missing_ok=True)
    part.symlink_to(f"attempts/{number}")
    part.replace(run.path / "latest")
