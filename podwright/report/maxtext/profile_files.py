"""The newest profile of a run, from its output directory in a bucket or a folder to the directory of the write-up."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from podwright.errors import UserError
from podwright.rundir import Record
from podwright.storage import open_storage
from podwright.storage.base import StoredObject

PATIENCE_S = 60.0
_TRACE = re.compile(r"(?:^|/)plugins/profile/([^/.][^/]*)/[^/]+\.xplane\.pb$")


def newest(objects: list[StoredObject]) -> list[StoredObject]:
    """The traces of the profile that was written last: a file for each host."""
    stamps: dict[str, list[StoredObject]] = {}
    for each in objects:
        if match := _TRACE.search(each.name):
            stamps.setdefault(each.name[: match.end(1)], []).append(each)
    return max(stamps.values(), key=lambda files: max(each.time for each in files), default=[])


def fetch(url: str, folder: Path) -> list[str]:
    """Download the newest profile below `url` to `folder`/profile; the paths of its files there.

    UserError where the storage cannot be listed or has no profile.
    """
    storage = open_storage(url, PATIENCE_S)
    files = newest(storage.objects())
    if not files:
        what = f"{url} has no profile: no object there is named .../plugins/profile/TIME/HOST.xplane.pb"
        raise UserError(what, "give the output directory of a run with profiler=xplane, or leave --profile out")
    paths = []
    for each in files:
        match = _TRACE.search(each.name)
        assert match
        path = folder / "profile" / "plugins" / "profile" / match[1] / each.name.rpartition("/")[2]
        path.parent.mkdir(parents=True, exist_ok=True)
        storage.download(each.name, path)
        paths.append(str(path.relative_to(folder)))
    return paths


def fetched(url: str, folder: Path) -> Record:
    """What result.json says of it: {files, command, fault}. A storage that fails does not keep the write-up from being written."""
    try:
        files, fault = fetch(url, folder), ""
    except UserError as e:
        files, fault = [], str(e)
    return {"files": files, "command": f"xprof --logdir {shlex.quote(str(folder / 'profile'))}", "fault": fault}
