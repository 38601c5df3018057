"""The log of a container as a node keeps it: a line is `TIME stdout F TEXT`; a file that has grown too large is set aside."""

import time
from datetime import UTC, datetime
from pathlib import Path

LONGEST = 16384  # characters of a line that the runtime writes in one piece


class Log:
    """Written by the one thread that reads the container's output."""

    def __init__(self, at: Path, largest_bytes: int) -> None:
        at.parent.mkdir(parents=True, exist_ok=True)
        self.at, self.largest_bytes = at, largest_bytes
        self.file = at.open("ab", buffering=0)
        self.size = at.stat().st_size
        self.last_ns = 0

    def write(self, text: bytes) -> None:
        """Whole lines, the last one perhaps without its end."""
        parts = []
        for line in text.splitlines():
            pieces = [line[start : start + LONGEST] for start in range(0, len(line), LONGEST)] or [b""]
            for number, piece in enumerate(pieces, 1):
                tag = b"F" if number == len(pieces) else b"P"
                parts.append(self.stamp() + b" stdout " + tag + b" " + piece + b"\n")
        data = b"".join(parts)
        self.file.write(data)
        self.size += len(data)
        if self.size > self.largest_bytes:
            self.rotate()

    def stamp(self) -> bytes:
        """Later than that of the line before."""
        self.last_ns = max(time.time_ns(), self.last_ns + 1)
        seconds, rest = divmod(self.last_ns, 1_000_000_000)
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z".encode()

    def rotate(self) -> None:
        """Set the log aside: what it holds is no longer what `kubectl logs` reads."""
        self.file.close()
        aside = self.at.with_name(f"{self.at.name}.{datetime.now(UTC):%Y%m%d-%H%M%S.%f}")
        self.at.rename(aside)
        self.file, self.size = self.at.open("ab", buffering=0), 0

    def close(self) -> None:
        self.file.close()
