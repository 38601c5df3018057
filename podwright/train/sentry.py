"""A small process beside each trainer process: it has the stacks written of a process that cannot do that itself.

One that was stopped (SIGSTOP) runs no code, and one whose native code keeps the interpreter runs no Python. When the others end the run for it,
this one sends it the signal at which `faulthandler` writes all stacks, and SIGCONT, without which a stopped process takes no signal. A process
without others, or one that is to stop, it also ends, and writes its exit record. The standard library is all that it needs: it starts in some
30 ms and takes 10 MiB.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_SIGNAL = signal.SIGUSR2
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
_TICK_S = 0.2
_DUMP_S = 3.0  # that a continued process may take to write its stacks
_QUIET_S = 0.5  # after which it has written all
STOP_S = 30.0
"""for which a process may run no Python when it is to stop"""
_DUE = struct.Struct("d")
"""what the trainer process writes to its sentry, about once a second: the `time.monotonic()` at which it is to be woken, 0 for never"""


@contextlib.contextmanager
def posted(stacks: Path, silence_s: float, alone: bool, record: dict[str, Any]) -> Iterator[Callable[[float], None]]:
    """Gives what takes the time at which this process is to be woken (0: never), and is to be called about once a second.

    A process that has not called for `silence_s` when that time comes has its stacks appended to the file `stacks`. If it is `alone`, or was told
    to stop, it is then ended. `record`: its rank, the path of its exit record and what that advises.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with tempfile.TemporaryFile() as dump:
        faulthandler.register(_SIGNAL, file=dump, all_threads=True)
        # The interpreter writes the number of each signal there although it runs no Python.
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        settings = record | {"pid": os.getpid(), "dump": dump.fileno(), "signals": reader, "forward": before}
        settings |= {"silence_s": silence_s, "stacks": str(stacks), "alone": alone}
        argv = [sys.executable, "-S", "-P", __file__, json.dumps(settings)]
        kept = [fd for fd in (dump.fileno(), reader, before) if fd >= 0]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, pass_fds=kept)
        assert process.stdin
        pipe = process.stdin.fileno()
        os.set_blocking(pipe, False)

        def expect(due: float) -> None:
            with contextlib.suppress(OSError):  # it is gone, or was stopped too and reads nothing
                os.write(pipe, _DUE.pack(due))

        try:
            yield expect
        finally:
            signal.set_wakeup_fd(before)
            process.kill()  # before the signal means an end again
            process.wait()
            process.stdin.close()
            os.close(reader)
            os.close(writer)
            faulthandler.unregister(_SIGNAL)


def watch(settings: dict[str, Any]) -> None:
    """Until the trainer process has ended."""
    pid, silence_s, stopping = settings["pid"], settings["silence_s"], False
    due, heard = 0.0, time.monotonic()
    ticked = heard
    while os.getppid() == pid:
        ready = select.select([0, settings["signals"]], [], [], _TICK_S)[0]
        now = time.monotonic()
        if 0 in ready:
            if not (sent := os.read(0, 512 * _DUE.size)):
                return
            (due,), heard = _DUE.unpack(sent[-_DUE.size :]), now
            due = now + STOP_S if stopping else due  # the handler of the stop may be all that Python has run
        if settings["signals"] in ready:
            numbers = os.read(settings["signals"], 512)
            if settings["forward"] >= 0:
                os.write(settings["forward"], numbers)
            if any(number in _STOPS for number in numbers):
                stopping, due = True, now + STOP_S
        # This process did not run either, or a person has stopped that one.
        if now - ticked > silence_s / 2 or (settings["alone"] and due and now > due and _state(pid)[0] in "Tt"):
            due = due and max(due, now + silence_s)
        ticked = now
        if due and now > due and now - heard > silence_s:
            with contextlib.suppress(OSError):  # of a full disk: what hangs is ended all the same
                _wake(pid, settings["dump"], Path(settings["stacks"]), now - heard)
            if settings["alone"] or stopping:
                _end(settings, now - heard, stopping)
            due = 0.0


def _end(settings: dict[str, Any], silent_s: float, stopping: bool) -> None:
    """Kills the trainer process, after the record of how it ended: see train/watchdog.py."""
    where = f"rank {settings['rank']} (host {socket.gethostname()}) is in native code that lets no Python run"
    ending, detail = "STALLED", f"no step has ended for {silent_s:.0f} s: {where}"
    if stopping:
        ending, detail = "STOPPED", f"stopped before the trainer could save: {where}, for {silent_s:.0f} s"
    record = {"ending": ending, "step": None, "detail": detail, "fix": settings["fix"], "time": time.time()}
    part = Path(f"{settings['exit']}.part")
    with contextlib.suppress(OSError):
        part.write_text(json.dumps(record) + "\n")
        part.replace(settings["exit"])
        print(f"{ending}: {detail}; {settings['fix']}", flush=True)
    os.kill(settings["pid"], signal.SIGKILL)


def _wake(pid: int, dump: int, stacks: Path, silent_s: float) -> None:
    header = f"process {pid} on {socket.gethostname()} gave no sign for {silent_s:.0f} s ({_state(pid)}); where it was when it was continued:\n"
    os.kill(pid, _SIGNAL)
    os.kill(pid, signal.SIGCONT)
    until, size, since = time.monotonic() + _DUMP_S, 0, time.monotonic()
    while time.monotonic() < until and (not size or time.monotonic() - since < _QUIET_S):
        time.sleep(_QUIET_S / 10)
        if size != os.fstat(dump).st_size:
            size, since = os.fstat(dump).st_size, time.monotonic()
    text = os.pread(dump, size, 0) or b"it wrote nothing: no signal reached it\n"
    with stacks.open("ab") as f:
        f.write(header.encode() + text)


def _state(pid: int) -> str:
    """As the kernel has it: T (stopped), D (disk sleep), ..."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("State:"):
                return " ".join(line.split()[1:])
    return "state not known"


if __name__ == "__main__":
    for number in (*_STOPS, signal.SIGHUP):  # meant for the trainer
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        watch(json.loads(sys.argv[1]))
