"""A notice of preemption that comes while the keeper is between two requests to the metadata server."""

import json
import socket
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from lab.host import serve_metadata
from podwright.targets.hosts import guest


def test_a_notice_between_two_requests_is_not_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    values, opened = tmp_path / "metadata.json", urllib.request.urlopen
    values.write_text(json.dumps({"instance/preempted": "FALSE"}))
    threading.Thread(target=serve_metadata, args=(str(values), ("127.0.0.1", port)), daemon=True).start()
    monkeypatch.setattr(guest, "_PREEMPTED", f"http://127.0.0.1:{port}/computeMetadata/v1/instance/preempted")
    monkeypatch.setattr(guest, "_AGAIN_S", 0.1)
    answers: list[Any] = []

    def urlopen(request: urllib.request.Request, timeout: float) -> Any:
        if answers:
            values.write_text(json.dumps({"instance/preempted": "TRUE"}))
        answers.append(opened(request, timeout=timeout))
        return answers[-1]

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    keeper, limit = guest.Guest(True, ""), time.monotonic() + 30
    while not keeper.preempted:
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert len(answers) == 2
