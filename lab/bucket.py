"""Google Cloud Storage's interface on this machine: gcp-storage-emulator with what it lacks (generations on downloads,
preconditions, more than one request at a time) and with faults on demand. It keeps a log of what clients sent."""

from __future__ import annotations

import contextlib
import io
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlparse

from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers import buckets, objects
from gcp_storage_emulator.server import RequestHandler, Response, Router
from gcp_storage_emulator.storage import Storage

NAME = "pod-test"


@dataclass
class Request:
    """One request of the log."""

    method: str
    path: str
    query: dict[str, str]
    object_name: str
    """"" for requests of the bucket itself"""
    status: int = 0


@dataclass
class Faults:
    """What the server does to requests before it answers them."""

    status: int = 0
    """answers with this instead of doing anything"""
    only: Callable[[Request], bool] = lambda _: True
    count: int = -1
    """how many requests it happens to; -1: all"""
    latency_s: float = 0.0
    cuts: bool = False
    """does what is asked and then closes the connection without an answer"""
    tears: bool = False
    """takes the body in, does nothing, and closes the connection: to the client an upload that is torn off"""


@dataclass
class EmulatedBucket:
    """`with EmulatedBucket() as bucket`: a bucket at `bucket.url` for processes with `bucket.environment`."""

    host: str = "127.0.0.1"
    port: int = 0
    faults: Faults = field(default_factory=Faults)
    log: list[Request] = field(default_factory=list)
    grants_bucket_get: bool = False
    """storage.buckets.get, which the role objectAdmin lacks"""

    def __enter__(self) -> EmulatedBucket:
        self._storage = Storage(use_memory_fs=True)
        buckets.create_bucket(NAME, self._storage)
        self._lock = threading.RLock()
        self._server = ThreadingHTTPServer((self.host, self.port), partial(_Handler, self._storage))
        self._server.bucket = self  # type: ignore[attr-defined]
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"gs://{NAME}"

    @property
    def environment(self) -> dict[str, str]:
        address = f"http://{self.host}:{self.port}"
        return {
            "STORAGE_EMULATOR_HOST": address,
            "TENSORSTORE_GCS_HTTP_URL": address,
            "GOOGLE_CLOUD_PROJECT": "test",
            "NO_GCE_CHECK": "true",  # no search for the credentials of a cloud machine
        }

    def content(self, name: str) -> bytes | None:
        with self._lock:
            try:
                return bytes(self._storage.get_file(NAME, name))
            except NotFound:
                return None

    def put(self, name: str, data: bytes) -> None:
        """Replaces the bytes of an object behind the clients' backs; its generation stays."""
        with self._lock:
            known = self._storage.get_file_obj(NAME, name) | {"size": len(data), "crc32c": None, "md5Hash": None}
            self._storage.create_file(NAME, name, data, objects._checksums(data, known))

    def remove(self, name: str) -> None:
        with self._lock:
            self._storage.delete_file(NAME, name)

    def names(self, prefix: str = "") -> list[str]:
        with self._lock:
            objects, _ = self._storage.get_file_list(NAME, prefix)[:2]
            return sorted(one["name"] for one in objects if one["name"].startswith(prefix))

    def take(self, handler: _Handler, method: str) -> None:
        request = _read(handler, method)
        self.log.append(request)
        fault = self.faults
        hit = fault.count != 0 and fault.only(request)
        if hit:
            fault.count -= 1
            time.sleep(fault.latency_s)
        if hit and fault.tears:
            handler.close_connection = True
            return
        if hit and fault.status:
            request.status = fault.status
            return _answer(handler, fault.status, "injected")
        with self._lock:
            if refused := self._refused(request):
                request.status = refused
                return _answer(handler, refused, "conditionNotMet")
            handler.generation = self._generation(request.object_name) if method == "GET" else ""
            if hit and fault.cuts:
                handler.wfile = _Nowhere()  # type: ignore[assignment]
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the client did not wait for the answer
                Router(handler).handle(method)
            request.status = handler.answered

    def _generation(self, name: str) -> str:
        try:
            return str(self._storage.get_file_obj(NAME, name)["generation"])
        except NotFound:
            return "0"

    def _refused(self, request: Request) -> int:
        if not self.grants_bucket_get and request.method == "GET" and request.path.endswith(f"/b/{NAME}"):
            return 403
        if not request.object_name:
            return 0
        generation = self._generation(request.object_name)
        if request.query.get("ifGenerationMatch", generation) != generation:
            return 412
        return 304 if request.query.get("ifGenerationNotMatch") == generation else 0


class _Nowhere:
    def write(self, _: bytes) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...

    closed = False


class _Handler(RequestHandler):
    generation = ""
    answered = 0
    do_GET = lambda self: self.server.bucket.take(self, "GET")  # noqa: E731
    do_POST = lambda self: self.server.bucket.take(self, "POST")  # noqa: E731
    do_PUT = lambda self: self.server.bucket.take(self, "PUT")  # noqa: E731
    do_DELETE = lambda self: self.server.bucket.take(self, "DELETE")  # noqa: E731
    do_PATCH = lambda self: self.server.bucket.take(self, "PATCH")  # noqa: E731

    def send_response(self, code: int, message: str | None = None) -> None:
        self.answered = code
        super().send_response(code, message)
        if self.generation not in ("", "0"):
            self.send_header("x-goog-generation", self.generation)


def _read(handler: _Handler, method: str) -> Request:
    """Takes the body in, whatever is answered: the name of an object that is uploaded stands in it, or in the query."""
    body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    if "Transfer-Encoding" not in handler.headers:
        handler.rfile = io.BytesIO(body)  # type: ignore[assignment]
    parts = urlparse(handler.path)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    _, _, name = unquote(parts.path).partition("/o/")
    if method == "POST" and parts.path.endswith("/o"):
        in_body = re.search(rb'"name":\s*("(?:[^"\\]|\\.)*")', body[:4096])
        name = query.get("name") or (json.loads(in_body[1]) if in_body else "")
    return Request(method, parts.path, query, name)


def _answer(handler: _Handler, status: int, reason: str) -> None:
    response = Response(handler)
    response.status = HTTPStatus(status)
    if status != 304:
        response.json({"error": {"code": status, "message": reason, "errors": [{"reason": reason}]}})
    response.close()
