"""What a SLURM job is rendered to, and what is made of each answer that SLURM, or its silence, can give."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from podwright.errors import UserError
from podwright.recipe import kinds
from podwright.run.attempt_job import job_of
from podwright.rundir import Ending, Record, RunDir, read_json
from podwright.shell import Shell
from podwright.targets import ResolvedTarget, slurm, slurm_check, slurm_states
from podwright.targets.base import Handle, Job, MachinesBusy, Polled, Process, Remark, Stopped
from podwright.targets.handles import log_since
from podwright.targets.settings.slurm import SlurmSettings
from podwright.train.emit import Emitter
from podwright.watch.diagnose import outcome, with_end
from tests import scarce

GOLDEN = Path(__file__).parents[2] / "golden" / "slurm"
TWO_NODES = SlurmSettings(
    kind="slurm",
    partition="gpu",
    account="lab",
    qos="normal",
    constraint="h100",
    nodes=2,
    gpus_per_node=8,
    cpus_per_task=16,
    mem="0",
    time="24:00:00",
    setup=("module load cuda/12.4", "export WHERE='a \"b\"'"),
    python="/shared/venv/bin/python",
    sbatch=("--exclusive", "--mail-type=END"),
)
RENDERED = {
    "two-nodes": (TWO_NODES, Job(Path("/shared/runs/r"), 2, Path("/shared/work"), 1.0)),
    "each-gpu": (
        TWO_NODES.model_copy(update={"tasks_per_node": 8, "setup": ()}),
        Job(Path("/shared/runs/r"), 1, Path("/shared/work"), 1.0),
    ),
    "one-cpu": (
        SlurmSettings(kind="slurm", python="/usr/bin/python3"),
        Job(Path("/my runs/50%/r"), 1, Path("/my runs"), 1.0),
    ),
}


def target(settings: SlurmSettings = TWO_NODES) -> slurm.Slurm:
    return slurm.Slurm(Shell(), "lab", settings)


@pytest.mark.parametrize("name", RENDERED)
def test_rendered_as_in_the_golden_files(name: str) -> None:
    settings, job = RENDERED[name]
    rendered = target(settings).render(job)
    for path, text in rendered.files.items():
        golden = GOLDEN / f"{name}-{path.name}"
        if os.environ.get("REMAKE_GOLDEN"):
            golden.write_text(text)
        assert text == golden.read_text(), f"look at it, then type REMAKE_GOLDEN=1 pytest {Path(__file__).name}"
        assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    assert rendered.argv == ("sbatch", "--parsable", str(job.run_dir / f"attempts/{job.attempt}/job.sh"))


def test_the_name_of_a_job_is_of_its_run_its_attempt_and_its_time() -> None:
    first = target().render(Job(Path("/runs/r"), 1, Path("/"), 1.0)).handle
    assert first == target().render(Job(Path("/runs/r"), 1, Path("/"), 1.0)).handle
    others = [
        Job(Path("/runs/r"), 2, Path("/"), 1.0),
        Job(Path("/other/r"), 1, Path("/"), 1.0),
        Job(Path("/runs/r"), 1, Path("/"), 2.0),
    ]
    names = {first["job_name"], *(target().render(job).handle["job_name"] for job in others)}
    assert len(names) == 4 and first["job_name"].startswith("r.1-")


class Answers(Shell):
    """SLURM's commands with fixed answers, for the states that a small cluster cannot be brought into."""

    def __init__(self, **answers: tuple[int, str, str]):
        super().__init__()
        self.answers = answers
        self.asked: list[tuple[str, ...]] = []

    def ask(self, argv, seconds=60.0):
        if argv[0] == "bash":
            return super().ask(argv, seconds)
        self.asked.append(tuple(argv))
        if argv[0] not in self.answers:
            raise FileNotFoundError(argv[0])
        return self.answers[argv[0]]


DOWN = "Unable to contact slurm controller (connect failure)\n"
NO_ACCOUNTING = (1, "", "Slurm accounting storage is disabled")


@pytest.mark.parametrize(
    "line", ["--gres=gpu:a100:2", "--gres=lscratch:9,gpu:2", "--gpus=2", "-G2", "--gpus-per-task=1"]
)
def test_a_line_for_gpus_of_the_target_stands_in_place_of_ours(line: str) -> None:
    own = SlurmSettings(kind="slurm", gpus_per_node=2, mem="2G", sbatch=(line,))
    options = slurm._options(own)
    assert line in options and "--mem=2G" in options and "--gpus-per-node=2" not in options
    others = slurm._options(own.model_copy(update={"sbatch": ("--gres=lscratch:9", "--mem-per-cpu=1G"), "mem": ""}))
    assert "--gpus-per-node=2" in others and [each for each in others if "mem" in each] == ["--mem-per-cpu=1G"]


def attempt(folder: Path, sbatch: str = "12\n", starts: int = 0, **ended: object) -> Handle:
    run = RunDir(folder)
    run.attempt(1).mkdir()
    (run.attempt(1) / "sbatch.txt").write_text(sbatch)
    for start in range(1, starts + 1):
        (run.attempt(1) / "starts" / str(start)).mkdir(parents=True)
        (run.attempt(1) / "starts" / "old").mkdir(exist_ok=True)
    if ended:
        (run.attempt(1) / "starts" / str(starts) / "ended.json").write_text(json.dumps(ended))
    return {"run_dir": str(folder), "attempt": 1, "job_name": "r.1-0", "processes": 2}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "r" / "attempts").mkdir(parents=True)
    return tmp_path / "r"


def polled(handle: Handle, **answers: tuple[int, str, str]):
    return slurm.Slurm(Answers(**answers), "lab", TWO_NODES).poll(handle)


@pytest.mark.parametrize(
    ("state", "reason", "waiting"),
    [
        ("PENDING", "Resources", "Resources: the nodes it needs are busy"),
        ("PENDING", "ReqNodeNotAvail, UnavailableNodes:n[1-2]", "ReqNodeNotAvail: nodes that it needs are down"),
        (
            "PENDING",
            "BadConstraints",
            "BadConstraints: no node has what the target asks for, so it never starts; `podwright target check lab` says more",
        ),
        ("PENDING", "SomethingNew", "SomethingNew: see JOB REASON CODES"),
        ("REQUEUE_HOLD", "x", "Requeue_hold: it is held after its last start; `scontrol release`"),
        ("SPECIAL_EXIT", "x", "Special_exit: it is held after its last start; `scontrol release`"),
        ("CONFIGURING", "None", "Configuring: its nodes are being started"),
        ("SUSPENDED", "None", "Suspended: it is suspended, for jobs of a higher priority"),
        ("STOPPED", "None", "Stopped: SLURM keeps the job in that state"),
        ("RUNNING", "None", ""),
        ("COMPLETING", "None", "Completing: SLURM ends the job and frees its nodes"),
    ],
)
def test_a_job_that_has_not_ended_runs_or_says_why_it_waits(
    folder: Path, state: str, reason: str, waiting: str
) -> None:
    found = polled(attempt(folder), squeue=(0, f"12|{state}|{reason}|r.1-0|n[1-2]\n", ""))
    assert (
        found.process is Process.RUNNING and found.waiting.startswith(waiting) and bool(found.waiting) == bool(waiting)
    )


@pytest.mark.parametrize(
    ("state", "last_word", "stop_wanted", "ending", "says"),
    [
        ("COMPLETED", "FINISHED", False, Ending.FINISHED, "x"),
        ("TIMEOUT", "STOPPED", False, Ending.TIMED_OUT, "job 12, TIMEOUT: the time limit"),
        ("TIMEOUT", None, False, Ending.TIMED_OUT, "before the trainer could save"),
        ("PREEMPTED", "STOPPED", False, Ending.PREEMPTED, "another job took the nodes"),
        ("NODE_FAIL", "CRASHED", False, Ending.NODE_LOST, "a node of the job failed"),
        ("BOOT_FAIL", None, False, Ending.NODE_LOST, "could not be booted"),
        ("OUT_OF_MEMORY", None, False, Ending.OUT_OF_MEMORY, "wanted more memory"),
        ("OUT_OF_MEMORY", "CRASHED", False, Ending.OUT_OF_MEMORY, "wanted more memory"),
        ("CANCELLED", "STOPPED", True, Ending.STOPPED, "x"),
        ("CANCELLED", None, False, Ending.STOPPED, "the job was cancelled"),
        ("FAILED", "BAD_INPUT", False, Ending.BAD_INPUT, "x"),
        ("NODE_FAIL", "BAD_INPUT", False, Ending.BAD_INPUT, "x"),
    ],
)
def test_how_a_job_ended_and_what_the_trainer_said_last(folder, state, last_word, stop_wanted, ending, says) -> None:
    handle = attempt(folder, starts=1)
    if last_word:
        RunDir(folder).exit(1).write_text(json.dumps({"ending": last_word, "detail": "x", "step": 7}))
    found = outcome(RunDir(folder), 1, polled(handle, squeue=(0, f"12|{state}|x|r.1-0|n[1-2]\n", "")), stop_wanted)
    assert found.ending is ending and says in found.detail and found.step == (7 if last_word else None)


def test_every_state_in_which_a_job_stays_has_a_meaning() -> None:
    # man squeue, with those that pass
    states = "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED TIMEOUT"
    assert all(map(slurm_states.has_ended, states.split()))
    assert not any(
        map(slurm_states.has_ended, ["PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED"])
    )


def test_a_job_that_could_not_be_started_is_told_from_one_that_failed(folder: Path) -> None:
    found = polled(attempt(folder), squeue=(0, "12|FAILED|JobLaunchFailure|r.1-0|n[1-2]\n", ""))
    assert found.ending is Ending.CRASHED and "JobLaunchFailure" in found.detail and "nodes share" in found.fix


SRUN_SAYS = "podwright: job 12, start 1, on n[1-2]\nsrun: error: n2: task 1: Killed\n"


@pytest.mark.parametrize(
    ("log", "failed", "exit_", "how"),
    [
        ("", "task.sh: n1: task 0: Exited with exit code 1\n", True, "CRASHED: another process of the run is gone"),
        (SRUN_SAYS, "", False, "process 1 on n2: killed by SIGKILL"),
        ("srun: error: Node failure on n2\n", "", False, "host n2 failed"),
        ("", "task.sh: n1: task 0: Exited with exit code 134\n", False, "process 0 on n1: killed by SIGABRT"),
        (f"{SRUN_SAYS}podwright: job 12, start 2, on n[1-2]\n", "", False, ""),
    ],
)
@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING"])
def test_a_trainer_that_has_ended_before_its_job_is_said_with_the_node_that_slurm_waits_for(
    folder: Path, state: str, log: str, failed: str, exit_: bool, how: str
) -> None:
    handle, run = attempt(folder, starts=1), RunDir(folder)
    run.log(1).write_text(log)
    (run.attempt(1) / "starts" / "1" / "failed").write_text(failed)
    if exit_:
        record = {"ending": "CRASHED", "detail": "another process of the run is gone", "step": 3}
        run.exit(1).write_text(json.dumps(record))
        os.utime(run.exit(1), (1e9, 1e9))
    answers = {"squeue": (0, f"12|{state}|None|r.1-0|n[1-2]\n", ""), "sinfo": (0, "n1|mix\nn2|mix*\nn2|mix*\n", "")}
    said = with_end(run, 1, polled(handle, **answers), stop_wanted=False)
    nothing_known = "Completing: SLURM ends the job and frees its nodes" if state == "COMPLETING" else ""
    waits = f"; SLURM has not ended job 12 ({state}): it waits for n2, which does not answer it"
    assert said.process is Process.RUNNING
    assert said.waiting == (f"Ending: the trainer has ended ({how}){waits}" if how else nothing_known)


def test_what_the_last_start_of_a_job_has_left_tells_nothing_of_the_next_one(folder: Path) -> None:
    """While the prolog of the cluster is at work on the nodes, before the script begins, which puts the files of the last start aside."""
    handle, run = attempt(folder, starts=1, code=0, why="requeued"), RunDir(folder)
    run.exit(1).write_text(json.dumps({"ending": "STOPPED", "detail": "told to stop by a signal", "step": 3}))
    os.utime(run.exit(1), (1e9, 1e9))
    (run.attempt(1) / "starts" / "1" / "failed").write_text("task.sh: n1: task 0: Exited with exit code 1\n")
    answers = {"squeue": (0, "12|RUNNING|None|r.1-0|n[1-2]\n", ""), "sinfo": (0, "n1|alloc\n", "")}
    said = with_end(run, 1, polled(handle, **answers), stop_wanted=False)
    assert said.process is Process.RUNNING and said.waiting.startswith("Prolog: the script of job 12 has ended"), said
    (run.attempt(1) / "starts" / "2").mkdir()
    run.exit(1).unlink()
    assert with_end(run, 1, polled(handle, **answers), stop_wanted=False).waiting == ""


def test_what_is_known_of_an_end_is_said_where_slurm_does_not_answer(folder: Path) -> None:
    handle, run = attempt(folder, starts=1), RunDir(folder)
    run.exit(1).write_text(json.dumps({"ending": "FINISHED", "detail": "all steps done", "step": 3}))
    os.utime(run.exit(1), (1e9, 1e9))
    said = with_end(run, 1, polled(handle, squeue=(1, "", DOWN)), stop_wanted=False)
    assert said.waiting.startswith("Unreachable: the controller of the cluster")
    assert said.waiting.endswith("; the trainer has ended (FINISHED: all steps done)")
    queued = polled(handle, squeue=(0, "12|PENDING|BeginTime|r.1-0|\n", ""))
    assert with_end(run, 1, queued, stop_wanted=False) == queued, "the next start has not begun"


def test_the_exit_code_of_the_trainer_is_what_the_job_wrote_down(folder: Path) -> None:
    found = polled(
        attempt(folder, starts=2, code=137, why="done"), squeue=(0, "12|FAILED|NonZeroExitCode|r.1-0|n[1-2]\n", "")
    )
    assert (found.process, found.returncode) == (Process.ENDED, -9)


def test_the_accounting_knows_a_job_that_the_controller_has_forgotten(folder: Path) -> None:
    handle, rows = attempt(folder, starts=1), "11|FAILED|x|r.1-0|n1\n12|CANCELLED by 1000|None|r.1-0|n1\n"
    found = polled(handle, squeue=(0, "", ""), sacct=(0, rows, ""))
    assert found.ending is Ending.STOPPED and "job 12, CANCELLED" in found.detail


def test_a_job_that_nobody_remembers_is_read_from_what_it_wrote(folder: Path) -> None:
    forgot = {"squeue": (0, "", ""), "sacct": NO_ACCOUNTING}
    handle = attempt(folder, starts=2, code=0, why="refused")
    assert polled(handle, **forgot).ending is Ending.TIMED_OUT
    (folder / "attempts/1/starts/2/ended.json").unlink()
    assert polled(handle, **forgot).process is Process.ENDED
    (folder / "attempts/1/starts/2").rmdir()
    (folder / "attempts/1/starts/1").rmdir()
    found = polled(handle, **forgot)
    assert found.ending is Ending.STOPPED and "job 12 was never started" in found.detail
    (folder / "attempts/1/sbatch.txt").write_text("")
    assert polled(handle, **forgot).process is Process.ABSENT


def test_a_controller_that_does_not_answer_is_no_end(folder: Path) -> None:
    handle = attempt(folder)
    found = polled(handle, squeue=(1, "", f"slurm_load_jobs error: {DOWN}"))
    assert found.process is Process.RUNNING and found.silent, "since when is counted"
    assert found.waiting.startswith("Unreachable: the controller of the cluster (slurmctld) does not answer; try again")
    found = polled(handle, squeue=(2, "", "squeue: error: a\nsqueue: error: b\n"))
    assert (
        found.waiting == "Unreachable: squeue ended with exit code 2 (squeue: error: b); type squeue to see the cause"
    )
    (folder / "attempts/1/sbatch.txt").write_text(f"sbatch: error: Batch job submission failed: {DOWN}")
    found = polled(handle)
    assert found.detail == "no job was submitted: the controller of the cluster (slurmctld) does not answer"
    assert found.fix.endswith("; then resume the run")


@pytest.mark.parametrize(
    ("message", "what", "fix"),
    [
        (
            f"slurm_load_partitions: {DOWN}",
            "the controller of the cluster (slurmctld) does not answer",
            "scontrol ping",
        ),
        (
            "sinfo has not answered for 60 s",
            "the controller of the cluster (slurmctld) does not answer",
            "scontrol ping",
        ),
        (
            "sinfo: error: fetch_config: DNS SRV lookup failed\nsinfo: fatal: Could not establish a configuration source\n",
            "the commands of SLURM on this machine are configured for no cluster",
            "set SLURM_CONF",
        ),
        (
            "sinfo: error: Munge encode failed: Failed to access /run/munge/munge.socket.2\n",
            "the cluster does not accept the credentials of this machine (munge)",
            "munge -n | unmunge",
        ),
        ("sinfo: error: odd", "sinfo ended with exit code 1 (sinfo: error: odd)", "type sinfo to see the cause"),
    ],
)
def test_a_cluster_that_does_not_answer_was_not_checked(tmp_path: Path, message: str, what: str, fix: str) -> None:
    settings = SlurmSettings(kind="slurm")
    silent = slurm.Slurm(Answers(sinfo=(1, "", message)), "lab", settings)
    (remark,) = silent.check()
    assert (remark.level, remark.what) == ("inconclusive", what) and fix in remark.fix
    with pytest.raises(MachinesBusy, match=re.escape(what)):
        silent.probe_hosts([])


def test_a_controller_that_goes_away_between_two_questions_refuses_nothing() -> None:
    rows = (0, "gpu*|up|2:00:00|1|4|(null)|idle\n", "")
    shell = Answers(sinfo=rows, sbatch=(1, "", f"allocation failure: {DOWN}"), srun=(1, "", f"srun: error: {DOWN}"))
    target = slurm.Slurm(shell, "lab", SlurmSettings(kind="slurm"))
    assert [remark.level for remark in target.check()] == ["inconclusive"]
    with pytest.raises(MachinesBusy, match="the machines of lab were not asked: the controller"):
        target.probe_hosts([])


def test_what_sbatch_refused_is_the_end_whoever_asks(folder: Path) -> None:
    said = "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified\n"
    found = polled(attempt(folder, sbatch=said))
    assert found.ending is Ending.BAD_INPUT and "Invalid account" in found.detail and "sacctmgr" in found.fix


def test_a_stop_counts_only_when_scancel_has_passed_it_on(folder: Path) -> None:
    handle = attempt(folder)
    running, down = (
        (0, "12|RUNNING|None|r.1-0|n[1-2]\n", ""),
        (1, "", "scancel: error: Unable to contact slurm controller\n"),
    )
    reached = Answers(squeue=running, scancel=(0, "", ""))
    assert slurm.Slurm(reached, "lab", TWO_NODES).stop(handle) == Stopped(True)
    assert reached.asked[-1] == ("scancel", "--signal=TERM", "12")
    for answers in ({"squeue": running, "scancel": down}, {"squeue": down}):
        answer = slurm.Slurm(Answers(**answers), "lab", TWO_NODES).stop(handle)
        assert not answer.acknowledged and "does not answer" in answer.reason
    assert (
        slurm.Slurm(Answers(squeue=(0, "12|COMPLETED|None|r.1-0|n[1-2]\n", "")), "lab", TWO_NODES)
        .stop(handle)
        .acknowledged
    )


def test_a_stop_of_an_attempt_without_a_folder_asks_slurm_for_its_job(tmp_path: Path) -> None:
    """The run's folder may be new on this machine; a job of that name may have been submitted from another one."""
    handle = target().render(Job(tmp_path / "r", 1, tmp_path, 1.0)).handle
    name = handle["job_name"]
    none, running = (0, "", ""), (0, f"12|RUNNING|None|{name}|n1\n", "")
    asked = Answers(squeue=none, sacct=none)
    assert slurm.Slurm(asked, "lab", TWO_NODES).stop(handle) == Stopped(True)
    asked = Answers(squeue=running, scancel=none)
    assert slurm.Slurm(asked, "lab", TWO_NODES).stop(handle, force=True) == Stopped(True)
    assert asked.asked[-1] == ("scancel", "12") and not (tmp_path / "r").exists()


def test_what_never_reached_a_cluster_is_released_without_asking_one(folder: Path) -> None:
    handle = attempt(folder)
    down = slurm.Slurm(Answers(squeue=(1, "", "down")), "lab", TWO_NODES)
    for answer, done in (
        ("sbatch is not on this machine", True),
        ("sbatch: fatal: Could not establish a configuration source", True),
        ("sbatch: error: Batch job submission failed: Socket timed out", False),
    ):
        (folder / "attempts" / "1" / "sbatch.txt").write_text(answer)
        assert down.release(handle).done is done and down.stop(handle).acknowledged is done


def test_a_job_is_released_when_slurm_says_that_it_has_ended(folder: Path) -> None:
    handle = attempt(folder)
    for state, scancel, done in (("PENDING", 0, False), ("PENDING", 1, False), ("CANCELLED", 0, True)):
        shell = Answers(squeue=(0, f"12|{state}|None|r.1-0|n[1-2]\n", ""), scancel=(scancel, "", "no"))
        assert slurm.Slurm(shell, "lab", TWO_NODES).release(handle).done is done
    assert not slurm.Slurm(Answers(squeue=(1, "", "down")), "lab", TWO_NODES).release(handle).done


@pytest.mark.parametrize(
    ("said", "hosts"),
    [
        ("srun: error: n2: task 1: Exited with exit code 1\nsrun: error: n1: task 0: Terminated\n", ("n2",)),
        ("srun: error: gpu-7.lab: tasks 8-15: Killed\n", ("gpu-7.lab",)),
        ("srun: error: Node failure on n3\n", ("n3",)),
        ("srun: error: n1: task 0: Killed\npodwright: job 12, start 2, on n[1-2]\nall well\n", ()),
        ("srun: error: Unable to create step for job 12\n", ()),
    ],
)
def test_the_node_that_failed_first_is_what_srun_says_since_the_newest_start(
    folder: Path, said: str, hosts: tuple[str, ...]
) -> None:
    handle = attempt(folder, starts=1)
    RunDir(folder).log(1).write_text("podwright: job 12, start 1, on n[1-2]\n" + said)
    assert polled(handle, squeue=(0, "12|FAILED|x|r.1-0|n[1-2]\n", "")).failed_hosts == hosts


@pytest.mark.parametrize(
    ("srun", "who", "code"),
    [
        ("n2: task 1: Exited with exit code 137\nsrun: error: n1: task 0: Terminated", "process 1 on n2", -9),
        (
            "n1: task 0: Exited with exit code 1\nsrun: error: n2: task 1: Exited with exit code 139",
            "process 1 on n2",
            -11,
        ),
        ("n2: task 1: Exited with exit code 1\nsrun: error: n1: task 0: Killed", "process 1 on n2", 1),
        ("gpu-7.lab: tasks 8-15: Killed", "processes 8-15 on gpu-7.lab", -9),
        ("n2: task 1: Segmentation fault (core dumped)", "process 1 on n2", -11),
        ("n2: task 1: Something new", "process 1 on n2", -9),
    ],
)
@pytest.mark.parametrize("word", ["STOPPED", "CRASHED", None])
def test_the_process_that_srun_names_is_named_whatever_the_first_one_saw_of_its_end(
    folder: Path, srun: str, who: str, code: int, word: str | None
) -> None:
    handle = attempt(folder, starts=1, code=137, why="done")
    run = RunDir(folder)
    run.log(1).write_text(f"podwright: job 12, start 1, on n[1-2]\nsrun: error: {srun}\n")
    if word:
        run.exit(1).write_text(json.dumps({"ending": word, "detail": "stopped after step 3", "step": 3}))
    ended = polled(handle, squeue=(0, "12|FAILED|NonZeroExitCode|r.1-0|n[1-2]\n", ""))
    assert (ended.who, ended.returncode) == (who, code)
    told = outcome(run, 1, ended, False)
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    assert f"{who}: {how}" in told.detail and told.ending is (Ending.UNKNOWN if code == -9 else Ending.CRASHED)


def test_the_process_that_slurm_killed_for_memory_is_named(folder: Path) -> None:
    handle = attempt(folder, starts=1, code=137, why="done")
    RunDir(folder).log(1).write_text("srun: error: n2: task 1: Out Of Memory\nsrun: error: n1: task 0: Killed\n")
    ended = polled(handle, squeue=(0, "12|OUT_OF_MEMORY|OutOfMemory|r.1-0|n[1-2]\n", ""))
    told = outcome(RunDir(folder), 1, ended, False)
    assert told.ending is Ending.OUT_OF_MEMORY and told.detail.endswith(
        "more memory than it may have (process 1 on n2)"
    )


@pytest.mark.skipif(bool(scarce.missing_cgroups()), reason=scarce.missing_cgroups() or "there are some")
def test_a_process_that_the_kernel_kills_for_memory_says_so_in_its_log(tmp_path: Path) -> None:
    (tmp_path / "attempts" / "1").mkdir(parents=True)
    there = {
        "SLURM_PROCID": "0",
        "SLURM_NTASKS": "1",
        "SLURM_LOCALID": "0",
        "SLURM_JOB_ID": "12",
        "PATH": os.environ["PATH"],
    }
    endings = []
    for code in ("x = bytearray(1 << 30)", "import os; os.kill(os.getpid(), 9)"):
        job = Job(tmp_path, 1, tmp_path, command=("{python}", "-c", code))
        files = target(SlurmSettings(kind="slurm", python=sys.executable)).render(job).files
        task = next(text for path, text in files.items() if path.name == "task.sh")
        with scarce.memory_cgroup(256 << 20) as cgroup:
            argv = ["sh", "-c", f"echo $$ > {cgroup}/cgroup.procs; exec bash"]
            done = subprocess.run(argv, input=task, text=True, env=there, capture_output=True, check=False)
        assert done.returncode == 137, done
        RunDir(tmp_path).log(1).write_text(done.stdout + "srun: error: n1: task 0: Exited with exit code 137\n")
        failure = slurm_states.first_failure(RunDir(tmp_path).log(1).read_text())
        assert failure
        ended = Polled(Process.ENDED, failure.returncode, who=failure.who)
        endings.append((outcome(RunDir(tmp_path), 1, ended, False).ending, "killed it for memory" in done.stdout))
    assert endings == [(Ending.OUT_OF_MEMORY, True), (Ending.UNKNOWN, False)]


def test_hosts_are_left_out_by_name_beside_those_of_the_target() -> None:
    job = Job(Path("/runs/r"), 1, Path("/"), 1.0, exclude=("n1", "n2"))
    assert any("#SBATCH --exclude=n1,n2\n" in text for text in target().render(job).files.values())
    rendered = target(TWO_NODES.model_copy(update={"sbatch": ("--exclude=n3",)})).render(job)
    options = [line for text in rendered.files.values() for line in text.splitlines() if "--exclude" in line]
    assert options[-1] == "#SBATCH --exclude=n3,n1,n2"


def test_a_machine_that_is_not_of_the_cluster_is_one_line(folder: Path) -> None:
    with pytest.raises(
        UserError, match="command squeue not found on this machine; type podwright on a login node of lab"
    ):
        polled(attempt(folder))
    (remark,) = slurm.Slurm(Answers(), "lab", TWO_NODES).check()
    assert (remark.level, remark.what) == ("error", "command sinfo not found on this machine")


OF_GPUS = "gpu*|up|2:00:00|4|128|gpu:a100:8(S:0-1)|idle\ncpu|up|2:00:00|2|4|(null)|idle\nold|up|2:00:00|2|36|gpu:v100:4|idle\n"


@pytest.mark.parametrize(
    ("settings", "cores"),
    [
        ({"gpus_per_node": 8}, 128),
        ({"gpus_per_node": 8, "tasks_per_node": 8}, 16),
        ({"gpus_per_node": 4}, 64),
        ({"gpus_per_node": 4, "partition": "gpu,old"}, 36),
        ({"gpus_per_node": 8, "cpus_per_task": 7}, 7),
        ({"gpus_per_node": 16}, 1),
        ({}, 1),
    ],
)
def test_processes_get_the_cores_that_go_with_their_gpus(settings: dict[str, object], cores: int) -> None:
    own = SlurmSettings(kind="slurm", python="/shared/venv/bin/python", **settings)
    target = slurm.Slurm(Answers(sinfo=(0, OF_GPUS, ""), sbatch=(0, "", "sbatch: Job 1 to start at now")), "lab", own)
    scripts = target.render(Job(Path("/runs/r"), 1, Path("/"), 1.0)).files
    assert any(f"#SBATCH --cpus-per-task={cores}\n" in text for text in scripts.values())
    assert any(f" --cpus-per-task={cores} " in text for text in scripts.values())
    unknown = slurm.Slurm(Answers(sinfo=(1, "", DOWN)), "lab", own).render(Job(Path("/runs/r"), 1, Path("/"), 1.0))
    assert any(f"#SBATCH --cpus-per-task={own.cpus_per_task or 1}\n" in text for text in unknown.files.values())


def test_the_kind_of_recipe_decides_how_many_processes_a_node_has(folder: Path) -> None:
    own = SlurmSettings(kind="slurm", nodes=2, gpus_per_node=8, python="/shared/venv/bin/python")
    target = slurm.Slurm(Answers(sinfo=(0, OF_GPUS, ""), sbatch=(0, "", "sbatch: Job 1 to start at now")), "lab", own)
    for kind, tasks in (("grpo", 1), ("pretrain", 1), ("multimodal", 8), ("contrastive", 8)):
        job = job_of(kinds.find(kind), {"kind": kind}, folder, 1, folder, 1.0, storage="", allocation="")
        rendered = target.render(job)
        script = next(text for path, text in rendered.files.items() if path.name == "job.sh")
        assert (
            f"#SBATCH --ntasks-per-node={tasks}\n" in script and f"#SBATCH --cpus-per-task={128 // tasks}\n" in script
        )
        assert rendered.handle["processes"] == 2 * tasks
    stated = slurm.Slurm(Answers(), "lab", own.model_copy(update={"tasks_per_node": 8}))
    assert stated.render(Job(folder, 1, folder, 1.0)).handle["processes"] == 16


@pytest.mark.parametrize(("setup", "level"), [((), "error"), (("module load jax",), "warning")])
def test_an_environment_without_the_gpu_plugin_of_jax_is_named(setup: tuple[str, ...], level: str) -> None:
    own = SlurmSettings(kind="slurm", gpus_per_node=8, setup=setup, python=sys.executable)
    for answer, levels in (((0, "False\n", ""), [level]), ((0, "True\n", ""), []), ((1, "", "x"), [])):
        answers = {
            "sinfo": (0, OF_GPUS, ""),
            "sbatch": (0, "", "sbatch: Job 1 to start at now"),
            sys.executable: answer,
        }
        remarks = slurm.Slurm(Answers(**answers), "lab", own).check()
        assert [remark.level for remark in remarks if remark.of_jax] == levels
    on_cpus = slurm.Slurm(Answers(**answers), "lab", own.model_copy(update={"gpus_per_node": 0}))
    assert not [remark for remark in on_cpus.check() if remark.of_jax]


def test_what_only_jax_lacks_is_said_of_recipes_that_jax_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    remark = Remark("error", "x has no jax for NVIDIA GPUs", of_jax=True)
    monkeypatch.setattr(slurm.Slurm, "check", lambda _: [remark])
    place = ResolvedTarget("lab", None, TWO_NODES.model_copy(update={"gpus_per_node": 1}))
    assert place.check("grpo") == place.check("pretrain") == [remark]
    assert place.check("multimodal") == place.check() == []


@pytest.mark.parametrize("state", ["idle*", "drain", "maint", "resv", "down~"])
@pytest.mark.parametrize(("mem", "levels"), [("", ["warning"]), ("64G", ["warning", "inconclusive"])])
def test_a_trial_that_nodes_out_of_service_refuse_is_no_refusal(state: str, mem: str, levels: list[str]) -> None:
    settings = SlurmSettings(kind="slurm", nodes=2, mem=mem)
    rows = f"gpu*|up|2:00:00|1|4|(null)|idle\ngpu*|up|2:00:00|1|4|(null)|{state}\n"
    refused = (1, "", "allocation failure: Requested node configuration is not available")
    remarks = slurm.Slurm(Answers(sinfo=(0, rows, ""), sbatch=refused), "lab", settings).check()
    assert [remark.level for remark in remarks] == levels, remarks
    assert remarks[0].what == "nodes=2: only 1 of the 2 node(s) of partition gpu with 1 CPUs and 0 GPUs are in service"
    if mem:
        assert remarks[1].what.startswith("whether nodes have mem=64G cannot be checked while they are out of service")
    all_idle = rows.replace(state, "idle")
    remarks = slurm.Slurm(Answers(sinfo=(0, all_idle, ""), sbatch=refused), "lab", settings).check()
    assert [remark.level for remark in remarks] == ["error"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("if true; then", "syntax error: unexpected end of file"),
        ("fi", "syntax error near unexpected token `fi'"),
        ("export A='b", "unexpected EOF while looking for matching `''"),
    ],
)
def test_a_syntax_error_in_setup_is_named_with_its_line_and_nothing_is_run(
    tmp_path: Path, line: str, reason: str
) -> None:
    settings = TWO_NODES.model_copy(update={"setup": (f"touch {tmp_path}/ran", line, "module load 'x' # the newest")})
    unreachable = Answers(sinfo=(1, "", DOWN))
    remarks = slurm.Slurm(unreachable, "lab", settings).check()
    (remark,) = [r for r in remarks if "syntax" in r.what]
    assert remark.level == "error" and not any(tmp_path.iterdir())
    assert remark.what == f"a line of the target's setup has a syntax error: {line} ({reason})"


def _beginning(tmp_path: Path, line: str) -> tuple[int, str, Record]:
    """Exit code, output and record of the script's beginning, by a real bash: up to what needs a cluster."""
    settings = TWO_NODES.model_copy(update={"setup": ("export BEFORE=1 # a comment", line)})
    run = RunDir(tmp_path / "r")
    rendered = slurm.Slurm(Shell(), "lab", settings).render(Job(run.path, 1, tmp_path, 1.0))
    (run.attempt(1)).mkdir(parents=True)
    script = rendered.files[run.attempt(1) / "job.sh"].partition("export MASTER_ADDR")[0] + 'echo "reached"\n'
    (tmp_path / "job.sh").write_text(script)
    code, out, err = Shell().ask(["bash", str(tmp_path / "job.sh")])
    return code, out + err, read_json(run.exit(1))


@pytest.mark.parametrize("line", ["if true; then", "fi # it's", "false # a comment", 'export A="b'])
def test_the_script_of_a_job_names_a_line_of_setup_that_fails(tmp_path: Path, line: str) -> None:
    code, out, record = _beginning(tmp_path, line)
    assert code == 1 and "reached" not in out, out
    assert record["ending"] == "BAD_INPUT"
    assert record["detail"] == f"a line of the target's setup failed on the cluster: {line}"


@pytest.mark.parametrize("line", ["exit 0", "exit 3 # it's", "set -u; echo $NOT_SET_ANYWHERE", "kill -TERM $$"])
def test_the_script_of_a_job_names_a_line_of_setup_that_ends_it(tmp_path: Path, line: str) -> None:
    """A signal is SLURM's, not the line's."""
    code, out, record = _beginning(tmp_path, line)
    assert code and "reached" not in out, out
    if line.startswith("kill"):
        assert not record
    else:
        assert record["ending"] == "BAD_INPUT" and record["detail"].endswith(f": {line}")


@pytest.mark.parametrize(
    ("partition", "levels", "says"),
    [
        ("gpu,cpu", ["info"], ""),
        ("small,gpu", ["warning", "info"], "nodes=2: there are 1 node(s) of partition small with 1 CPUs and 0 GPUs"),
        ("small,short", ["error", "error", "info"], "nodes=2: there are 1 node(s) of partition small"),
        ("gpu,nope", ["error", "info"], "the cluster has no partition nope"),
        ("nope", ["error", "info"], "the cluster has no partition nope"),
        ("off,gpu", ["warning", "info"], "partition off starts no jobs now"),
        ("off", ["warning", "info"], "partition off starts no jobs now"),
    ],
)
def test_several_partitions_are_as_good_as_the_best_of_them(partition: str, levels: list[str], says: str) -> None:
    settings = SlurmSettings(kind="slurm", nodes=2, partition=partition, time="1:00:00")
    rows = (
        "gpu*|up|2:00:00|2|4|(null)|idle\ncpu|up|2:00:00|2|4|(null)|idle\nsmall|up|2:00:00|1|4|(null)|idle\n"
        "short|up|30:00|2|4|(null)|idle\noff|down|2:00:00|2|4|(null)|idle\n"
    )
    answers = Answers(sinfo=(0, rows, ""), sbatch=(0, "", "sbatch: Job 1 to start at now"))
    remarks = slurm.Slurm(answers, "lab", settings).check()
    assert [remark.level for remark in remarks] == levels, remarks
    assert not says or remarks[0].what.startswith(says)
    assert f"--partition={partition}" in answers.asked[-1]
    assert bool(slurm_check.waiting(settings, lambda *argv: answers.ask(argv))) == (partition == "off")


def test_runs_that_name_a_file_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = TWO_NODES.model_copy(update={"runs": f"{tmp_path}/file"})
    remarks = slurm_check.check(settings, lambda *_: (1, "", "no cluster"), [])
    (remark,) = [r for r in remarks if r.what.startswith("runs=")]
    assert remark.what == f"runs={tmp_path}/file: {tmp_path}/file is a file, not a folder"
    assert remark.fix == "correct runs of the target"


def test_a_process_that_the_run_does_not_have_is_one_line(folder: Path) -> None:
    with pytest.raises(UserError, match="--process 2: attempt 1 of r has no such process; type a number from 0 to 1"):
        log_since(attempt(folder), 0, 2)


def test_a_job_whose_run_is_kept_in_a_storage_gets_its_place() -> None:
    kept = {"storage": "/shared/my runs/r-1", "allocation": "", "takeover": True}
    job = job_of(kinds.find("grpo"), {}, Path("/runs/r"), 1, Path("/"), 1.0, **kept)
    script = "".join(target().render(job).files.values())
    assert "--attempt 1 --storage '/shared/my runs/r-1' --takeover" in script


def test_a_job_counts_as_new_what_was_saved_wherever_the_checkpoint_is_kept(tmp_path: Path) -> None:
    files = target().render(Job(tmp_path, 1, Path("/"), 1.0)).files
    (line,) = [
        line for line in files[RunDir(tmp_path).attempt(1) / "job.sh"].splitlines() if line.startswith("saved()")
    ]

    def saved() -> str:
        return subprocess.check_output(["bash", "-c", f"run={tmp_path}\n{line}\nsaved"], text=True).strip()

    assert saved() == ""
    emit = Emitter(RunDir(tmp_path), 1, mine=True)
    for step in (8, 12, 4):
        emit.event("checkpoint", step=step)
        emit.event("evaluation", when="during", step=100 + step)
    assert saved() == "12"


def test_a_process_has_the_environment_of_its_job_with_the_targets_own_variables(tmp_path: Path) -> None:
    (tmp_path / "attempts" / "1").mkdir(parents=True)
    tell = "import os; print([os.environ[name] for name in ('GREETING', 'RANK', 'XLA_FLAGS')])"
    given = {"GREETING": "a 'quoted' $word", "RANK": "7", "XLA_FLAGS": "--of-the-kind=1"}
    job = Job(tmp_path, 1, tmp_path, command=("{python}", "-c", tell), environment=given)
    files = target(SlurmSettings(kind="slurm", python=sys.executable)).render(job).files
    task = next(text for path, text in files.items() if path.name == "task.sh")
    there = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "12"}
    there |= {"XLA_FLAGS": "--of-the-user=1", "PATH": os.environ["PATH"]}
    done = subprocess.run(["bash"], input=task, text=True, env=there, capture_output=True, check=True)
    flags = "--of-the-user=1 --of-the-kind=1 --xla_force_host_platform_device_count=1"
    assert done.stdout.splitlines()[-1] == str([given["GREETING"], "0", flags])


def test_where_memory_is_bound_is_no_second_size_of_it() -> None:
    options = ("--mem-bind=local", "--comment=two words - here")
    assert SlurmSettings(kind="slurm", mem="200G", sbatch=options).sbatch == options
