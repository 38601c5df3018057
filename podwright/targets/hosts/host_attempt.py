"""An attempt as one host sees it: its folder, the keeper's record, the processes that belong to it, and the files to send back."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from podwright.growing_file import files_below
from podwright.rundir import Record, read_json, write_json

GROWING = ("metrics.jsonl", "events.jsonl", "samples.jsonl")
_OF_THE_LAUNCHER = {
    "recipe.json",
    "plan.json",
    "profile.json",
    "journal.jsonl",
    "launcher.lock",
    "latest",
    "report",
    "trackers",
    "storage.json",
    "inputs.json",
}
_OF_THE_STORAGE = {"inputs", "records.json"}
_NOT_COMPLETE = {"attempts", "trainer.lock", *GROWING}
_UNFINISHED = re.compile(r"\.(part|tmp|unfinished|orbax-checkpoint-tmp)")


@dataclass(frozen=True)
class HostAttempt:
    attempt: Path
    host: int

    @property
    def run(self) -> Path:
        return self.attempt.parents[1]

    @property
    def record_path(self) -> Path:
        return self.attempt / f"host-{self.host}.json"

    @property
    def shipped_path(self) -> Path:
        return self.attempt / f"host-{self.host}.shipped.json"

    def log(self, process: int) -> Path:
        return self.attempt / (f"log-{process}.txt" if process else "log.txt")

    def record(self) -> Record:
        """What the keeper wrote last; empty before it did."""
        return read_json(self.record_path)

    def write_record(self, record: Record, patience_s: float = 0.0) -> None:
        """On a full disk over the old one, whose blocks it has already; nowhere once the run directory has been away for `patience_s`."""
        end = time.monotonic() + patience_s
        while not self.attempt.is_dir():
            if time.monotonic() >= end:
                return
            time.sleep(0.2)
        try:
            write_json(self.record_path, record)
        except OSError:
            with contextlib.suppress(OSError), self.record_path.open("r+") as f:
                f.write(json.dumps(record) + "\n")
                f.truncate()

    def name(self, path: Path) -> str:
        return path.relative_to(self.run).as_posix()

    def complete_files(self) -> dict[str, list[int]]:
        """Size and time of all that the trainer has finished writing; of hosts after the first only how their processes ended."""
        paths = [*self.attempt.glob("exit-*.json")]
        if self.host == 0:
            paths += [self.attempt / "exit.json"]
            tops = [
                top for top in self.run.iterdir() if top.name not in _OF_THE_LAUNCHER | _OF_THE_STORAGE | _NOT_COMPLETE
            ]
            paths += [
                path for top in tops for path in (top, *files_below(top)) if not _UNFINISHED.search(self.name(path))
            ]
        stamps = {}
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                if path.is_file():
                    stamps[self.name(path)] = stamp(path)
        return stamps

    def growing_files(self) -> list[str]:
        patterns = ("log*.txt", "devices-*.csv", "stacks-*.txt")
        paths = [path for pattern in patterns for path in self.attempt.glob(pattern)]
        paths.append(self.attempt / f"host-{self.host}.txt")
        paths += [self.run / name for name in GROWING if self.host == 0]
        return [self.name(path) for path in paths if path.is_file()]


def stamp(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]


def sweep(leaders: Collection[int]) -> None:
    """Kill everything in the sessions that these processes lead, or led."""
    for path in Path("/proc").glob("[0-9]*"):
        pid = int(path.name)
        with contextlib.suppress(OSError):
            if os.getsid(pid) in leaders:
                os.kill(pid, signal.SIGKILL)


def is_alive(record: Record) -> bool:
    return bool(record["boot"] == boot_id() and started(record["pid"]) == record["started"])


def started(pid: int) -> int | None:
    """When, in ticks since the machine was started; None of one that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[19]) if fields[0] != "Z" else None


def boot_id() -> str:
    """Another one each time that the machine is started."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
