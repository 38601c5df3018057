"""What is done to the launchers, the trainer and the storage of a life, by the kinds of chaos_hazards.py."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.bucket import Faults, Request
from tests.e2e.chaos_launchers import Launcher
from tests.e2e.chaos_phases import Disturbance
from tests.e2e.chaos_script import Kill
from tests.e2e.chaos_second_run import SecondRun

if TYPE_CHECKING:
    from tests.e2e.chaos import Disturbed

Row = dict[str, Any]
Act = Callable[["Disturbed", Launcher, Row], bool]
"""whether the launcher is over by it: another one is wanted"""
BEGUN_S = 2.5
"""after which a launcher has begun, so that Ctrl-C is its own matter and not Python's"""
APART_S = 0.4
ENDS_S = 20.0
"""of a signal that ends a process"""
SAME_INSTANT_S = 2.0
"""in which a launcher may have come to another end just before the signal"""
AT_WORK = ("started", "step", "saving", "saved")
DRIVING = ("run", "resume")


def possible(life: Disturbed, what: str, launcher: Launcher) -> bool:
    """Whether there is now what is to be disturbed."""
    if what in ("bucket", "bucket refuses", "upload torn"):
        return life.bucket is not None
    if what == "trainer crashes":
        facts = life.observer.facts()
        return bool(facts) and facts[-1]["what"] in AT_WORK
    if what == "maintenance":
        return life.may_disturb()
    if what in ("second machine", "frozen, and taken over"):
        return launcher.verb in DRIVING and life.launchers.drives and life.is_published()
    if what == "launcher frozen":
        return launcher.verb in DRIVING
    if what == "Ctrl-C":
        return launcher.verb in DRIVING and time.time() - launcher.began > BEGUN_S
    if what == "SIGTERM":
        return not launcher.is_frozen()  # which hears no signal before it goes on
    return True


def fault_of_bucket(life: Disturbed, _: Launcher, how: Row) -> bool:
    """For the next requests."""
    if life.bucket:
        life.bucket.faults = Faults(status=how["status"], count=how["count"])
        life.note(Disturbance(f"bucket {how['status']}"), "bucket")
    return False


def refuse_in_bucket(life: Disturbed, _: Launcher, how: Row) -> bool:
    """For some time; of a trainer it may be the end."""
    bucket, status = life.bucket, how["status"]
    assert bucket
    bucket.faults = faults = Faults(status=status)
    before = _answered(bucket.log, status)
    life.breaks.append(time.time())

    def undo() -> int:
        faults.count = 0
        life.breaks.append(time.time())
        return _answered(bucket.log, status) - before

    life.note(Disturbance(f"bucket {status} for some time", lasts_s=how["seconds"], undo=undo), "bucket refuses")
    return False


def tear_uploads(life: Disturbed, _: Launcher, how: Row) -> bool:
    assert life.bucket
    uploads = lambda request: request.method in ("POST", "PUT", "PATCH")  # noqa: E731
    life.bucket.faults = Faults(only=uploads, **how)
    life.breaks.append(time.time())
    life.note(Disturbance("upload torn" if how.get("tears") else "upload unanswered"), "upload torn")
    return False


def freeze(life: Disturbed, launcher: Launcher, how: Row) -> bool:
    launcher.send(signal.SIGSTOP, group=how["group"])

    def go_on() -> int:
        launcher.send(signal.SIGCONT, group=how["group"])
        return 0

    kind = f"launcher frozen, meanwhile {how['meanwhile']}"
    life.note(Disturbance(kind, lasts_s=how["seconds"], undo=go_on), "launcher frozen")
    if how["meanwhile"] == "nothing":
        return False
    life.launchers.left.append(launcher)
    if how["meanwhile"] == "second machine":
        life.move()
    return True


def take_over(life: Disturbed, launcher: Launcher, how: Row) -> bool:
    life.note(Disturbance(f"second machine, first launcher {how['first']}"), "second machine")
    if how["first"] == "killed":
        launcher.kill(group=False)
    else:
        life.launchers.left.append(launcher)
    life.move()
    return True


def interrupt(life: Disturbed, launcher: Launcher, how: Row) -> bool:
    launcher.interrupted = True
    life.stops.append(time.time())
    for number in range(how["times"]):
        time.sleep(APART_S if number else 0.0)
        launcher.send(signal.SIGINT, group=how["group"])
    life.note(Disturbance(f"Ctrl-C, {how['times']} times"), "Ctrl-C")
    return False


def end_by_signal(life: Disturbed, launcher: Launcher, how: Row) -> bool:
    life.note(Disturbance(how["signal"]), "SIGTERM")
    number = signal.Signals[how["signal"]]
    launcher.send(number, group=False)
    sent = time.monotonic()
    while launcher.process.poll() is None and time.monotonic() - sent < ENDS_S:
        time.sleep(0.03)
    code, lived_s = launcher.process.poll(), time.monotonic() - sent
    if code is None or (lived_s > SAME_INSTANT_S and code not in (-number, 128 + number)):
        life.fault(f"{how['signal']} did not end podwright {launcher.verb}, which lived for {lived_s:.0f} s: {code}")
    launcher.kill(group=False)
    return life.over(launcher, Kill("", 0.0, False, 0.0, "resume"), how["signal"])


def set_clock(life: Disturbed, _: Launcher, how: Row) -> bool:
    life.clock.write_text(str(how["seconds"]))
    life.note(Disturbance(f"clock set by {how['seconds']:+.0f} s"), "clock set")
    return False


def crash(life: Disturbed, _: Launcher, how: Row) -> bool:
    Path(f"{life.environment['CHAOS_FACTS']}.crash").write_text(how["by"])
    life.breaks.append(time.time())
    life.note(Disturbance(f"trainer ended by {how['by']}"), "trainer crashes")
    return False


def start_second_run(life: Disturbed, _: Launcher, how: Row) -> bool:
    life.second = SecondRun(life.launchers, life.words, how["steps"], life.environment)
    life.note(Disturbance("second run"), "second run")
    return False


def _answered(log: list[Request], status: int) -> int:
    return sum(request.status == status for request in log)


ACTS: dict[str, Act] = {
    "bucket": fault_of_bucket,
    "bucket refuses": refuse_in_bucket,
    "upload torn": tear_uploads,
    "launcher frozen": freeze,
    "frozen, and taken over": freeze,
    "second machine": take_over,
    "Ctrl-C": interrupt,
    "SIGTERM": end_by_signal,
    "clock set": set_clock,
    "trainer crashes": crash,
    "second run": start_second_run,
}
