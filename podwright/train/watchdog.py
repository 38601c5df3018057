"""When a run hangs: a thread of every process writes down the stacks and, if nothing moves for as long again, ends it as STALLED.

A step is watched by the pace of those before it. A test or a checkpoint has no pace: it is reported after half an hour, and never ended;
neither is a step in which a process compiles, writes a trace or waits for a reward. A process that was stopped writes its stacks with the help of its sentry;
where native code lets no Python run, a run of one process is ended by its sentry.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import faulthandler
import json
import os
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import podwright
from podwright.rundir import Ending, write_json
from podwright.train import sentry
from podwright.train.emit import Emitter

_PACKAGE = Path(podwright.__file__).parent
# where a process waits for others, or for its device, which does; a jitted function that waits has no frame of its own
_MEETING = (
    "torch/distributed/",
    "torch/autograd/graph.py",
    "torch/cuda/",
    "jax/_src/array.py",
    "jax/_src/api.py",
    "jax/_src/interpreters/pxla.py",
    "jax/experimental/multihost_utils.py",
    "podwright/train/program.py",
)
# where a process does once what takes as long as it takes: it compiles, or writes the trace of a step; rewards have a limit of their own
_UNPACED = ("jax/_src/compiler.py", "podwright/train/profile.py", "podwright/train/grpo/reward_process.py")
_STEPS = 3  # after which there is a pace: the first ones compile
Stand = dict[str, Any]
"""{rank, host, where, meets, unpaced, absent_s}: what the main thread of a process is at, whether that is waiting for others or has no
pace, and for how long the process did not run at all"""


@dataclasses.dataclass(frozen=True)
class Patience:
    first_s: float = 1800.0
    """with what has no pace yet"""
    least_s: float = 60.0
    most_s: float = 240.0
    """unless steps are longer: stacks are to be written before collectives give up after ten minutes"""
    grace_s: float = 10.0
    """by which the others let the first process have the last word, which hears them meanwhile"""

    @property
    def tick_s(self) -> float:
        return min(1.0, self.least_s / 4, self.grace_s / 10)

    def wake_after_s(self, limit_s: float, rank: int) -> float:
        """From the end of the last step: when those that end the run have begun to, at most two ticks late, and still listen."""
        return 2 * limit_s + self.grace_s * (0.35 + (rank == 0))

    def with_steps(self, seconds: Collection[float]) -> float:
        if len(seconds) < _STEPS:
            return self.first_s
        pace = statistics.median(seconds)
        return max(self.least_s, min(20 * pace, self.most_s), 3 * pace)


class Watchdog:
    def __init__(
        self,
        emit: Emitter,
        ranks: tuple[int, int],
        notes: tuple[Callable[[str, str], None], Callable[[str], str | None]],
        patience: Patience,
    ):
        """`ranks`: this process's number, and how many there are. `notes`: tell and look up a word under a key, waiting for no trainer."""
        self._run, self._emit, self._patience = emit.run, emit, patience
        self._rank, self._size = ranks
        self._tell, self._look_up = notes
        self._recent: collections.deque[float] = collections.deque(maxlen=50)
        self._begun = time.monotonic()
        self._resting = False
        self._step = 0
        self._absent_s = 0.0
        self._ended = threading.Event()
        self._ending = threading.Event()

    @contextlib.contextmanager
    def watching(self) -> Iterator[Watchdog]:
        """Each process has a sentry meanwhile. A fault that comes while the run is ended as STALLED is a part of that."""
        run, attempt = self._run, self._emit.attempt
        record = {"rank": self._rank, "exit": str(run.exit(attempt, self._rank)), "fix": self._fix}
        with sentry.posted(run.stacks(attempt, self._rank), self._patience.grace_s, self._size == 1, record) as expect:
            thread = threading.Thread(target=self._watch, args=(expect,), name="watchdog", daemon=True)
            thread.start()
            try:
                yield self
            except BaseException:
                if self._ending.is_set():
                    thread.join(2 * self._patience.grace_s)  # it ends this process
                raise
            finally:
                self._ended.set()

    def stepped(self, step: int) -> None:
        now = time.monotonic()
        self._recent.append(now - self._begun)
        self._step, self._begun = step, now

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """While something is done that has no pace."""
        before = self._resting
        self._resting, self._begun = True, time.monotonic()
        try:
            yield
        finally:
            self._resting, self._begun = before, time.monotonic()

    @contextlib.contextmanager
    def pacing(self, step: int) -> Iterator[None]:
        """While steps follow each other after `step`, at a pace of their own."""
        before = self._recent, self._resting
        self._recent, self._resting = collections.deque(maxlen=50), False
        self._step, self._begun = step, time.monotonic()
        try:
            yield
        finally:
            (self._recent, self._resting), self._begun = before, time.monotonic()

    def _watch(self, expect: Callable[[float], None]) -> None:
        patience, begun, seen, ticked = self._patience, self._begun, 0.0, time.monotonic()
        while not self._ended.wait(patience.tick_s):
            now, limit = time.monotonic(), self._limit()
            if begun != self._begun:  # it goes on
                begun, seen, self._absent_s = self._begun, 0.0, 0.0
            if now - ticked > patience.grace_s:  # a process that was stopped has its time to go on
                self._absent_s, seen = now - ticked, seen and now
                self._ended.wait(0.15 * patience.grace_s)  # its sentry writes first
            if self._size == 1:  # nobody else ends this process when it runs no Python for so long
                expect(now + 2 * limit)
            else:
                expect(0.0 if self._resting else begun + patience.wake_after_s(limit, self._rank))
            if not seen and now - begun > limit:
                seen = now
                self._look(begun, patience.grace_s / 2 if self._rank == 0 else 0.0)
            elif seen and not self._resting and now - seen > limit + patience.grace_s * (self._rank > 0):
                self._ending.set()
                summary, unpaced = self._look(begun, 0.9 * patience.grace_s)
                if not unpaced:
                    self._end(summary)
                self._ending.clear()
                seen = time.monotonic()
            ticked = time.monotonic()

    def _limit(self) -> float:
        return self._patience.first_s if self._resting else self._patience.with_steps(self._recent)

    @property
    def _fix(self) -> str:
        return f"read attempts/{self._emit.attempt}/stacks-*.txt, then type: podwright resume {self._run.typed}"

    def _look(self, begun: float, listen_s: float) -> tuple[str, bool]:
        """Writes the stacks. What the processes are at that are heard of within `listen_s`, in a line, and whether one of them is at what has no pace."""
        stand = {
            "rank": self._rank,
            "host": socket.gethostname(),
            "absent_s": self._absent_s,
            **standing(sys._current_frames()[threading.main_thread().ident or 0]),
        }
        seconds = time.monotonic() - begun
        try:
            with self._run.stacks(self._emit.attempt, self._rank).open("a") as f:
                print(
                    f"nothing since {seconds:.0f} s, after step {self._step}; process {self._rank} on {stand['host']}:",
                    file=f,
                    flush=True,
                )
                faulthandler.dump_traceback(f, all_threads=True)
        except OSError as e:
            print(f"the stacks cannot be written: {e}", flush=True)
        key = f"stands/{self._step}/{{}}"
        self._tell(key.format(self._rank), json.dumps(stand))
        stands = [stand, *self._hear(key, listen_s)]
        summary = summarize(stands, self._size if listen_s else 1, seconds)
        stacks = f"attempts/{self._emit.attempt}/stacks-*.txt"
        try:
            self._emit.notice(f"{summary}; {stacks} has the stacks")
        except OSError as e:  # a full disk is no reason to let a run hang
            print(f"{summary}; the notice cannot be written: {e}", flush=True)
        return summary, any(s["unpaced"] for s in stands)

    def _hear(self, key: str, listen_s: float) -> list[Stand]:
        """What the others told under `key`: of all of them, or of those that did within `listen_s`."""
        until, words = time.monotonic() + listen_s, dict[int, str]()
        while len(words) < self._size - 1:
            for rank in set(range(self._size)) - {self._rank, *words}:
                if time.monotonic() > until:
                    return [json.loads(word) for word in words.values()]
                if word := self._look_up(key.format(rank)):
                    words[rank] = word
            if len(words) < self._size - 1 and self._ended.wait(0.2):
                break
        return [json.loads(word) for word in words.values()]

    def _end(self, summary: str) -> None:
        if self._ended.is_set():
            return
        attempt = self._emit.attempt
        print(f"{Ending.STALLED}: {summary}; {self._fix}", flush=True)
        ending = {"ending": str(Ending.STALLED), "step": self._step}
        record = ending | {"detail": summary, "fix": self._fix, "time": time.time()}
        with contextlib.suppress(OSError):
            write_json(self._run.exit(attempt, self._rank), record)
        self._emit.storage.leave(attempt, self._rank)
        os._exit(1)  # the main thread waits for what does not come


def standing(innermost: FrameType) -> dict[str, Any]:
    """What a thread is at: the innermost line of this package, and the innermost of all if that is another."""
    frames: list[tuple[str, str]] = []
    frame: FrameType | None = innermost
    while frame:
        frames.append((frame.f_code.co_filename, f"{frame.f_lineno} in {frame.f_code.co_name}"))
        frame = frame.f_back
    inner, own = "", ""
    for file, line in frames:
        if Path(file).is_relative_to(_PACKAGE):
            own = f"{Path(file).relative_to(_PACKAGE.parent)}:{line}"
            break
        inner = inner or f"{'/'.join(Path(file).parts[-3:])}:{line}"
    return {
        "where": ", in ".join(part for part in (own, inner) if part),
        "meets": any(m in file for file, _ in frames for m in _MEETING),
        "unpaced": any(u in file for file, _ in frames for u in _UNPACED),
    }


def summarize(stands: list[Stand], size: int, seconds: float) -> str:
    """In a line: the processes that give no sign or did not run, then those that wait for no other, and last the most that are alike."""
    parts = []
    if size > 1:  # a process can speak of itself alone
        parts = [f"rank {rank} gives no sign" for rank in sorted(set(range(size)) - {s["rank"] for s in stands})]
    groups: dict[tuple[bool, bool, str], list[Stand]] = {}
    for stand in stands:
        groups.setdefault((not stand["absent_s"], stand["meets"], stand["where"]), []).append(stand)
    *apart, rest = sorted(groups.items(), key=lambda item: (*item[0][:2], len(item[1])))
    for _, group in apart:
        parts += map(_named, group)
    (_, _, where), group = rest
    ranks = ", ".join(str(stand["rank"]) for stand in group)
    parts.append(f"rank{'s' * (len(group) > 1)} {ranks} at {where}")
    return f"no step has ended for {seconds:.0f} s: {'; '.join(parts)}"


def _named(stand: Stand) -> str:
    absent = f"did not run for {stand['absent_s']:.0f} s and " * bool(stand["absent_s"])
    return f"rank {stand['rank']} (host {stand['host']}) {absent}is at {stand['where']}"
