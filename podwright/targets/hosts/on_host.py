"""`python -m podwright.targets.hosts.on_host check|keep|status|end ATTEMPT HOST`, on a host.

check: become the check of this host, with the variables that its processes would get. keep: leave the connection that this came by behind and see to the attempt (keeper.py). status: print the keeper's record, and what is
new in the files. end: kill what is left of it, and nothing else.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import signal
import sys
from pathlib import Path

from podwright.rundir import Record, full_disk, read_json, write_json
from podwright.targets.hosts.host_attempt import HostAttempt, boot_id, is_alive, started, sweep

MOST_BYTES = 1 << 20  # of a file in one answer


def status(place: HostAttempt, query: Record) -> Record:
    """`query`: {"from": {file: bytes that are known} or null for no files, "list": whether to list complete files}."""
    record = place.record()
    if not record:
        return {"record": None}
    answer: Record = {"record": record, "alive": is_alive(record), "rebooted": record["boot"] != boot_id()}
    answer["full_disk"] = full_disk(place.attempt)
    if query["from"] is not None:
        offsets = {name: query["from"].get(name, 0) for name in place.growing_files()}
        tails = {name: tail for name, offset in offsets.items() if (tail := _tail(place.run / name, offset))}
        answer["tails"] = {name: base64.b64encode(tail).decode() for name, tail in tails.items()}
        answer["more"] = any(len(tail) == MOST_BYTES for tail in tails.values())
    if query["list"]:
        answer["files"], answer["shipped"] = place.complete_files(), read_json(place.shipped_path)
    return answer


def end(place: HostAttempt) -> None:
    record = place.record()
    if not record or record["boot"] != boot_id():
        return
    if is_alive(record):
        os.kill(record["pid"], signal.SIGKILL)
    sweep([pid for pid, start in record["ranks"].values() if started(pid) in (start, None)])


def keep(place: HostAttempt) -> None:
    """The connection is answered once the record is there."""
    from podwright.targets.hosts.keeper import Keeper  # what every look at a host would import

    order, job = json.loads(sys.stdin.readline()), read_json(place.attempt / "job.json")
    # By which it can be asked, whatever setup did to find Python and the package.
    path = shlex.quote(os.environ.get("PYTHONPATH", ""))
    me = shlex.join([sys.executable, "-m", "podwright.targets.hosts.on_host"])
    (place.attempt / f"host-{place.host}.sh").write_text(f'PYTHONPATH={path} exec {me} "$1" "$PWD" {place.host}\n')
    if not job["shared"]:
        write_json(place.shipped_path, place.complete_files())
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
    os.environ.update(order["env"])
    keeper = Keeper(place, job, order["token"])
    keeper.write()
    os.write(writer, b".")
    os.close(writer)
    keeper.keep()


def check(place: HostAttempt) -> None:
    os.environ.update(json.loads(sys.stdin.readline())["env"])
    os.execvp("bash", ["bash", str(place.attempt / "process.sh"), str(place.host), "0", "check"])


def _tail(path: Path, since: int) -> bytes:
    with path.open("rb") as f:
        f.seek(since)
        return f.read(MOST_BYTES)


def main() -> None:
    verb = sys.argv[1]
    place = HostAttempt(Path(sys.argv[2]), int(sys.argv[3]))
    if verb == "status":
        print(json.dumps(status(place, json.loads(sys.stdin.readline()))))
    else:
        {"check": check, "keep": keep, "end": end}[verb](place)


if __name__ == "__main__":
    main()
