"""A run that is kept in a storage, seen from a launcher: what it puts there, what it brings from there, and runs of other machines.

A run that was fetched is observed: its journal is the storage's, and nothing is done about it until somebody takes it over.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
from pathlib import Path

from podwright.errors import UserError, expanded
from podwright.recipe import paths
from podwright.run import journal
from podwright.run.journal import RunState
from podwright.rundir import RunDir, recipe_of, write_json
from podwright.storage import inputs, name_of_run, open_storage, process_files, records, url_of_run
from podwright.storage.base import Conflict, Storage, StorageFailure, Versioned
from podwright.storage.claim import gone

_GIVEN = ("recipe.json", "plan.json", "profile.json", inputs.LIST)  # the last may change, the others never do
PATIENCE_S = 5.0  # of a launcher with a storage that fails, while an attempt runs
END_PATIENCE_S = 60.0  # when it has ended: its ending depends on what it left there
LOOK_PATIENCE_S = 2.0  # of a verb that shows what is here
CHECK_EVERY_S = 60.0  # whether another machine has gone on with the run, when nothing new is to be published
_FOLDER = "run/"  # of the files that a launcher writes: a storage in a folder is not to look like a run directory
_JOURNAL = f"{_FOLDER}journal.jsonl"


class DrivenElsewhere(UserError):
    """Another machine has gone on with the run."""

    def __init__(self, run: RunDir):
        fix = f"type podwright watch {run.storage_url}; if that machine is gone, then type podwright resume {run.typed}"
        super().__init__(
            f"run {run.name} was continued from another machine, and can only be observed here", fix, "driven-elsewhere"
        )


class KeptRun:
    """The storage of one run as a launcher uses it, by one client. Does nothing for a run that is kept in its directory."""

    def __init__(self, run: RunDir, patience_s: float = PATIENCE_S):
        self._run = run
        self._patience_s = patience_s
        self._storage: Storage | None = None
        self._published = 0, -CHECK_EVERY_S  # bytes of the journal, and when

    def bring(self, ended_attempt: int = 0) -> str:
        """Bring what is new, and publish the journal, or bring that of a run which is observed; what went wrong, or "".

        `ended_attempt`: whose processes have left their files there. DrivenElsewhere.
        """
        if not (url := self._run.storage_url):
            return ""
        storage = open_storage(url, END_PATIENCE_S) if ended_attempt else self._open(url)
        try:
            if observes(self._run):
                _bring_all(self._run, storage)
                return ""
            records.bring(self._run, storage)
            if ended_attempt:
                process_files.bring(self._run, storage, ended_attempt)
        except UserError as e:  # whoever drives the run deletes its machines whatever is wrong with the storage
            if observes(self._run) and not isinstance(e, StorageFailure):
                raise
            return f"{e.what}; {e.fix}"
        return self.publish()

    def publish(self, always: bool = False) -> str:
        """Put the journal there; what went wrong, or "". DrivenElsewhere.

        `always`: look at the storage even if nothing is new here and it was looked at less than CHECK_EVERY_S ago.
        """
        if not (url := self._run.storage_url):
            return ""
        if observes(self._run):
            raise DrivenElsewhere(self._run)
        size, since = self._published
        known = self._run.journal.stat().st_size == size and time.monotonic() - since < CHECK_EVERY_S
        if known and not always:
            return ""
        try:
            self._published = _publish_journal(self._run, self._open(url)), time.monotonic()
        except DrivenElsewhere:
            raise
        except UserError as e:
            return f"{e.what}; {e.fix}"
        return ""

    def _open(self, url: str) -> Storage:
        self._storage = self._storage or open_storage(url, self._patience_s)
        return self._storage


def keep_in(run: RunDir, base: str, created: float, cwd: Path) -> str:
    """The URL below `base` at which the run, created at Unix time `created`, is kept; what the trainer needs is there afterwards.

    A run that has a storage stays there, whatever `base` is. Harmless when it is repeated. StorageFailure when the storage cannot
    be written.
    """
    if not run.storage_url:
        write_json(run.storage, {"url": url_of_run(base, run.name, created)})
    storage = open_storage(run.storage_url)
    _require_kept(run, storage)
    _require_inputs(run, cwd)
    inputs.upload(run, recipe_of(run), cwd, storage)
    for name in _GIVEN:
        if (run.path / name).exists():
            own = (run.path / name).read_bytes()
            there = storage.read(_FOLDER + name)
            if there is None or there.data != own:
                storage.write(_FOLDER + name, own)
    return run.storage_url


def _require_inputs(run: RunDir, cwd: Path) -> None:
    """UserError for a file of the recipe that is neither below `cwd` nor in the storage: before machines are requested that would miss it."""
    uploaded = inputs.uploaded_keys(run)
    for key, value in inputs.named(recipe_of(run)).items():
        a_path = "/" in value or paths.looks_like_file(value)
        if (
            key not in uploaded
            and a_path
            and not (cwd / expanded(value)).exists()
            and paths.looks_like_path(value, cwd)
        ):
            raise paths.missing(key, value, cwd)


def look(run: RunDir) -> str:
    """Bring what is new for somebody who only wants to see it; what stood in the way, or ""."""
    try:
        return KeptRun(run, LOOK_PATIENCE_S).bring()
    except UserError as e:
        return f"{e.what}; {e.fix}"


def fetch(url: str, runs: Path) -> RunDir:
    """The run that is kept at `url`, in `runs` under its name; brought up to date if it is there already."""
    url = url.rstrip("/")
    url = url if "://" in url else os.path.abspath(url)  # other verbs and processes have other working directories
    run = RunDir(runs / name_of_run(url))
    storage = open_storage(url)
    if run.path.exists():
        if run.storage_url != url:
            what = f"{run.path} is another run than that in {url}"
            raise UserError(what, "type --runs DIR for another place", "other-run")
        there = _journal_in(storage, url)
        if not run.journal.read_bytes().startswith(there.data):
            write_json(run.storage, {"url": url, "observer": True})
        if observes(run):
            _bring_all(run, storage)
        else:
            records.bring(run, storage)
            process_files.bring(run, storage)
        return run
    _journal_in(storage, url)
    part = RunDir(runs / f".{run.name}.{os.getpid()}.part")
    shutil.rmtree(part.path, ignore_errors=True)
    part.path.mkdir(parents=True)
    try:
        write_json(part.storage, {"url": url, "observer": True})
        _bring_all(part, storage)
        part.path.rename(run.path)
    except OSError:
        if not run.journal.exists():
            raise
        return fetch(url, runs)  # another process was quicker
    finally:
        shutil.rmtree(part.path, ignore_errors=True)
    return run


def observes(run: RunDir) -> bool:
    """Whether this machine only observes `run`: it was fetched, or another machine has gone on with it. UserError as `RunDir.kept`."""
    return bool(run.kept.get("observer"))


def newest(run: RunDir) -> RunState:
    """The state of a run by the journal in its storage, whoever wrote it. StorageFailure; UserError for a journal that is damaged."""
    storage = open_storage(run.storage_url, END_PATIENCE_S)
    return journal.parse(_journal_in(storage, storage.url).data, f"{storage.url}/{_JOURNAL}")


def take_over(run: RunDir) -> None:
    """Let this machine act on a run that it observed: the storage's journal says so first. StorageFailure."""
    storage = open_storage(run.storage_url)
    url = run.storage_url
    line = json.dumps({"event": "taken over", "time": journal.now(), "machine": platform.node()}).encode() + b"\n"
    while True:
        there = _journal_in(storage, url)
        try:
            storage.write(_JOURNAL, there.data + line, there.generation)
            break
        except Conflict:
            continue  # the other machine wrote meanwhile
    _bring_all(run, storage)
    state = journal.read(run)
    if state.attempt > state.ended_attempt:
        run.attempt(state.attempt).mkdir(parents=True, exist_ok=True)  # else it would look as if it was never started
    write_json(run.storage, {"url": url})


def is_storage(path: Path) -> bool:
    """Whether a run is kept in the folder `path`."""
    return (path / _JOURNAL).is_file()


def _bring_all(run: RunDir, storage: Storage) -> None:
    """Everything that the storage has of a run; the journal comes last: what it tells of is here then."""
    there = _journal_in(storage, storage.url)
    records.bring(run, storage)
    if run.journal.exists() and run.journal.read_bytes() == there.data:
        return  # nothing but records is written without a line in the journal
    for name in _GIVEN:
        if (given := storage.read(_FOLDER + name)) is not None:
            (run.path / name).write_bytes(given.data)
    process_files.bring(run, storage)
    part = run.path / f"journal.{os.getpid()}.part"
    part.write_bytes(there.data)
    part.replace(run.journal)


def _journal_in(storage: Storage, url: str) -> Versioned:
    if (there := storage.read(_JOURNAL)) is None:
        raise UserError(
            f"there is no run in {url}", "check the URL: NAME-TAG below the storage of a target", "no-such-run"
        )
    return there


def _publish_journal(run: RunDir, storage: Storage) -> int:
    """The bytes of it that are there now. DrivenElsewhere when the journal there has lines that are not here."""
    while True:
        there = storage.read(_JOURNAL)
        own = run.journal.read_bytes()  # in this order: what another launcher here has published meanwhile is in it
        if there is not None and not own.startswith(there.data):
            raise DrivenElsewhere(run)
        if there is not None and there.data == own:
            return len(own)
        if there is None:
            _require_kept(run, storage)
        try:
            storage.write(_JOURNAL, own, there.generation if there else 0)
            return len(own)
        except Conflict:
            continue  # by another launcher here, or by another machine: the next look says which


def _require_kept(run: RunDir, storage: Storage) -> None:
    """StorageFailure if attempts were submitted, each after the recipe was written there, and the storage does not have it."""
    if journal.read(run).attempt and storage.read(f"{_FOLDER}recipe.json") is None:
        failure = gone(storage.url, "recipe")
        raise StorageFailure(failure.what, f"{failure.fix}, then type podwright resume {run.typed}", failure.cause)
