"""Reads the log of a MaxText attempt once, as it grows: its steps go to metrics.jsonl, its starts and evaluations to events.jsonl.

What is noted of a log as a whole, and where reading goes on, is in attempts/N/metrics.json. A launcher that is killed between two writes
leaves that file behind the others; the log is then read from its beginning, and the records that are there already are passed over.

Lines may have the prefixes of absl, of `kubectl logs --prefix` and `--timestamps`. Of several hosts the first that reports a step counts.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from podwright import growing_file
from podwright.failures import timestamps
from podwright.recipe.advice import of_kind
from podwright.rundir import Record, RunDir, is_metric, parse_record, read_events, read_json, read_jsonl, write_json
from podwright.watch import explain
from podwright.watch.maxtext_lines import LINES, START, SetUp, Take, plain, step_line

STAGE = "maxtext"
ENVIRONMENT, EVALUATION, PROFILER = "environment", "evaluation", "profiler"
"""the events that are made of a log"""
_WAIT_S = 10.0
"""for another process that brings the steps of an attempt that has ended"""
_BLOCK = 1 << 22
_MOST_LINE = 1 << 16  # bytes; a longer line is no line of a log, and only its end is looked at
_HEAD = 48  # bytes at the beginning of a line in which its time stands
_LOOKED_AT = 1000  # lines at each end of a block in which a time is looked for
_TAIL = 8 << 20  # bytes at the end of a log in which the cause of its end is looked for
_LAST_VALUE = re.compile(rb": (?:-?[\d.]+(?:e[+-]?\d+)?|nan|inf)\s*$")
_POD = re.compile(rb"\[(pod/[^\]\s]{1,200})\] ")
_SHOWN = 200  # characters of a line
_LAST_LINES = 100
_PROFILER_LINES = (b"rofiler session st", b"rofiler session tear")


@dataclass
class LogState:
    """What is noted of a log."""

    position: int = 0
    """bytes that are read"""
    sizes: list[int] = field(default_factory=lambda: [0, 0])
    """of metrics.jsonl and events.jsonl, as the reader left them"""
    seen: int = 0
    """bytes that the log had, of which a last line without an end may be unread"""
    first_time: float | None = None
    """of any line, in seconds since 1970"""
    last_time: float | None = None
    start: int = 0
    """how many starts of the process have logged a step"""
    start_at: int = 0
    """the byte at which the first step of the last start stands"""
    restarted: bool = False
    """a start of the process has been seen, and no step of it yet"""
    last_line: str = ""
    """that reported a step"""
    last_step: int = -1
    last_loss: float | None = None
    last_step_time: float | None = None
    not_finite: int | None = None
    """the first step whose loss was NaN or infinite"""
    damaged: int = 0
    """step lines that cannot be read"""
    damaged_example: str = ""
    cut: str = ""
    """a last line that ends in the middle of a figure; it does not count"""
    host: str | None = None
    """the pod whose lines count; "" where they name none, None before the first step"""
    other_hosts: list[str] = field(default_factory=list)
    repeated: int = 0
    """lines of a step that was there already, with the same loss: of another process of the same host"""
    known: SetUp = field(default_factory=SetUp)

    @property
    def ends_not_finite(self) -> bool:
        """Whether the loss of the last step was NaN or infinite."""
        return self.not_finite is not None and self.last_loss is None


@dataclass(frozen=True)
class LogEnd:
    """The end of a log, from the first step of the last start of its process on."""

    failures: list[Record]
    """what `podwright diagnose` would say, the likeliest cause first"""
    last_lines: list[str]
    """after the last step, at most 100"""


def follow(run: RunDir, to_end: bool = False) -> None:
    """Bring what is new in the log of every attempt to the records, unless another process does it at the moment. `to_end`: another process
    is waited for, and a last line without an end counts, if it is no part of a line."""
    for number in run.attempts:
        log = run.log(number)
        state = state_of(run, number)
        if log.exists() and log.stat().st_size > (state.position if to_end else state.seen):
            with _locked(run.attempt(number) / "metrics.lock", _WAIT_S if to_end else 0.0) as ours:
                if ours:
                    _follow(run, number, to_end)


def state_of(run: RunDir, attempt: int) -> LogState:
    """What is noted of the log of an attempt; a new state where nothing is, or the file is damaged."""
    try:
        values = read_json(_state_file(run, attempt))
        return LogState(**values | {"known": SetUp(**values["known"])})
    except (LookupError, TypeError):
        return LogState()


def state_at_end(run: RunDir, attempt: int) -> LogState:
    """What would be noted of the log of an attempt once all of it is read; no record is written."""
    reader = _LogReader(attempt, state_of(run, attempt))
    for _ in _read(run.log(attempt), reader, to_end=True):
        pass
    return reader.state


def end_of(log: Path, start_at: int) -> LogEnd:
    """`start_at`: the byte at which the first step of the last start stands."""
    with log.open("rb") as f:
        f.seek(max(start_at, f.seek(0, os.SEEK_END) - _TAIL))
        tail = plain(f.read()).replace(b"\r", b"\n")
    lines = tail[tail.rfind(b"step: ") :].splitlines()[1:]
    return LogEnd(explain.stream([tail], of_kind(STAGE)), [_shown(line) for line in lines[-_LAST_LINES:]])


def _state_file(run: RunDir, attempt: int) -> Path:
    return run.attempt(attempt) / "metrics.json"


def _follow(run: RunDir, attempt: int, to_end: bool) -> None:
    state = state_of(run, attempt)
    passed_over = {run.metrics: 0, run.events: 0}
    # Another attempt has written since, or a launcher was killed before it wrote the state.
    if state.sizes != _sizes(run):
        state = LogState()
        passed_over = _written(run, attempt)
    reader = _LogReader(attempt, state)
    for records in _read(run.log(attempt), reader, to_end):
        steps = [record for record in records if "stage" in record]
        events = [record for record in records if "event" in record]
        for path, ours in ((run.metrics, steps), (run.events, events)):
            known = min(passed_over[path], len(ours))
            passed_over[path] -= known
            if new := ours[known:]:
                text = b"".join(json.dumps(record).encode() + b"\n" for record in new)
                growing_file.append(path, text, lambda line: parse_record(line) is not None)
        # A state that is behind the records would have them written twice.
        if not any(passed_over.values()):
            _note(run, attempt, state)
    if any(passed_over.values()):  # there are more records than the log has now
        _note(run, attempt, state)


def _note(run: RunDir, attempt: int, state: LogState) -> None:
    state.sizes = _sizes(run)
    write_json(_state_file(run, attempt), asdict(state))


def _written(run: RunDir, attempt: int) -> dict[Path, int]:
    """How many records of the attempt are in metrics.jsonl and in events.jsonl."""
    steps = (r for r in read_jsonl(run.metrics) if is_metric(r) and r["stage"] == STAGE)
    events = (e for e in read_events(run.events) if e["event"] in (ENVIRONMENT, EVALUATION, PROFILER))
    return {
        run.metrics: sum(r.get("attempt") == attempt for r in steps),
        run.events: sum(e.get("attempt") == attempt for e in events),
    }


def _sizes(run: RunDir) -> list[int]:
    return [path.stat().st_size if path.exists() else 0 for path in (run.metrics, run.events)]


def _read(log: Path, reader: _LogReader, to_end: bool) -> Iterator[list[Record]]:
    """The records of what is new in a log, block by block."""
    with log.open("rb") as f:
        reader.state.seen = max(f.seek(0, os.SEEK_END), reader.state.position)
        f.seek(reader.state.position)
        rest = b""
        while block := f.read(_BLOCK):
            complete, newline, rest = (rest + block).replace(b"\r", b"\n").rpartition(b"\n")
            if newline:
                yield reader.read(complete + newline)
            if len(rest) > _MOST_LINE:
                reader.state.position += len(rest) - _MOST_LINE
                rest = rest[-_MOST_LINE:]
        yield reader.read_unterminated(rest) if to_end else []


class _LogReader:
    """Makes records of the lines of a log."""

    def __init__(self, attempt: int, state: LogState):
        self.attempt = attempt
        self.state = state
        self._records = list[Record]()

    def read(self, block: bytes) -> list[Record]:
        """The records of a block that ends with a line."""
        state, self._records = self.state, []
        colored = b"\x1b" in block
        raw = block.split(b"\n")[:-1]
        lines = [plain(line) for line in raw] if colored else raw
        text = b"\n".join(lines) if colored else block
        self._times(lines)
        # What is not in a block is looked for in none of its lines.
        marks = [(mark, take) for mark, take in LINES if mark in text]
        profiler = any(mark in text for mark in _PROFILER_LINES)
        short = b"tep " in text and b": loss=" in text
        at = state.position
        for number, line in enumerate(lines):
            if b"completed " in line or (short and b": loss=" in line):
                self._step(line, at)
            for mark, take in marks:
                if mark in line:
                    self._other(line, mark, take)
            if profiler:
                self._profiler(line)
            at += len(raw[number]) + 1
        state.position += len(block)
        return self._records

    def read_unterminated(self, rest: bytes) -> list[Record]:
        """The records of a last line without an end. It may be cut: then its last figure has fewer digits than that of the line before it."""
        state, self._records = self.state, []
        state.cut = ""
        line = plain(rest)
        damaged = state.damaged
        if not line:
            return []
        self._times([line])
        if b"completed " in line and b"step: " in line:
            before = state.last_line.encode(errors="replace")
            if not _LAST_VALUE.search(line) or (before and _shape(line) != _shape(before)):
                state.cut = _shown(line)
                return []
        for mark, take in LINES:
            if mark in line:
                self._other(line, mark, take)
        self._step(line, state.position)
        if self._records or state.damaged > damaged:
            state.position += len(rest)
        return self._records

    def _other(self, line: bytes, text: bytes, take: Take) -> None:
        state = self.state
        if text in START and state.host in (None, _pod(line)):
            state.restarted = True
        with contextlib.suppress(ValueError):  # a damaged figure is as good as none
            take(line, state.known)
        for evaluation in state.known.evaluations:
            self._event(EVALUATION, _time(line), when="during", **evaluation)
        state.known.evaluations.clear()

    def _profiler(self, line: bytes) -> None:
        """An event where the profiler of the host that counts reports its start or its end, by the step that was logged before."""
        if any(mark in line for mark in _PROFILER_LINES) and _pod(line) == (self.state.host or ""):
            self._event(PROFILER, _time(line), step=self.state.last_step, start=self.state.start)

    def _event(self, name: str, seconds: float | None, **fields: Any) -> None:
        if seconds is None:
            seconds = self.state.last_step_time
        self._records.append({"event": name, "time": seconds, "attempt": self.attempt} | fields)

    def _step(self, line: bytes, at: int) -> None:
        """`at`: the byte of the log at which the line begins."""
        state = self.state
        try:
            step = step_line(line)
        except ValueError:
            state.damaged += 1
            state.damaged_example = state.damaged_example or _shown(line)
            return
        if step is None or not self._is_of_the_host(line):
            return
        number = step["step"]
        loss = step.get("loss")
        if loss is None and "loss" in step and state.not_finite is None:
            state.not_finite = number
        if number == state.last_step and not state.restarted and loss == state.last_loss:
            state.repeated += 1
            return
        seconds = _time(line)
        if seconds is None:
            seconds = state.last_step_time
        if state.restarted or number <= state.last_step or not state.start:
            state.start += 1
            state.start_at = at
            self._environment(seconds)
        record = {"stage": STAGE, "step": number, "time": seconds, "attempt": self.attempt} | step
        if state.start > 1:
            record["start"] = state.start
        self._records.append(record)
        state.restarted = False
        state.last_step, state.last_loss, state.last_step_time = number, loss, seconds
        state.last_line = line.decode(errors="replace")

    def _environment(self, seconds: float | None) -> None:
        """An event with what the lines before the first step of a start say."""
        known = self.state.known
        steps = known.settings.get("steps", "")
        facts = {
            "devices": known.devices,
            "device_kind": known.device_kind,
            "num_params": None if known.params_billion is None else round(known.params_billion * 1e9),
            "max_steps": int(steps) if steps.isdigit() else None,
            "versions": dict(known.versions),
        }
        if any(facts.values()):
            self._event(ENVIRONMENT, seconds, **facts)

    def _is_of_the_host(self, line: bytes) -> bool:
        """Whether a line is of the host whose steps came first."""
        state = self.state
        pod = _pod(line)
        if state.host is None:
            state.host = pod
        if pod != state.host and pod not in state.other_hosts:
            state.other_hosts.append(pod)
        return pod == state.host

    def _times(self, lines: list[bytes]) -> None:
        """The first and the last time of these lines."""
        state = self.state
        if state.first_time is None:
            state.first_time = _first_time(lines[:_LOOKED_AT])
        last = _first_time(lines[: -_LOOKED_AT - 1 : -1])
        if last is not None:
            state.last_time = max(state.last_time or last, last)


def _first_time(lines: list[bytes]) -> float | None:
    return next((seconds for line in lines if (seconds := _time(line)) is not None), None)


def _shown(line: bytes) -> str:
    return line.decode(errors="replace").strip()[:_SHOWN]


def _pod(line: bytes) -> str:
    """The name of the pod in `[pod/NAME/CONTAINER] `, which `kubectl logs --prefix` writes first; "" without."""
    match = _POD.match(line) if line.startswith(b"[pod/") else None
    return match[1].decode(errors="replace") if match else ""


def _time(line: bytes) -> float | None:
    """Of the stamp at the beginning of a line, after the name of a pod where it has one; None where there is none."""
    match = _POD.match(line) if line.startswith(b"[pod/") else None
    start = match.end() if match else 0
    stamp = timestamps.STAMP.search(line, start, start + _HEAD)
    if stamp is None or stamp.start() > start + 1:
        return None
    return timestamps.seconds(stamp)


def _shape(line: bytes) -> tuple[list[bytes], int]:
    """The names of the fields of a step line, and the decimals of the last one."""
    fields = line.partition(b"step: ")[2].split(b", ")
    names = [field.partition(b": ")[0] for field in fields[1:]]
    decimals = fields[-1].partition(b".")[2]
    return names, len(decimals)


@contextlib.contextmanager
def _locked(path: Path, wait_s: float) -> Iterator[bool]:
    """Whether this process has the lock, within `wait_s`."""
    until = time.monotonic() + wait_s
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        while not (ours := _try_lock(descriptor)) and time.monotonic() < until:
            time.sleep(0.05)
        yield ours
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
