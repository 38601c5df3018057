"""The records of a run in its storage: a sequence of numbered segments, each an object that is written once.

A segment holds what was added to metrics.jsonl, events.jsonl and samples.jsonl since the one before, at which byte, and the files
that are new or changed. Its name is created if absent, so that segments of two attempts never mix: an attempt begins with a segment
of its own, after which an earlier one finds its next name taken.
"""

from __future__ import annotations

import base64
import dataclasses
import fnmatch
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from podwright.errors import UserError
from podwright.rundir import RunDir, is_below, part_of, read_json, write_json
from podwright.storage.base import Conflict, Storage, record_in
from podwright.storage.claim import Claim, ClaimLost

PREFIX = "records/"
_GROWING = ("metrics.jsonl", "events.jsonl", "samples.jsonl", "attempts/*/devices-*.csv")
_FILES = ("evaluations/*.json", "tokenizer/*", "attempts/*/exit*.json", "attempts/*/stacks-*.txt")
_STATE = "records.json"  # in the run directory
_LARGEST = 16 << 20  # bytes that one segment takes of a growing file


@dataclasses.dataclass
class _Applied:
    """What of a storage's segments a run directory has."""

    storage: str
    segments: int = 0
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    """of growing files: the bytes that are in segments"""
    hashes: dict[str, str] = dataclasses.field(default_factory=dict)
    """of other files: the newest content in a segment"""

    def add(self, segment: dict[str, Any]) -> None:
        self.segments += 1
        self.sizes |= {name: part["at"] + len(_bytes(part["text"])) for name, part in segment["grown"].items()}
        self.hashes |= {name: _hash(base64.b64decode(text)) for name, text in segment["files"].items()}


def bring(run: RunDir, storage: Storage) -> int:
    """Apply the segments that are not in the run directory yet; how many there are. May be killed and repeated at any moment.

    What the directory has beyond the segments stays, unless a segment says otherwise.
    """
    return _bring(run, storage).segments


def _bring(run: RunDir, storage: Storage) -> _Applied:
    applied = _read_state(run, storage.url)
    before = applied.segments
    while (there := storage.read(_name(applied.segments + 1))) is not None:
        where = f"{storage.url}/{_name(applied.segments + 1)}"
        segment = record_in(there.data, where, ("grown", "files"))
        _check_names(segment, where)
        if _apply(run, segment):
            applied.add(segment)
        else:  # the directory lacks what was applied before
            assert applied.segments, f"{storage.url}/{_name(1)} does not begin at byte 0"
            applied = _Applied(storage.url)
    if applied.segments != before:
        _write_state(run, applied)
    return applied


class Recorder:
    """Writes what is new in a run directory to the storage, for the attempt that has claimed it. Safe to share among threads."""

    def __init__(self, run: RunDir, claim: Claim):
        """Bring the directory up to date, and begin with a segment of this attempt's own."""
        self._run, self._claim = run, claim
        self._lock = threading.Lock()
        while True:
            self._applied = _bring(run, claim.storage)
            try:
                return self._write({}, {})
            except ClaimLost:
                claim.check()  # if that passes, it was the last segment of an attempt that has just lost the storage

    def publish(self) -> None:
        """Write a segment with all that is new; nothing where nothing is. ClaimLost when another attempt has the storage."""
        with self._lock:
            while True:
                grown = {name: {"at": at, "text": text} for name, at, text in self._tails()}
                files = {name: base64.b64encode(data).decode() for name, data in self._changed()}
                if not grown and not files:
                    return
                self._claim.check()
                self._write(grown, files)

    def _write(self, grown: dict[str, Any], files: dict[str, str]) -> None:
        head = {"attempt": self._claim.attempt, "token": self._claim.token}
        segment = {**head, "grown": grown, "files": files}
        storage = self._claim.storage
        try:
            storage.write(_name(self._applied.segments + 1), json.dumps(segment).encode(), 0)
        except Conflict as e:
            raise ClaimLost(storage.url, self._claim.attempt, "of another start") from e
        self._applied.add(segment)
        _write_state(self._run, self._applied)

    def _tails(self) -> Iterator[tuple[str, int, str]]:
        """Of growing files the whole lines that the storage lacks: name, first byte, text."""
        for name, path in _matching(self._run, _GROWING):
            at = self._applied.sizes.get(name, 0)
            with path.open("rb") as f:
                f.seek(at)
                data = f.read(_LARGEST)
            if complete := data[: data.rfind(b"\n") + 1]:
                yield name, at, complete.decode(errors="surrogateescape")

    def _changed(self) -> Iterator[tuple[str, bytes]]:
        for name, path in _matching(self._run, _FILES):
            data = path.read_bytes()
            if self._applied.hashes.get(name) != _hash(data):
                yield name, data


def _matching(run: RunDir, patterns: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    for pattern in patterns:
        for path in sorted(run.path.glob(pattern)):
            if path.is_file() and not path.name.endswith(".part"):
                yield path.relative_to(run.path).as_posix(), path


def _check_names(segment: dict[str, Any], where: str) -> None:
    """UserError when a segment holds a file that no trainer of ours writes: whoever may write to the storage is not to write here."""
    for names, patterns in ((segment["grown"], _GROWING), (segment["files"], _FILES)):
        for name in names:
            depths = [pattern for pattern in patterns if pattern.count("/") == name.count("/")]
            if not is_below(name) or not any(fnmatch.fnmatchcase(name, pattern) for pattern in depths):
                raise UserError(
                    f"{where} holds {name}, which is no record of a run",
                    "delete that object, and check who wrote it",
                    "foreign-object",
                )


def _apply(run: RunDir, segment: dict[str, Any]) -> bool:
    """Whether the run directory has all that comes before."""
    for name, part in segment["grown"].items():
        if not _put(run.path / name, part["at"], _bytes(part["text"])):
            return False
    for name, text in segment["files"].items():
        path = run.path / name
        data = base64.b64decode(text)
        if not (path.exists() and path.read_bytes() == data):
            with part_of(path) as part:
                part.write_bytes(data)
    return True


def _put(path: Path, at: int, data: bytes) -> bool:
    """`data` at byte `at` of a file; what follows there stays if the file agrees so far. False when the file ends before `at`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    with path.open("r+b") as f:
        if f.seek(0, os.SEEK_END) < at:
            return False
        f.seek(at)
        there = f.read(len(data))
        if there == data:
            return True
        f.seek(at)
        if not data.startswith(there):
            f.truncate()
        f.write(data)
    return True


def _read_state(run: RunDir, url: str) -> _Applied:
    record = read_json(run.path / _STATE)
    return _Applied(**record) if record.get("storage") == url else _Applied(url)


def _write_state(run: RunDir, applied: _Applied) -> None:
    write_json(run.path / _STATE, dataclasses.asdict(applied))


def _name(number: int) -> str:
    return f"{PREFIX}{number:08d}.json"


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
