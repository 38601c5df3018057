"""A storage in a bucket of Google Cloud Storage. The client library comes with the extra `gcs`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from podwright import extras
from podwright.errors import UserError
from podwright.rundir import part_of
from podwright.storage.base import Conflict, StoredObject, Versioned, patiently

T = TypeVar("T")
_TIMEOUT_S = (10.0, 60.0)  # to connect, and between two pieces of an answer
_PIECE = 32 << 20  # of an upload that can be taken up after a fault


class Bucket:
    """Needs the rights of roles/storage.objectAdmin on the bucket, and none on the bucket itself."""

    def __init__(self, url: str, patience_s: float | None = None):
        try:
            import google.cloud.storage  # noqa: F401  no method of this class works without it
        except ImportError as e:
            what = f"storage {url} needs the package google-cloud-storage"
            raise UserError(what, extras.install("gcs"), "missing-package") from e
        self.url = url.rstrip("/")
        self._patience_s = patience_s
        connect_s, answer_s = _TIMEOUT_S
        most_s = max(1.0, patience_s or answer_s)  # a request that hangs is not waited for longer than one that fails
        self._limits: dict[str, Any] = {"timeout": (min(connect_s, most_s), min(answer_s, most_s)), "retry": None}
        self._bucket_name, _, prefix = self.url.removeprefix("gs://").partition("/")
        self._prefix = f"{prefix}/" if prefix else ""

    def read(self, name: str) -> Versioned | None:
        from google.api_core.exceptions import NotFound, PreconditionFailed

        def act() -> Versioned | None:
            while True:
                blob = self._blob(name)
                try:
                    blob.reload(**self._limits)
                    generation = int(blob.generation)
                    data = blob.download_as_bytes(if_generation_match=generation, **self._limits)
                    return Versioned(data, generation)
                except NotFound:
                    return None
                except PreconditionFailed:
                    continue  # written between the two requests

        return self._patiently(act)

    def write(self, name: str, data: bytes, generation: int | None = None) -> int:
        from google.api_core.exceptions import PreconditionFailed

        def act() -> int:
            blob = self._blob(name)
            blob.upload_from_string(data, "application/octet-stream", if_generation_match=generation, **self._limits)
            return int(blob.generation)

        try:
            return self._in_bucket(act)
        except PreconditionFailed as e:
            # Of a write whose answer was lost the repetition is refused: what is there then is what was to be written.
            there = self.read(name)
            if there is not None and there.data == data and there.generation != generation:
                return there.generation
            raise Conflict(f"{self.url}/{name}") from e

    def names(self, prefix: str = "") -> list[str]:
        return self._in_bucket(lambda: sorted(map(self._name_of, self._blobs(prefix, "name"))))

    def objects(self, prefix: str = "") -> list[StoredObject]:
        def act() -> list[StoredObject]:
            blobs = self._blobs(prefix, "name,size,updated")
            return sorted(StoredObject(self._name_of(blob), blob.size, blob.updated.timestamp()) for blob in blobs)

        return self._in_bucket(act)

    def _blobs(self, prefix: str, fields: str) -> Iterator[Any]:
        blobs: Iterator[Any] = self._client.list_blobs(
            self._bucket_name,
            prefix=self._prefix + prefix,
            fields=f"items({fields}),nextPageToken",
            **self._limits,
        )
        return blobs

    def _name_of(self, blob: Any) -> str:
        return str(blob.name).removeprefix(self._prefix)

    def delete(self, name: str) -> None:
        from google.api_core.exceptions import NotFound

        def act() -> None:
            try:
                self._blob(name).delete(**self._limits)
            except NotFound:
                return

        self._patiently(act)

    def move(self, prefix: str, to: str) -> None:
        for name in self.names(prefix):
            self._patiently(lambda name=name: self._copy(name, to + name.removeprefix(prefix)))  # type: ignore[misc]
            self.delete(name)

    def _copy(self, name: str, to: str) -> None:
        """Inside the store, in as many requests as a large object needs."""
        source = self._blob(name)
        target = self._blob(to)
        token = None
        while True:
            token, _, _ = target.rewrite(source, token=token, **self._limits)
            if token is None:
                return

    def upload(self, path: Path, name: str) -> None:
        self._in_bucket(
            lambda: self._blob(name, _PIECE).upload_from_filename(str(path), "application/octet-stream", **self._limits)
        )

    def download(self, name: str, path: Path) -> None:
        from google.api_core.exceptions import NotFound

        try:
            with part_of(path) as part:
                self._patiently(lambda: self._blob(name).download_to_filename(str(part), **self._limits))
        except NotFound as e:
            raise FileNotFoundError(f"{self.url}/{name}") from e

    def _in_bucket(self, act: Callable[[], T]) -> T:
        """Of what needs no object to be there: a 404 is the bucket's."""
        from google.api_core.exceptions import NotFound

        try:
            return self._patiently(act)
        except NotFound as e:
            what = f"storage {self.url}: there is no bucket {self._bucket_name}"
            fix = f"type gcloud storage buckets create gs://{self._bucket_name}, or correct storage of the target"
            raise UserError(what, fix, "no-such-bucket") from e

    def _patiently(self, act: Callable[[], T]) -> T:
        self._client  # noqa: B018  what is wrong with the package or the login comes first, and once
        return patiently(self.url, act, self._patience_s)

    def _blob(self, name: str, chunk_size: int | None = None) -> Any:
        return self._client.bucket(self._bucket_name).blob(self._prefix + name, chunk_size=chunk_size)

    @functools.cached_property
    def _client(self) -> Any:
        from google.cloud import storage

        return patiently(
            self.url, lambda: storage.Client(project="podwright"), self._patience_s
        )  # objects need no project
