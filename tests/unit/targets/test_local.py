"""The local target over real processes."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from podwright import targets
from podwright.errors import UserError
from podwright.rundir import RunDir
from podwright.shell import Shell
from podwright.targets import alive
from podwright.targets.base import Handle, Job, Polled, Process, Released, Stopped
from podwright.targets.handles import log_since
from podwright.targets.hosts import oom
from podwright.targets.local import Local
from podwright.targets.settings.local import LocalSettings
from tests import scarce
from tests.e2e.conftest import wait_for

SLEEPER = "import sys, time; print('up', flush=True); time.sleep(60)"


def job(folder: Path, code: str) -> Job:
    return Job(folder, 1, folder, command=("{python}", "-c", code))


def submit(folder: Path, code: str) -> tuple[Local, Handle]:
    target = Local(Shell())
    return target, target.submit(target.render(job(folder, code)))


def ended(target: Local, handle: Handle) -> Polled:
    wait_for(lambda: target.poll(handle).process is Process.ENDED)
    return target.poll(handle)


def test_render_is_pure_and_says_everything(tmp_path: Path) -> None:
    target = Local(Shell(), "cpu-8", LocalSettings(cpu_devices=8))
    given = {"A": "b", "JAX_PLATFORMS": "tpu", "XLA_FLAGS": "--of-the-kind=1"}
    rendered = target.render(Job(tmp_path / "r", 3, tmp_path, environment=given))
    assert rendered.argv == (sys.executable, "-m", "podwright.train", str(tmp_path / "r"), "--attempt", "3")
    assert rendered.env == {
        "A": "b",
        "JAX_PLATFORMS": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
        "XLA_FLAGS": "--of-the-kind=1 --xla_force_host_platform_device_count=8",
        "NPROC_PER_NODE": "8",
    }
    assert json.loads(json.dumps(rendered.handle)) == rendered.handle
    assert Local(Shell()).render(Job(tmp_path, 1, tmp_path)).env == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(bool(scarce.missing_cgroups()), reason=scarce.missing_cgroups() or "there are some")
def test_a_trainer_that_the_kernel_kills_for_memory_is_told_from_one_that_a_person_kills(tmp_path: Path) -> None:
    """Submitted from within the cgroup, as a launcher in a container is; polled by that launcher and by a later one."""
    tell = (
        "import json, sys, time; from pathlib import Path; from podwright.shell import Shell\n"
        "from podwright.targets.base import Job, Process; from podwright.targets.local import Local\n"
        "target = Local(Shell()); job = Job(Path(sys.argv[1]), 1, Path('/'), command=('{python}', '-c', sys.argv[2]))\n"
        "handle = target.submit(target.render(job))\n"
        "while (ended := target.poll(handle)).process is not Process.ENDED: time.sleep(0.05)\n"
        "later = Local(Shell()).poll(handle)\n"
        "print(json.dumps([[p.ending, p.detail] for p in (ended, later)]))"
    )
    told = {}
    with scarce.memory_cgroup(256 << 20) as cgroup:
        for name, code in (("hungry", "x = bytearray(1 << 30)"), ("killed", "import os; os.kill(os.getpid(), 9)")):
            script = f'echo $$ > {cgroup}/cgroup.procs; exec "$@"'
            argv = ["sh", "-c", script, "sh", sys.executable, "-c", tell, str(tmp_path / name), code]
            told[name] = json.loads(subprocess.check_output(argv, text=True).splitlines()[-1])
    why = f"the trainer: the kernel killed it for memory: cgroup {cgroup} was at its limit of 0.25 GiB"
    assert told == {"hungry": [["OUT_OF_MEMORY", why]] * 2, "killed": [[None, ""]] * 2}


@pytest.mark.parametrize(
    ("cgroups", "files", "file"),
    [
        ("0::/user/x\n", {"user/x/memory.events": "oom 3\noom_kill 2\n"}, "user/x/memory.events"),
        ("0::/of-the-host\n", {"memory.events": "oom_kill 2\n"}, "memory.events"),
        (
            "4:cpu,memory:/y\n0::/\n",
            {"memory/y/memory.oom_control": "under_oom 0\noom_kill 2\n"},
            "memory/y/memory.oom_control",
        ),
        ("4:memory:/y\n0::/\n", {"memory/y/memory.oom_control": "under_oom 0\n"}, ""),
        ("1:name=systemd:/\n0::/\n", {}, ""),
        ("", {}, ""),
    ],
)
def test_the_counter_of_kills_for_memory_is_that_of_the_cgroup(
    tmp_path: Path, cgroups: str, files: dict[str, str], file: str
) -> None:
    for name, text in files.items():
        (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cgroup" / name).write_text(text)
    (tmp_path / "proc").write_text(cgroups)
    counter = oom.of_this_process(tmp_path / "proc", tmp_path / "cgroup")
    assert counter == (oom.OomCounter(f"{tmp_path}/cgroup/{file}", 2) if file else oom.OomCounter())
    assert counter.killed() == ""
    if file:
        Path(counter.file).write_text("oom_kill 3\n")
        assert "without a limit of its own: the machine's memory was full" in counter.killed()
        (Path(counter.file).parents[1] / "memory.max").write_text("1073741824\n")  # as SLURM limits the job of a step
        assert "was at its limit of 1.00 GiB" in counter.killed()


def test_flags_go_after_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--mine=1")
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    log = tmp_path / "log"
    shell = Shell()
    code = "import os; print(os.environ['XLA_FLAGS'], os.environ['JAX_PLATFORMS'])"
    pid = shell.start(
        [sys.executable, "-c", code], cwd=tmp_path, env={"XLA_FLAGS": "--ours=2", "JAX_PLATFORMS": "cpu"}, log=log
    )
    wait_for(lambda: shell.returncode(pid) == 0)
    assert log.read_text() == "--mine=1 --ours=2 cpu\n"


def test_submit_poll_logs_stop_release(tmp_path: Path) -> None:
    target, handle = submit(tmp_path, SLEEPER)
    assert target.poll(handle).process is Process.RUNNING, "alive from the moment submit returns"
    wait_for(lambda: log_since(handle, 0) == ("up\n", 3))
    assert log_since(handle, 3) == ("", 3)
    pid = json.loads(RunDir(tmp_path).pid(1).read_text())["pid"]
    assert os.getsid(pid) == pid
    assert target.stop(handle) == Stopped(True)
    assert ended(target, handle).returncode == -15
    target.stop(handle)
    target.stop(handle, force=True)
    assert target.release(handle) == Released(True)
    target.release(handle)


def test_another_launcher_finds_it_and_does_not_take_a_zombie_for_life(tmp_path: Path) -> None:
    _, handle = submit(tmp_path, SLEEPER)
    other = Local(Shell())
    wait_for(RunDir(tmp_path).pid(1).exists)
    assert other.poll(handle).process is Process.RUNNING
    other.stop(handle, force=True)
    wait_for(lambda: other.poll(handle) == Polled(Process.ENDED, None))  # never reaped: `_` is its parent


def test_a_pid_that_was_given_to_another_process_is_not_ours(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.attempt(1).mkdir(parents=True)
    run.pid(1).write_text(json.dumps({"pid": os.getpid(), "created": psutil.Process().create_time() - 3600}))
    handle = {"run_dir": str(tmp_path), "attempt": 1}
    target = Local(Shell())
    assert target.poll(handle).process is Process.ENDED
    target.stop(handle, force=True)  # would end the tests if it were taken for ours
    target.release(handle)


def test_before_it_has_written_its_pid_the_inherited_lock_tells_that_it_lives(tmp_path: Path) -> None:
    _, handle = submit(tmp_path, SLEEPER)
    pid = RunDir(tmp_path).pid(1)
    wait_for(pid.exists)
    hidden = pid.rename(pid.with_name("hidden"))
    assert Local(Shell()).poll(handle).process is Process.RUNNING
    psutil.Process(json.loads(hidden.read_text())["pid"]).kill()
    wait_for(lambda: Local(Shell()).poll(handle).process is Process.ABSENT)


def test_a_stop_before_the_process_has_written_its_pid_is_not_acknowledged(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.attempt(1).mkdir(parents=True)
    handle = {"run_dir": str(tmp_path), "attempt": 1}
    with alive.held(run.alive(1)):
        assert not Local(Shell()).stop(handle).acknowledged
    assert Local(Shell()).stop(handle).acknowledged


def test_nothing_submitted_is_absent(tmp_path: Path) -> None:
    target = Local(Shell())
    handle = {"run_dir": str(tmp_path), "attempt": 1}
    assert target.poll(handle).process is Process.ABSENT
    target.stop(handle)
    target.release(handle)
    assert log_since(handle, 0) == ("", 0)


def test_an_attempt_is_never_overwritten(tmp_path: Path) -> None:
    target, handle = submit(tmp_path, "pass")
    ended(target, handle)
    with pytest.raises(FileExistsError):
        target.submit(target.render(job(tmp_path, "pass")))


def test_the_exit_code_is_known_to_the_one_who_started_it(tmp_path: Path) -> None:
    target, handle = submit(tmp_path, "raise SystemExit(7)")
    assert ended(target, handle).returncode == 7
    time.sleep(0.1)
    assert target.poll(handle).returncode == 7


@pytest.mark.parametrize("name", ["cpu-0", "cpu-", "slurm"])
def test_an_unknown_target_says_what_to_type(name: str) -> None:
    with pytest.raises(
        UserError, match=f"there is no target and no slice '{name}'; type --on local, cpu-8, or a slice"
    ):
        targets.resolve(name)


@pytest.mark.parametrize(("name", "shown"), [("v6e-8", "v6e-8"), ("tpu7x-64", "tpu7x-2x4x4"), ("8xH200", "8xH200")])
def test_a_slice_is_planned_for_and_not_yet_run_on(name: str, shown: str) -> None:
    with pytest.raises(UserError, match=f"{shown} is a slice, not a target; type --on local"):
        targets.resolve(name).open()


def test_devices_are_known_where_they_are_made() -> None:
    devices = targets.resolve("cpu-8").slice
    assert devices and devices.num_devices == 8
    assert targets.resolve("local").slice is None


def test_a_process_that_is_not_there_has_no_log(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "r")
    run.attempt(1).mkdir(parents=True)
    run.log(1).write_text("a")
    run.log(1, 1).write_text("b")
    handle = {"run_dir": str(run.path), "attempt": 1}
    assert [log_since(handle, 0, k)[0] for k in (0, 1)] == ["a", "b"]
    with pytest.raises(UserError, match="--process 7: attempt 1 of r has no such process; leave --process out"):
        log_since(handle, 0, 7)
