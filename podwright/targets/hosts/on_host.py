"""`python -m podwright.targets.hosts.on_host keep|tell|end ATTEMPT HOST`, on a host of an ssh target.

keep: leave the connection that this came by behind and see to the attempt (keeper.py). tell: print how that stands, and what is new in
the files. end: kill what is left of it, and nothing else.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from podwright.rundir import Record, write_json

MOST_BYTES = 1 << 20  # of a file in one answer
_GROWING = ("metrics.jsonl", "events.jsonl", "samples.jsonl")
_OF_THE_LAUNCHER = {
    "recipe.json",
    "plan.json",
    "profile.json",
    "journal.jsonl",
    "launcher.lock",
    "latest",
    "report",
    "trackers",
}
_NOT_WHOLE = {"attempts", "trainer.lock", *_GROWING}
_UNFINISHED = re.compile(r"\.(part|tmp|unfinished|orbax-checkpoint-tmp)")


@dataclass(frozen=True)
class HostAttempt:
    """An attempt on one host: its folder, and the host's number."""

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
        return _read(self.record_path)

    def name(self, path: Path) -> str:
        return path.relative_to(self.run).as_posix()


def tell(place: HostAttempt, asked: Record) -> Record:
    """`asked`: {"from": {file: bytes that are known} or null for no files, "list": whether to name those that are written whole}."""
    record = place.record()
    if not record:
        return {"record": None}
    told: Record = {"record": record, "alive": is_alive(record), "rebooted": record["boot"] != boot()}
    if asked["from"] is not None:
        tails = {name: new for name in _growing(place) if (new := _tail(place.run / name, asked["from"].get(name, 0)))}
        told["tails"] = {name: base64.b64encode(new).decode() for name, new in tails.items()}
        told["more"] = any(len(new) == MOST_BYTES for new in tails.values())
    if asked["list"]:
        told["files"], told["shipped"] = files(place), _read(place.shipped_path)
    return told


def files(place: HostAttempt) -> dict[str, list[int]]:
    """Size and time of all that the trainer has written whole; of other hosts than the first only what their processes said last."""
    found = [*place.attempt.glob("exit-*.json")]
    if place.host == 0:
        found += [place.attempt / "exit.json"]
        tops = [top for top in place.run.iterdir() if top.name not in _OF_THE_LAUNCHER | _NOT_WHOLE]
        found += [path for top in tops for path in (top, *top.rglob("*")) if not _UNFINISHED.search(place.name(path))]
    stamps = {}
    for path in found:
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                stamps[place.name(path)] = stamp(path)
    return stamps


def stamp(path: Path) -> list[int]:
    about = path.stat()
    return [about.st_size, about.st_mtime_ns]


def end(place: HostAttempt) -> None:
    record = place.record()
    if not record or record["boot"] != boot():
        return
    if is_alive(record):
        os.kill(record["pid"], signal.SIGKILL)
    sweep([pid for pid, began in record["ranks"].values() if started(pid) in (began, None)])


def sweep(leaders: Collection[int]) -> None:
    """Kill everything in the sessions that these processes lead, or led."""
    for path in Path("/proc").glob("[0-9]*"):
        pid = int(path.name)
        with contextlib.suppress(OSError):
            if os.getsid(pid) in leaders:
                os.kill(pid, signal.SIGKILL)


def is_alive(record: Record) -> bool:
    return bool(record["boot"] == boot() and started(record["pid"]) == record["started"])


def started(pid: int) -> int | None:
    """When, in ticks since the machine was started; None of one that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[19]) if fields[0] != "Z" else None


def boot() -> str:
    """Another one each time that the machine is started."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def keep(place: HostAttempt) -> None:
    """The connection is answered once the record is there."""
    given, job = json.loads(sys.stdin.readline()), _read(place.attempt / "job.json")
    # By which it can be asked, whatever setup did to find Python and the package.
    path, me = (
        shlex.quote(os.environ.get("PYTHONPATH", "")),
        shlex.join([sys.executable, "-m", "podwright.targets.hosts.on_host"]),
    )
    (place.attempt / f"host-{place.host}.sh").write_text(f'PYTHONPATH={path} exec {me} "$1" "$PWD" {place.host}\n')
    if not job["shared"]:
        write_json(place.shipped_path, files(place))
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        os.read(reader, 1)
        return
    os.setsid()
    os.close(reader)
    with (place.attempt / f"host-{place.host}.txt").open("ab") as out, open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.environ.update(given["env"])
    from podwright.targets.hosts.keeper import Keeper

    keeper = Keeper(place, job, given["token"])
    keeper.write()
    os.write(writer, b".")
    os.close(writer)
    keeper.keep()


def _growing(place: HostAttempt) -> list[str]:
    found = [path for pattern in ("log*.txt", "devices-*.csv", "stacks-*.txt") for path in place.attempt.glob(pattern)]
    found.append(place.attempt / f"host-{place.host}.txt")
    found += [place.run / name for name in _GROWING if place.host == 0]
    return [place.name(path) for path in found if path.is_file()]


def _tail(path: Path, since: int) -> bytes:
    with path.open("rb") as f:
        f.seek(since)
        return f.read(MOST_BYTES)


def _read(path: Path) -> Record:
    try:
        found: Record = json.loads(path.read_text())
        return found
    except (OSError, ValueError):
        return {}


def main() -> None:
    verb, place = sys.argv[1], HostAttempt(Path(sys.argv[2]), int(sys.argv[3]))
    if verb == "tell":
        print(json.dumps(tell(place, json.loads(sys.stdin.readline()))))
    else:
        {"keep": keep, "end": end}[verb](place)


if __name__ == "__main__":
    main()
