"""Calls of the API past all faults, over the Unix socket of the simulated cluster: for tests and for the simulated cloud."""

import http.client
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.kube.errors import ApiError

Object = dict[str, Any]


@contextmanager
def short_path(folder: Path) -> Iterator[str]:
    """Another path of a folder while the block lasts: a Unix socket's must be shorter than 108 characters, and that of a test's folder may not be."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self.socket_path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        with short_path(self.socket_path.parent) as folder:
            self.sock.connect(f"{folder}/{self.socket_path.name}")


def call_api(folder: Path, method: str, path: str, body: Object | None = None) -> Any:
    """One call over FOLDER/control.sock. Raises ApiError."""
    connection = UnixConnection(folder / "control.sock")
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    try:
        text = json.dumps(body) if body is not None else None
        connection.request(method, path, text, {"Content-Type": kind})
        response = connection.getresponse()
        answer = json.loads(response.read() or b"{}")
    finally:
        connection.close()
    if response.status >= 400:
        raise ApiError(response.status, answer.get("reason", ""), answer.get("message", ""))
    return answer
