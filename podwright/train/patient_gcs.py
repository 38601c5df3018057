"""The file system behind gs:// paths of orbax and of token shards: repeats what fails for a passing reason as long as our own storages do."""

from __future__ import annotations

import asyncio
import functools
import random
import time
from typing import Any

from podwright.storage import base


def install() -> None:
    """For this process, before anything opens such a path; harmless when repeated. gcsfs itself gives up after six tries, about half a minute."""
    import fsspec

    for protocol in ("gs", "gcs"):
        fsspec.register_implementation(protocol, _patient_class(), clobber=True)


@functools.cache
def _patient_class() -> type[Any]:
    from gcsfs.core import GCSFileSystem

    class PatientFileSystem(GCSFileSystem):
        """Without a cache of listings: objects also come and go through other clients."""

        def __init__(self, *args: Any, **kwargs: Any):
            super().__init__(*args, **(kwargs | {"use_listings_cache": False}))

        async def _call(self, *args: Any, **kwargs: Any) -> Any:
            end, pause = time.monotonic() + base.PATIENCE_S, 0.5
            while True:
                try:
                    return await super()._call(*args, **kwargs)
                except Exception as e:
                    cause = base.cause_of(e)
                    left = end - time.monotonic()
                    if cause in (None, base.Cause.LOGIN) or left <= 0:
                        raise
                await asyncio.sleep(min(pause * random.uniform(0.5, 1.0), left))
                pause = min(2 * pause, base.LONGEST_PAUSE_S)

    return PatientFileSystem
