"""What a keeper and the cloud that its host belongs to tell each other: the cloud that the machine will be taken, the keeper that a run
lives on it."""

from __future__ import annotations

import contextlib
import threading
import time
import urllib.request
from pathlib import Path

_PREEMPTED = "http://metadata.google.internal/computeMetadata/v1/instance/preempted"
_WAIT_S = 60
_AGAIN_S = 2.0


class Guest:
    """`notices`: whether the machine's metadata server tells of a preemption; `sign_of_life`: a file that is touched, or ""."""

    def __init__(self, notices: bool, sign_of_life: str):
        self.preempted = False
        self._sign = Path(sign_of_life) if sign_of_life else None
        if notices:
            threading.Thread(target=self._watch, daemon=True).start()

    def live(self) -> None:
        """To be called again and again while the attempt lives."""
        if self._sign:
            with contextlib.suppress(OSError):
                self._sign.touch()

    def _watch(self) -> None:
        """Each request carries the ETag of the last answer, so that what changed between two requests is answered at once
        (https://docs.cloud.google.com/compute/docs/metadata/querying-metadata)."""
        etag = "0"
        while not self.preempted:
            url = f"{_PREEMPTED}?wait_for_change=true&timeout_sec={_WAIT_S}&last_etag={etag}"
            try:
                request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
                with urllib.request.urlopen(request, timeout=_WAIT_S + 10) as answer:
                    self.preempted = answer.read().strip() == b"TRUE"
                    etag = answer.headers.get("ETag", "0")
            except OSError:
                time.sleep(_AGAIN_S)
