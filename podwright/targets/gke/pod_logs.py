"""Brings the logs of an attempt's pods to the directory of its run, as they grow and once they have ended.

The log of process 0 is followed by one kubectl for as long as this process lives: a cluster keeps only the newest 10 MiB of a log, and who
asks now and then misses what was before. The logs of the other processes are requested one after another by a second kubectl now and
then, so that however many pods there are take one connection more.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import IO

from podwright.rundir import Record, RunDir, read_json, write_json
from podwright.shell import Shell
from podwright.targets import alive
from podwright.targets.gke.cluster_view import has_begun, processes_of
from podwright.targets.gke.log_lines import STAMP, KeptLog, PrefixedLines, earlier, in_batches

ROUND_S = 15.0
"""between two requests of all logs, from the end of one to the beginning of the next"""
CALL_LIMIT_S = 600.0
"""of one of them"""
CLOCKS_S = 5
"""by which the clocks of two nodes may differ"""
_WAIT_S = 10.0
"""for another process that brings the logs of an attempt that has ended"""
_LAST_LINES_S = 2.0
"""for which a stream may still bring lines of a pod that has been deleted"""
_TRIES = 5
"""to bring all logs of an attempt that has ended"""
_QUEUED = 64
"""blocks that a stream may be ahead"""
_BLOCK = 1 << 16
Argv = Callable[[Sequence[str]], tuple[str, ...]]
"""gives the command line of a kubectl call"""


@dataclass(frozen=True)
class PodLog:
    """Where the log of a process is."""

    pod: str
    container: str
    process: int


def logs_of(pods: Iterable[Record], pods_per_job: int) -> tuple[PodLog, ...]:
    """The logs of pods that have begun, by their processes."""
    logs = [
        PodLog(pod["metadata"]["name"], container, number)
        for pod in pods
        if has_begun(pod)
        for container, number in processes_of(pod, pods_per_job).items()
    ]
    return tuple(sorted(logs, key=lambda log: log.process))


class LogFollower:
    """Of one attempt. `selector`: the labels of its pods."""

    def __init__(self, shell: Shell, argv: Argv, selector: str, run: RunDir, attempt: int):
        self._first = _FirstLog(shell, argv, run, attempt)
        self._others = _OtherLogs(shell, argv, selector, run, attempt)
        self._calls = 0

    def bring(self, logs: Sequence[PodLog], ended: bool = False, leaving: bool = False) -> str:
        """Bring what is new of `logs`; why not all of it could be brought, or "". `ended`: the logs are complete. `leaving`: pods are being
        deleted, and their logs with them.

        Nothing is brought while another process does it. The first call of a process looks once; from the second on it follows.
        """
        try:
            return self._bring(logs, ended, leaving)
        except OSError as e:
            return f"logs cannot be written: {e}"

    def _bring(self, logs: Sequence[PodLog], ended: bool, leaving: bool) -> str:
        self._calls += 1
        first = [log for log in logs if not log.process]
        others = [log for log in logs if log.process]
        failure = self._first.bring(first[0], self._calls > 1, ended) if first else self._first.bring_received(ended)
        if others and ended:
            return self._others.bring_rest(others) or failure
        if others and (self._calls > 1 or leaving):
            failure = self._others.follow(others, at_once=leaving) or failure
        return failure


class _FirstLog:
    """The log of process 0."""

    def __init__(self, shell: Shell, argv: Argv, run: RunDir, attempt: int):
        self._shell = shell
        self._argv = argv
        self._lock = run.attempt(attempt) / "log.lock"
        self._kept = KeptLog(run.log(attempt))
        self._stream: _Stream | None = None

    def bring(self, log: PodLog, stays: bool, ended: bool) -> str:
        """`stays`: whether this process goes on to follow the log."""
        with alive.acquired(self._lock, _WAIT_S if ended else 0.0) as ours:
            if not ours:
                return ""
            failure = ""
            if self._stream:
                self._add(self._stream.lines())
                if self._stream.alive and not ended:
                    return ""
                failure = self._stream.failure
                self._stream.close()
                self._stream = None
            if ended or not stays:
                return self._once(log, ended)
            self._stream = _Stream(self._shell, self._argv(self._words(log, "--follow")))
            return failure

    def bring_received(self, ended: bool) -> str:
        """What the stream has received of a pod that has been deleted; `ended`: to its last line."""
        with alive.acquired(self._lock, _WAIT_S if ended else 0.0) as ours:
            until = time.monotonic() + (_LAST_LINES_S if ended else 0.0)
            while ours and self._stream:
                over = not self._stream.alive
                self._add(self._stream.lines())
                self._stream = None if over else self._stream
                if time.monotonic() >= until:
                    break
                time.sleep(0.05)
        return ""

    def _once(self, log: PodLog, ended: bool) -> str:
        output = _Output(self._add)
        code, stderr = self._shell.stream(self._argv(self._words(log)), read=output.read, seconds=CALL_LIMIT_S)
        if code == 0 and ended:  # the last line of a program may have no end
            self._add([output.rest])
        return stderr.strip() if code else ""

    def _words(self, log: PodLog, *further: str) -> list[str]:
        since = earlier(self._kept.last, 1)
        words = ["logs", log.pod, f"--container={log.container}", "--timestamps", "--request-timeout=0", *further]
        return [*words, *_since(since)]

    def _add(self, lines: list[bytes]) -> None:
        self._kept.add([line for line in lines if STAMP.match(line)])


class _OtherLogs:
    """The logs of all processes but the first, by one kubectl for all."""

    def __init__(self, shell: Shell, argv: Argv, selector: str, run: RunDir, attempt: int):
        self._shell = shell
        self._argv = argv
        self._selector = selector
        self._run = run
        self._attempt = attempt
        self._state = run.attempt(attempt) / "logs.json"
        self._lock = run.attempt(attempt) / "logs.lock"
        self._kept: dict[int, KeptLog] = {}
        self._lines = PrefixedLines()
        self._thread: threading.Thread | None = None
        self._failure = ""
        self._next = 0.0

    def follow(self, logs: Sequence[PodLog], at_once: bool = False) -> str:
        """Start a round over all pods if it is time for one; why the last one has not brought everything, or ""."""
        due = at_once or time.monotonic() >= self._next
        if due and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._round_or_why, args=(logs,), daemon=True)
            self._thread.start()
        return self._failure

    def _round_or_why(self, logs: Sequence[PodLog]) -> None:
        try:
            self._round(logs, 0.0)
        except OSError as e:
            self._failure = f"logs cannot be written: {e}"

    def bring_rest(self, logs: Sequence[PodLog]) -> str:
        """Bring all that is left of pods that have ended."""
        if self._thread:
            self._thread.join()
        for _ in range(_TRIES):
            self._round(logs, _WAIT_S, ended=True)
            if not self._failure:
                break
        return self._failure

    def _round(self, logs: Sequence[PodLog], wait_s: float, ended: bool = False) -> None:
        """After a round, every line is here that was written before it began; so the next one begins with that time."""
        with alive.acquired(self._lock, wait_s) as ours:
            if not ours:
                return
            state = read_json(self._state)
            if state.get("complete"):
                return
            places = {(log.pod.encode(), log.container.encode()): log.process for log in logs}
            newest = max((self._log(log.process).last for log in logs), default=b"")
            since = str(state.get("since", "")).encode()
            words = [
                *("logs", f"--selector={self._selector}", "--all-containers", "--prefix", "--timestamps", "--tail=-1"),
                *("--ignore-errors", "--request-timeout=0", *_since(since)),
            ]
            output = _Output(lambda lines: self._add(lines, places))
            code, stderr = self._shell.stream(self._argv(words), read=output.read, seconds=CALL_LIMIT_S)
            if code == 0 and ended:
                self._add([output.rest], places)
            self._failure = stderr.strip() if code else self._lines.failure()
            if not self._failure:
                begins = max(since, earlier(newest, CLOCKS_S))
                write_json(self._state, {"since": begins.decode(), "complete": ended})
            self._next = time.monotonic() + ROUND_S

    def _add(self, lines: list[bytes], places: dict[tuple[bytes, bytes], int]) -> None:
        for process, own in self._lines.sorted(lines, places).items():
            self._log(process).add(own)

    def _log(self, process: int) -> KeptLog:
        if process not in self._kept:
            self._kept[process] = KeptLog(self._run.log(self._attempt, process))
        return self._kept[process]


class _Output:
    """What kubectl prints, which `add` gets by lines."""

    def __init__(self, add: Callable[[list[bytes]], None]):
        self._add = add
        self.rest = b""
        """what is after the last end of a line"""

    def read(self, pipe: IO[bytes]) -> None:
        for lines, self.rest in in_batches(iter(lambda: pipe.read(_BLOCK), b"")):
            self._add(lines)


class _Stream:
    """A kubectl that follows a log. It ends with the container, with a cut or, as its output is a pipe, with this process."""

    def __init__(self, shell: Shell, argv: tuple[str, ...]):
        self._blocks = queue.Queue[bytes](_QUEUED)
        self._rest = b""
        self._closed = False
        self.failure = ""
        self._thread = threading.Thread(target=self._follow, args=(shell, argv), daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def lines(self) -> list[bytes]:
        """Those that have come since the last call."""
        blocks = [self._rest, *(self._blocks.get_nowait() for _ in range(self._blocks.qsize()))]
        *lines, self._rest = b"".join(blocks).split(b"\n")
        return lines

    def close(self) -> None:
        """Take no more of it."""
        self._closed = True
        with contextlib.suppress(queue.Empty):
            while True:
                self._blocks.get_nowait()

    def _follow(self, shell: Shell, argv: tuple[str, ...]) -> None:
        with contextlib.suppress(InterruptedError):
            code, stderr = shell.stream(argv, read=self._read)
            self.failure = stderr.strip() if code else ""

    def _read(self, pipe: IO[bytes]) -> None:
        while block := pipe.read1(_BLOCK):  # type: ignore[attr-defined]
            if self._closed:
                raise InterruptedError
            self._blocks.put(block)


def _since(stamp: bytes) -> list[str]:
    return [f"--since-time={stamp.decode()}Z"] if stamp else []
