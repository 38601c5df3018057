"""The log of a container as it is kept in a run: every line once, with the time stamp of the cluster, in the order of the log.

A line is known by its stamp, which counts nanoseconds, and its text. A cluster returns lines since a second, so that each request repeats
some; a stream may be cut, and what follows its cut repeats some too. The end of the file says where to go on, whoever wrote it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z ")
_SECONDS = len("2026-11-23T07:01:41")
OVERLAP_S = 2
"""by which stamps of one container may be out of order: its two streams are stamped by two threads"""
_BATCH = 1 << 14  # lines
_OF_POD = re.compile(rb"\[pod/([^/\]\s]{1,253})/([^/\]\s]{1,63})\] ")
"""what `kubectl logs --prefix` writes before a line"""
_CUT = re.compile(
    rb"error: (?:unexpected EOF|.{0,200}(?:connection reset by peer|use of closed network connection|i/o timeout|broken pipe"
    rb"|connection refused|context deadline exceeded)|(?:http2|stream error|net/http): .{0,200})$"
)
"""an error of kubectl in the middle of a log"""
_NO_LOG = re.compile(
    rb"is waiting to start|not found|is terminated|unable to retrieve container logs|is not valid for pod"
)
"""of a container that has no log, or no longer one"""
_END_BYTES = 4 << 20
"""of a file, in which the lines of its last OVERLAP_S are"""


class KeptLog:
    """A file that lines are appended to. Whoever calls this holds the lock of the attempt's logs."""

    def __init__(self, path: Path):
        self.path = path
        self._size = -1
        self._last = b""
        self._recent = deque[tuple[bytes, int]]()
        self._known = set[int]()

    @property
    def last(self) -> bytes:
        """The newest stamp; b"" of an empty file."""
        self._read_end()
        return self._last

    def add(self, lines: list[bytes]) -> int:
        """Append those of `lines`, which have stamps and no end, that are not there yet; how many."""
        self._read_end()
        oldest = earlier(self._last, OVERLAP_S)
        new = list[bytes]()
        for line in lines:
            stamp = line[: line.find(b" ")]
            if stamp < oldest or hash(line) in self._known:
                continue
            self._remember(stamp, line)
            new.append(line)
        if new:
            text, size = b"\n".join(new) + b"\n", self._size
            self._size = -1  # where writing fails, the file says what is there
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as f:
                f.write(text)
            self._size = size + len(text)
            self._forget()
        return len(new)

    def _remember(self, stamp: bytes, line: bytes) -> None:
        key = hash(line)
        self._known.add(key)
        self._recent.append((stamp, key))
        self._last = max(self._last, stamp)

    def _forget(self) -> None:
        """What is so old that it is passed over by its stamp."""
        oldest = earlier(self._last, OVERLAP_S)
        while self._recent and self._recent[0][0] < oldest:
            self._known.discard(self._recent.popleft()[1])

    def _read_end(self) -> None:
        """Unless this object wrote it. A last line that a kill has cut off is removed: it is requested again."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if size == self._size:
            return
        self._last, self._size = b"", size
        self._recent.clear()
        self._known.clear()
        if not size:
            return
        with self.path.open("rb+") as f:
            begin = f.seek(max(0, size - _END_BYTES))
            text = f.read()
            complete = text[: text.rfind(b"\n") + 1]
            if len(complete) < len(text):
                f.truncate(begin + len(complete))
                self._size = begin + len(complete)
        lines = complete.split(b"\n")[1 if begin else 0 : -1]
        stamped = [line for line in lines if STAMP.match(line)]
        newest = max((line[: line.find(b" ")] for line in stamped), default=b"")
        oldest = earlier(newest, OVERLAP_S)
        for line in stamped:
            if (stamp := line[: line.find(b" ")]) >= oldest:
                self._remember(stamp, line)


def earlier(stamp: bytes, seconds: float) -> bytes:
    """The stamp of so many seconds before, in full seconds; b"" for b""."""
    if not stamp:
        return b""
    time = datetime.strptime(stamp[:_SECONDS].decode(), "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    return (time - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S").encode()


def in_batches(blocks: Iterable[bytes]) -> Iterator[tuple[list[bytes], bytes]]:
    """The lines of `blocks`, many at once, each time with what is after the last end of a line."""
    lines = list[bytes]()
    rest = b""
    for block in blocks:
        *complete, rest = (rest + block).split(b"\n")
        lines += complete
        if len(lines) >= _BATCH:
            yield lines, rest
            lines = []
    yield lines, rest


class PrefixedLines:
    """Tells which line of `kubectl logs --prefix --ignore-errors` is of which container, and which is none.

    Where the log of a pod is cut within a line, kubectl goes on in the same line: with the log of the next pod, or with an error.
    """

    def __init__(self) -> None:
        self._doubtful = set[int]()
        self._failure = ""

    def sorted(self, lines: Iterable[bytes], places: Mapping[tuple[bytes, bytes], int]) -> dict[int, list[bytes]]:
        """Lines without their prefixes, by process. `places`: processes by pod and container; those of others are left out."""
        by_process: dict[int, list[bytes]] = {}
        for line in lines:
            start, process = self._start(line, places)
            if process is None or self._is_cut(line[start:]):
                continue
            by_process.setdefault(process, []).append(line[start:])
        return by_process

    def failure(self) -> str:
        """Why lines may be missing since the last call, or ""."""
        failure, self._failure = self._failure, ""
        return failure

    def _start(self, line: bytes, places: Mapping[tuple[bytes, bytes], int]) -> tuple[int, int | None]:
        """Where the text of a line begins, and its process."""
        if not line.startswith(b"[pod/"):
            if line.startswith(b"error: ") and not _NO_LOG.search(line):
                self._failure = line.decode(errors="replace")
            return 0, None
        heads = [head for head in _OF_POD.finditer(line) if STAMP.match(line, head.end())]
        if not heads:
            return 0, None
        pod, container = heads[-1][1], heads[-1][2]
        return heads[-1].end(), places.get((pod, container))

    def _is_cut(self, line: bytes) -> bool:
        """Whether it ends in an error of kubectl. A line that is there again, and was not cut at the same place twice, ends so itself."""
        if not _CUT.search(line) or hash(line) in self._doubtful:
            return False
        self._doubtful.add(hash(line))
        self._failure = line[line.rfind(b"error: ") :].decode(errors="replace")
        return True
