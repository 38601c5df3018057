"""When a run hangs: a thread of every process writes down the stacks and, if nothing moves for as long again, ends it as STALLED.

A step is watched by the pace of those before it. A test or a checkpoint has no pace: it is told of after half an hour, and never ended.
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
from podwright.rundir import Ending, RunDir, write_json
from podwright.train.emit import Emitter

_PACKAGE = Path(podwright.__file__).parent
_MEETING = (
    "torch/distributed/",
    "torch/autograd/graph.py",
    "torch/cuda/",
)  # where a process waits for others, or for its GPU, which does
_STEPS = 3  # after which there is a pace: the first ones compile
Stand = dict[str, Any]
"""{rank, host, where, meets}: what the main thread of a process is at, and whether that is waiting for others"""


@dataclasses.dataclass(frozen=True)
class Patience:
    first_s: float = 1800.0
    """with what has no pace yet"""
    least_s: float = 60.0
    most_s: float = 240.0
    """unless steps are longer: stacks are to be written before collectives give up after ten minutes"""
    grace_s: float = 10.0
    """by which the others let the first process have the last word; it takes half of it to hear them"""

    def with_steps(self, seconds: Collection[float]) -> float:
        if len(seconds) < _STEPS:
            return self.first_s
        pace = statistics.median(seconds)
        return max(self.least_s, min(20 * pace, self.most_s), 3 * pace)


class Watchdog:
    def __init__(
        self,
        run: RunDir,
        emit: Emitter,
        ranks: tuple[int, int],
        notes: tuple[Callable[[str, str], None], Callable[[str], str | None]],
        patience: Patience,
    ):
        """`ranks`: this process's number, and how many there are. `notes`: tell and look up a word under a key, waiting for nobody."""
        self._run, self._emit, self._patience = run, emit, patience
        self._rank, self._size = ranks
        self._tell, self._told = notes
        self._recent: collections.deque[float] = collections.deque(maxlen=50)
        self._begun = time.monotonic()
        self._resting = False
        self._step = 0
        self._ended = threading.Event()

    @contextlib.contextmanager
    def watching(self) -> Iterator[Watchdog]:
        thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()

    def stepped(self, step: int) -> None:
        now = time.monotonic()
        self._recent.append(now - self._begun)
        self._step, self._begun = step, now

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """While something is done that has no pace."""
        self._resting, self._begun = True, time.monotonic()
        yield
        self._resting, self._begun = False, time.monotonic()

    def _watch(self) -> None:
        begun, seen = self._begun, 0.0
        while not self._ended.wait(min(1.0, self._patience.least_s / 4)):
            if begun != self._begun:  # it goes on
                begun, seen = self._begun, 0.0
            now, limit = time.monotonic(), self._limit()
            if not seen and now - begun > limit:
                seen = now  # a process that was suspended has its time to go on
                self._look(begun)
            elif seen and not self._resting and now - seen > limit + self._patience.grace_s * (self._rank > 0):
                self._end(self._look(begun))

    def _limit(self) -> float:
        return self._patience.first_s if self._resting else self._patience.with_steps(self._recent)

    def _look(self, begun: float) -> str:
        """Writes the stacks; of the first process, what all of them are at, in a line."""
        stand = {
            "rank": self._rank,
            "host": socket.gethostname(),
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
        if self._rank:
            return told([stand], 1, seconds)
        self._ended.wait(self._patience.grace_s / 2)  # for the others to say the same
        words = {n: self._told(key.format(n)) for n in range(1, self._size)}
        said = told([stand, *(json.loads(word) for word in words.values() if word)], self._size, seconds)
        stacks = f"attempts/{self._emit.attempt}/stacks-*.txt"
        self._emit.event("notice", message=f"{said}; {stacks} has the stacks")
        return said

    def _end(self, said: str) -> None:
        if self._ended.is_set():
            return
        attempt = self._emit.attempt
        fix = f"read attempts/{attempt}/stacks-*.txt, then type: podwright resume {self._run.typed}"
        print(f"{Ending.STALLED}: {said}; {fix}", flush=True)
        record = {"ending": str(Ending.STALLED), "step": self._step, "detail": said, "fix": fix, "time": time.time()}
        with contextlib.suppress(OSError):
            write_json(self._run.exit(attempt, self._rank), record)
        os._exit(1)  # the main thread waits for what does not come


def standing(innermost: FrameType) -> dict[str, Any]:
    """What a thread is at: the innermost line of this package, and the innermost of all if that is another."""
    frames: list[tuple[str, str]] = []
    frame: FrameType | None = innermost
    while frame:
        frames.append((frame.f_code.co_filename, f"{frame.f_lineno} in {frame.f_code.co_name}"))
        frame = frame.f_back
    own = next(
        (
            f"{Path(file).relative_to(_PACKAGE.parent)}:{line}"
            for file, line in frames
            if Path(file).is_relative_to(_PACKAGE)
        ),
        "",
    )
    file, line = frames[0]
    inner = "" if Path(file).is_relative_to(_PACKAGE) else f"{'/'.join(Path(file).parts[-3:])}:{line}"
    return {
        "where": ", in ".join(part for part in (own, inner) if part),
        "meets": any(m in file for file, _ in frames for m in _MEETING),
    }


def told(stands: list[Stand], size: int, seconds: float) -> str:
    """Who is elsewhere than the others, in a line: one that says nothing, one that does not wait for others, or the fewer."""
    begin = f"no step has ended for {seconds:.0f} s: "
    silent = (
        sorted(set(range(size)) - {s["rank"] for s in stands}) if size > 1 else []
    )  # a process can speak of itself alone
    groups: dict[str, list[Stand]] = {}
    for stand in stands:
        groups.setdefault(stand["where"], []).append(stand)
    if size == 1 or len(stands) < 2:
        parts = [f"rank {s['rank']} (host {s['host']}) is at {s['where']}" for s in stands]
        return begin + "; ".join(parts + [f"rank {n} gives no sign" for n in silent])
    most = max(map(len, groups.values()))
    alike = len(groups) > 1 and sum(len(g) == most for g in groups.values()) > 1
    working = [s for s in stands if not s["meets"]]
    apart = (
        working
        if 0 < len(working) < len(stands)
        else []
        if alike
        else [s for g in groups.values() if len(g) < most for s in g]
    )
    parts = [f"rank {n} gives no sign" for n in silent]
    parts += [f"rank {s['rank']} (host {s['host']}) is at {s['where']}" for s in apart]
    for where, group in groups.items():
        if rest := [str(s["rank"]) for s in group if s not in apart]:
            parts.append(f"rank{'s' * (len(rest) > 1)} {', '.join(rest)} at {where}")
    return begin + "; ".join(parts)
