"""What comes back from hosts that share no folder: the ends of files that grow as they grow, all other files when they are complete.

A file is taken when it is not as it was when it was last taken, and what a trainer has removed is removed here too. A checkpoint of many
files appears under its name only with all of them, and after the records of its steps, so that a host that is lost meanwhile leaves
no checkpoint without them. Whoever calls this holds the attempt's lock; hosts may be gathered at the same time, each by one thread.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import re
import shlex
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from podwright.rundir import RunDir, is_below, read_json, write_json
from podwright.targets.hosts.host_attempt import GROWING
from podwright.targets.hosts.transport import Host, give

_OF_PROCESSES = ("log*.txt", "host-*.txt", "devices-*.csv", "stacks-*.txt")
Stamps = dict[str, list[int]]
Ask = Callable[[dict[str, Any]], dict[str, Any]]
"""puts a question to a host's keeper"""


def known(run: RunDir, number: int) -> dict[str, int]:
    """The bytes that are here of each file that grows."""
    folder = run.attempt(number)
    logs = [f"attempts/{number}/{path.name}" for pattern in _OF_PROCESSES for path in folder.glob(pattern)]
    sizes = {}
    for name in (*GROWING, *logs):
        path = run.path / name
        if path.is_file():
            sizes[name] = path.stat().st_size
    return sizes


def ends(run: RunDir, number: int, ask: Ask, with_list: bool) -> dict[str, Any]:
    """Ask until all that was there of growing files is here; the last answer, with the list of complete files if wanted."""
    while True:
        have = known(run, number)
        answer = ask({"from": have, "list": with_list})
        for name, text in answer.get("tails", {}).items():
            if name in GROWING or re.fullmatch(
                rf"attempts/{number}/(log|log-\d+|host-\d+|devices-\d+|stacks-\d+)\.(txt|csv)", name
            ):
                _put(run.path / name, have.get(name, 0), base64.b64decode(text))
        if not answer.get("more"):
            return answer


def files(run: RunDir, number: int, host_number: int, host: Host, place: str, answer: dict[str, Any], ask: Ask) -> None:
    """Take all that is new among the files that `answer` of `ask` lists; `place` is the run's folder on the host."""
    manifest = run.attempt(number) / f"gathered-{host_number}.json"
    before: Stamps = read_json(manifest) if manifest.exists() else answer["shipped"]
    there: Stamps = answer["files"]
    new = [name for name, stamp in there.items() if before.get(name) != stamp and is_below(name)]
    taken = _take(run, number, host_number, host, place, new, ask) if new else set()
    for name in before.keys() - there.keys():
        _remove(run, name)
    present = {}
    for name, stamp in there.items():
        if name in taken or before.get(name) == stamp:
            present[name] = stamp
    write_json(manifest, present)


def _put(path: Path, at: int, data: bytes) -> None:
    path.touch()
    with path.open("r+b") as f:
        f.seek(at)
        f.write(data)


def _take(run: RunDir, number: int, host_number: int, host: Host, place: str, names: list[str], ask: Ask) -> set[str]:
    """Which of `names` have arrived."""
    staging = run.attempt(number) / f"gathering-{host_number}"
    shutil.rmtree(staging, ignore_errors=True)
    wanted = set(names)
    arrived = set()

    def read(pipe: IO[bytes]) -> None:
        with contextlib.suppress(tarfile.TarError), tarfile.open(fileobj=pipe, mode="r|") as tar:
            for member in tar:
                content = tar.extractfile(member) if member.name in wanted else None
                if content:
                    (staging / member.name).parent.mkdir(parents=True, exist_ok=True)
                    with (staging / member.name).open("wb") as f:
                        shutil.copyfileobj(content, f)
                    arrived.add(member.name)

    # 1 and 2: a file has changed or gone while it was read, and comes with the next
    command = f"cd {shlex.quote(place)} && {{ tar -cf - --null -T -; [ $? -le 2 ]; }}"
    host.stream(command, lambda pipe: give(pipe, "\0".join(names)), read)
    ends(run, number, ask, False)
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_group(name), []).append(name)
    complete = {group for group, members in groups.items() if arrived.issuperset(members)}
    for group in complete:
        _settle(staging / group, run.path / group)
    shutil.rmtree(staging, ignore_errors=True)
    return {name for group in complete for name in groups[group]}


def _group(name: str) -> str:
    """Of one name: what appears together."""
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] == "checkpoints" else name


def _settle(staged: Path, path: Path) -> None:
    if staged.is_file() or not path.exists():
        try:
            _move(staged, path)
            return
        except OSError as e:  # the thread of another host has moved its files there meanwhile
            if e.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not staged.is_dir():
                raise
    for part in staged.rglob("*"):
        if part.is_file():
            _move(part, path / part.relative_to(staged))


def _move(source: Path, path: Path) -> None:
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            source.replace(path)
            return
        except (
            FileNotFoundError,
            FileExistsError,
        ):  # the thread of another host has removed the folder, which was empty
            if not source.exists() or path.parent.is_file() or path.is_dir():
                raise


def _remove(run: RunDir, name: str) -> None:
    if not is_below(name):
        return
    path = run.path / name
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # a folder that holds more stays
        for folder in path.parents:
            if folder == run.path:
                return
            folder.rmdir()
