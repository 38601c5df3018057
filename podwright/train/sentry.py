"""A small process beside each of several trainer processes: it has the stacks written of a process that cannot do that itself.

One that was stopped (SIGSTOP) runs no code, and one whose native code keeps the interpreter runs no Python. When the others end the run for it,
this one sends it the signal at which `faulthandler` writes all stacks, and SIGCONT, without which a stopped process takes no signal. The
standard library is all that it needs: it starts in some 30 ms and takes 10 MiB.
"""

from __future__ import annotations

import contextlib
import faulthandler
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

_SIGNAL = signal.SIGUSR2
_TICK_S = 0.2
_DUMP_S = 3.0  # that a continued process may take to write its stacks
_QUIET_S = 0.5  # after which it has written all
_DUE = struct.Struct("d")
"""what the trainer process writes to its sentry, about once a second: the `time.monotonic()` at which it is to be woken, 0 for never"""


@contextlib.contextmanager
def posted(stacks: Path, silence_s: float) -> Iterator[Callable[[float], None]]:
    """Gives what takes the time at which this process is to be woken (0: never), and is to be called about once a second.

    A process that has not called for `silence_s` when that time comes has its stacks appended to the file `stacks`.
    """
    with tempfile.TemporaryFile() as dump:
        faulthandler.register(_SIGNAL, file=dump, all_threads=True)
        argv = [sys.executable, "-S", "-P", __file__, *map(str, (os.getpid(), dump.fileno(), silence_s, stacks))]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, pass_fds=[dump.fileno()])
        assert process.stdin
        pipe = process.stdin.fileno()
        os.set_blocking(pipe, False)

        def expect(due: float) -> None:
            with contextlib.suppress(OSError):  # it is gone, or was stopped too and reads nothing
                os.write(pipe, _DUE.pack(due))

        try:
            yield expect
        finally:
            process.kill()  # before the signal means an end again
            process.wait()
            process.stdin.close()
            faulthandler.unregister(_SIGNAL)


def watch(pid: int, dump: int, silence_s: float, stacks: Path) -> None:
    """Until the trainer process `pid` has ended."""
    due, heard = 0.0, time.monotonic()
    while os.getppid() == pid:
        if select.select([0], [], [], _TICK_S)[0]:
            words = os.read(0, 512 * _DUE.size)
            if not words:
                return
            (due,), heard = _DUE.unpack(words[-_DUE.size :]), time.monotonic()
        now = time.monotonic()
        if due and now > due and now - heard > silence_s:
            _wake(pid, dump, stacks, now - heard)
            due = 0.0


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
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):  # meant for the trainer
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        watch(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]))
