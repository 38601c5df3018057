"""A launcher at work on a run: what it writes when nobody answers, and how two of them get on."""

import errno
import fcntl
import itertools
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.bucket import EmulatedBucket
from podwright import slices, targets
from podwright.cli import dry_run, show
from podwright.errors import UserError
from podwright.recipe import kinds
from podwright.recipe.load import load
from podwright.run import drive, journal, mirror, silence
from podwright.run.decide import Act
from podwright.run.interrupts import Interrupts
from podwright.run.session import require_attended
from podwright.run.states import AllocationPhase
from podwright.rundir import Ending, RunDir, read_jsonl, write_json
from podwright.storage import inputs, open_storage
from podwright.storage.base import StorageFailure
from podwright.targets.base import Barred, Job, Polled, Process, Released, Rendered, Stopped, Traits
from podwright.targets.machines import (
    GONE,
    AllocationState,
    ChargedChips,
    HostAddress,
    Request,
    deleting,
    filling,
    lost,
    partial,
    ready,
    refused,
    repairing,
    unknown,
    waiting,
)
from tests.unit.run import cloud_simulation
from tests.unit.run.cloud_simulation import Simulation


class Silent:
    """A target whose host has an attempt running and may not answer."""

    provisioner = None

    def __init__(self) -> None:
        self.identity = {"target": "t", "kind": "silent", "settings": {}}
        self.traits = Traits(poll_s=0.0, excludes_hosts=True)
        self.answers, self.process = False, Process.RUNNING
        self.asked: list[bool] = []
        self.released = 0
        self.failed_hosts: tuple[str, ...] = ()
        self.polls = 0
        self.jobs: list[Job] = []

    def render(self, job: Job, hosts: Any = None) -> Rendered:
        self.jobs.append(job)
        return Rendered((), job.cwd, {"attempt": job.attempt, **self.identity})

    def submit(self, rendered: Rendered) -> dict[str, Any]:
        self.process = Process.RUNNING
        return rendered.handle

    def poll(self, handle: Any) -> Polled:
        self.polls += 1
        return Polled(self.process, failed_hosts=self.failed_hosts)

    def stop(self, handle: Any, *, force: bool = False) -> Stopped:
        self.asked.append(force)
        return Stopped(self.answers, "host h does not answer")

    def release(self, handle: Any) -> Released:
        self.released += 1
        return Released(self.answers, "host h does not answer")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    clock = SimpleNamespace(now=1000.0, sleep=lambda _: None)
    clock.monotonic = clock.time = lambda: clock.now
    monkeypatch.setattr(drive, "time", clock)
    monkeypatch.setattr(journal, "now", clock.time)
    monkeypatch.setattr(journal, "uptime", lambda: ("", 0.0))
    yield clock


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Silent:
    silent = Silent()
    monkeypatch.setattr(targets, "of_handle", lambda _: silent)
    monkeypatch.setattr(targets, "current", lambda *_: silent.identity)
    return silent


@pytest.fixture
def run(tmp_path: Path, clock: SimpleNamespace) -> RunDir:
    run = RunDir(tmp_path / "r")
    run.path.mkdir()
    (tmp_path / "kept").mkdir()
    write_json(run.recipe, {"kind": "grpo", "name": "r", "training": {"max_steps": 1}})
    journal.append(run, "created", recipe="r", target="t", cwd=str(tmp_path), retries=5)
    return run


def launcher(run: RunDir) -> drive.Driver:
    return drive.Driver(run, lambda *_: None, lambda _: None)


def events(run: RunDir) -> list[str]:
    return [record["event"] for record in read_jsonl(run.journal)]


def test_a_stop_that_nobody_received_is_sent_again_and_is_no_reason_to_kill(
    run: RunDir, silent: Silent, clock: SimpleNamespace
) -> None:
    one = launcher(run)
    one.submit()
    drive.ask_to_stop(run)
    for _ in range(4000):
        one.step()
        clock.now += 1.0
    assert "signalled" not in events(run) and silent.asked and not any(silent.asked)
    assert len(silent.asked) < 4000 / 300 + 10
    assert one.look().state.reason == "host h does not answer"
    silent.answers = True
    clock.now += 300.0
    assert one.step() is Act.SIGNAL and events(run)[-1] == "signalled"
    assert one.step() is Act.WAIT
    clock.now += silent.traits.grace_s - 1
    assert one.step() is Act.WAIT
    other = launcher(run)
    other.step()
    clock.now += 2.0
    assert other.step() is Act.WAIT, "on a machine that was started since, nobody knows how long that took"
    assert one.step() is Act.KILL and silent.asked[-1]


def test_a_launcher_gives_up_a_stop_half_an_hour_after_the_last_answer(
    run: RunDir, silent: Silent, clock: SimpleNamespace
) -> None:
    """Hosts that answer the stop late, and then not the kill, are waited for anew."""
    answered: list[float] = []

    def wait(seconds: float) -> None:
        clock.now += 30.0
        if journal.read(run).signalled:
            answered.append(clock.now)
        silent.answers = clock.now > begin + 1200.0 and not answered

    clock.sleep = wait
    one, begin = launcher(run), clock.now
    one.submit()
    drive.ask_to_stop(run)
    with pytest.raises(UserError) as e:
        one.follow()
    assert e.value.what.startswith("run r: it has not ended 30 min after that was asked for: ")
    assert e.value.fix == f"then type podwright stop {run.typed}" and True in silent.asked
    assert answered[0] > begin + 1200.0 and answered[0] + 1800.0 < clock.now < answered[0] + 2400.0


def test_a_second_stop_keeps_the_deadline_of_the_first(
    run: RunDir, silent: Silent, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot = "this boot"
    monkeypatch.setattr(journal, "uptime", lambda: (boot, clock.now))
    silent.answers = True
    first = launcher(run)
    first.submit()
    drive.ask_to_stop(run)
    assert first.step() is Act.SIGNAL
    clock.now += silent.traits.grace_s - 10
    second = launcher(run)
    drive.ask_to_stop(run)
    assert second.step() is Act.WAIT
    until = datetime.fromtimestamp(clock.now + 10).strftime("%H:%M:%S")
    assert f"if it has not ended at {until}, this command kills it" in second._waiting
    clock.now += 11
    assert launcher(run).step() is Act.KILL and silent.asked == [False, True], "even one that has just come"
    boot = "another boot"
    clock.now += 100
    assert launcher(run).step() is Act.WAIT


def test_a_release_is_written_down_when_the_host_confirms_it(run: RunDir, silent: Silent, clock: Any) -> None:
    one = launcher(run)
    one.submit()
    drive.ask_to_stop(run)
    silent.process = Process.ENDED
    for _ in range(20):
        one.step()
        clock.now += 1.0
    assert "released" not in events(run) and events(run).count("release unanswered") > 1
    silent.answers = True
    clock.now += 300.0
    one.step()
    assert "released" in events(run)


@pytest.mark.parametrize(("stopped", "verb"), [(False, "resume"), (True, "stop")])
def test_a_release_that_a_person_must_make_possible_ends_the_launcher_with_what_to_type(
    run: RunDir, silent: Silent, clock: Any, monkeypatch: pytest.MonkeyPatch, stopped: bool, verb: str
) -> None:
    one = launcher(run)
    one.submit()
    if stopped:
        drive.ask_to_stop(run)
    silent.process = Process.ENDED
    given_up = Released(False, "pod p has not ended; type kubectl delete pods p", barred=True, given_up=True)
    monkeypatch.setattr(silent, "release", lambda _: given_up)
    assert one.step() is Act.END
    with pytest.raises(UserError) as e:
        one.step()
    assert e.value.what.startswith("attempt 1 of run r has ended (")
    assert e.value.what.endswith(" not seen to be gone: pod p has not ended; type kubectl delete pods p")
    assert e.value.fix == f"then type podwright {verb} {run.typed}"
    assert events(run)[-1] == "release unanswered", "another launcher asks again"


def test_hosts_count_as_silent_through_one_launcher_after_another(
    run: RunDir, silent: Silent, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher(run).submit()
    polled = Polled(Process.RUNNING, silent=True)
    monkeypatch.setattr(silent, "poll", lambda _: polled)
    seconds = []
    for pause_s in (0.0, 300.0, 200.0, silence.PAUSE_S + 1.0, 50.0):
        clock.now += pause_s
        seconds.append(launcher(run).look().seen.silent_s)
    assert seconds == [0.0, 300.0, 500.0, 0.0, 50.0], "after a long pause the time begins anew"
    polled = Polled(Process.RUNNING, unseen=True)
    clock.now += 10.0
    assert launcher(run).look().seen.silent_s == 60.0, "another launcher is asking, and not answered"
    polled = Polled(Process.RUNNING)
    assert launcher(run).look().seen.silent_s == 0.0
    clock.now += 10.0
    polled = Polled(Process.RUNNING, silent=True)
    assert launcher(run).look().seen.silent_s == 0.0, "a host has answered meanwhile"


def test_a_host_on_which_two_attempts_failed_is_left_out_of_the_next(run: RunDir, silent: Silent, clock: Any) -> None:
    one, silent.answers = launcher(run), True
    for host in ("n1", "n2", "n1"):
        one.submit()
        silent.process, silent.failed_hosts = Process.ENDED, (host,)
        while one.step() is not Act.RETRY:
            clock.now += 1.0
        clock.now += 1000.0
    one.submit()
    assert [job.exclude for job in silent.jobs] == [(), (), (), ("n1",)]


def test_collisions_with_another_launcher_count_only_while_that_one_does_nothing(
    run: RunDir, silent: Silent, clock: Any
) -> None:
    late = launcher(run)
    with run.launcher_lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert late.step() is Act.WAIT
        clock.now += 61.0
        journal.append(run, "resumed")  # by the holder, which is at work
        assert late.step() is Act.WAIT
        clock.now += 61.0
        print(json.dumps({"host": "login1", "pid": 15741}), file=held, flush=True)
        with pytest.raises(UserError, match="another podwright has been busy with run r for 60 s") as raised:
            late.step()
        assert raised.value.fix == "wait for it, or end process 15741 on host login1"
    late = launcher(run)
    with run.launcher_lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert late.step() is Act.WAIT
        clock.now += 61.0
        print(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}), file=held, flush=True)
        for _ in range(9):
            clock.now += 61.0
            assert late.step() is Act.WAIT, "its holder lives: it may bring files to hosts for minutes"
        assert f"another podwright (process {os.getpid()})" in late._waiting
        suspended = subprocess.Popen(["sleep", "60"])
        try:
            suspended.send_signal(signal.SIGSTOP)
            os.waitpid(suspended.pid, os.WUNTRACED)
            held.seek(0)
            held.truncate()
            print(json.dumps({"host": socket.gethostname(), "pid": suspended.pid}), file=held, flush=True)
            assert late.step() is Act.WAIT
            clock.now += 61.0
            with pytest.raises(UserError, match="has been busy with run r for 60 s"):
                late.step()
        finally:
            suspended.kill()
            suspended.wait()
    launcher(run).submit()
    assert late.step() is Act.WAIT, "it runs: nothing to do, so no lock is needed"
    clock.now += 61.0
    silent.process = Process.ENDED
    with run.launcher_lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert late.step() is Act.WAIT and late._waiting == "", "of what has ended, no process starts"


def test_a_stop_while_a_job_is_prepared_starts_nothing(run: RunDir, silent: Silent, monkeypatch: Any) -> None:
    def render(job: Job, hosts: Any = None) -> Rendered:
        drive.ask_to_stop(run)  # by another launcher: the preparation may take minutes
        return Rendered((), job.cwd, {"attempt": job.attempt, **silent.identity})

    monkeypatch.setattr(silent, "render", render)
    silent.process, silent.answers = Process.ABSENT, True
    assert launcher(run).follow().ending is Ending.STOPPED
    assert "submitting" not in events(run) and silent.process is Process.ABSENT


def test_an_attempt_that_cannot_be_submitted_ends_with_the_reason(
    run: RunDir, silent: Silent, monkeypatch: Any
) -> None:
    def submit(rendered: Rendered) -> dict[str, Any]:
        raise OSError(errno.ENOSPC, "No space left on device", "/disk/r")

    monkeypatch.setattr(silent, "submit", submit)
    silent.process, silent.answers = Process.ABSENT, True
    state = launcher(run).follow()
    assert (state.ending, state.attempt) == (Ending.BAD_INPUT, 1) and state.detail == "/disk/r: No space left on device"


def test_an_attempt_that_has_ended_and_is_released_is_not_polled_any_more(run: RunDir, silent: Silent) -> None:
    silent.answers = True
    starting = launcher(run)
    starting.submit()
    drive.ask_to_stop(run)
    silent.process = Process.ENDED
    state = starting.follow()
    assert state.released and silent.polls
    before = silent.polls
    for _ in range(5):
        assert starting.step() is Act.DONE
    assert silent.polls == before


def test_a_process_that_writes_itself_into_the_lock_is_the_newest_holder(run: RunDir, silent: Silent) -> None:
    run.launcher_lock.write_text(json.dumps({"host": "another-machine-with-a-long-name", "pid": 123456}))
    launcher(run).submit()
    assert json.loads(run.launcher_lock.read_text()) == {"host": socket.gethostname(), "pid": os.getpid()}


def test_a_dry_run_of_created_machines_shows_the_request_and_names_their_hosts(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    world = Simulation(tmp_path, monkeypatch).world
    hosts: list[Any] = []
    render = world.render
    monkeypatch.setattr(world, "render", lambda job, h=None: hosts.extend(h) or render(job, h), raising=False)
    resolved: Any = SimpleNamespace(open=lambda: world, slice=slices.parse("v6e-16"))
    shown = drive.preview(tmp_path / "r", resolved, load("qwen3-tiny-arithmetic-grpo"))
    assert shown["request"]["name"] == "pw-r-1" and shown["argv"] == ["train"]
    assert [host.name for host in hosts] == ["HOST-0", "HOST-1", "HOST-2", "HOST-3"]
    monkeypatch.setattr(show, "plan", lambda _: None)
    planned: Any = SimpleNamespace(verdict="inconclusive")
    dry_run.preview(planned, {"run_dir": "/r", **shown})
    assert "would request pw-r-1 in east-a:\n  create pw-r-1 east-a\n" in capsys.readouterr().out


def test_a_dry_run_shows_the_job_that_is_submitted(
    run: RunDir, silent: Silent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(kinds.KINDS, "grpo", replace(kinds.KINDS["grpo"], environment={"GREETING": "hello"}))
    monkeypatch.chdir(tmp_path)
    silent.traits = replace(silent.traits, storage=str(tmp_path / "kept"))
    resolved: Any = SimpleNamespace(open=lambda: silent, slice=None)
    drive.preview(run.path, resolved, load("qwen3-tiny-arithmetic-grpo"))
    launcher(run).submit()
    shown, submitted = silent.jobs
    assert submitted.environment == {"GREETING": "hello"} and submitted.storage == run.storage_url
    # the tag in the name of the storage is made of the time at which the run is created
    assert shown == replace(submitted, created=None, storage=shown.storage, recipe=shown.recipe)
    assert shown.storage == f"{submitted.storage.rpartition('-')[0]}-TAG" and shown.run_tag == "TAG"


def test_a_run_whose_machines_only_its_launcher_deletes_is_not_left_alone() -> None:
    require_attended("boxes", Traits())
    with pytest.raises(UserError, match="nothing would delete the machines that v6e creates for the run"):
        require_attended("v6e", Traits(zones=("a-1",)))


def kept(run: RunDir, folder: Path) -> Path:
    """`run`, in a storage, as a launcher on a machine without the folder where it was started has it."""
    write_json(run.storage, {"url": str(folder / "kept" / "r-00000001")})
    state = journal.read(run)
    gone = folder / "gone"
    run.journal.write_text(run.journal.read_text().replace(json.dumps(state.cwd), json.dumps(str(gone))))
    return gone


def test_a_run_whose_inputs_are_in_a_storage_starts_in_the_folder_where_it_is_resumed(
    run: RunDir, silent: Silent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(run, tmp_path)
    write_json(run.path / inputs.LIST, {})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    launcher(run).submit()
    assert events(run) == ["created", "moved", "submitting", "submitted"]
    assert silent.jobs[0].cwd == tmp_path / "elsewhere" == Path(journal.read(run).cwd)


def test_a_run_whose_inputs_are_nowhere_is_refused_with_the_folder_that_has_them(
    run: RunDir, silent: Silent, tmp_path: Path
) -> None:
    gone = kept(run, tmp_path)
    state = launcher(run).submit()
    assert state.ending is Ending.BAD_INPUT and "were not uploaded to" in state.detail
    assert state.fix.startswith(f"type podwright resume there: in {gone}, on the")


class Provided(Silent):
    """Its machines are created for a run, and there at once."""

    def __init__(self, storage: str) -> None:
        super().__init__()
        self.traits = Traits(poll_s=0.0, zones=("z",), storage=storage)
        self.provisioner: Any = SimpleNamespace(
            describe_request=lambda run_dir, created, number, avoid: Request(f"pw-{run_dir.name}-{number}", "z"),
            create=lambda request: waiting("Creating"),
            describe=lambda request, ready_since=None: self.cloud,
            list_owned=lambda: [],
        )
        self.cloud = ready((HostAddress("h", "10.0.0.1"),), since=990.0)


def test_the_claim_holds_the_name_of_the_allocation(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provided = Provided(str(tmp_path / "kept"))
    monkeypatch.setattr(targets, "of_handle", lambda _: provided)
    monkeypatch.setattr(targets, "current", lambda *_: provided.identity)
    launcher(run).submit()
    url = run.storage_url
    assert provided.jobs[0].argv("py", "/run") == (
        *("py", "-m", "podwright.train", "/run", "--attempt", "1"),
        *("--storage", url, "--allocation", "pw-r-1"),
    )


def ended(one: drive.Driver, silent: Silent) -> None:
    """End the attempt under way, and start the next one."""
    silent.answers, silent.process = True, Process.ENDED
    while one.step() is not Act.RELEASE:
        pass
    silent.process = Process.ABSENT
    while one.step() is not Act.SUBMIT:
        pass


def test_the_storage_of_a_run_is_that_of_its_first_attempt(run: RunDir, silent: Silent, tmp_path: Path) -> None:
    warnings: list[str] = []
    one = drive.Driver(run, lambda *_: None, warnings.append)
    one.submit()
    silent.traits = replace(silent.traits, storage=str(tmp_path / "kept"))
    ended(one, silent)
    assert [job.storage for job in silent.jobs] == ["", ""] and not run.storage_url
    assert any("started without a storage, and its checkpoints stay in" in warning for warning in warnings)


def test_a_run_does_not_create_the_folder_of_the_storage(run: RunDir, silent: Silent, tmp_path: Path) -> None:
    silent.traits = replace(silent.traits, storage=str(tmp_path / "typo" / "runs"))
    state = launcher(run).submit()
    assert (state.ending, state.detail) == (Ending.STORAGE_UNREACHABLE, f"there is no folder {tmp_path}/typo/runs")
    assert not silent.jobs and not (tmp_path / "typo").exists()


@pytest.mark.parametrize("mounted", [False, True])
def test_a_storage_that_is_gone_is_not_created_again(
    run: RunDir, silent: Silent, tmp_path: Path, mounted: bool
) -> None:
    silent.traits = replace(silent.traits, storage=str(tmp_path / "kept"))
    one = launcher(run)
    one.submit()
    (tmp_path / "kept").rename(tmp_path / "away")
    if mounted:
        (tmp_path / "kept").mkdir()  # the mount point
    journal.append(run, "ended", attempt=1, ending="CRASHED", detail="", fix="", step=None)
    warning = mirror.KeptRun(run).publish()
    gone = (
        f"the recipe of {run.storage_url} is gone; mount or restore the folder, then type podwright resume {run.typed}"
    )
    assert warning == gone
    with pytest.raises(StorageFailure, match="is gone; mount or restore the folder"):
        mirror.keep_in(run, "", 1.0, tmp_path)
    assert not list(tmp_path.glob("kept/*"))


def test_a_run_stays_in_its_storage_and_a_later_attempt_may_take_it_over(
    run: RunDir, silent: Silent, tmp_path: Path
) -> None:
    silent.traits = replace(silent.traits, storage=str(tmp_path / "kept"))
    one = launcher(run)
    one.submit()
    silent.traits = replace(silent.traits, storage="")
    ended(one, silent)
    first, second = (job.argv("py", "/run") for job in silent.jobs)
    assert first[-2:] == ("--storage", run.storage_url)
    assert second[-3:] == ("--storage", run.storage_url, "--takeover")


def continued_elsewhere(run: RunDir) -> None:
    storage = open_storage(run.storage_url)
    storage.write("run/journal.jsonl", run.journal.read_bytes() + b'{"event": "taken over", "time": 1.0}\n')


def test_an_ending_is_written_down_when_another_machine_has_gone_on(
    run: RunDir, silent: Silent, tmp_path: Path
) -> None:
    silent.traits = replace(silent.traits, storage=str(tmp_path / "kept"))
    one = launcher(run)
    one.submit()
    continued_elsewhere(run)
    silent.process = Process.ENDED
    assert one.step() is Act.END and events(run)[-1] == "ended"


def test_nothing_is_created_when_another_machine_has_gone_on(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provided = Provided(str(tmp_path / "kept"))
    created: list[Request] = []
    provided.provisioner.create = created.append
    monkeypatch.setattr(targets, "of_handle", lambda _: provided)
    monkeypatch.setattr(targets, "current", lambda *_: provided.identity)
    write_json(run.storage, {"url": str(tmp_path / "kept" / "r-00000001")})
    continued_elsewhere(run)
    with pytest.raises(UserError, match="was continued from another machine"):
        launcher(run).step()
    assert not created


def test_the_journal_says_since_when_the_machines_were_ready_and_lost_by_the_clouds_account(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provided = Provided(str(tmp_path / "kept"))
    monkeypatch.setattr(targets, "of_handle", lambda _: provided)
    monkeypatch.setattr(targets, "current", lambda *_: provided.identity)
    one = launcher(run)
    one.submit()
    provided.cloud = lost(Ending.PREEMPTED, "Preempted: x", since=995.0)
    assert one.step() is Act.LOST
    records = {record["event"]: record for record in read_jsonl(run.journal)}
    assert [records[f"allocation {name}"]["since"] for name in ("ready", "lost")] == [990.0, 995.0]


@pytest.mark.parametrize(
    ("cloud", "reason"),
    [
        (waiting("MOVING: x"), "Silent: no host has answered for 10 min; the cloud says of them: MOVING: x"),
        (ready(()), "Silent: no host has answered for 10 min; the cloud says of them: ready"),
        (GONE, "Lost: the machines no longer exist"),
        (deleting(), "Lost: the machines no longer exist"),
    ],
)
def test_machines_are_lost_by_silence_only_where_the_cloud_still_has_them(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace, cloud: Any, reason: str
) -> None:
    provided = Provided(str(tmp_path / "kept"))
    provided.traits = replace(provided.traits, silence_s=600.0)
    monkeypatch.setattr(targets, "of_handle", lambda _: provided)
    monkeypatch.setattr(targets, "current", lambda *_: provided.identity)
    one = launcher(run)
    one.submit()
    monkeypatch.setattr(provided, "poll", lambda _: Polled(Process.RUNNING, waiting="Unreachable: h", silent=True))
    provided.cloud = cloud
    while (act := one.step()) is not Act.LOST:
        assert act is Act.WAIT and clock.now < 2000.0
        clock.now += 60.0
    (event,) = [event for event in read_jsonl(run.journal) if event["event"] == "allocation lost"]
    assert event["reason"] == reason


@pytest.mark.parametrize(("uncreated", "lost_reply"), [(True, False), (False, False), (True, True)])
def test_only_a_request_that_was_refused_itself_ends_without_a_deletion(
    run: RunDir,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    clock: SimpleNamespace,
    uncreated: bool,
    lost_reply: bool,
) -> None:
    def may_not(_: Request) -> None:
        raise UserError("pw-r-1 cannot be deleted", "ask", "a-code")

    provided = Provided("")
    no = replace(refused("", "BadZone: x; correct zones", Ending.BAD_INPUT), uncreated=uncreated)
    answers = [unknown("NoNetwork: x"), no] if lost_reply else [no]
    provided.provisioner.create, provided.provisioner.delete = lambda _: answers.pop(0), may_not
    provided.cloud = GONE if lost_reply else unknown("BadZone: x")
    monkeypatch.setattr(targets, "of_handle", lambda _: provided)
    monkeypatch.setattr(targets, "current", lambda *_: provided.identity)
    one = launcher(run)
    while answers:
        one.step()
        clock.now += 600
    provided.cloud = unknown("BadZone: x")
    if not uncreated or lost_reply:
        assert one.step() is Act.DELETE
        assert events(run)[-2:] == ["allocation deleting", "allocation undeleted"]
        return
    assert (one.step(), one.step()) == (Act.DELETE, Act.END)
    state = journal.read(run)
    assert state.ending is Ending.BAD_INPUT and "correct zones" in state.detail
    assert (one.step(), one.step(), one.step()) == (Act.RELEASE, Act.REPORT, Act.DONE)


@pytest.mark.parametrize("stop", [False, True])
def test_a_deletion_that_a_person_must_make_possible_is_repeated_and_the_reason_shown(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace, stop: bool
) -> None:
    expired = "pw-r-1 in z cannot be deleted: NoLogin: the login of gcloud has expired"
    calls: list[float] = []
    login = [clock.now + 240.0]
    shown: list[str] = []

    def delete(_: Request) -> None:
        calls.append(clock.now)
        if clock.now < login[0]:
            raise Barred(expired, "type gcloud auth login", "a-code")

    provided = Provided("")
    provided.provisioner.create = lambda _: refused("", "Quota: x; ask for more", Ending.BAD_INPUT)
    provided.provisioner.delete = delete
    provided.provisioner.describe = lambda *_: (
        GONE if calls and calls[-1] >= login[0] else unknown("NoLogin: the login of gcloud has expired")
    )
    monkeypatch.setattr(targets, "of_handle", lambda _: provided)
    monkeypatch.setattr(targets, "current", lambda *_: provided.identity)
    monkeypatch.setattr("podwright.run.act.write_report", lambda _: None)
    begin, clock.sleep = clock.now, lambda s: setattr(clock, "now", clock.now + s)
    one = drive.Driver(run, lambda _, waits: shown.append(waits), lambda _: None)
    one.step()
    if stop:
        with pytest.raises(UserError) as e:
            drive.stop(one)
        assert e.value.what.startswith(f"the machines of run r are not deleted, and may cost: {expired}")
        assert "type gcloud auth login" in e.value.what and e.value.fix == f"then type podwright stop {run.typed}"
        assert 55 < clock.now - begin < 90 and len(calls) > 2
        login[0] = clock.now
        drive.stop(drive.Driver(run, lambda *_: None, lambda _: None))
    else:
        one.follow()
        assert max(b - a for a, b in itertools.pairwise(calls)) < 30.0
        assert any("(pw-r-1 in z cannot be deleted: NoLogin" in line and "gcloud auth login" in line for line in shown)
        assert sum(event == "allocation undeleted" for event in events(run)) == 2, "refused, and then not"
    assert journal.read(run).allocation.phase is AllocationPhase.GONE  # type: ignore[union-attr]


def attempt_to(run: RunDir, silent: Silent, act: Act, clock: SimpleNamespace) -> drive.Driver:
    """A launcher whose next step is `act`, at an attempt of a run that is kept in a storage; nothing new is to be published."""
    one = launcher(run)
    one.submit()
    if act is Act.RELEASE:
        silent.process = Process.ENDED
        assert one.step() is Act.END
    else:
        drive.ask_to_stop(run)
    if act is Act.KILL:
        silent.answers = True
        assert (one.step(), one.step()) == (Act.SIGNAL, Act.WAIT)
        clock.now += silent.traits.grace_s + 1
    one._mirror(last=True)
    return one


@pytest.mark.parametrize("act", [Act.SIGNAL, Act.KILL, Act.RELEASE])
@pytest.mark.parametrize("fetched", [False, True])
def test_an_attempt_of_a_run_that_another_machine_has_taken_over_is_not_touched(
    run: RunDir, silent: Silent, clock: SimpleNamespace, tmp_path: Path, act: Act, fetched: bool
) -> None:
    silent.traits = replace(silent.traits, storage=str(tmp_path / "kept"))
    one = attempt_to(run, silent, act, clock)
    before = len(silent.asked), silent.released
    continued_elsewhere(run)
    if fetched:  # by another process, which has replaced the journal here by that of the storage
        mirror.fetch(run.storage_url, tmp_path)
        assert mirror.observes(run)
    lines = run.journal.read_bytes()
    with pytest.raises(mirror.DrivenElsewhere, match="run r was continued from another machine"):
        one.step()
    assert (len(silent.asked), silent.released) == before
    assert not fetched or run.journal.read_bytes() == lines, "the journal of another machine gets no line of this one"


def test_an_attempt_is_stopped_and_released_while_its_storage_cannot_be_reached(
    run: RunDir, silent: Silent, clock: SimpleNamespace, bucket: EmulatedBucket
) -> None:
    silent.traits = replace(silent.traits, storage=f"{bucket.url}/runs")
    silent.answers = True
    one = attempt_to(run, silent, Act.SIGNAL, clock)
    bucket.faults.status = 401
    assert one.step() is Act.SIGNAL and silent.asked == [False]
    silent.process = Process.ENDED
    assert (one.step(), one.step()) == (Act.END, Act.RELEASE) and silent.released == 1


def refused_after_half_an_hour(simulation: Simulation) -> dict[str, Any]:
    """The event of the journal, of a run that begins now with `place_patience_s` 1800."""
    world, begin = simulation.world, simulation.world.time
    while not any(event["event"] == "allocation refused" for event in world.events):
        assert world.time < begin + 2400.0, "given up after half an hour"
        simulation.step()
        world.advance(60.0)
    assert world.time >= begin + 1800.0
    (event,) = [event for event in world.events if event["event"] == "allocation refused"]
    return dict(event)


def test_machines_that_come_one_by_one_do_not_put_off_the_end_of_the_wait_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = Simulation(tmp_path, monkeypatch)
    world, begin = simulation.world, simulation.world.time
    monkeypatch.setattr(cloud_simulation, "TRAITS", replace(cloud_simulation.TRAITS, place_patience_s=1800.0))
    chips = iter(range(1000))
    told = lambda _: replace(filling("Starting: x"), charged=ChargedChips(next(chips) // 4, begin))  # noqa: E731
    monkeypatch.setattr(world, "_described", told)
    refused_ = refused_after_half_an_hour(simulation)
    assert refused_["reason"] == "Starting: x, for more than 30 min" and refused_["scope"] == "east-a"
    assert sum(event["event"] == "allocation charged" for event in world.events) > 4


@pytest.mark.parametrize(
    ("cloud", "reason"),
    [(partial("Incomplete: x"), "Incomplete: x"), (GONE, "Absent: the cloud shows nothing of the request")],
)
def test_a_place_that_gives_no_answer_that_is_known_is_left_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cloud: Any, reason: str
) -> None:
    simulation = Simulation(tmp_path, monkeypatch)
    monkeypatch.setattr(cloud_simulation, "TRAITS", replace(cloud_simulation.TRAITS, place_patience_s=1800.0))
    monkeypatch.setattr(simulation.world, "_described", lambda _: cloud)
    refused_ = refused_after_half_an_hour(simulation)
    assert (refused_["reason"], refused_["scope"]) == (f"{reason}, for more than 30 min", "east-a")


@pytest.mark.parametrize("away", [filling("Starting: x"), repairing("Maintenance: x")])
def test_launchers_that_live_shorter_than_missing_machines_are_waited_for_give_them_up(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace, away: Any
) -> None:
    provided = Provided(str(tmp_path / "kept"))
    provided.traits = replace(provided.traits, place_patience_s=1800.0, repair_s=1800.0)
    provided.provisioner.delete = lambda request: None
    monkeypatch.setattr(targets, "of_handle", lambda _: provided)
    monkeypatch.setattr(targets, "current", lambda *_: provided.identity)
    request = asdict(Request("pw-r-1", "z"))
    journal.append(run, "allocation requested", allocation=1, request=request, target=provided.identity)
    journal.append(run, "allocation ready", allocation=1, hosts=[], since=None)
    provided.cloud, begin = away, clock.now
    over = ("allocation refused", "allocation lost")
    while not set(over) & set(events(run)):
        assert clock.now < begin + 2400.0, "given up after half an hour"
        one = launcher(run)  # the one before was killed
        for _ in range(3):
            silent_ = away.state is AllocationState.FILLING and clock.now % 400 < 200
            provided.cloud = unknown("Unreachable") if silent_ else away
            one.step()
            clock.now += 200.0
    assert clock.now - begin >= 1800.0 and events(run).count("allocation lacking") == 1


def test_machines_that_cannot_be_requested_from_here_end_the_run_with_the_reason(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(_: Request) -> Any:
        raise UserError("command gcloud not found on this machine", "install it", "missing-program")

    def describe(*_: Any) -> Any:
        raise AssertionError("nothing was requested")

    provided = Provided(str(tmp_path / "kept"))
    provided.provisioner.create, provided.provisioner.describe = create, describe
    provided.provisioner.delete = create
    monkeypatch.setattr(targets, "of_handle", lambda _: provided)
    monkeypatch.setattr(targets, "current", lambda *_: provided.identity)
    monkeypatch.setattr("podwright.run.act.write_report", lambda _: None)
    state = launcher(run).follow()
    assert state.ending is Ending.BAD_INPUT, state
    assert "NotRequested: command gcloud not found on this machine; install it" in state.detail
    assert events(run)[-1] == "reported" and not provided.jobs


SEEN = Polled(Process.RUNNING)
UNSEEN = Polled(Process.RUNNING, waiting="NoPermission: you may not list jobsets; ask for it", silent=True, barred=True)


@pytest.mark.parametrize("polled", [SEEN, UNSEEN])
def test_a_stop_that_a_person_must_make_possible_ends_and_says_what_to_type(
    run: RunDir, silent: Silent, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, polled: Polled
) -> None:
    def wait(seconds: float) -> None:
        clock.now += 0.5

    clock.sleep = wait
    one = launcher(run)
    one.submit()
    begin, silent.answers = clock.now, polled is UNSEEN
    monkeypatch.setattr(silent, "poll", lambda _: polled)
    refused_ = Stopped(False, "NoPermission: you may not delete jobsets; ask for it", barred=True)
    if not silent.answers:
        monkeypatch.setattr(silent, "stop", lambda *_, **__: refused_)
    with pytest.raises(UserError) as e:
        drive.stop(one)
    if polled is UNSEEN:
        assert e.value.what.startswith(
            "run r was told to stop, and whether it has ended cannot be seen: NoPermission: "
        )
    else:
        assert e.value.what.startswith("run r was not stopped: NoPermission: ")
    assert e.value.fix == f"then type podwright stop {run.typed}" and 10 < clock.now - begin < 90
    assert "ended" not in events(run) and journal.read(run).stop_wanted


def test_resume_of_a_run_that_is_to_stop_ends_where_nobody_sees_its_end(
    run: RunDir, silent: Silent, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(seconds: float) -> None:
        clock.now += 30.0
        assert clock.now < 9000.0, "it waits for ever"

    clock.sleep = wait
    one, silent.answers = launcher(run), True
    one.submit()
    drive.ask_to_stop(run)
    monkeypatch.setattr(silent, "poll", lambda _: UNSEEN)
    with pytest.raises(UserError) as e:
        drive.resume(one)
    assert e.value.code == "machines-unanswered"


@pytest.mark.parametrize("presses", [1, 2])
def test_an_interrupt_while_resume_waits_for_an_end_starts_no_attempt(
    run: RunDir, silent: Silent, clock: SimpleNamespace, presses: int
) -> None:
    """The first one leaves the end to be waited for, and the second one does not."""

    def wait(seconds: float) -> None:
        clock.now += 10.0
        interrupts._count = presses
        assert clock.now < 9000.0, "it is not heard"
        if presses == 1:
            silent.answers, silent.process = True, Process.ENDED

    clock.sleep = wait
    one, interrupts = launcher(run), Interrupts(True, lambda _: None)
    one.submit()
    drive.ask_to_stop(run)
    state = drive.resume(one, interrupts)
    assert (state.ending is Ending.STOPPED) is (presses == 1)
    assert "resumed" not in events(run) and len(silent.jobs) == 1


def test_a_stop_that_is_typed_again_is_sent_at_once(run: RunDir, silent: Silent, clock: SimpleNamespace) -> None:
    one = launcher(run)
    one.submit()
    drive.ask_to_stop(run)
    for _ in range(100):
        one.step()
        clock.now += 10.0
    assert journal.read(run).calls > 5 and one.step() is Act.WAIT
    drive.ask_to_stop(run)
    assert one.step() is Act.WAIT
    drive.ask_to_stop(run, at_once=True)
    silent.answers = True
    assert one.step() is Act.SIGNAL and journal.read(run).signalled


def test_a_run_that_is_not_to_stop_waits_for_whoever_must_act(
    run: RunDir, silent: Silent, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = launcher(run)
    one.submit()
    monkeypatch.setattr(silent, "poll", lambda _: UNSEEN)
    for _ in range(100):
        clock.now += 10.0
        assert one.step() is Act.WAIT
