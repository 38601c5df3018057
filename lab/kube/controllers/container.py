"""One running container: a process of this machine, or a log file that is played back in its place."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.kube.controllers.logs import Log

LAUNCH = Path(__file__).with_name("launch.py")


class ProcessContainer:
    """Output goes to its log; it ends with this process."""

    def __init__(self, order: Mapping[str, Any], log: Log) -> None:
        self.pid_file, self.error_file, self.log = Path(order["pid"]), Path(order["error"]), log
        self.process = subprocess.Popen(
            [sys.executable, "-IS", str(LAUNCH), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self.process.stdin
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.close()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.log.write(line)

    def ended(self) -> int | None:
        """Its exit code; None while it runs or while its output is still read."""
        code = self.process.poll()
        if code is None or self.reader.is_alive():
            return None
        self.log.close()
        return code if code >= 0 else 128 - code

    def start_error(self) -> str:
        """Why its command was never run; "" where it was."""
        return self.error_file.read_text() if self.error_file.exists() else ""

    def wait(self) -> None:
        """Of what was killed: until nothing of it is left."""
        self.process.wait()
        self.reader.join()
        self.log.close()

    def terminate(self) -> None:
        """SIGTERM to its first process, which ignores it where it does not handle it."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.process.poll() is not None:
            return
        try:
            os.kill(int(self.pid_file.read_text()), number)
        except (FileNotFoundError, ValueError, ProcessLookupError):  # it is only just starting
            if number == signal.SIGKILL:
                self.process.kill()


class ReplayedContainer:
    """Lines of a file at a rate, or all at once; then its exit code."""

    def __init__(self, lines: Sequence[bytes], lines_per_s: float, code: int, wait_s: float, log: Log) -> None:
        self.lines, self.rate, self.code, self.wait_s, self.log = lines, lines_per_s, code, wait_s, log
        self.written, self.since, self.end = 0, time.monotonic(), None  # type: tuple[int, float, int | None]

    def ended(self) -> int | None:
        if self.end is None:
            past = time.monotonic() - self.since
            due = min(len(self.lines), int(past * self.rate)) if self.rate else len(self.lines)
            if due > self.written:
                self.log.write(b"".join(self.lines[self.written : due]))
                self.written = due
            lasts_s = (len(self.lines) / self.rate if self.rate else 0.0) + self.wait_s
            if past >= lasts_s:
                self._finish(self.code)
        return self.end

    def start_error(self) -> str:
        return ""

    def terminate(self) -> None:
        self._finish(143)

    def kill(self) -> None:
        self._finish(137)

    def _finish(self, code: int) -> None:
        if self.end is None:
            self.end = code
            self.log.close()
