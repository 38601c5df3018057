"""The newest profile of a run, from its output directory in a bucket or a folder to the directory of the write-up."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from podwright.errors import UserError
from podwright.rundir import Record
from podwright.storage import open_storage
from podwright.storage.base import StoredObject

PATIENCE_S = 60.0
_TRACE = re.compile(r"(?:^|/)plugins/profile/([^/.][^/]*)/[^/]+\.xplane\.pb$")


def newest(objects: Iterable[StoredObject]) -> tuple[str, list[StoredObject]]:
    """The time and the traces of the profile that was written last: a file for each host."""
    profiles: dict[str, tuple[str, list[StoredObject]]] = {}
    for each in objects:
        if match := _TRACE.search(each.name):
            profiles.setdefault(each.name[: match.end(1)], (match[1], []))[1].append(each)
    if not profiles:
        return "", []
    return max(profiles.values(), key=lambda profile: max(each.time for each in profile[1]))


def fetch(url: str, folder: Path) -> list[str]:
    """Download the newest profile below `url` to `folder`/profile; the paths of its files there.

    UserError where the storage cannot be listed or has no profile.
    """
    storage = open_storage(url, PATIENCE_S)
    time, files = newest(storage.objects())
    if not files:
        what = f"{url} has no profile: no object there is named .../plugins/profile/TIME/HOST.xplane.pb"
        raise UserError(
            what, "give the output directory of a run with profiler=xplane, or leave --profile out", "no-profile"
        )
    paths = []
    for each in files:
        path = Path("profile", "plugins", "profile", time, each.name.rpartition("/")[2])
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        storage.download(each.name, folder / path)
        paths.append(str(path))
    return paths


def fetched(url: str, folder: Path) -> Record:
    """What result.json says of it: {files, command, fault}. A storage that fails does not keep the write-up from being written."""
    try:
        files, fault = fetch(url, folder), ""
    except UserError as e:
        files, fault = [], str(e)
    return {"files": files, "command": f"xprof --logdir {shlex.quote(str(folder / 'profile'))}", "fault": fault}
