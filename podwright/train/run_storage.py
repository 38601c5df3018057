"""Where the checkpoints and start weights of a run are, and what happens before a save of them counts. Knows nothing of jax."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from podwright.errors import UserError
from podwright.rundir import RunDir, numbers, read_events, write_json
from podwright.storage import open_storage, process_files
from podwright.storage.base import COMMITTED, Storage, StorageFailure
from podwright.storage.claim import NAME, Claim, gone
from podwright.storage.folder import Folder
from podwright.storage.records import Recorder

LEAVE_S = 5.0
"""that a process which has ended waits for the storage"""


class RunStorage:
    """A run's own directory, or the storage at `url`. `gathered`: only the first process writes and reads, for the others."""

    def __init__(self, run: RunDir, url: str = "", gathered: bool = False):
        self.root = url or str(run.path.resolve())
        self.url = url
        self.gathered = gathered
        self._storage: Storage | None = open_storage(url) if url else None
        self._bucket = self._storage if url.startswith("gs://") else None
        self._claim: Claim | None = None
        self._recorder: Recorder | None = None
        self.run = run

    @classmethod
    def of(cls, run: RunDir) -> RunStorage:
        """To read from, as the run directory says where it is."""
        return cls(run, run.storage_url)

    @property
    def in_bucket(self) -> bool:
        return self._bucket is not None

    def claim(self, attempt: int, allocation: str, takeover: bool) -> None:
        """In the first process, before it reads or writes anything else of the run: records of earlier attempts come with it.

        StorageFailure where checkpoints were saved and no attempt has left its claim: an empty folder is there, as of a disk not mounted.
        """
        if self._storage is None:
            return
        saved = any(e["event"] == "checkpoint" for e in read_events(self.run.events))
        if saved and self._storage.read(NAME) is None:
            raise gone(self.url)
        self._claim = Claim.take(self._storage, attempt, allocation, takeover)
        self._recorder = Recorder(self.run, self._claim)

    def failure(self) -> StorageFailure | None:
        """Why what a trainer does in a folder fails, if the folder is gone."""
        lost = self._storage and not self._bucket and not os.path.isdir(self._storage.url)
        return gone(self.url) if lost else None

    def check(self) -> None:
        """ClaimLost if another attempt has the storage."""
        if self._claim:
            self._claim.check()

    def publish(self) -> None:
        """Records that are new go to the storage; before a save is committed, so that none is missing for its steps. In the first
        process; the others have none."""
        self.check()
        if self._recorder:
            self._recorder.publish()

    def finish(self) -> None:
        """The last records, and the storage is free for the next attempt."""
        if self._claim:
            self.publish()
            self._claim.release()
            self._claim = self._recorder = None

    def leave(self, attempt: int, process: int) -> None:
        """What is left to say when a process ends, within LEAVE_S: its files, and the last records of the first process."""
        if self._storage:
            faults: list[UserError] = []
            thread = threading.Thread(target=self._leave, args=(self._storage, attempt, process, faults), daemon=True)
            thread.start()
            thread.join(LEAVE_S)
            for fault in faults:  # a thread that is late finds nobody who reads
                print(f"files of process {process} are not in the storage: {fault}", flush=True)

    def _leave(self, storage: Storage, attempt: int, process: int, faults: list[UserError]) -> None:
        try:
            self.publish()
            process_files.leave(self.run, storage, attempt, process)
        except UserError as e:
            faults.append(e)

    def path(self, name: str) -> Path | None:
        """Of a tree or file here; None in a bucket."""
        return None if self._bucket else Path(self.root, name)

    def exists(self, name: str) -> bool:
        """Whether a tree was saved under `name` and committed."""
        if self._bucket:
            return self._bucket.read(f"{name}/{COMMITTED}") is not None
        return Path(self.root, name).exists()

    def steps(self) -> list[int]:
        """Of committed checkpoints, ascending."""
        if self._bucket:
            return numbers(set(self._bucket.names("checkpoints/")), f"checkpoints/{{}}/{COMMITTED}".format)
        return self.steps_in_folder("checkpoints/{}".format)

    def steps_in_folder(self, name: Callable[[int], str]) -> list[int]:
        """Returns in ascending order the steps of the checkpoints in the folder of checkpoints, whose paths `name` gives; [] where nothing was
        saved yet. OSError where it cannot be looked into, UserError where it, or one of them, is on a disk that is not there."""
        folder = Path(self.root, "checkpoints")
        steps = list[int]()
        with contextlib.suppress(FileNotFoundError):
            steps = numbers({f"checkpoints/{each}" for each in os.listdir(folder)}, name)
        for path in (folder, *(Path(self.root, name(step)) for step in steps)):
            if path.is_symlink() and not path.exists():
                what = f"{path} is a link to {path.readlink()}, which is not there"
                raise UserError(what, f"mount its disk, then type: podwright resume {self.run.typed}", "dead-link")
        return steps

    def clear(self, name: str) -> None:
        """Remove what is left of a tree, or all of it; what says that it is committed goes first."""
        if self._bucket:
            self._bucket.delete(f"{name}/{COMMITTED}")
            for each in self._bucket.names(f"{name}/"):
                self._bucket.delete(each)
        else:
            shutil.rmtree(Path(self.root, name), ignore_errors=True)

    def put_aside(self, name: str) -> None:
        """Give a tree the name NAME.damaged, under which nothing looks for it."""
        self.clear(f"{name}.damaged")
        if self._bucket:
            self._bucket.delete(f"{name}/{COMMITTED}")
            self._bucket.move(f"{name}/", f"{name}.damaged/")
        else:
            Path(self.root, name).rename(Path(self.root, f"{name}.damaged"))

    def make(self) -> None:
        """The folder of a storage that is one."""
        if isinstance(self._storage, Folder):
            self._storage.make()


@dataclasses.dataclass
class AttemptStart:
    """What a trainer is started with, and the storage that it then has."""

    number: int
    url: str = ""
    allocation: str = ""
    takeover: bool = False
    """whether the launcher knows that no process of an earlier attempt is left"""
    storage: RunStorage | None = None
    trained: Callable[[], bool] = lambda: False
    """whether a step of the attempt has ended, so that a stop has something to save"""

    def finish(self, process: int) -> None:
        """Of every process, after its exit record."""
        if self.storage:
            self.storage.finish()
            self.storage.leave(self.number, process)


def remember(run: RunDir, url: str) -> None:
    """Write down in the run directory where the run is kept. UserError when it is kept elsewhere already."""
    if run.storage_url not in ("", url):
        raise UserError(
            f"run {run.name} is kept in {run.storage_url}, not in {url}",
            f"type --storage {run.storage_url}",
            "other-storage",
        )
    if url and not run.storage_url:
        write_json(run.storage, {"url": url})
