"""Machines over ssh: each has a keeper of its own (keeper.py), so that an attempt ends as one whether or not anybody watches.

Hosts share a folder with this machine (`runs`), or the run is brought to each of them and what it writes comes back (gather.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shlex
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from podwright.errors import UserError
from podwright.rundir import Ending, Record, RunDir, write_json
from podwright.shell import Shell
from podwright.targets import alive, scripts
from podwright.targets.base import (
    Handle,
    Hosts,
    Job,
    Polled,
    Process,
    Provisioner,
    Released,
    Remark,
    Rendered,
    Stopped,
    identity,
)
from podwright.targets.hosts import gather, probe, standing
from podwright.targets.hosts.host import Host, Trouble, of_each, setup_failed
from podwright.targets.settings.ssh import SshSettings

GATHER_EVERY_S = 15.0  # for files that are taken whole


class Ssh:
    provisioner: Provisioner | None = None

    def __init__(self, shell: Shell, name: str, settings: SshSettings):
        self._shell = shell
        self._name = name
        self._settings = settings
        self.traits = settings.traits()
        self._asked: tuple[Handle, float, Polled] | None = None
        self._gathered = 0.0

    def render(self, job: Job, hosts: Hosts | None = None) -> Rendered:
        run, own = RunDir(job.run_dir), self._settings
        if job.processes_per_host:
            own = own.model_copy(update={"tasks_per_node": job.processes_per_host})
        folder, shared = run.attempt(job.attempt), bool(own.runs)
        home = f"{own.folder.removeprefix('~/')}/{run.name}-{zlib.crc32(f'{job.run_dir} {job.created}'.encode()):08x}"
        port = 12000 + 2 * (zlib.crc32(f"{home} {job.attempt}".encode()) % 10_000)
        address = own.address or Host(self._shell, own.hosts[0]).address
        values = {
            "number": job.attempt,
            "name": run.name,
            "shared": shared,
            "cwd": shlex.quote(str(job.cwd)),
            "setup": own.setup,
            "address": shlex.quote(address),
            "port": port,
            "python": _python(own),
            "tasks": own.num_tasks,
            "per_node": own.tasks_per_node,
            "cpus": f"$(( ($(nproc) + {own.tasks_per_node - 1}) / {own.tasks_per_node} ))"
            if own.tasks_per_node > 1
            else "$(nproc)",
            "several": own.num_tasks > 1,
            "gpus": own.gpus_per_node,
            "environment": [shlex.quote(f"{key}={value}") for key, value in job.environment.items()],
            "command": _command(job, _python(own)),
        }
        files = {
            folder / script: scripts.filled(script, values, failed=setup_failed)
            for script in ("start.sh", "process.sh")
        }
        plan = {
            "hosts": own.hosts,
            "address": address,
            "control": port + 1,
            "per_node": own.tasks_per_node,
            "shared": shared,
        }
        files[folder / "job.json"] = json.dumps(plan, indent=1) + "\n"
        handle = {
            "run_dir": str(job.run_dir),
            "attempt": job.attempt,
            "hosts": list(own.hosts),
            "ssh": list(own.ssh),
            "shared": shared,
            "processes": own.num_tasks,
            "home": home,
            "attempt_dir": str(folder)
            if shared
            else str(RunDir(Path(home, "work", "runs", run.name)).attempt(job.attempt)),
            **identity(self._name, self._settings),
        }
        return Rendered(
            (sys.executable, "-m", "podwright.targets.hosts.start", str(folder)), job.cwd, handle, files=files
        )

    def submit(self, rendered: Rendered) -> Handle:
        self._asked = None
        run, number = _place(rendered.handle)
        folder = run.attempt(number)
        folder.mkdir(parents=True)
        for path, text in rendered.files.items():
            path.write_text(text)
        names = [path.name for path in rendered.files]
        order = {"handle": rendered.handle, "cwd": str(rendered.cwd), "env": self._settings.env, "files": names}
        write_json(folder / "order.json", order)
        _point_at(run, number)
        with alive.held(run.alive(number)) as lock:
            child = self._shell.start(
                rendered.argv, cwd=rendered.cwd, env=rendered.env, log=folder / "ssh.txt", keep_open=(lock,)
            )
        self._shell.wait(child)
        return rendered.handle

    def poll(self, handle: Handle) -> Polled:
        if self._asked and self._asked[0] == handle and time.monotonic() - self._asked[1] < self.traits.poll_s:
            return self._asked[2]
        polled = self._poll(handle)
        self._asked = (handle, time.monotonic(), polled) if polled.process is Process.RUNNING else None
        return polled

    def logs(self, handle: Handle, since: int, process: int = 0) -> tuple[str, int]:
        run, number = _place(handle)
        if process >= (count := handle["processes"]):
            raise UserError(f"--process {process}: there are {count}", f"type 0 to {count - 1}")
        self.poll(handle)  # which brings what is new
        return run.log_since(number, since, process)

    def stop(self, handle: Handle, *, force: bool = False) -> Stopped:
        run, number = _place(handle)
        self._asked = None
        signs = ["stop", "kill"] if force else ["stop"]
        if not run.attempt(number).is_dir():
            return Stopped(True)
        for sign in signs:
            (run.attempt(number) / sign).touch()  # by which also who is about to start it knows
        attempt = shlex.quote(handle["attempt_dir"])
        answers = of_each(
            self._hosts(handle),
            lambda _, host: host.call(f"cd {attempt} 2> /dev/null && touch {' '.join(signs)}; true"),
        )
        # The keepers of the others are told by the one that was reached.
        unreached = [answer.what for answer in answers if isinstance(answer, Trouble)]
        return Stopped(len(unreached) < len(answers), unreached[0] if unreached else "")

    def release(self, handle: Handle) -> Released:
        """End what is left, and take away what was brought; not from a host whose results have not come back."""
        run, number = _place(handle)
        kept = _read(run.attempt(number) / "ended.json").get("missed", [])
        attempt, home = shlex.quote(handle["attempt_dir"]), shlex.quote(handle["home"])

        def give_back(host_number: int, host: Host) -> None:
            end = f"{{ [ ! -e host-{host_number}.sh ] || sh host-{host_number}.sh end; }}"
            away = "" if handle["shared"] or host.name in kept else f"; cd && rm -rf {home}"
            host.call(f"cd {attempt} 2> /dev/null && {end}{away}; true")

        answers = of_each(self._hosts(handle), give_back)
        unreached = [answer.what for answer in answers if isinstance(answer, Trouble)]
        return Released(not unreached, unreached[0] if unreached else "")

    def probe_hosts(self, arguments: list[str]) -> list[Record]:
        return probe.probe_hosts(self._settings, self._own_hosts(), _python(self._settings), arguments)

    def check(self) -> list[Remark]:
        return probe.check(self._settings, self._own_hosts(), _python(self._settings))

    def _own_hosts(self) -> list[Host]:
        return [Host(self._shell, name, self._settings.ssh) for name in self._settings.hosts]

    def _hosts(self, handle: Handle) -> list[Host]:
        return [Host(self._shell, name, handle["ssh"]) for name in handle["hosts"]]

    def _poll(self, handle: Handle) -> Polled:
        run, number = _place(handle)
        folder = run.attempt(number)
        if not folder.is_dir():
            return Polled(Process.ABSENT)
        if alive.is_held(run.alive(number)):
            return Polled(Process.RUNNING, waiting="Starting: the run is being brought to its hosts")
        if ended := _read(folder / "ended.json"):
            return standing.told(ended)
        if refused := _read(folder / "submit.json"):
            return Polled(Process.ENDED, ending=Ending(refused["ending"]), detail=refused["detail"], fix=refused["fix"])
        with _locked(folder / "gather.lock") as ours:
            if not ours:
                return Polled(Process.RUNNING, waiting="Gathering: another podwright is at it")
            return self._look(handle)

    def _look(self, handle: Handle) -> Polled:
        run, number = _place(handle)
        whole = not handle["shared"] and time.monotonic() - self._gathered > GATHER_EVERY_S
        answers = of_each(self._hosts(handle), lambda n, host: self._bring_back(handle, n, host, whole))
        if whole:
            self._gathered = time.monotonic()
        polled = standing.judged(handle["hosts"], answers)
        if polled.process is not Process.ENDED:
            return polled
        missed = [name for name, answer in zip(handle["hosts"], answers, strict=True) if isinstance(answer, Trouble)]
        if not handle["shared"]:
            reached = [host for host in self._hosts(handle) if host.name not in missed]
            numbers = {host.name: n for n, host in enumerate(self._hosts(handle))}
            last = of_each(reached, lambda _, host: self._bring_back(handle, numbers[host.name], host, True))
            if trouble := next((answer for answer in last if isinstance(answer, Trouble)), None):
                return Polled(Process.RUNNING, waiting=f"Gathering: {trouble.what}; {trouble.fix}")
        write_json(run.attempt(number) / "ended.json", standing.record(polled) | {"missed": missed})
        return polled

    def _bring_back(self, handle: Handle, host_number: int, host: Host, whole: bool) -> Record:
        """What the host's keeper says; of hosts that share no folder with everything that is new there."""
        run, number = _place(handle)
        ask = _question(handle, host_number, host)
        if handle["shared"]:
            return ask({"from": None, "list": False})
        told = gather.ends(run, number, ask, whole)
        if whole and told["record"]:
            gather.files(run, number, host_number, host, str(Path(handle["attempt_dir"]).parents[1]), told)
        return told


def _question(handle: Handle, host_number: int, host: Host) -> Callable[[Record], Record]:
    known = f"cd {shlex.quote(handle['attempt_dir'])} 2> /dev/null && [ -e host-{host_number}.sh ]"
    command = f"{known} || {{ echo '{{\"record\": null}}'; exit; }}; exec sh host-{host_number}.sh tell"

    def ask(asked: Record) -> Record:
        try:
            found: Record = json.loads(host.call(command, json.dumps(asked) + "\n"))
        except ValueError:
            raise Trouble(
                f"host {host.name} has answered nothing that can be read", "look at its disk", Ending.CRASHED
            ) from None
        return found

    return ask


def _command(job: Job, python: str) -> str:
    """Words of shell; `python` and the directory of the run are expanded there."""
    words = {"{python}": python, "{run_dir}": '"$run"'}
    return " ".join(
        words.get(word) or shlex.quote(filled) for word, filled in zip(job.command, job.argv("", ""), strict=True)
    )


def _python(own: SshSettings) -> str:
    """A word of shell."""
    python = own.python or (sys.executable if own.runs else "python3")
    return f'"$HOME"/{shlex.quote(python[2:])}' if python.startswith("~/") else shlex.quote(python)


def _place(handle: Handle) -> tuple[RunDir, int]:
    return RunDir(Path(handle["run_dir"])), handle["attempt"]


def _read(path: Path) -> Record:
    try:
        found: Record = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return found


def _point_at(run: RunDir, number: int) -> None:
    part = run.path / f"latest.{number}.part"
    part.unlink(missing_ok=True)
    part.symlink_to(f"attempts/{number}")
    part.replace(run.path / "latest")


@contextlib.contextmanager
def _locked(path: Path) -> Any:
    """Whether nobody else has it."""
    with path.open("w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
