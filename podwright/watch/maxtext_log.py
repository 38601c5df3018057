"""Reads a MaxText log of any size in one pass: its steps as columns, and what else its lines say of the run.

Lines may have the prefixes of absl, of `kubectl logs --prefix` and `--timestamps`. Of several hosts the first that reports a step counts.
"""

from __future__ import annotations

import contextlib
import math
import operator
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from podwright.failures import timestamps
from podwright.recipe.advice import of_kind
from podwright.rundir import Record
from podwright.watch import explain
from podwright.watch.maxtext_lines import LINES, START, SetUp, Take, more_of_step, plain, plain_lines, step_line
from podwright.watch.step_table import StepTable

_MOST_LINE = 1 << 16  # bytes; a longer line is no line of a log, and only its end is looked at
_HEAD = 48  # bytes at the beginning of a line in which its time stands
_LOOKED_AT = 1000  # lines at each end of a block in which a time is looked for
_TAIL = 8 << 20  # bytes at the end of a log in which the cause of its end is looked for
_LAST_VALUE = re.compile(rb": (?:-?[\d.]+(?:e[+-]?\d+)?|nan|inf)\s*$")
_POD = re.compile(rb"\[(pod/[^\]\s]{1,200})\] ")
_MOST_SEQUENCE = 32  # bytes of a control sequence that two blocks may share
_SHOWN = 200  # characters of a line
_LAST_LINES = 100
_FIGURES = ("seconds", "tflops", "tokens", "weights", "loss")
_PROFILER = (b"rofiler session st", b"rofiler session tear")


@dataclass
class MaxTextLog:
    steps: StepTable = field(default_factory=StepTable)
    known: SetUp = field(default_factory=SetUp)
    more: dict[str, float] = field(default_factory=dict)
    """the further figures of the last step line: lm_loss, perplexity, moe_lb_loss ..."""
    failures: list[Record] = field(default_factory=list)
    """what `podwright diagnose` would say, the likeliest cause first"""
    last_lines: list[str] = field(default_factory=list)
    """after the last step, at most 100"""
    profiler_rows: list[int] = field(default_factory=list)
    """how many steps were logged when the profiler reported its start or its end"""
    num_lines: int = 0
    num_bytes: int = 0
    num_zero_bytes: int = 0
    first_time: float | None = None
    """of any line, in seconds since 1970"""
    last_time: float | None = None
    not_finite: int | None = None
    """the first step whose loss was NaN or infinite"""
    damaged: int = 0
    """step lines that cannot be read"""
    damaged_example: str = ""
    cut: str = ""
    """a last line that ends in the middle of a figure; it does not count"""
    host: str = ""
    """the pod whose lines count; "" where they name none"""
    hosts: int = 0
    """besides the one whose lines count"""
    repeated: int = 0
    """lines of a step that was there already, with the same loss: of another process of the same host"""

    @property
    def ends_not_finite(self) -> bool:
        """Whether the loss of the last step was NaN or infinite."""
        return self.not_finite is not None and not math.isfinite(self.steps.loss[len(self.steps) - 1])


def read(blocks: Iterable[bytes]) -> MaxTextLog:
    """The log in `blocks`, pieces of any size."""
    reader = _LogReader()
    for block in _uncolored(blocks):
        reader.feed(block)
    return reader.end()


def _uncolored(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The blocks without control sequences of a terminal. One that the end of a block cuts is kept for the next."""
    rest = b""
    for block in blocks:
        block, rest = rest + block, b""
        escape = block.rfind(b"\x1b", max(0, len(block) - _MOST_SEQUENCE))
        if escape >= 0 and plain(block[escape:])[:1] == b"\x1b":
            block, rest = block[:escape], block[escape:]
        yield plain(block)
    if rest:
        yield rest


class _LogReader:
    def __init__(self) -> None:
        self.log = MaxTextLog()
        self._rest = b""
        self._restarted = False
        self._source: bytes | None = None
        self._others = set[bytes]()
        self._last_line = b""
        self._last_step, self._last_loss = -1, math.nan
        self._rows = list[tuple[int, int, float, float, float, float, float, float]]()  # of the present block
        self._lines, self._base = list[bytes](), 0  # of the present block, and how many bytes were before it
        self._attempt_at = 0  # bytes before the first step of the last attempt
        self._tail = deque[bytes]()

    def end(self) -> MaxTextLog:
        log = self.log
        if self._rest:
            log.num_lines += 1
            self._last_of_file(self._rest)
            self._add_rows()
        log.hosts, log.host = len(self._others), (self._source or b"").decode(errors="replace")
        log.more = more_of_step(self._last_line)
        tail = b"".join(self._tail)
        tail = tail[max(0, self._attempt_at - (log.num_bytes - len(tail))) :]
        log.failures = explain.stream([tail], of_kind("maxtext"))
        log.last_lines = [_shown(line) for line in tail[tail.rfind(b"step: ") :].splitlines()[1:][-_LAST_LINES:]]
        return log

    def feed(self, block: bytes) -> None:
        log = self.log
        text, self._base = self._rest + block, log.num_bytes - len(self._rest)
        log.num_bytes += len(block)
        log.num_zero_bytes += block.count(0)
        self._tail.append(block)
        while sum(map(len, self._tail)) - len(self._tail[0]) > _TAIL:
            self._tail.popleft()
        text = text.replace(b"\r", b"\n")
        self._lines = lines = text.split(b"\n")
        self._rest = lines.pop()[-_MOST_LINE:]
        log.num_lines += len(lines)
        self._times(lines)
        if self._plain_steps(text[: text.rfind(b"\n") + 1], lines):
            return
        # What is not in a block is looked for in none of its lines.
        wanted = [(mark, take) for mark, take in LINES if mark in text]
        profiler = any(mark in text for mark in _PROFILER)
        short = b"tep " in text and b": loss=" in text
        for number, line in enumerate(lines):
            if b"completed " in line or (short and b": loss=" in line):
                self._step(line, number)
            for mark, take in wanted:
                if mark in line:
                    self._other(line, mark, take)
            if profiler and any(mark in line for mark in _PROFILER) and _pod(line) == (self._source or b""):
                log.profiler_rows.append(len(log.steps) + len(self._rows))
        self._add_rows()

    def _plain_steps(self, text: bytes, lines: list[bytes]) -> bool:
        """Whether all lines of a block are steps that follow those before, of a host without a name; they are added at once."""
        if self._restarted or self._source != b"" or not (rows := plain_lines(text, len(lines))):
            return False
        minutes, of_minute, steps, *figures = zip(*rows, strict=True)
        numbers = [self._last_step, *map(int, steps)]
        try:
            begun_s = {minute: timestamps.glog_minute(minute) for minute in {*minutes}}
            columns = [list(map(float, figure)) for figure in figures]
        except ValueError:
            return False
        if not all(map(operator.lt, numbers, numbers[1:])) or not all(map(math.isfinite, columns[-1])):
            return False
        times = (begun_s[minute] + float(second) for minute, second in zip(minutes, of_minute, strict=True))
        self.log.steps.extend(numbers[1:], **dict(zip(_FIGURES, columns, strict=True)), time=times)
        self._last_line, self._last_step, self._last_loss = lines[-1], numbers[-1], columns[-1][-1]
        return True

    def _add_rows(self) -> None:
        self.log.steps.add(self._rows)
        self._rows.clear()

    def _other(self, line: bytes, text: bytes, take: Take) -> None:
        if text in START and self._source in (None, _pod(line)):
            self._restarted = True
        with contextlib.suppress(ValueError):  # a damaged figure is as good as none
            take(line, self.log.known)

    def _step(self, line: bytes, number: int) -> None:
        """`number`: of the line in its block."""
        log = self.log
        try:
            parsed = step_line(line)
        except ValueError:
            log.damaged += 1
            log.damaged_example = log.damaged_example or _shown(line)
            return
        if parsed is None or not self._is_of_the_host(line):
            return
        step, loss = parsed[0], parsed[-1]
        if not math.isfinite(loss) and b"loss: " in line and log.not_finite is None:
            log.not_finite = step
        if step == self._last_step and not self._restarted and _same(loss, self._last_loss):
            log.repeated += 1
            return
        if self._restarted or step <= self._last_step or not self._last_line:
            log.steps.starts.append(len(log.steps) + len(self._rows))
            self._attempt_at = self._base + sum(len(each) + 1 for each in self._lines[:number])
        self._rows.append((*parsed, _time(line)))
        self._restarted, self._last_line, self._last_step, self._last_loss = False, line, step, loss

    def _is_of_the_host(self, line: bytes) -> bool:
        """Whether a line is of the host whose steps came first."""
        pod = _pod(line)
        if self._source is None:
            self._source = pod
        if pod != self._source:
            self._others.add(pod)
        return pod == self._source

    def _last_of_file(self, line: bytes) -> None:
        """A line without an end may be cut: then its last figure has fewer digits than that of the line before it."""
        self._times([line])
        if b"completed " in line and b"step: " in line:
            if not _LAST_VALUE.search(line) or (self._last_line and _shape(line) != _shape(self._last_line)):
                self.log.cut = _shown(line)
            else:
                self._step(line, len(self._lines))
            return
        for text, take in LINES:
            if text in line:
                self._other(line, text, take)
        self._step(line, len(self._lines))

    def _times(self, lines: list[bytes]) -> None:
        """The first and the last time of these lines."""
        log = self.log
        if log.first_time is None:
            log.first_time = next((t for line in lines[:_LOOKED_AT] if not math.isnan(t := _time(line))), None)
        last = next((t for line in lines[: -_LOOKED_AT - 1 : -1] if not math.isnan(t := _time(line))), None)
        if last is not None:
            log.last_time = max(log.last_time or last, last)


def _shown(line: bytes) -> str:
    return line.decode(errors="replace").strip()[:_SHOWN]


def _pod(line: bytes) -> bytes:
    """The name of the pod in `[pod/NAME/CONTAINER] `, which `kubectl logs --prefix` writes first; b"" without."""
    match = _POD.match(line) if line.startswith(b"[pod/") else None
    return match[1] if match else b""


def _time(line: bytes) -> float:
    """Of the stamp at the beginning of a line, after the name of a pod where it has one; NaN where there is none."""
    pod = _pod(line)
    start = len(b"[] ") + len(pod) if pod else 0
    stamp = timestamps.STAMP.search(line, start, start + _HEAD)
    if stamp is None or stamp.start() > start + 1:
        return math.nan
    seconds = timestamps.seconds(stamp)
    return math.nan if seconds is None else seconds


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def _shape(line: bytes) -> tuple[list[bytes], int]:
    """The names of the fields of a step line, and the decimals of the last one."""
    fields = line.partition(b"step: ")[2].split(b", ")
    return [part.partition(b": ")[0] for part in fields[1:]], len(fields[-1].partition(b".")[2])
