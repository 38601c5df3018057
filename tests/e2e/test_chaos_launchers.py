"""What the judge of lives says of launchers that have died, on processes that are no podwright."""

import os
import signal
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.e2e import chaos_disturbing, fork_server
from tests.e2e.chaos import Disturbed
from tests.e2e.chaos_launchers import A_CALL, Launcher, Launchers
from tests.e2e.chaos_life import Life
from tests.e2e.chaos_script import Kill, Script
from tests.e2e.conftest import wait_for
from tests.e2e.fork_server import ForkServer

MOMENT = "before:allocation deleting"
SCRIPT = f"""
import os, signal, sys, time
print("begun", flush=True)
what = sys.argv[1]
if what == "sleep":
    time.sleep(60)
if what == "deaf":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    print("deaf", flush=True)
    time.sleep(0.7)
    sys.exit()
if what == "dies":
    os.write(1, b"dies {MOMENT}\\n")
os.kill(os.getpid(), signal.SIGKILL)
"""


class Sleeper(Launchers):
    """Launchers whose verbs are what the process does: sleep, or die with or without the line of lab/launcher.py."""

    def __init__(self, folder: Path, forks: ForkServer | None, killed: Collection[int] = ()) -> None:
        launch = folder / "launch.py"
        launch.write_text(SCRIPT)
        bench = cast(Any, SimpleNamespace(folder=folder, launch=launch))
        super().__init__(bench, "target", (), {}, forks, lambda: killed)

    def ended(self, verb: str, deadly: Sequence[str] = ()) -> Launcher:
        launcher = self.start(verb, deadly)
        launcher.process.wait(900)
        return launcher


@pytest.fixture(params=["forked", "executed"])
def forks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer | None]:
    monkeypatch.setattr(fork_server, "MODULES", ())
    with ForkServer() as server:
        yield server if request.param == "forked" else None


def test_no_signal_that_ends_a_launcher_is_sent_while_it_is_frozen(tmp_path: Path, forks: ForkServer | None) -> None:
    launcher, life = Sleeper(tmp_path, forks).start("sleep"), cast(Disturbed, None)
    for number, expected in ((signal.SIGSTOP, False), (signal.SIGCONT, True)):
        launcher.send(number, group=True)
        wait_for(lambda: chaos_disturbing.possible(life, "SIGTERM", launcher) is expected)  # noqa: B023
    launcher.kill(group=True)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_launcher_hears_a_signal_though_nohup_has_the_tests_ignore_it(
    number: signal.Signals, tmp_path: Path, forks: ForkServer | None
) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        launcher = Sleeper(tmp_path, forks).start("sleep")
    finally:
        signal.signal(number, before)
    while "begun" not in launcher.out.read_text():
        time.sleep(0.02)
    os.kill(launcher.process.pid, number)
    assert launcher.process.wait(900) == -number


def test_the_death_that_the_script_has_is_no_fault_and_any_other_one_is(tmp_path: Path) -> None:
    killed = set[int]()
    launchers = Sleeper(tmp_path, None, killed)
    of_journal, of_call = launchers.ended("dies", (MOMENT,)), launchers.ended("killed")
    of_nothing, of_another = launchers.ended("killed", (MOMENT,)), launchers.ended("dies", ("after:created",))
    killed.add(of_call.process.pid)
    assert [launchers.death(each) for each in launchers.all] == [MOMENT, A_CALL, "", ""]
    assert [launchers.fault(each) for each in (of_journal, of_call)] == ["", ""]
    for launcher in (of_nothing, of_another):
        assert launchers.fault(launcher).startswith(f"podwright {launcher.verb} had exit code -9: begun")


def test_a_launcher_that_was_left_dies_as_the_script_has_it(tmp_path: Path) -> None:
    kills = (Kill("", 0.0, False, 0.0, "stop", MOMENT), Kill("training", 0.0, False, 0.0, "resume"))
    killed = set[int]()
    launchers = Sleeper(tmp_path, None, killed)
    life = Life(Script(1, True, kills, ()), "stand-in")
    disturbed = Disturbed.__new__(Disturbed)
    disturbed.launchers, disturbed._life, disturbed._kills, disturbed._ended_left = launchers, life, list(kills), []
    launchers.left = [launchers.ended("dies", (MOMENT,)), launchers.ended("killed"), launchers.start("sleep")]
    killed.add(launchers.left[1].process.pid)
    for _ in range(2):
        disturbed._note_deaths_of_left()
    assert life.kills == [MOMENT, A_CALL] and disturbed._kills == [kills[1]]
    assert disturbed._killed >= launchers.left[0].ended > launchers.left[0].began
    assert not launchers.left[2].ended
    launchers.end()
    assert launchers.faults_of_left() == []


def test_a_signal_that_a_launcher_does_not_hear_is_a_fault_though_it_soon_ends_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chaos_disturbing, "SAME_INSTANT_S", 0.2)
    faults, launchers = list[str](), Sleeper(tmp_path, None)
    life = cast(Any, SimpleNamespace(note=lambda *_: None, over=lambda *_: True, fault=faults.append))
    for verb, last in (("deaf", "deaf\n"), ("sleep", "begun\n")):
        launcher = launchers.start(verb)
        while not launcher.out.read_text().endswith(last):
            time.sleep(0.02)
        assert chaos_disturbing.end_by_signal(life, launcher, {"signal": "SIGHUP"})
    assert faults == ["SIGHUP did not end podwright deaf, which lived for 1 s: 0"]
