"""This machine: the trainer is a process in a session of its own, found again by its pid file.

Two facts tell whether it lives: pid.json (pid and creation time, against reuse of pids), and before that file
exists a lock that the process inherits from the launcher, which the kernel drops with its last holder.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
from dataclasses import asdict, replace
from pathlib import Path

import psutil

from podwright.errors import UserError
from podwright.rundir import Ending, Record, RunDir, read_json, write_json
from podwright.shell import Shell, joined
from podwright.targets import alive
from podwright.targets.base import Handle, Job, Polled, Process, Released, Remark, Rendered, Stopped, facts_in, identity
from podwright.targets.handles import attempt_of
from podwright.targets.hosts import oom
from podwright.targets.machines import Hosts, Provisioner
from podwright.targets.settings.local import LocalSettings

TRAINER: tuple[str, ...] = (sys.executable, "-m", "podwright.train")
_DETACHED = Path(__file__).with_name("detached.py")
_CLOCK_S = 2.0  # a creation time read twice may differ by a correction of the system clock


class Local:
    provisioner: Provisioner | None = None

    def __init__(self, shell: Shell, name: str = "local", settings: LocalSettings | None = None):
        self._shell = shell
        self._name = name
        self._settings = settings or LocalSettings()
        self.traits = self._settings.traits()
        self.identity = identity(name, self._settings)

    def render(self, job: Job, hosts: Hosts | None = None) -> Rendered:
        env: dict[str, str] = {}
        if devices := self._settings.cpu_devices:
            flags = f"--xla_force_host_platform_device_count={devices}"
            # PyTorch else takes the GPUs of the machine
            env = {
                "JAX_PLATFORMS": "cpu",
                "CUDA_VISIBLE_DEVICES": "",
                "XLA_FLAGS": flags,
                "NPROC_PER_NODE": str(devices),
            }
        handle = {"run_dir": str(job.run_dir), "attempt": job.attempt, **self.identity}
        return Rendered(job.argv(sys.executable, str(job.run_dir)), job.cwd, handle, joined(job.environment, env))

    def submit(self, rendered: Rendered) -> Handle:
        run, number = attempt_of(rendered.handle)
        run.attempt(number).mkdir(parents=True)
        write_json(_oom_counter(run, number), asdict(oom.of_this_process()))
        # -P: the folder of detached.py is not a place to import from.
        argv = [sys.executable, "-P", str(_DETACHED), str(run.pid(number)), *rendered.argv]
        with alive.held(run.alive(number)) as lock:
            self._shell.start(argv, cwd=rendered.cwd, env=rendered.env, log=run.log(number), keep_open=(lock,))
        return rendered.handle

    def poll(self, handle: Handle) -> Polled:
        record = _pid_record(handle)
        if record is None:
            return Polled(Process.RUNNING if _is_starting(handle) else Process.ABSENT)
        returncode = self._shell.returncode(record[0])  # reaps our own child, which would else stay a zombie
        return Polled(Process.RUNNING) if _process(record) else _ended(handle, returncode)

    def stop(self, handle: Handle, *, force: bool = False) -> Stopped:
        record = _pid_record(handle)
        if record is None:
            return Stopped(not _is_starting(handle), "the process has not written its pid file yet")
        if not (process := _process(record)):
            return Stopped(True)
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if force:
                os.killpg(process.pid, signal.SIGKILL)  # the trainer leads its own group
            else:
                process.terminate()
        return Stopped(True)

    def check_access(self) -> list[Remark]:
        return []

    def check(self) -> list[Remark]:
        return []

    def probe_hosts(self, arguments: list[str]) -> list[Record]:
        code, out = self._shell.output([*TRAINER, "facts", *arguments])
        if code:
            raise UserError(
                f"the trainer cannot be asked (exit code {code})", f"type: {shlex.join(TRAINER)} facts", "no-facts"
            )
        return facts_in(out)

    def release(self, handle: Handle) -> Released:
        """End what an ended trainer left running in its session."""
        record = _pid_record(handle)
        if record is None or _process(record) or _reused(record):
            return Released(True)
        for process in psutil.process_iter():
            if _session(process.pid) == record[0] != process.pid:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        return Released(True)


def _ended(handle: Handle, returncode: int | None) -> Polled:
    """With the process that failed first, where the trainer is several of them and the one that started them has said so."""
    run, number = attempt_of(handle)
    ended = Polled(Process.ENDED, returncode)
    if fault := read_json(run.fault(number)):
        who = f"process {fault['process']} on {fault['host']}"
        ended = Polled(Process.ENDED, fault["code"], who=who, first=fault["process"])
    return _with_oom(run, number, ended)


def _oom_counter(run: RunDir, number: int) -> Path:
    return run.attempt(number) / "oom.json"


def _with_oom(run: RunDir, number: int, ended: Polled) -> Polled:
    """A process that was killed, or whose end nobody has seen, was killed for memory if the kernel has counted such a kill since its
    start."""
    killed = oom.OomCounter(**read_json(_oom_counter(run, number))).killed()
    if not killed or ended.returncode not in (None, -signal.SIGKILL):
        return ended
    detail = f"{ended.who or 'the trainer'}: {killed}"
    return replace(ended, ending=Ending.OUT_OF_MEMORY, detail=detail, fix=oom.FIX)


def _is_starting(handle: Handle) -> bool:
    """Whether a process lives that has inherited the lock, by which one is known that has not written its pid file."""
    run, number = attempt_of(handle)
    return alive.is_held(run.alive(number))


def _pid_record(handle: Handle) -> tuple[int, float] | None:
    run, number = attempt_of(handle)
    record = read_json(run.pid(number))
    return (record["pid"], record["created"]) if record else None


def _process(record: tuple[int, float]) -> psutil.Process | None:
    """The living process that wrote its pid file, or None; a zombie has ended."""
    pid, created = record
    try:
        process = psutil.Process(pid)
        if abs(process.create_time() - created) > _CLOCK_S or process.status() == psutil.STATUS_ZOMBIE:
            return None
    except psutil.NoSuchProcess:
        return None
    return process


def _reused(record: tuple[int, float]) -> bool:
    """Whether the pid now belongs to somebody else, and with it the session of that number."""
    pid, created = record
    try:
        return abs(psutil.Process(pid).create_time() - created) > _CLOCK_S
    except psutil.NoSuchProcess:
        return False


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None
