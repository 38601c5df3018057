"""A SLURM cluster from one of its login nodes: an attempt is a job, which SLURM itself may start several times.

A job is found by its name, which is made before it is: so a launcher that dies before sbatch has answered loses nothing. What the
job writes into its attempt (see templates/job.sh) stands in where SLURM has forgotten it.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from podwright.errors import UserError
from podwright.failures.match import match
from podwright.rundir import Ending, Record, RunDir, numbers
from podwright.shell import Shell
from podwright.targets import alive, scripts, slurm_check, slurm_states
from podwright.targets.base import (
    Handle,
    Job,
    MachinesBusy,
    MissingProgram,
    Polled,
    Process,
    Released,
    Remark,
    Rendered,
    Stopped,
    facts_in,
    identity,
)
from podwright.targets.handles import attempt_of, folder_of
from podwright.targets.hosts.transport import after_setup
from podwright.targets.machines import Hosts, Provisioner
from podwright.targets.settings import gpus
from podwright.targets.settings.slurm import SlurmSettings

_CHOOSING = ("--partition=", "--account=", "--qos=", "--constraint=", "--nodes=", "--gpus-per-node=")
_GPUS = re.compile(r"--gpus|-G|--gres=(?:\S*,)?gpu\b")  # lines of a target, which stand in place of ours
_PATIENCE_S = 600  # for free nodes
_LOG_END = 1 << 16  # bytes that are searched for what srun says of a job that has not ended
_QUEUES = "a run is queued until they are free; type podwright doctor again then"
_ACCEPTED = re.compile(r"^(\d+)(?:;\S+)?$", re.MULTILINE)  # what --parsable prints
_NO_SBATCH = "sbatch is not on this machine"
_OF_ANOTHER_JOB = "SLURM_(?!CONF$).*"  # of a session of salloc that this is typed in: srun would take them for its own


@dataclass(frozen=True)
class _Job:
    number: str
    state: str
    reason: str
    nodes: str


class Slurm:
    provisioner: Provisioner | None = None

    def __init__(self, shell: Shell, name: str, settings: SlurmSettings):
        self._shell = shell
        self._name = name
        self._settings = settings
        self.traits = settings.traits()
        self.identity = identity(name, self._settings)

    def render(self, job: Job, hosts: Hosts | None = None) -> Rendered:
        run = RunDir(job.run_dir)
        own = slurm_check.sized(gpus.with_tasks(self._settings, job.one_gpu_each), self._ask)
        folder = run.attempt(job.attempt)
        name = f"{run.name}.{job.attempt}-{job.run_tag}"
        where = [f"--job-name={name}", f"--chdir={job.cwd}", f"--output={str(run.log(job.attempt)).replace('%', '%%')}"]
        python = own.python or sys.executable
        values = {
            "options": [shlex.quote(option) for option in (*where, *_options(own, job.exclude))],
            "number": job.attempt,
            "name": run.name,
            "run": shlex.quote(str(job.run_dir)),
            "attempt": shlex.quote(str(folder)),
            "setup": own.setup,
            "nodes": own.nodes,
            "tasks": own.num_tasks,
            "per_node": own.tasks_per_node,
            "cpus": own.cpus_per_task,
            "several": own.num_tasks > 1,
            "gpus": own.gpus_per_node,
            "tpus": 0,
            "environment": scripts.exports(job.environment),
            "trainer": shlex.join(job.argv(python, str(job.run_dir))),
        }
        files = {
            folder / script: scripts.filled(script, values, failed=_line_failed, ended=_line_ended)
            for script in ("job.sh", "task.sh")
        }
        place = {"run_dir": str(job.run_dir), "attempt": job.attempt, "job_name": name, "processes": own.num_tasks}
        handle = place | self.identity
        return Rendered(("sbatch", "--parsable", str(folder / "job.sh")), job.cwd, handle, files=files)

    def submit(self, rendered: Rendered) -> Handle:
        run, number = attempt_of(rendered.handle)
        folder = folder_of(rendered)  # the log's too: a job whose log has no folder fails without a word
        with alive.held(run.alive(number)) as lock:
            try:
                log = folder / "sbatch.txt"
                child = self._shell.start(
                    rendered.argv,
                    cwd=rendered.cwd,
                    env=rendered.env,
                    log=log,
                    keep_open=(lock,),
                    without=_OF_ANOTHER_JOB,
                )
            except FileNotFoundError:
                (folder / "sbatch.txt").write_text(_NO_SBATCH)
                return rendered.handle
        self._shell.wait(child)
        return rendered.handle

    def stop(self, handle: Handle, *, force: bool = False) -> Stopped:
        run, number = attempt_of(handle)
        if run.attempt(number).is_dir():
            (run.attempt(number) / "stop").touch()  # by which the job knows that it is not to come back
        if alive.is_held(run.alive(number)):
            return Stopped(False, "sbatch has not answered yet")
        if _never_submitted(run, number):
            return Stopped(True)
        job, trouble = self._job(handle)
        if trouble:
            return Stopped(False, trouble)
        if job is None or slurm_states.has_ended(job.state):
            return Stopped(True)
        signal = () if force or job.state != "RUNNING" else ("--signal=TERM",)
        trouble = self._cancelled(job, *signal)
        return Stopped(not trouble, trouble)

    def release(self, handle: Handle) -> Released:
        """Cancel a job that came to be after its attempt was given up."""
        if _never_submitted(*attempt_of(handle)):
            return Released(True)
        job, trouble = self._job(handle)
        if job and not slurm_states.has_ended(job.state):
            trouble = self._cancelled(job) or f"job {job.number} is being cancelled"
        return Released(not trouble, trouble)

    def _cancelled(self, job: _Job, *signal: str) -> str:
        """Why scancel has not reached the job, or ""."""
        code, _, err = self._ask("scancel", *signal, job.number)
        return str(slurm_states.failure("scancel", code, err)) if code else ""

    def probe_hosts(self, arguments: list[str]) -> list[Record]:
        own = slurm_check.sized(self._settings, self._ask)
        if waits := slurm_check.waiting(own, self._ask):
            raise MachinesBusy(f"the machines of {self._name} were not asked: {waits}", _QUEUES, "machines-busy")
        tell = shlex.join([own.python or sys.executable, "-m", "podwright.train", "facts", *arguments])
        peers = 'peers=$(scontrol show hostnames "$SLURM_JOB_NODELIST")'
        meet = '--rank "$SLURM_PROCID" --meet "$(echo "$peers" | head -n 1):$((12000 + SLURM_JOB_ID % 20000))"'
        script = after_setup(own.setup, f'{peers}\nexec {tell} $(echo "$peers" | sed "s/^/--peer /") {meet}')
        where = [option for option in _options(own) if option.startswith(_CHOOSING)]
        argv = [
            "srun",
            "--job-name=podwright-doctor",
            "--time=5",
            f"--immediate={_PATIENCE_S}",
            *where,
            "--ntasks-per-node=1",
            *own.sbatch,
        ]
        code, out, err = self._ask(*argv, "bash", "-c", script, seconds=_PATIENCE_S + 300)
        facts = facts_in(out)
        if len(facts) >= own.nodes:
            return facts
        unasked = f"the machines of {self._name} were not asked"
        if slurm_states.is_busy(err):
            raise MachinesBusy(
                f"{unasked}: {own.nodes} of them were not free within {_PATIENCE_S:.0f} s", _QUEUES, "machines-busy"
            )
        if unknown := slurm_states.no_answer(err):
            raise MachinesBusy(f"{unasked}: {unknown.what}", unknown.fix, "no-answer")
        reason = " ".join(err.split())[-120:] or f"srun ended with exit code {code}"
        what = f"{len(facts)} of {own.nodes} machines of {self._name} have answered: {reason}"
        raise UserError(what, f"type: podwright target check {self._name}", "no-facts")

    def check_access(self) -> list[Remark]:
        return []

    def check(self) -> list[Remark]:
        """What stands in the way of a job on the cluster as it is now."""
        own = slurm_check.sized(self._settings, self._ask)
        return slurm_check.check(own, self._ask, _options(own))

    def poll(self, handle: Handle) -> Polled:
        return self.poll_all([handle])[0]

    def poll_all(self, handles: Sequence[Handle]) -> list[Polled]:
        early = [_without_job(*attempt_of(handle)) for handle in handles]
        names = [handle["job_name"] for handle, polled in zip(handles, early, strict=True) if polled is None]
        jobs, trouble = self._jobs(names) if names else ({}, "")
        return [
            polled or self._of_job(*attempt_of(handle), jobs.get(handle["job_name"]), trouble)
            for handle, polled in zip(handles, early, strict=True)
        ]

    def _of_job(self, run: RunDir, number: int, job: _Job | None, trouble: str) -> Polled:
        if trouble:
            return Polled(Process.RUNNING, waiting=f"Unreachable: {trouble}", silent=True)
        if job is None:
            return _forgotten(run, number)
        if slurm_states.has_ended(job.state):
            return _ended(run, number, job)
        if waiting := slurm_states.waiting(job.state, job.reason, self._name):
            return Polled(Process.RUNNING, waiting=waiting)
        return self._running(run, number, job)

    def _running(self, run: RunDir, number: int, job: _Job) -> Polled:
        """With the process that has failed, and what keeps SLURM from ending the job where the trainer has ended."""
        if job.state == "RUNNING" and _newest(
            run, number, "ended.json"
        ):  # what else the start before has left tells nothing of the next one
            what = f"Prolog: the script of job {job.number} has ended, and SLURM has neither ended the job nor started it again"
            return Polled(Process.RUNNING, waiting=f"{what}: a prolog may be at work")
        size = run.log(number).stat().st_size if run.log(number).exists() else 0
        log = run.log_since(number, max(0, size - _LOG_END))[0] + (_newest(run, number, "failed") or "")
        running = _with_failure(log, Polled(Process.RUNNING))
        if not running.who and not running.failed_hosts and not run.exit(number).exists():
            waiting = slurm_states.explained("Completing", self._name) if job.state == "COMPLETING" else ""
            return replace(running, waiting=waiting)
        code, out, _ = self._ask("sinfo", "--noheader", "--Node", f"--nodes={job.nodes}", "--format=%N|%t")
        rows = [line.split("|") for line in out.splitlines() if not code and "|" in line]
        silent = sorted({name for name, state in rows if not slurm_check.in_service(state)})
        waits = f": it waits for {', '.join(silent)}, which does not answer it" if silent else ""
        return replace(running, detail=f"SLURM has not ended job {job.number} ({job.state}){waits}")

    def _job(self, handle: Handle) -> tuple[_Job | None, str]:
        jobs, trouble = self._jobs([handle["job_name"]])
        return jobs.get(handle["job_name"]), trouble

    def _jobs(self, names: Sequence[str]) -> tuple[dict[str, _Job], str]:
        """By name, the newest job that SLURM knows; and why that cannot be told, or ""."""
        listing = ("--noheader", "--all", "--states=all", "--format=%A|%T|%r|%j|%N")
        code, out, err = self._ask("squeue", *listing, f"--name={','.join(names)}")
        if code:
            return {}, str(slurm_states.failure("squeue", code, err))
        jobs = _listed(out)
        # SLURM forgets a job some minutes after its end; its accounting, where there is one, does not
        if forgotten := [name for name in names if name not in jobs]:
            fields = ("--noheader", "--parsable2", "--allocations", "--starttime=now-90days")
            columns = "--format=JobIDRaw,State,Reason,JobName,NodeList"
            code, out, err = self._ask("sacct", f"--name={','.join(forgotten)}", *fields, columns)
            jobs |= {} if code else _listed(out)
        return jobs, ""

    def _ask(self, *argv: str, seconds: float = 60.0) -> tuple[int, str, str]:
        try:
            return self._shell.ask(argv, seconds)
        except FileNotFoundError:
            raise MissingProgram({argv[0]: f"type podwright on a login node of {self._name}"}) from None


def _options(own: SlurmSettings, exclude: Sequence[str] = ()) -> list[str]:
    """Of sbatch, but for where a job is and what it is called."""
    left_out = [option.removeprefix("--exclude=") for option in own.sbatch if option.startswith("--exclude=")]
    named = {
        "partition": own.partition,
        "account": own.account,
        "qos": own.qos,
        "constraint": own.constraint,
        "nodes": own.nodes,
        "ntasks": own.num_tasks,
        "ntasks-per-node": own.tasks_per_node,
        "cpus-per-task": own.cpus_per_task,
        "gpus-per-node": 0 if any(map(_GPUS.match, own.sbatch)) else own.gpus_per_node,
        "mem": own.mem,
        "time": own.time,
        "signal": f"USR1@{own.warn_s}",  # to the trainer, not to the script
    }
    return [
        *(f"--{key}={value}" for key, value in named.items() if value),
        "--requeue",
        "--open-mode=append",
        *own.sbatch,
        *([f"--exclude={','.join([*left_out, *exclude])}"] if exclude else []),  # of two, sbatch takes the last
    ]


def _line_failed(line: str) -> str:
    return _bad_line(line, "failed", "fix setup of the target, then resume the run")


def _line_ended(line: str) -> str:
    """In quotes, for a trap."""
    ended = _bad_line(line, "ends the shell", "remove exit or exec from that line under setup of the target")
    return shlex.quote(f"{ended}; exit 1")


def _bad_line(line: str, what: str, fix: str) -> str:
    """The command of shell that ends an attempt whose `line` of setup `what`."""
    texts = (f"a line of the target's setup {what} on the cluster: {line}", fix)
    return f"last_word BAD_INPUT {shlex.join(json.dumps(text)[1:-1] for text in texts)}"


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _listed(out: str) -> dict[str, _Job]:
    """By name, the newest job of each in lines of `number|state|reason|name|nodes`."""
    rows = [line.split("|") for line in out.splitlines() if line.count("|") == 4]
    rows.sort(key=lambda row: int(row[0]))
    return {name: _Job(number, state.split()[0], reason, nodes) for number, state, reason, name, nodes in rows}


def _without_job(run: RunDir, number: int) -> Polled | None:
    """Of an attempt that sbatch has not answered, or has refused; None where SLURM may have a job of it."""
    if alive.is_held(run.alive(number)):
        return Polled(Process.RUNNING, waiting="Submitting: sbatch has not answered yet")
    answer = _text(run.attempt(number) / "sbatch.txt")
    if not answer or _ACCEPTED.search(answer):
        return None
    if unknown := slurm_states.no_answer(answer):
        what, fix = f"no job was submitted: {unknown.what}", f"{unknown.fix}; then resume the run"
        return Polled.ended(Ending.BAD_INPUT, what, fix)
    what = " ".join(answer.replace("sbatch: error: ", "").split())
    detail = f"sbatch refused the job: {what}"
    fix = slurm_states.remedy(answer)
    return Polled.ended(Ending.BAD_INPUT, detail, fix)


def _never_submitted(run: RunDir, number: int) -> bool:
    """Whether sbatch reached no cluster, so that there is no job that a cluster would have to be asked about."""
    answer = _text(run.attempt(number) / "sbatch.txt")
    if not answer or _ACCEPTED.search(answer):
        return False
    unknown = slurm_states.no_answer(answer)
    return answer == _NO_SBATCH or (unknown is not None and not unknown.may_have_submitted)


def _newest(run: RunDir, number: int, name: str) -> str | None:
    """A file of the newest start of the job; "" where it wrote none, None when there was no start."""
    folder = run.attempt(number) / "starts"
    starts = numbers({path.name for path in folder.glob("*")})
    return _text(folder / str(starts[-1]) / name) if starts else None


def _record(run: RunDir, number: int) -> dict[str, Any] | None:
    """What the newest start of the job wrote at its end; {} when it wrote nothing, None when there was no start."""
    text = _newest(run, number, "ended.json")
    try:
        return None if text is None else dict(json.loads(text))
    except ValueError:
        return {}


def _returncode(record: dict[str, Any] | None) -> int | None:
    """Of the trainer: a shell says 128 and the signal's number of one that was killed."""
    code: int | None = (record or {}).get("code")
    return 128 - code if code is not None and code > 128 else code


def _ended(run: RunDir, number: int, job: _Job) -> Polled:
    record = _record(run, number)
    never_started = job.state == "FAILED" and record is None
    failure = match(slurm_states.LAUNCH_FAILED if never_started else job.state, "slurm_state")
    if failure is None:
        recorded = slurm_states.recorded(record or {})
        if recorded:
            return recorded
    ended = Polled(Process.ENDED, _returncode(record))
    if failure:
        detail = f"job {job.number}, {job.state}: {failure.row.cause}"
        ended = replace(ended, ending=failure.row.ending, detail=detail, fix=failure.row.remedy)
    return _with_failure(_text(run.log(number)), ended)


def _with_failure(log: str, ended: Polled) -> Polled:
    """With the process and the node that srun names in the log, where the job did not do its work."""
    ended = replace(ended, failed_hosts=slurm_states.failed_hosts(log))
    failure = slurm_states.first_failure(log)
    if failure is None or ended.returncode == 0:
        return ended
    code = ended.returncode if failure.returncode is None else failure.returncode
    detail = f"{ended.detail} ({failure.who})" if ended.ending is Ending.OUT_OF_MEMORY else ended.detail
    return replace(ended, returncode=code, who=failure.who, first=failure.process, detail=detail)


def _forgotten(run: RunDir, number: int) -> Polled:
    """SLURM knows of no such job: it never came to be, or it ended a while ago."""
    record = _record(run, number)
    if record is not None:
        ended = slurm_states.recorded(record) or Polled(Process.ENDED)
        return _with_failure(_text(run.log(number)), replace(ended, returncode=_returncode(record)))
    accepted = _ACCEPTED.search(_text(run.attempt(number) / "sbatch.txt"))
    if accepted is None:
        return Polled(Process.ABSENT)
    detail = f"job {accepted[1]} was never started, and SLURM no longer lists it: it may have been cancelled"
    return Polled.ended(Ending.STOPPED, detail)
