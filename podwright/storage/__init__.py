"""Where the checkpoints and records of a run are kept besides its directory: a folder that hosts share, or a bucket.

Layout below the URL of a run: checkpoints/, start/, records/, claim, inputs/SHA256/, and in run/ what launchers
write: recipe.json, plan.json, journal.jsonl.
"""

from __future__ import annotations

import re
import zlib

from podwright.errors import UserError
from podwright.storage.base import Storage


def open_storage(url: str, patience_s: float | None = None) -> Storage:
    """The storage at `url`: gs://BUCKET/PREFIX or a folder. UserError for other kinds of URL.

    `patience_s`: how long a failing operation is repeated; default: base.PATIENCE_S.
    """
    protocol, separator, rest = url.partition("://")
    if not separator:
        from podwright.storage.folder import Folder

        return Folder(url, patience_s)
    if protocol != "gs" or len(rest.partition("/")[0]) < 3:
        raise UserError(
            f"storage {url} is no bucket and no folder",
            "type gs://BUCKET/PREFIX, or the path of a folder",
            "unknown-storage",
        )
    from podwright.storage.bucket import Bucket

    return Bucket(url, patience_s)


def url_of_run(base: str, name: str, created: float | None) -> str:
    """Where run `name`, created at Unix time `created`, is kept below `base`: the tag tells runs of one name apart. It is TAG for None."""
    tag = "TAG" if created is None else f"{zlib.crc32(f'{name} {created!r}'.encode()):08x}"
    return f"{base.rstrip('/')}/{name}-{tag}"


def name_of_run(url: str) -> str:
    """The name of the run that is kept at `url`."""
    match = re.fullmatch(r"(.*[^.].*)-[0-9a-f]{8}", url.rstrip("/").rpartition("/")[2])
    if match is None:
        fix = "give a URL that ends with NAME-TAG, as `podwright list` shows"
        raise UserError(f"{url} is not the storage of a run", fix, "no-storage-of-a-run")
    return match[1]
